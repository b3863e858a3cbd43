// Which nodes recompute may run twice.
#pragma once

#include <vector>

#include "engine/ir/graph.h"

namespace gradloom {

// By node: it runs before the gradient, reads and changes no state, and has no effects outside.
std::vector<bool> repeatable_nodes(const Graph& graph);

}  // namespace gradloom
