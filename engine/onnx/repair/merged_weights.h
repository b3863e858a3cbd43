// Weights that an exporter merged because they held the same numbers when it wrote the file.
#pragma once

#include <string>
#include <vector>

#include "engine/base/names.h"
#include "engine/ir/graph.h"
#include "engine/onnx/repair/tied_copy.h"

namespace gradloom {

// Weights may be in a file: the functions below read them piece by piece, and fail where it has changed.

// Every element is the same number.
Result<bool> is_uniform(const Tensor& tensor);

// Names of the parameters that hold one number in every element (as norms and biases do before training) and
// that nodes of several modules use, in the order of Graph::parameters. Tied weights are not among them:
// their numbers differ.
Result<std::vector<std::string>> merged_parameters(const Graph& graph);

// Parameters that may be copies, by name, and the names of what they may be copies of; none: of any other.
// Two of them may be copies of the same.
using CopyCandidates = NameMap<std::vector<std::string>>;

// Ties candidates that hold the numbers of another parameter, as they are or transposed, to it again: an
// Identity or a Transpose of that one takes their place. Exporters fold the transpose of a tied weight into
// such a copy, or that of a weight of a module that is called twice into two, which would train apart.
// Numbers that are all equal say nothing.
Result<std::vector<TiedCopy>> tie_copies(Graph& graph, const CopyCandidates& candidates);

}  // namespace gradloom
