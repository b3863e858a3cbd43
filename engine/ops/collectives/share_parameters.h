// What one rank of a training (engine/ranks/world.h) has made becomes the same on all of them.
//   ShareParameters(x0, x1, .., more ..) -> (y0, y1, ..), of any types; yi: the xi of the rank that owns it, or of each part of
//   it; more: what else it comes after
//   attributes: ranks, how many there are; owners, and where an x is cut of, begins, counts (owned_parts.h). Where an x is the 16-bit copy of
//   a parameter of which each rank keeps what it owns alone: masters, for each x that parameter or -1; rank, which one this is
// Pass zero adds it where ranks keep the optimizer's state of some parameters, or ranges of them, each. Of the last two nodes that update a parameter it is
// the second, in the same place. Every rank reaches the node at the same time; an exchange that fails ends the step.
#pragma once

#include "engine/ir/op.h"

namespace gradloom {

const OpDef& share_parameters_op();

inline constexpr const char* kMasters = "masters";

}  // namespace gradloom
