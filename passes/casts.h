// What passes that move, merge and drop casts share.
#pragma once

#include "engine/ir/graph.h"

namespace gradloom {

// Every number of `from` is one of `to`, and goes from there to any type as it would from `from`; false for equal types.
bool widens(DType from, DType to);

// The node is part of the update and takes a gradient of 16 bits, as input `input`, beside what it holds in f32.
bool takes_low_gradient(const Node& node, std::size_t input);

}  // namespace gradloom
