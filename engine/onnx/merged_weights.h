// Weights that an exporter merged because they held the same numbers when it wrote the file.
#pragma once

#include <string>
#include <vector>

#include "engine/ir/graph.h"

namespace gradloom {

// Names of the parameters that hold one number in every element (as norms and biases do before training) and
// that nodes of several modules use, in the order of Graph::parameters. Tied weights are not among them:
// their numbers differ.
std::vector<std::string> merged_parameters(const Graph& graph);

}  // namespace gradloom
