#include "passes/fusion.h"

#include <algorithm>
#include <map>

#include "engine/ir/op.h"

namespace gradloom {
namespace {

// Near misses by the node with the key operator: the attempt that matched most nodes.
struct NearMiss {
  std::string rule, why;
  std::size_t matched_nodes = 0;
};
using NearMisses = std::map<NodeId, NearMiss>;

void note_near_miss(const Graph& graph, const FusionRule& rule, const std::vector<NodeId>& nodes,
                    const std::string& why, NearMisses& misses) {
  for (NodeId id : nodes) {
    if (std::string(rule.key_op) != graph.nodes[id].op->name) continue;
    NearMiss& miss = misses[id];
    if (nodes.size() > miss.matched_nodes) miss = {rule.name, why, nodes.size()};
  }
}

}  // namespace

Status run_fusion(Rewriter& rw, std::span<const FusionRule> rules) {
  const std::vector<NodeId> order = TRY(topological_order(rw.graph()));
  NearMisses misses;
  for (const FusionRule& rule : rules) {
    for (NodeId id : order) {
      if (!rw.graph().nodes[id].alive()) continue;
      Match match;
      Mismatch mismatch;
      if (!rule.pattern.match(rw.graph(), id, match, &mismatch)) {
        note_near_miss(rw.graph(), rule, mismatch.nodes, mismatch.why, misses);
        continue;
      }
      std::string why;
      if (!only_used_inside(rw, match, &why)) {
        note_near_miss(rw.graph(), rule, match.nodes, why, misses);
        continue;
      }
      if (!rw.allowed(rule.name, id, match.nodes)) continue;
      why = rule.apply(rw, match);
      if (!why.empty()) note_near_miss(rw.graph(), rule, match.nodes, why, misses);
    }
  }
  for (const auto& [id, miss] : misses) {
    if (rw.graph().nodes[id].alive()) rw.reject(miss.rule, id, miss.why);
  }
  return {};
}

MeanAxes mean_axes(const Graph& graph, ValueId mean) {
  const Node& node = graph.nodes[graph.values[mean].producer];
  std::vector<std::int64_t> axes = node.attrs.integers("axes");
  if (node.inputs.size() > 1 && node.inputs[1] != kNone)
    axes = is_constant(graph, node.inputs[1]) ? graph.values[node.inputs[1]].data.to_i64() : decltype(axes){};
  if (axes.empty() || node.attrs.integer("keepdims", 1) != 1)
    return {{}, "the means' axes are unknown or not kept as size 1"};
  const auto rank = static_cast<std::int64_t>(graph.type(node.inputs[0]).shape.size());
  for (std::int64_t& axis : axes) axis += axis < 0 ? rank : 0;
  std::sort(axes.begin(), axes.end());
  for (std::size_t i = 0; i < axes.size(); ++i)
    if (axes[i] != rank - static_cast<std::int64_t>(axes.size() - i))
      return {axes, "the axes are not the last ones"};
  return {axes, ""};
}

}  // namespace gradloom
