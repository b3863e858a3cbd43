// Costs that several rows share; units: FLOPs and bytes (Cost, engine/ir/op.h).
#pragma once

#include "engine/ir/op.h"

namespace gradloom {

// FLOPs as given; every input read once, every output written once.
Cost cost_of(const NodeTypes& types, double flops);
Cost no_cost(const NodeTypes& types);  // views and shapes
// One FLOP per element of input 0 (reductions, gradients of gathers).
Cost input_cost(const NodeTypes& types);
// Moves the output's bytes once in and once out, no arithmetic.
Cost copy_cost(const NodeTypes& types);

}  // namespace gradloom
