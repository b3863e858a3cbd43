// What the ranks of a training (engine/ranks/world.h) compute apart becomes the same on all of them.
//   AllReduceMean(x0, x1, ..) -> (y0, y1, ..), of one floating-point type; yi: the mean of the ranks' xi, added as the
//   world is told (engine/ranks/reduce_form.h)
//   attributes: ranks, how many there are. Where these are some of all (RankGroup): world, how many there are of all; stride, from each to
//   the next (1)
// Their sum, with the same attributes; the gradient of each xi is that of yi:
//   AllReduceSum(x0, x1, ..) -> (y0, y1, ..); yi: the sum of the ranks' xi, added in their order. It may say of which parameters these ranks
//   have parts (parameter_part.h)
// What several ranks read of which each computes with a part, and its gradient, the sum of theirs; the same attributes:
//   AllReduceGradient(x) -> x as it is
// The mean in the background, while other nodes run:
//   AllReduceBegin(x0, x1, ..) -> (y0, y1, .., workspace u8[]); the yi are not there yet
//   AllReduceWait(workspace, x0, x1, .., y0, y1, .., more ..) -> done u8[1]; it reads what has to stay where it is, and what
//   else it comes after
//   AllReduceResult(yi, done) -> the mean: yi as it is, after the wait
// Training adds such nodes where it has several ranks; no file has them. Every rank runs the same plan, so all reach the same
// node at the same time. An exchange that fails ends the step.
#pragma once

#include "engine/ir/op.h"

namespace gradloom {

const OpDef& all_reduce_op();
const OpDef& all_reduce_sum_op();
const OpDef& all_reduce_gradient_op();
const OpDef& all_reduce_begin_op();
const OpDef& all_reduce_wait_op();
const OpDef& all_reduce_result_op();
// Attributes of an exchange of `ranks` ranks, `stride` from each to the next, of a world of so many.
Attrs exchange_attrs(std::int64_t ranks, std::int64_t stride, std::int64_t world);

}  // namespace gradloom
