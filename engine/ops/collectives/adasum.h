// The gradients of the ranks of a training (engine/ranks/world.h) become one, by AdaSum instead of their mean.
//   AllReduceAdasum(x0, x1, ..) -> (y0, y1, ..), of one floating-point type; yi: AdaSum of the ranks' xi (World::adasum)
//   attributes: ranks, how many there are: a power of two
// Pass adasum puts it in the place of AllReduceMean.
#pragma once

#include "engine/ir/op.h"

namespace gradloom {

const OpDef& all_reduce_adasum_op();

}  // namespace gradloom
