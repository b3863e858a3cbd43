// Sequences of tensors are lists that the reader keeps while it reads (repeat_interleave and split of
// torch.onnx make them): SplitToSequence becomes a Split, ConcatFromSequence a Concat, and what lies between
// leaves no node. A list's id is not one of the graph's values, so everything else must refuse it.
#include <algorithm>

#include "engine/base/text.h"
#include "engine/onnx/read/attributes.h"
#include "engine/onnx/read/node_reader.h"
#include "engine/ir/op.h"

namespace gradloom {

namespace {

constexpr std::size_t kMaxEntries = 10'000'000;  // of all lists together: an insertion is a new list

constexpr const char* kOperators[] = {"SequenceAt",      "SequenceConstruct", "SequenceEmpty",
                                      "SequenceErase",   "SequenceInsert",    "SequenceLength",
                                      "SplitToSequence", "ConcatFromSequence"};

// The integers of a constant, or null.
const Tensor* known_integers(const Graph& graph, ValueId id) {
  if (!graph.value(id).has_type || !is_constant(graph, id)) return nullptr;
  const Tensor& data = graph.value(id).data;
  return data.defined() && !is_float(data.dtype()) ? &data : nullptr;
}

}  // namespace

bool NodeReader::is_sequence_operator(const onnx::NodeProto& node) {
  return canonical_domain(node.domain()).empty() &&
         std::find(std::begin(kOperators), std::end(kOperators), node.op_type()) != std::end(kOperators);
}

Result<ValueId> NodeReader::add_sequence(Values values) {
  sequence_entries_ += values.size();
  if (sequence_entries_ > kMaxEntries)
    return Error{Errc::limit,
                 "the sequences of the model have more than " + std::to_string(kMaxEntries) + " tensors"};
  sequences_.push_back(std::move(values));
  return kFirstSequence + static_cast<ValueId>(sequences_.size() - 1);
}

// An operator of sequences, or Identity of one. What cannot be followed before running counts as unsupported.
Result<NodeReader::Values> NodeReader::read_sequence_operator(const onnx::NodeProto& node, const Site& site,
                                                              const Names& names, Attrs attrs) {
  not_followed_.clear();
  const Mark start = mark();
  const Result<ValueId> output = sequence_operator(node, site, resolve(node, names), attrs);
  const std::string reason = std::exchange(not_followed_, "");
  if (output.ok() && is_sequence(*output)) return Values{*output};
  if (output.ok()) return bind({*output}, output_names(node, names), site, start.first_value);
  if (reason.empty()) return output.error();
  take_back(start);
  report_unknown(node, site, reason);
  return opaque(node, site, names, std::move(attrs));
}

Result<ValueId> NodeReader::sequence_operator(const onnx::NodeProto& node, const Site& site,
                                              const Values& inputs, const Attrs& attrs) {
  const std::string& type = node.op_type();
  if (node.output_size() != 1 || node.output(0).empty()) return bad_input("has one output");
  if (std::count(inputs.begin(), inputs.end(), kNone) > 0) return bad_input("an input is missing");
  const auto expect = [&](std::size_t least, std::size_t most) -> Status {
    if (inputs.size() >= least && inputs.size() <= most) return {};
    return bad_input("has " + std::to_string(inputs.size()) + " inputs");
  };
  const bool makes = type == "SequenceConstruct" || type == "SequenceEmpty" || type == "SplitToSequence";
  const bool first_is_list = !inputs.empty() && is_sequence(inputs[0]);
  const auto lists = std::count_if(inputs.begin(), inputs.end(), [](ValueId id) { return is_sequence(id); });
  if (!makes && !first_is_list) return not_followed("its sequence is not known before running");
  if (lists > (makes ? 0 : 1)) return not_followed("a sequence of sequences");
  if (type == "SequenceEmpty") return add_sequence(Values{});
  if (type == "SequenceConstruct") return add_sequence(inputs);
  if (type == "SplitToSequence") {
    TRY(expect(1, 2));
    return split_to_sequence(site, inputs, attrs);
  }
  Values list = sequences_[inputs[0] - kFirstSequence];
  if (type == "Identity") return add_sequence(std::move(list));
  if (type == "SequenceLength")
    return builder_.constant(Tensor::from_i64({static_cast<std::int64_t>(list.size())}).reshaped({}));
  if (type == "ConcatFromSequence") return concat_from_sequence(site, list, attrs);

  const bool inserts = type == "SequenceInsert";
  TRY(expect(inserts || type == "SequenceAt" ? 2 : 1, inserts ? 3 : 2));
  const auto size = static_cast<std::int64_t>(list.size());
  std::int64_t position = inserts ? size : size - 1;
  if (inputs.size() > (inserts ? 2u : 1u)) {
    const Tensor* known = known_integers(out_.graph, inputs.back());
    if (known == nullptr || known->count() != 1)
      return not_followed("its position is not known before running");
    position = static_cast<std::int64_t>(known->at(0));
    if (position < 0) position += size;
  }
  if (position < 0 || position >= size + (inserts ? 1 : 0))
    return bad_input("position " + std::to_string(position) + " is outside of the " + std::to_string(size) +
                     " tensors");
  if (type == "SequenceAt") return list[static_cast<std::size_t>(position)];
  if (inserts) {
    list.insert(list.begin() + position, inputs[1]);
  } else {
    list.erase(list.begin() + position);
  }
  return add_sequence(std::move(list));
}

// Chunks of one size (the last may be smaller), or of given sizes; of size 1 without them, then keepdims = 0
// takes their axis away.
Result<ValueId> NodeReader::split_to_sequence(const Site& site, const Values& inputs, const Attrs& attrs) {
  if (!out_.graph.value(inputs[0]).has_type) return not_followed("the type of its input is not known");
  const Shape& shape = out_.graph.type(inputs[0]).shape;
  const std::int64_t axis = TRY(normalized_axis(attrs.integer("axis", 0), shape.size()));
  const std::int64_t length = shape[static_cast<std::size_t>(axis)];
  if (length < 0) return not_followed("the length it splits is a dimension without a number (--dim NAME=N)");
  std::vector<std::int64_t> sizes(inputs.size() == 1 ? static_cast<std::size_t>(length) : 0, 1);
  if (inputs.size() == 2) {
    const Tensor* split = known_integers(out_.graph, inputs[1]);
    if (split == nullptr) return not_followed("its sizes are not known before running");
    for (std::int64_t i = 0; i < split->count(); ++i)
      sizes.push_back(static_cast<std::int64_t>(split->at(i)));
    if (split->shape().empty()) {
      const std::int64_t chunk = sizes[0];
      if (chunk <= 0) return bad_input("chunks of " + std::to_string(chunk) + " elements");
      sizes.assign(static_cast<std::size_t>((length + chunk - 1) / chunk), chunk);
      if (!sizes.empty()) sizes.back() = length - chunk * static_cast<std::int64_t>(sizes.size() - 1);
    }
  }
  TRY(count_iterations(static_cast<std::int64_t>(sizes.size())));
  Values pieces{inputs[0]};
  if (sizes.size() != 1) {
    NewNode split{&op_by_name("Split"),
                  fresh_name(site.name + "/Split"),
                  {inputs[0], builder_.i64s(sizes)},
                  {},
                  {{"axis", axis}}};
    for (std::size_t i = 0; i < sizes.size(); ++i)
      split.outputs.push_back(fresh_name(split.name + ":" + std::to_string(i)));
    pieces = sizes.empty() ? Values{} : TRY(add_node(std::move(split)));
  }
  if (inputs.size() == 1 && attrs.integer("keepdims", 1) == 0)
    for (ValueId& piece : pieces) piece = TRY(add_part(site, "Squeeze", {piece, builder_.i64s({axis})}));
  return add_sequence(std::move(pieces));
}

Result<ValueId> NodeReader::concat_from_sequence(const Site& site, Values list, const Attrs& attrs) {
  if (list.empty()) return bad_input("the sequence is empty");
  const std::int64_t axis = attrs.integer("axis", 0);
  if (attrs.integer("new_axis", 0) != 0)
    for (ValueId& part : list) part = TRY(add_part(site, "Unsqueeze", {part, builder_.i64s({axis})}));
  return add_part(site, "Concat", std::move(list), {{"axis", axis}});
}

}  // namespace gradloom
