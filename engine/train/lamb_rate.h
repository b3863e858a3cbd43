// LAMB where ranks have parts of a parameter: its ratio |p| / |u| is of the whole, whose squares are added over the ranks.
#pragma once

#include "engine/ir/builder.h"
#include "engine/train/train_graph.h"

namespace gradloom {

struct LambOperands {
  ValueId lr = kNone, step = kNone, scale = kNone;  // of Optimizer; scale: kNone where omitted
  ValueId parameter = kNone, gradient = kNone, m = kNone, v = kNone;
};
// lr |p| / |u|, f64: what Optimizer's lr becomes with attribute ratio_in_lr. u is the update of kernels/optimizers.def. `exchange`: attributes of
// the sum over the ranks that have the parts.
ValueId lamb_rate(GraphBuilder& b, const TrainSpec& spec, double weight_decay, const LambOperands& of,
                  const Attrs& exchange);

}  // namespace gradloom
