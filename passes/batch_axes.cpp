#include "passes/batch_axes.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "engine/ir/op.h"
#include "engine/ops/dims.h"
#include "passes/product.h"

namespace gradloom {
namespace {

constexpr BatchAxes kLeading{};

bool keeps_axes(const Node& node) {
  for (const char* op :
       {"LayerNormalization", "RMSNormalization", "Softmax", "Dropout", "FusedAttention", "Split", "Concat"})
    if (is_op(node, op)) return true;
  return node.op->has(kView) && !node.op->has(kReshapes);
}

}  // namespace

BatchAxesFinder::BatchAxesFinder(const Graph& graph, const std::vector<NodeId>& order, Shape dims)
    : graph_(graph), dims_(std::move(dims)) {
  for (const ValueId input : graph.inputs)
    if (graph.value(input).role == Role::input && has_dims(input)) axes_[input] = kLeading;
  for (const NodeId id : order) {
    const std::optional<BatchAxes> axes = axes_of(graph.nodes[id]);
    if (!axes) continue;
    for (const ValueId out : graph.nodes[id].outputs)
      if (out != kNone && fits(out, *axes)) axes_[out] = *axes;
  }
}

std::optional<BatchAxes> BatchAxesFinder::of(ValueId v) const {
  const auto found = axes_.find(v);
  return found == axes_.end() ? std::nullopt : std::optional(found->second);
}
bool BatchAxesFinder::leads(ValueId v) const { return of(v) == kLeading; }
bool BatchAxesFinder::has_dims(ValueId v) const { return v != kNone && fits(v, kLeading); }

bool BatchAxesFinder::fits(ValueId v, const BatchAxes& axes) const {
  const Shape& s = shape(v);
  const auto dim = [&](std::int64_t axis) { return s[static_cast<std::size_t>(axis)]; };
  return is_static(s) && axes.batch < rank(v) && axes.position < rank(v) && dim(axes.batch) == dims_[0] &&
         dim(axes.position) == dims_[1];
}

std::optional<BatchAxes> BatchAxesFinder::axes_of(const Node& node) const {
  if (node.inputs.empty() || node.outputs.empty() || node.outputs[0] == kNone) return std::nullopt;
  const auto first = node.inputs[0] == kNone ? std::nullopt : of(node.inputs[0]);
  if (node.op->has(kElementwise) || node.op->has(kPointwise)) return broadcast(node);
  if (is_op(node, "Gather")) return gathered(node);
  if (is_op(node, "MatMul")) return product(node, first);
  if (is_op(node, "Transpose")) return first ? transposed(node, *first) : std::nullopt;
  if (!first) return std::nullopt;
  return node.op->has(kView) && node.op->has(kReshapes) ? reshaped(node, *first)
         : keeps_axes(node)                             ? first
                                                        : std::nullopt;
}

// Those of the largest operand: a mask's positions, say, are those of keys, and the scores' of queries.
std::optional<BatchAxes> BatchAxesFinder::broadcast(const Node& node) const {
  std::optional<BatchAxes> found;
  std::int64_t largest = 0;
  for (const ValueId in : node.inputs) {
    const std::optional<BatchAxes> axes = in == kNone ? std::nullopt : of(in);
    if (!axes) continue;
    const std::int64_t more = rank(node.outputs[0]) - rank(in), count = element_count(shape(in));
    const BatchAxes there{axes->batch + more, axes->position + more};
    if (count == largest && found != there) return std::nullopt;
    if (count > largest) found = there;
    largest = std::max(largest, count);
  }
  return found;
}

// Rows of a table, by indices with the axes, or one index of another axis.
std::optional<BatchAxes> BatchAxesFinder::gathered(const Node& node) const {
  const std::optional<BatchAxes> data = of(node.inputs[0]);
  std::int64_t axis = node.attrs.integer("axis");
  if (!data) return axis == 0 ? of(node.inputs[1]) : std::nullopt;
  if (axis < 0) axis += rank(node.inputs[0]);
  if (rank(node.inputs[1]) != 0 || axis == data->batch || axis == data->position) return std::nullopt;
  return BatchAxes{data->batch - (axis < data->batch), data->position - (axis < data->position)};
}

// An axis is still there where one of its size has as many elements behind it.
std::optional<BatchAxes> BatchAxesFinder::reshaped(const Node& node, const BatchAxes& axes) const {
  const Shape &from = shape(node.inputs[0]), &to = shape(node.outputs[0]);
  if (!is_static(from) || !is_static(to)) return std::nullopt;
  const auto behind = [](const Shape& s, std::size_t axis) { return dim_product(s, axis + 1, s.size()); };
  const auto now = [&](std::int64_t axis) {
    const auto own = static_cast<std::size_t>(axis);
    for (std::size_t d = 0; d < to.size(); ++d)
      if (to[d] == from[own] && behind(to, d) == behind(from, own)) return std::int64_t(d);
    return std::int64_t{-1};
  };
  const BatchAxes found{now(axes.batch), now(axes.position)};
  return found.batch < 0 || found.position < 0 || found.batch == found.position ? std::nullopt
                                                                                : std::optional(found);
}

std::optional<BatchAxes> BatchAxesFinder::product(const Node& node, std::optional<BatchAxes> a) const {
  if (!a || rank(node.inputs[0]) < 2 || rank(node.inputs[0]) < rank(node.inputs[1])) return std::nullopt;
  const std::int64_t summed = rank(node.inputs[0]) - 1;
  return a->batch != summed && a->position != summed ? a : std::nullopt;
}

std::optional<BatchAxes> BatchAxesFinder::transposed(const Node& node, const BatchAxes& axes) const {
  const Perm perm = perm_of_transpose(graph_, node);
  const auto now = [&](std::int64_t axis) {
    return std::int64_t(std::find(perm.begin(), perm.end(), axis) - perm.begin());
  };
  return BatchAxes{now(axes.batch), now(axes.position)};
}

}  // namespace gradloom
