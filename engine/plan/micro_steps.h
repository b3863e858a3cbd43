// Which nodes run for every micro-batch of a step, and which once.
#pragma once

#include <vector>

#include "engine/ir/graph.h"

namespace gradloom {

// By node: whether it runs once per step, after the last micro-batch. So does whatever depends on an accumulator's new contents, but
// for what goes on adding to them. `order`: a topological one of all nodes.
std::vector<bool> once_per_step(const Graph& graph, const std::vector<NodeId>& order);

}  // namespace gradloom
