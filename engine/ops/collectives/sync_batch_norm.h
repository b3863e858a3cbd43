// The pieces of BatchNormalization between which ranks exchange, where its statistics are those of all ranks' batches together.
//   x, dy: [n, c, spatial..]; all else [c]
//   BatchMoments(x) -> mean, variance (biased) of this rank's batch
//   BatchGradSums(dy, x, mean, inv_std) -> sum(dy xhat), sum(dy), xhat = (x - mean) inv_std
// Attribute block: channels lie in blocks (channel_blocks.h). Pass sync-batchnorm makes such nodes of BatchNormalization and
// BatchNormGrad; means over the ranks (all_reduce.h) and elementwise operators are the rest.
#pragma once

#include "engine/ir/op.h"

namespace gradloom {

const OpDef& batch_moments_op();
const OpDef& batch_grad_sums_op();

}  // namespace gradloom
