#include "passes/given_gradients.h"

#include <algorithm>

#include "engine/ir/op.h"

namespace gradloom {

Status remove_given_gradients(Graph& graph) {
  const auto given = [](const Node& node) { return is_op(node, "GivenGradient"); };
  if (std::none_of(graph.nodes.begin(), graph.nodes.end(), given)) return {};
  Rewriter rw(graph, "given-gradients");
  for (NodeId id = 0; id < graph.nodes.size(); ++id) {
    if (!given(graph.nodes[id])) continue;
    ValueId y = graph.nodes[id].inputs[0];
    if (const NodeId stop = graph.values[y].producer;
        stop != kNone && is_op(graph.nodes[stop], "StopGradient"))
      y = graph.nodes[stop].inputs[0];
    const ValueId result = graph.nodes[id].outputs[0];
    rw.begin("given-gradient", id, {id});
    rw.replace(result, y);
    rw.commit();
  }
  return remove_unneeded(rw, "stood for a gradient");
}

}  // namespace gradloom
