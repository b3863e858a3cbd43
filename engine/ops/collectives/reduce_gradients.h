// The gradients of the ranks of a training (engine/ranks/world.h) become one, at the rank that needs it alone.
//   ReduceGradients(x0, x1, ..) -> (y.., workspace u8[]), of one floating-point type; a y for each xi that this rank owns or owns a part of, in
//   their order: the mean of the ranks' xi, or of that part as one dim, added in their order. Made in the background, while other nodes
//   run: the y are not there yet
//   attributes: ranks, how many there are; rank, which one this is; owners, and where an x is cut of, begins, counts (owned_parts.h)
// AllReduceWait and AllReduceResult (all_reduce.h) follow as they do behind AllReduceBegin. Pass zero puts it in the place of AllReduceMean.
//
// The norm of gradients that are at their owners, with the bits of GlobalNorm, which adds pieces of tensors in the order of these:
//   GradientSquares(g0, g1, ..) -> squares f64[pieces]: of each piece of each gradient the sum of squares
//   NormOfSquares(s0, s1, ..) -> norm, a scalar: of all gradients
//   attributes: type, of the norm (as in ONNX); from, for each gradient, or part of one in their order, the s that has its pieces; pieces,
//   how many these are. A part begins at a multiple of optimizer_inputs::kRangeUnit elements, where a piece does
// In between ShareParameters (share_parameters.h) brings each owner's squares to all.
#pragma once

#include "engine/ir/op.h"

namespace gradloom {

const OpDef& reduce_gradients_op();
const OpDef& gradient_squares_op();
const OpDef& norm_of_squares_op();
std::int64_t square_pieces(std::int64_t elements);  // of a gradient of so many

}  // namespace gradloom
