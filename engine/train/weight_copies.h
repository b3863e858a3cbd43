// 16-bit copies of parameters: states that operator Optimizer writes beside the parameter (its attribute `copies`) and that
// the next forward pass reads. They hold nothing of their own: whoever sets a parameter sets them from it, and no checkpoint
// keeps them. Where a rank keeps a part of the parameter alone (state_ranges.h) the copy is whole, and the other ranks write the rest of
// it (ShareParameters): it begins as the rounded initial parameter.
#pragma once

#include <map>

#include "engine/ir/graph.h"

namespace gradloom {

std::map<ValueId, ValueId> weight_copies(const Graph& graph);  // copy -> what it is a copy of

}  // namespace gradloom
