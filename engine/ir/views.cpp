#include "engine/ir/views.h"

#include "engine/ir/op.h"

namespace gradloom {

ValueId behind_views(const Graph& graph, ValueId v) {
  for (NodeId node = graph.values[v].producer; node != kNone && graph.nodes[node].op->has(kView);
       node = graph.values[v].producer)
    v = graph.nodes[node].inputs[0];
  return v;
}

}  // namespace gradloom
