#include "passes/padding_mask.h"

#include <algorithm>
#include <map>
#include <optional>
#include <set>
#include <utility>

#include "engine/base/hash.h"
#include "engine/ir/op.h"
#include "engine/ops/dims.h"
#include "passes/batch_axes.h"

namespace gradloom {
namespace {

constexpr std::int64_t kMostTried = 1 << 26;  // elements of an operand

bool is_attention(const Graph& graph, NodeId id) {
  const Node& node = graph.nodes[id];
  return is_op(node, "FusedAttention") ||
         (is_op(node, "Softmax") && graph.type(node.inputs[0]).shape.size() > 2);
}

// One value as the mask, tried at one node of attention after another.
class Trial {
 public:
  Trial(const Graph& graph, const std::vector<NodeId>& order, const BatchAxesFinder& axes, ValueId mask)
      : graph_(graph), axes_(axes), mask_(mask) {
    derived_.insert(mask);
    for (const NodeId id : order) {
      const Node& node = graph.nodes[id];
      bool any = false, whole = true;
      for (const ValueId in : node.inputs) {
        if (in == kNone) continue;
        any = any || derived_.count(in) != 0;
        whole = whole && (derived_.count(in) != 0 || graph.value(in).role == Role::constant);
      }
      if (any && whole) derived_.insert(node.outputs.begin(), node.outputs.end());
      if (any && !whole && !node.op->has(kElementwise) && !is_attention(graph, id)) also_read_ = true;
    }
    derived_.erase(kNone);
  }

  const std::set<ValueId>& derived() const { return derived_; }
  bool reaches(NodeId attention) {
    const std::vector<ValueId>& inputs = graph_.nodes[attention].inputs;
    return std::any_of(inputs.begin(), inputs.end(),
                       [&](ValueId in) { return in != kNone && reaches_value(in); });
  }

  // Whether the node leaves out the keys where the mask is 0 (inverted: not 0). Errors: what could not be tried. Layers
  // that are alike are tried once.
  Result<bool> leaves_out(NodeId attention, bool inverted) {
    std::string likeness = (inverted ? "inverted " : "") + likeness_of_node(attention);
    if (const auto found = tried_.find(likeness); found != tried_.end()) return found->second;
    const Result<bool> out = try_out(attention, inverted);
    tried_.emplace(std::move(likeness), out);
    return out;
  }

 private:
  Result<bool> try_out(NodeId attention, bool inverted) {
    known_.clear();
    known_[mask_] = probe(inverted);
    const Node& node = graph_.nodes[attention];
    const bool fused = is_op(node, "FusedAttention");
    const ValueId keys = fused ? node.inputs[2] : node.inputs[0];
    const std::optional<BatchAxes> axes = axes_.of(keys);
    if (!axes) return infer_error("its axes of batch and position are not known");
    for (const ValueId in : node.inputs)
      if (in != kNone && element_count(graph_.type(in).shape) > kMostTried)
        return infer_error("its operands are too large to try a mask");
    return fused ? values_do_not_matter(node, *axes, inverted)
                 : probabilities_are_zero(node, *axes, inverted);
  }

  // What a try computes, as text: operators and what they read, but for the names of random streams.
  std::string likeness_of_node(NodeId id) {
    const Node& node = graph_.nodes[id];
    Attrs attrs = node.attrs;
    attrs.erase("key");
    std::string text = node.op->name + to_string(attrs) + "(";
    for (const ValueId in : node.inputs) text += (in == kNone ? "-" : likeness_of_value(in)) + ",";
    return text + ")";
  }
  std::string likeness_of_value(ValueId v) {
    const Value& value = graph_.value(v);
    const std::optional<BatchAxes> axes = axes_.of(v);
    std::string text = to_string(value.type);
    if (axes) text += "@" + std::to_string(axes->batch) + "." + std::to_string(axes->position);
    if (derived_.count(v) != 0) return text + "#" + std::to_string(v);
    if (value.role == Role::constant)
      return text + "=" + hash_hex({static_cast<const char*>(value.data.data()), value.data.bytes()});
    return reaches_value(v) ? text + ":" + likeness_of_node(value.producer) : text;
  }

  const Shape& shape(ValueId v) const { return graph_.type(v).shape; }
  std::int64_t positions() const { return shape(mask_)[1]; }

  // A mask of 0 and 1, other integers too where something else reads them, such as the ids of tokens; every text has a
  // token at its first position.
  Tensor probe(bool inverted) const {
    const DType type = graph_.type(mask_).dtype;
    const bool many = also_read_ && type != DType::boolean && !is_float(type);
    std::vector<double> numbers;
    for (std::int64_t i = 0; i < element_count(shape(mask_)); ++i) {
      const std::int64_t text = i / positions(), position = i % positions();
      const std::int64_t other = many ? 1 + (i * 7 + text) % 5 : 1;
      const bool zero = position == 0 ? inverted : (i * 5 + text * 3) % 7 < 3;
      numbers.push_back(zero ? 0.0 : static_cast<double>(other));
    }
    return Tensor::from_f64(type, shape(mask_), numbers);
  }
  bool is_padding(std::int64_t text, std::int64_t position, bool inverted) const {
    return (known_.at(mask_).at(text * positions() + position) != 0) == inverted;
  }

  bool reaches_value(ValueId v) {
    const auto [found, fresh] = reaches_.try_emplace(v, false);
    if (!fresh) return found->second;
    bool any = derived_.count(v) != 0;
    const NodeId from = graph_.value(v).producer;
    if (!any && from != kNone && graph_.nodes[from].op->has(kElementwise))
      for (const ValueId in : graph_.nodes[from].inputs) any = any || (in != kNone && reaches_value(in));
    return reaches_[v] = any;
  }

  // Contents under the probe; 0 for what does not follow from it.
  Result<Tensor> value_of(ValueId v) {
    if (const auto found = known_.find(v); found != known_.end()) return found->second;
    const Value& value = graph_.value(v);
    if (value.role == Role::constant) return value.data;
    if (!reaches_value(v)) return Tensor(value.type.dtype, value.type.shape);
    if (element_count(value.type.shape) > kMostTried) return infer_error("a mask is too large to try");
    const Node& node = graph_.nodes[value.producer];
    std::vector<Tensor> inputs;
    for (const ValueId in : node.inputs) inputs.push_back(in == kNone ? Tensor() : TRY(value_of(in)));
    const std::vector<Tensor> outputs =
        TRY(evaluate(*node.op, node.attrs, inputs, static_cast<int>(node.outputs.size()), node.name));
    for (std::size_t i = 0; i < outputs.size(); ++i)
      if (node.outputs[i] != kNone) known_[node.outputs[i]] = outputs[i];
    return known_.at(v);
  }

  // Of the elements of a value: the index along one axis.
  struct Along {
    std::int64_t size, behind;
    std::int64_t operator()(std::int64_t i) const { return i / behind % size; }
  };
  static Along along(const Shape& shape, std::int64_t axis) {
    const auto at = static_cast<std::size_t>(axis);
    return {shape[at], dim_product(shape, at + 1, shape.size())};
  }

  Result<bool> probabilities_are_zero(const Node& node, const BatchAxes& axes, bool inverted) {
    const Tensor scores = TRY(value_of(node.inputs[0]));
    const auto rank = static_cast<std::int64_t>(scores.shape().size());
    const std::int64_t axis = TRY(normalized_axis(node.attrs.integer("axis", -1), scores.shape().size()));
    if (axis != rank - 1 || scores.shape().back() != positions())
      return infer_error("its last axis is not that of keys");
    const Tensor found = TRY(evaluate(*node.op, node.attrs, {scores}, 1, node.name))[0];
    const Along text = along(found.shape(), axes.batch);
    for (std::int64_t i = 0; i < found.count(); ++i)
      if (found.at(i) != 0 && is_padding(text(i), i % positions(), inverted)) return false;
    return true;
  }

  // Results stay the same whatever the values of such keys are.
  Result<bool> values_do_not_matter(const Node& node, const BatchAxes& axes, bool inverted) {
    std::vector<Tensor> inputs;
    for (std::size_t i = 0; i < node.inputs.size(); ++i)
      inputs.push_back(node.inputs[i] == kNone ? Tensor()
                       : i < 3 ? Tensor(graph_.type(node.inputs[i]).dtype, shape(node.inputs[i]))
                               : TRY(value_of(node.inputs[i])));
    const auto results = [&] {
      return evaluate(*node.op, node.attrs, inputs, static_cast<int>(node.outputs.size()), node.name);
    };
    const Tensor plain = TRY(results())[0];
    const Along text = along(inputs[2].shape(), axes.batch),
                position = along(inputs[2].shape(), axes.position);
    std::vector<double> values;
    for (std::int64_t i = 0; i < inputs[2].count(); ++i)
      values.push_back(is_padding(text(i), position(i), inverted) ? 1 : 0);
    inputs[2] = Tensor::from_f64(inputs[2].dtype(), inputs[2].shape(), values);
    return bit_equal(plain, TRY(results())[0]);
  }

  const Graph& graph_;
  const BatchAxesFinder& axes_;
  const ValueId mask_;
  std::set<ValueId> derived_;  // from the mask and constants alone
  bool also_read_ = false;     // something computes with its numbers
  std::map<ValueId, bool> reaches_;
  std::map<std::string, Result<bool>> tried_;  // by what was tried
  std::map<ValueId, Tensor> known_;
};

PaddingMask none(std::string why, NodeId at) { return {kNone, false, std::move(why), at}; }

// Both ways round, at all attention; the reason where neither is what it leaves out.
PaddingMask tried(const Graph& graph, Trial& trial, ValueId mask, const std::vector<NodeId>& attention) {
  PaddingMask failed =
      none("it leaves out other keys than those where '" + graph.value(mask).name + "' is 0", kNone);
  for (const bool inverted : {false, true}) {
    NodeId stays = kNone;
    for (const NodeId id : attention) {
      const Result<bool> out = trial.leaves_out(id, inverted);
      if (!out) return none(out.error().message, id);
      if (*out) continue;
      stays = id;
      break;
    }
    if (stays == kNone) return {mask, inverted};
    if (!inverted) failed.at = stays;
  }
  return failed;
}

// The input, or what follows from it; nothing at all where no attention has to do with it.
PaddingMask mask_from(const Graph& graph, const std::vector<NodeId>& order,
                      const std::vector<NodeId>& attention, ValueId input) {
  const BatchAxesFinder axes(graph, order, graph.type(input).shape);
  Trial first(graph, order, axes, input);
  if (std::none_of(attention.begin(), attention.end(), [&](NodeId id) { return first.reaches(id); }))
    return {};
  for (const NodeId id : attention)
    if (!first.reaches(id)) return none("'" + graph.value(input).name + "' leaves nothing out here", id);
  std::vector<ValueId> candidates{input};
  for (const NodeId id : order)
    for (const ValueId out : graph.nodes[id].outputs)
      if (out != kNone && first.derived().count(out) != 0 && graph.type(out).shape == graph.type(input).shape)
        candidates.push_back(out);
  std::optional<PaddingMask> why;
  for (const ValueId candidate : candidates) {
    Trial trial(graph, order, axes, candidate);
    PaddingMask found = tried(graph, trial, candidate, attention);
    if (found.value != kNone) return found;
    if (!why) why = std::move(found);
  }
  return *why;
}

}  // namespace

PaddingMask find_padding_mask(const Graph& graph, const std::vector<NodeId>& order, const std::string& name) {
  std::vector<NodeId> attention;
  for (const NodeId id : order)
    if (is_attention(graph, id)) attention.push_back(id);
  if (attention.empty()) return none("there is no attention", order.empty() ? kNone : order.front());
  std::vector<PaddingMask> found;
  std::optional<PaddingMask> why;
  for (const ValueId input : graph.inputs) {
    const Value& value = graph.value(input);
    if (value.role != Role::input || value.type.shape.size() != 2 || !is_static(value.type.shape)) continue;
    if (!name.empty() && value.name != name) continue;
    PaddingMask mask = mask_from(graph, order, attention, input);
    if (mask.value != kNone)
      found.push_back(mask);
    else if (mask.at != kNone)
      why = std::move(mask);
  }
  if (found.size() == 1) return found[0];
  if (found.size() > 1)
    return none("several inputs say what it leaves out (option mask names one)", attention[0]);
  if (why) return *why;
  return none("no input " + (name.empty() ? "" : "'" + name + "' ") + "of [batch, position] masks attention",
              attention[0]);
}

}  // namespace gradloom
