// What passes that move, merge and drop casts share.
#pragma once

#include "engine/ir/rewriter.h"

namespace gradloom {

// Every number of `from` is one of `to`, and goes from there to any type as it would from `from`; false for equal types.
bool widens(DType from, DType to);

// The node is part of the update and takes a gradient of 16 bits, as input `input`, beside what it holds in f32.
bool takes_low_gradient(const Node& node, std::size_t input);

// What `update`, an Optimizer, writes beside its parameter number `place`: a state of 16 bits, which nothing updates yet, and its next value.
// `initial` may be undefined. In a rewrite, whose builder is `b`.
struct WeightCopy {
  ValueId state = kNone, next = kNone;
};
WeightCopy add_weight_copy(Rewriter& rw, GraphBuilder& b, NodeId update, std::size_t place, DType low,
                           Tensor initial = {});

// What becomes of a parameter goes to other ranks, whose parts of it come back.
bool is_shared(const Rewriter& rw, ValueId next);

}  // namespace gradloom
