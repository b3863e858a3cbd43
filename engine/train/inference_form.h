// A forward graph as it is evaluated: nothing is dropped, BatchNormalization takes the running statistics, and no
// state changes. What a training graph's forward part computes otherwise is the same.
#pragma once

#include <vector>

#include "engine/ir/graph.h"
#include "engine/ir/rewriter.h"

namespace gradloom {

// The loss is the only output afterwards; what only other outputs or state updates needed is gone. A Dropout whose
// mask the loss reads, and a BatchNormalization of whose batch the loss reads the statistics, keep their form.
// REQUIRES a loss.
Result<std::vector<RewriteRecord>> make_inference_form(Graph& graph);
// The same of all outputs, for a graph without a loss.
Result<std::vector<RewriteRecord>> make_inference_form_of_outputs(Graph& graph);

}  // namespace gradloom
