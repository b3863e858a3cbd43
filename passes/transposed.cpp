#include "passes/transposed.h"

#include <algorithm>
#include <string_view>

#include "engine/ir/op.h"
#include "engine/ops/dims.h"
#include "engine/ops/inference.h"

namespace gradloom {
namespace {

bool is_reduction(const Node& node) {
  const std::string_view name = node.op->name;
  return *node.op->domain == '\0' && name.substr(0, 6) == "Reduce";
}
bool is_softmax(const Node& node) {
  return ((is_op(node, "Softmax") || is_op(node, "LogSoftmax")) && node.op->since >= 13) ||
         (is_op(node, "SoftmaxGrad") && node.attrs.integer("flatten") == 0);
}

// One element, of no more dims than its reader has: the same in every order of them.
bool is_single(const Graph& graph, ValueId v) {
  const Shape& shape = graph.type(v).shape;
  return std::all_of(shape.begin(), shape.end(), [](std::int64_t d) { return d == 1; });
}

// Operands that are broadcast, where their dims can be renamed without moving data.
std::string straighten_elementwise(const Graph& graph, const Node& node, const Perm& perm,
                                   StraightNode& straight) {
  const Shape& result = graph.type(node.outputs[0]).shape;
  const Perm back = inverse(perm);
  for (std::size_t i = 0; i < node.inputs.size(); ++i) {
    const ValueId in = node.inputs[i];
    Shape shape = graph.type(in).shape;
    if (is_single(graph, in) || shape == result) continue;
    shape.insert(shape.begin(), result.size() - shape.size(), 1);
    if (!moves_nothing(shape, back))
      return "node " + node.name + " broadcasts " + graph.values[in].name + ", whose dims would move";
    straight.views[i] = permuted(shape, back);
  }
  return "";
}

std::string straighten_softmax(const Graph& graph, const Node& node, const Perm& perm,
                               StraightNode& straight) {
  const auto rank = static_cast<std::int64_t>(graph.type(node.outputs[0]).shape.size());
  const auto axis = normalized_axis(node.attrs.integer("axis", -1), static_cast<std::size_t>(rank));
  if (!axis.ok()) return axis.error().message;
  const std::int64_t before = perm[static_cast<std::size_t>(*axis)];
  if (*axis == rank - 1 && before != rank - 1) return "node " + node.name + " would leave the last dim";
  straight.attrs.set("axis", before);
  return "";
}

std::string straighten_pad(const Graph& graph, const Node& node, const Perm& perm, StraightNode& straight) {
  const std::size_t rank = perm.size();
  const bool known = node.inputs.size() > 1 && graph.values[node.inputs[1]].data.defined() &&
                     graph.values[node.inputs[1]].data.count() == static_cast<std::int64_t>(2 * rank);
  if (!known || (node.inputs.size() > 3 && node.inputs[3] != kNone))
    return "the pads of node " + node.name + " are not known for each dim";
  std::vector<std::int64_t> pads(2 * rank);
  for (std::size_t i = 0; i < 2 * rank; ++i)
    pads[static_cast<std::size_t>(perm[i % rank]) + i / rank * rank] =
        static_cast<std::int64_t>(graph.values[node.inputs[1]].data.at(static_cast<std::int64_t>(i)));
  straight.numbers[1] = pads;
  return "";
}

}  // namespace

bool moves_nothing(const Shape& shape, const Perm& perm) {
  std::int64_t last = -1;
  for (const std::int64_t axis : perm) {
    if (shape[static_cast<std::size_t>(axis)] == 1) continue;
    if (axis < last) return false;
    last = axis;
  }
  return true;
}

std::vector<std::size_t> turned_operands(const Graph& graph, const Node& node) {
  std::vector<std::size_t> operands;
  if (node.op->has(kElementwise)) {
    const Shape& result = graph.type(node.outputs[0]).shape;
    for (std::size_t i = 0; i < node.inputs.size(); ++i)
      if (graph.type(node.inputs[i]).shape == result && !is_single(graph, node.inputs[i]))
        operands.push_back(i);
  } else if (is_op(node, "Concat")) {
    for (std::size_t i = 0; i < node.inputs.size(); ++i) operands.push_back(i);
  } else if (is_softmax(node)) {
    operands = is_op(node, "SoftmaxGrad") ? std::vector<std::size_t>{0, 1} : std::vector<std::size_t>{0};
  } else if (is_op(node, "Pad") || (is_reduction(node) && node.attrs.integer("keepdims", 1) != 0)) {
    operands = {0};
  }
  return operands;
}

std::string straighten(const Graph& graph, const Node& node, const Perm& perm, StraightNode& straight) {
  straight = {node.attrs};
  if (node.op->has(kElementwise)) return straighten_elementwise(graph, node, perm, straight);
  if (is_softmax(node)) return straighten_softmax(graph, node, perm, straight);
  if (is_op(node, "Pad")) return straighten_pad(graph, node, perm, straight);
  if (is_reduction(node)) return straighten_reduction(graph, node, perm, straight);
  const auto axis = normalized_axis(node.attrs.integer("axis"), perm.size());  // Concat
  if (!axis.ok()) return axis.error().message;
  straight.attrs.set("axis", perm[static_cast<std::size_t>(*axis)]);
  return "";
}

std::string straighten_reduction(const Graph& graph, const Node& node, const Perm& perm,
                                 StraightNode& straight) {
  straight = {node.attrs};
  if (!is_reduction(node)) return "node " + node.name + " is no reduction";
  const bool as_input = node.inputs.size() > 1 && node.inputs[1] != kNone;
  std::vector<std::int64_t> axes = node.attrs.integers("axes");
  if (as_input) {
    const Tensor& known = graph.values[node.inputs[1]].data;
    for (std::int64_t i = 0; i < known.count(); ++i) axes.push_back(static_cast<std::int64_t>(known.at(i)));
  }
  if (axes.empty()) return "node " + node.name + " names no axes";
  const auto all = normalized_axes(axes, perm.size());
  if (!all.ok()) return all.error().message;
  std::vector<std::int64_t> before;
  for (const std::int64_t axis : *all) before.push_back(perm[static_cast<std::size_t>(axis)]);
  std::sort(before.begin(), before.end());
  if (as_input)
    straight.numbers[1] = before;
  else
    straight.attrs.set("axes", before);
  return "";
}

Perm perm_of_rest(const Node& node, const Perm& perm, const StraightNode& straight) {
  if (node.attrs.integer("keepdims", 1) != 0) return perm;
  const auto at = straight.numbers.find(1);
  const std::vector<std::int64_t> axes =
      at != straight.numbers.end() ? at->second : straight.attrs.integers("axes");
  Perm rest;
  for (const std::int64_t axis : perm) {
    if (std::find(axes.begin(), axes.end(), axis) != axes.end()) continue;
    rest.push_back(axis - std::count_if(axes.begin(), axes.end(), [&](std::int64_t a) { return a < axis; }));
  }
  return rest;
}

ValueId build_straight(GraphBuilder& b, const Node& node, const StraightNode& straight,
                       const std::map<std::size_t, ValueId>& operands) {
  std::vector<ValueId> inputs = node.inputs;
  for (const auto& [i, shape] : straight.views) inputs[i] = b.reshape(inputs[i], shape);
  for (const auto& [i, numbers] : straight.numbers) inputs[i] = b.i64s(numbers);
  for (const auto& [i, operand] : operands) inputs[i] = operand;
  return b.op(*node.op, std::move(inputs), straight.attrs);
}

}  // namespace gradloom
