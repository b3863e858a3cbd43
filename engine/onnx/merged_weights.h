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

// "val_57 of head.weight": parameters under a name that torch's dynamo exporter made up which hold the
// numbers of another one, as they are or transposed. Its optimizer folds the transpose of a tied weight into
// such a copy.
std::vector<std::string> copied_parameters(const Graph& graph);

}  // namespace gradloom
