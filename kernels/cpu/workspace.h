// The way in which kernels that need workspace cut their work, shared by the kernels and by the functions that
// report sizes. Block sizes depend on shapes only, never on the number of threads.
#pragma once

#include "kernels/cpu.h"
#include "kernels/math.h"

namespace gradloom::kernels::GRADLOOM_MATH_NAMESPACE {

GRADLOOM_HD std::int64_t blocks_of(std::int64_t n, std::int64_t block) { return (n + block - 1) / block; }

// Reduce: each block of `block` values along n gives one partial result (8 bytes) per output element.
GRADLOOM_HD std::int64_t reduce_block(std::int64_t n, std::int64_t inner) {
  if (inner == 1) return 16384;
  std::int64_t block = 49152 / (inner > 0 ? inner : 1);
  block = block < 16 ? 16 : (block > 512 ? 512 : block);
  const std::int64_t at_most_64_blocks = blocks_of(n, 64);
  return block < at_most_64_blocks ? at_most_64_blocks : block;
}

// Softmax and losses along an axis that is not the last one: columns at a time. Cross-entropy keeps the loss
// and the weight of every such strip of rows, or of every row where the axis is the last one.
constexpr std::int64_t kColumnStrip = 128;

GRADLOOM_HD std::int64_t loss_strip(std::int64_t inner) { return inner == 1 ? 1 : kColumnStrip; }
GRADLOOM_HD std::int64_t loss_strips(std::int64_t outer, std::int64_t inner) {
  return outer * blocks_of(inner, loss_strip(inner));
}

// LayerNorm gradient: rows per partial sum of dscale and dbias.
GRADLOOM_HD std::int64_t layer_norm_grad_block(std::int64_t rows) {
  const std::int64_t at_most_64_blocks = blocks_of(rows, 64);
  return at_most_64_blocks < 32 ? 32 : at_most_64_blocks;
}

// BatchNorm: parts with sums of their own of every channel: images in blocks, or rows of a matrix [n, c]. 0: a channel is one part.
constexpr std::int64_t kBatchNormRows = 256;

template <class Args>
GRADLOOM_HD std::int64_t batch_norm_parts(const Args& args) {
  if (args.block > 1) return args.n;
  return args.spatial == 1 ? blocks_of(args.n, kBatchNormRows) : 0;
}

// Optimizers and global norm: elements per piece of a tensor.
constexpr std::int64_t kTensorPiece = 8192;

GRADLOOM_HD std::int64_t pieces_of(std::int64_t count, const std::int64_t* sizes) {
  std::int64_t pieces = 0;
  for (std::int64_t t = 0; t < count; ++t) pieces += blocks_of(sizes[t], kTensorPiece);
  return pieces;
}

// GridSample: a group of channels of an image is one part; each of the slots holds the pixels of one group
// and a pixel more, for the gradient also their gradients.
constexpr std::int64_t kGridSlots = 32, kGridGroupBytes = 64;

GRADLOOM_HD std::int64_t grid_groups(const GridSampleArgs& args) {
  return blocks_of(args.c * std::int64_t(dtype_bytes(args.dtype)), kGridGroupBytes);
}
GRADLOOM_HD std::int64_t grid_slots(const GridSampleArgs& args) {
  const std::int64_t parts = args.n * grid_groups(args);
  return parts < kGridSlots ? parts : kGridSlots;
}
GRADLOOM_HD std::int64_t grid_image_bytes(const GridSampleArgs& args) {
  return (args.in[0] * args.in[1] * args.in[2] + 1) * kGridGroupBytes;
}

// Attention: the rows of a head are cut into parts where heads are few. In the gradient a part has sums of dk and dv, whose
// keys and columns are filled up to what registers hold on every level.
GRADLOOM_HD std::int64_t attention_parts(const FlashAttentionArgs& args) {
  constexpr std::int64_t kEnough = 8, kLeastRows = 192;
  std::int64_t heads = 1;
  for (int d = 0; d < args.batch_rank; ++d) heads *= args.batch_dims[d];
  if (heads == 0) return 1;
  const std::int64_t wanted = blocks_of(kEnough, heads), most = args.rows / kLeastRows;
  return wanted < most ? wanted : most < 1 ? 1 : most;
}
GRADLOOM_HD std::int64_t attention_grad_keys(std::int64_t keys) { return blocks_of(keys, 12) * 12; }
GRADLOOM_HD std::int64_t attention_grad_sums(const FlashAttentionArgs& args) {
  return attention_grad_keys(args.keys) * (blocks_of(args.d, 32) + blocks_of(args.e, 32)) * 32;
}

}  // namespace gradloom::kernels::GRADLOOM_MATH_NAMESPACE
