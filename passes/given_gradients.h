// Gradients that rules give (engine/ops/training/given_gradient.cpp), once autodiff has taken them or nobody wants any.
#pragma once

#include "engine/ir/rewriter.h"

namespace gradloom {

// GivenGradient becomes its first input; what only stood for gradients goes.
Status remove_given_gradients(Graph& graph);

}  // namespace gradloom
