#include "engine/plan/micro_steps.h"

#include <algorithm>

#include "engine/ir/op.h"

namespace gradloom {
namespace {

// Whether the node adds to this input in its place.
bool adds_to(const Node& node, std::size_t input) {
  if (!node.op->has(kAccumulates)) return false;
  const auto pairs = node.op->aliases(node);
  return std::any_of(pairs.begin(), pairs.end(),
                     [&](const auto& pair) { return static_cast<std::size_t>(pair.second) == input; });
}

}  // namespace

std::vector<bool> once_per_step(const Graph& graph, const std::vector<NodeId>& order) {
  std::vector<bool> after(graph.values.size(), false), once(graph.nodes.size(), false);
  const bool accumulates = std::any_of(order.begin(), order.end(),
                                       [&](NodeId id) { return graph.nodes[id].op->has(kAccumulates); });
  for (const NodeId id : order) {
    const Node& node = graph.nodes[id];
    // What is updated is shared once, also by a rank that updates nothing.
    once[id] = accumulates && node.op->exchange == RankExchange::share;
    for (std::size_t i = 0; i < node.inputs.size(); ++i) {
      const ValueId in = node.inputs[i];
      once[id] = once[id] || (in != kNone && after[in] && !adds_to(node, i));
    }
    for (const ValueId out : node.outputs)
      if (out != kNone) after[out] = once[id] || node.op->has(kAccumulates);
  }
  return once;
}

}  // namespace gradloom
