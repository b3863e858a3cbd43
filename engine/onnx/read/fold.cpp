#include "engine/onnx/read/fold.h"

#include <algorithm>
#include <string_view>

#include "engine/ir/op.h"

namespace gradloom {

namespace {

// Index arithmetic takes far less than the limits; a file that asks for more is left to the run, where memory
// and time are accounted for.
constexpr double kTotalBytesFactor = 2;

}  // namespace

Status Folder::fold(NodeId id) {
  const Node& node = graph_.node(id);
  if (node.op->has(kShapeOnly) && fold_shape(node)) return {};
  if (node.op->has(kRandom) || (node.op->cpu == nullptr && !node.op->has(kView))) return {};
  for (const ValueId input : node.inputs) {
    if (input != kNone && !is_constant(graph_, input)) return {};
  }
  if (!affordable(node)) return {};
  std::vector<Tensor> inputs;
  for (const ValueId input : node.inputs)
    inputs.push_back(input == kNone ? Tensor() : graph_.value(input).data);
  const Result<std::vector<Tensor>> outputs =
      evaluate(*node.op, node.attrs, inputs, static_cast<int>(node.outputs.size()), node.name);
  if (!outputs.ok()) {
    // Without a kernel for these types the values stay unknown; anything else is wrong with the model itself.
    return outputs.error().code == Errc::device ? Status{} : Status{outputs.error()};
  }
  for (std::size_t i = 0; i < node.outputs.size() && i < outputs->size(); ++i) {
    if (node.outputs[i] == kNone) continue;
    graph_.values[node.outputs[i]].type = (*outputs)[i].type();
    graph_.values[node.outputs[i]].data = (*outputs)[i];
  }
  return {};
}

// Shape and Size need the type of their input, not its contents.
bool Folder::fold_shape(const Node& node) {
  const Shape& shape = graph_.type(node.inputs[0]).shape;
  if (!is_static(shape)) return false;
  Value& output = graph_.values[node.outputs[0]];
  if (std::string_view(node.op->name) == "Size") {
    const Result<std::int64_t> count = checked_element_count(shape, 1);
    if (!count.ok()) return false;
    output.data = Tensor::from_i64({*count}).reshaped({});
    return true;
  }
  const auto rank = static_cast<std::int64_t>(shape.size());
  const auto clamped = [&](std::int64_t axis) {
    return std::clamp<std::int64_t>(axis < 0 ? axis + rank : axis, 0, rank);
  };
  const std::int64_t start = clamped(node.attrs.integer("start", 0));
  const std::int64_t end = std::max(start, clamped(node.attrs.integer("end", rank)));
  output.data = Tensor::from_i64({shape.begin() + start, shape.begin() + end});
  return true;
}

bool Folder::affordable(const Node& node) {
  double output_bytes = 0;
  for (const ValueId output : node.outputs) {
    if (output == kNone) continue;
    const Type& type = graph_.type(output);
    if (!is_static(type.shape) || !checked_element_count(type.shape, dtype_bytes(type.dtype)).ok())
      return false;
    output_bytes += static_cast<double>(byte_size(type));
  }
  const Cost cost = node.op->cost(node_types(graph_, node));
  const double work = cost.flops + cost.bytes_read + cost.bytes_written;
  const auto limit_bytes = static_cast<double>(limits_.folded_bytes);
  if (output_bytes > limit_bytes || bytes_ + output_bytes > kTotalBytesFactor * limit_bytes ||
      work_ + work > static_cast<double>(limits_.folded_work)) {
    ++skipped_;
    return false;
  }
  bytes_ += output_bytes;
  work_ += work;
  return true;
}

Status Folder::examine(const OpDef& op, const std::vector<ValueId>& inputs) {
  const auto examined = [&](std::size_t slot) -> std::int64_t {
    const ValueId input = slot < inputs.size() ? inputs[slot] : kNone;
    return input != kNone && is_constant(graph_, input) ? graph_.value(input).data.count() : 0;
  };
  for (const InputRole& role : op.roles)
    if (role.examined) examined_ += examined(role.input);
  if (examined_ <= limits_.examined_elements) return {};
  return Error{Errc::limit, "inference would look at more than " + std::to_string(limits_.examined_elements) +
                                " elements of constants" + raised_by("examined_elements")};
}

}  // namespace gradloom
