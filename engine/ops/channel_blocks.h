// Tensors whose channels lie in blocks: [n, c / block, spatial.., block] (passes/block_channels.cpp makes them), as
// convolutions, pooling and normalizations see them.
#pragma once

#include <cstdint>

#include "engine/ir/op.h"

namespace gradloom {

// Dims after batch and channels, without those of a block.
Shape spatial_of(const Shape& shape, std::int64_t block = 1);

// Channels in blocks (ours, made by passes/block_channels.cpp): [n, c / block, spatial.., block], so that
// neighbours in memory are channels of one position. Attribute `name` of a row says the block of one of its
// tensors, of shape `shape`; 1 and absent: plain.
Result<std::int64_t> block_of(const Attrs& attrs, const char* name, const Shape& shape, const char* what);
Status require_layout(kernels::Target target, std::int64_t block);  // blocks are for the CPU
Shape plain_shape(Shape shape, std::int64_t block);                 // [n, c, spatial..]
Result<Shape> blocked_shape(Shape shape, std::int64_t block);  // and back; error when channels do not divide

}  // namespace gradloom
