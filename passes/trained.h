// What is computed from something that has a gradient: parameters that are trained, inputs whose gradient is a result.
#pragma once

#include <vector>

#include "engine/ir/graph.h"

namespace gradloom {

inline bool depends_on_trained(const Graph& graph, ValueId id) {
  std::vector<bool> seen(graph.values.size(), false);
  std::vector<ValueId> open = {id};
  while (!open.empty()) {
    const ValueId at = open.back();
    open.pop_back();
    if (at == kNone || seen[at]) continue;
    seen[at] = true;
    if (is_trained(graph, at) || graph.values[at].wanted) return true;
    if (const NodeId maker = graph.values[at].producer; maker != kNone)
      open.insert(open.end(), graph.nodes[maker].inputs.begin(), graph.nodes[maker].inputs.end());
  }
  return false;
}

}  // namespace gradloom
