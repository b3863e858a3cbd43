// What one rank of a training (engine/ranks/world.h) has made becomes the same on all of them.
//   ShareParameters(x0, x1, .., more ..) -> (y0, y1, ..), of any types; yi: the xi of the rank that owns it, or of each part of
//   it; more: what else it comes after
//   attributes: ranks, how many there are; owners, and where an x is cut of, begins, counts (owned_parts.h). Where an x is the 16-bit copy of
//   a parameter of which each rank keeps what it owns alone: masters, for each x that parameter or -1; rank, which one this is
// Pass zero adds it where ranks keep the optimizer's state of some parameters, or ranges of them, each. Of the last two nodes that update a parameter it is
// the second, in the same place. Every rank reaches the node at the same time; an exchange that fails ends the step.
//
// The same at the beginning of the next step, in the background:
//   GatherParameters(p0, p1, .., micro) -> (y0, y1, .., workspace u8[1]); the yi are written over the pi, and are not there yet
//   attributes: those of ShareParameters; micro, i64[]: the number of the micro-batch (micro_batches.h), of which the first alone exchanges;
//   left out where a step is one
// AllReduceWait and AllReduceResult (all_reduce.h) follow as they do behind AllReduceBegin. Pass gather-early puts it in the place of
// ShareParameters: between two steps only the elements that a rank owns are up to date there.
#pragma once

#include <cstdint>
#include <vector>

#include "engine/ir/op.h"
#include "engine/ops/collectives/owned_parts.h"

namespace gradloom {

const OpDef& share_parameters_op();
const OpDef& gather_parameters_op();
// Whether the operator gives other ranks what this one owns of parameters or their copies: either of these.
bool gives_parameters(const OpDef& op);
// The state that GatherParameters brings up to date in `v`, as readers see it; any other value itself.
ValueId before_gather(const Graph& graph, ValueId v);

inline constexpr const char* kMasters = "masters";
// The attributes of either. `rank` stands where tensors are 16-bit copies of a master.
Attrs given_attrs(std::int64_t ranks, std::int64_t rank, const std::vector<OwnedPart>& parts,
                  const std::vector<Type>& types, const std::vector<std::int64_t>& masters);

}  // namespace gradloom
