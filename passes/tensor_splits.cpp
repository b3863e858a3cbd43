#include "passes/tensor_splits.h"

#include <algorithm>
#include <iterator>

#include "engine/base/text.h"
#include "engine/ir/op.h"

namespace gradloom {
namespace {

bool same_for_all(const Tensor& constant, const ParameterPart& part) {
  const Result<Tensor> first = cut_part(constant, part, 0);
  for (std::int64_t number = 1; number < part.parts && first.ok(); ++number) {
    const Result<Tensor> other = cut_part(constant, part, number);
    if (!other.ok() || !bit_equal(*first, *other)) return false;
  }
  return first.ok();
}

}  // namespace

const TensorSplit* TensorRegion::split(ValueId id) const {
  const auto found = splits_.find(id);
  return found == splits_.end() ? nullptr : &found->second;
}

Shape TensorRegion::part_shape(ValueId id) const {
  Shape shape = graph().type(id).shape;
  const TensorSplit* const s = split(id);
  if (s == nullptr) return shape;
  std::int64_t& dim = shape[static_cast<std::size_t>(s->axis)];
  dim = part_of_dim(dim, ranks_);
  return shape;
}

std::string TensorRegion::keep_whole(ValueId id) {
  if (id == kNone) return "";
  whole_.insert(id);
  if (splits_.count(id) == 0) return "";
  return "'" + graph().values[id].name + "' would be split and is needed whole";
}

std::string TensorRegion::set(ValueId id, TensorSplit split) {
  const Value& value = graph().values[id];
  const std::string called = "'" + value.name + "'";
  if (const TensorSplit* const known = this->split(id))
    return *known == split ? "" : called + " would be split in two ways";
  if (whole_.count(id) != 0) return called + " would be split and is needed whole";
  const std::int64_t dim = value.type.shape[static_cast<std::size_t>(split.axis)];
  if (dim == 0) return called + " is empty";
  if (dim % (split.groups * ranks_) != 0)
    if (std::string why = pad(value, split); !why.empty()) return why;
  if (parts_.count(id) != 0) return called + " is split already";
  const bool leaves = value.role == Role::parameter
                          ? std::any_of(graph().outputs.begin(), graph().outputs.end(),
                                        [&](ValueId out) { return out == id; })
                          : rw_.is_output(id);
  if (leaves) return called + " leaves the graph";
  if (value.producer == kNone && value.role != Role::parameter && value.role != Role::constant)
    return called + " is no result of the model";
  if (value.role == Role::constant && !same_for_all(value.data, {split.axis, split.groups, ranks_}))
    return called + " is a constant of which ranks would need different parts";
  splits_.emplace(id, split);
  if (value.producer != kNone) open_.push_back(value.producer);
  for (const Use& use : rw_.uses(id)) open_.push_back(use.node);
  return "";
}

// Parts of other sizes than the ranks divide are filled up.
std::string TensorRegion::pad(const Value& value, TensorSplit split) {
  const std::int64_t dim = value.type.shape[static_cast<std::size_t>(split.axis)];
  const std::string why = "dim " + std::to_string(split.axis) + " of '" + value.name + "', " +
                          std::to_string(dim / split.groups) + ", is no multiple of " +
                          std::to_string(ranks_);
  if (split.groups != 1 || value.role == Role::constant || part_of_dim(dim, ranks_) == 0) return why;
  if (padded_ == 0) why_padded_ = why;
  padded_ = dim;
  return "";
}

// Whether what is behind the last part's rows or classes is 0 everywhere, and gets gradients of 0: of an embedding and the head of a vocabulary, where
// nothing but sums and factors is on the way to the loss.
bool TensorRegion::may_be_padded() const {
  for (const auto& [id, s] : splits_)
    if (s.groups != 1 || graph().type(id).shape[static_cast<std::size_t>(s.axis)] != padded_) return false;
  for (const NodeId id : nodes_) {
    const Node& node = graph().nodes[id];
    const bool ends = ends_.count(id) != 0;
    if (ends && (is_op(node, "MatMul") || is_op(node, "Gemm"))) return false;
    if (ends && !is_op(node, "Gather") && graph().type(node.inputs[0]).shape.size() != 2) return false;
    if (ends || node.op->has(kView)) continue;
    constexpr const char* kKeepZeros[] = {"MatMul", "Gemm", "Transpose", "Cast",
                                          "Mul",    "Add",  "Gather",    "Slice"};
    if (std::none_of(std::begin(kKeepZeros), std::end(kKeepZeros),
                     [&](const char* op) { return is_op(node, op); }))
      return false;
    if (is_op(node, "Gemm") && node.inputs.size() > 2 && node.inputs[2] != kNone &&
        split(node.inputs[2]) == nullptr)
      return false;
    if (is_op(node, "Add") && (split(node.inputs[0]) == nullptr || split(node.inputs[1]) == nullptr))
      return false;
  }
  return true;
}

std::string TensorRegion::grow(NodeId product, std::int64_t groups) {
  const Node& first = graph().nodes[product];
  const auto last = static_cast<std::int64_t>(graph().type(first.outputs[0]).shape.size()) - 1;
  if (std::string why = set(first.outputs[0], {last, groups}); !why.empty()) return why;
  return spread();
}

std::string TensorRegion::grow_rows(NodeId gather) {
  const std::string why = set(graph().nodes[gather].inputs[0], {0, 1});
  return why.empty() ? spread() : why;
}

bool TensorRegion::read_by(ValueId id, const char* op) const {
  const std::vector<Use>& uses = rw_.uses(id);
  return !rw_.is_output(id) && std::all_of(uses.begin(), uses.end(), [&](const Use& use) {
    return use.input_index == 0 && is_op(graph().nodes[use.node], op);
  });
}

std::string TensorRegion::spread() {
  while (!open_.empty()) {
    const NodeId id = open_.back();
    open_.pop_back();
    const Node& node = graph().nodes[id];
    const bool known = std::all_of(node.outputs.begin(), node.outputs.end(), [&](ValueId out) {
      return out == kNone || (graph().values[out].data.defined() && split(out) == nullptr);
    });
    (known ? known_ : nodes_).insert(id);
    if (known) continue;
    if (!shapes_known(graph(), node)) return "sizes of '" + node.name + "' are not known";
    if (std::string why = spread_split(*this, id); !why.empty())
      return why + " (" + node.op->name + " '" + node.name + "')";
  }
  if (ends_.empty()) return "nothing adds the parts up";
  if (padded_ == 0 || (fills_up_ && may_be_padded())) return "";
  return why_padded_ + (may_be_padded() ? kNotFilledUp : "");
}

}  // namespace gradloom
