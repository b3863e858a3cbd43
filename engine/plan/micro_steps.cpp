#include "engine/plan/micro_steps.h"

#include <algorithm>
#include <utility>

#include "engine/ir/op.h"

namespace gradloom {
namespace {

using Alias = std::pair<int, int>;  // output, input

// Whether the node adds up in the place of this input, or of this output.
bool adds_up(const Node& node, int Alias::*side, std::size_t number) {
  if (!node.op->has(kAccumulates)) return false;
  const auto pairs = node.op->aliases(node);
  return std::any_of(pairs.begin(), pairs.end(),
                     [&](const Alias& pair) { return static_cast<std::size_t>(pair.*side) == number; });
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
      once[id] = once[id] || (in != kNone && after[in] && !adds_up(node, &Alias::second, i));
    }
    for (std::size_t i = 0; i < node.outputs.size(); ++i)
      if (node.outputs[i] != kNone) after[node.outputs[i]] = once[id] || adds_up(node, &Alias::first, i);
  }
  return once;
}

}  // namespace gradloom
