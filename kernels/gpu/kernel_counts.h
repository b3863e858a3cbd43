// How many kernels a device runs for one launch of ours, from the arguments without their pointers: one, where nothing else is said
// here. Nothing is known here of what a library does in its place. Held against what launchers launch: tests/kernels/gpu/support.h.
#pragma once

#include "kernels/arguments.h"
#include "kernels/gpu/workspace.h"
#include "kernels/grid.h"
#include "kernels/index_walk.h"

namespace gradloom::kernels::gpu {

template <class Args>
constexpr std::int64_t kernels_of(const Args&) {
  return 1;
}

constexpr std::int64_t kernels_of(const ReduceArgs& args) {
  return args.outer * args.inner > 0 && reduce_cut(args).parts > 1 ? 2 : 1;
}

// Rows that registers do not hold have their sums made apart.
constexpr std::int64_t kernels_of(const LayerNormGradArgs& args) {
  const bool sums = args.dscale != nullptr || args.dbias != nullptr, held = args.cols <= kHeldColumns;
  const std::int64_t rows = held ? 1 : (sums ? 1 : 0) + (args.dx != nullptr ? 1 : 0);
  return (args.rows > 0 ? rows : 0) + (sums ? 1 : 0);
}
constexpr std::int64_t kernels_of(const GroupNormGradArgs& args) {
  return 1 + (args.dscale != nullptr || args.dbias != nullptr ? 1 : 0) + (args.dx != nullptr ? 1 : 0);
}
constexpr std::int64_t kernels_of(const BatchNormArgs& args) {
  if (args.n * args.spatial == 0) return 1;
  return 1 + (args.training ? 1 : 0) + (args.y != nullptr ? 1 : 0);
}
constexpr std::int64_t kernels_of(const BatchNormGradArgs& args) {
  if (args.n * args.spatial == 0) return 1;
  return 2 + (args.dx != nullptr ? 1 : 0);
}

constexpr std::int64_t kernels_of(const NllLossArgs& args) {
  return loss_parts(args.outer * args.inner) > 1 ? 2 : 1;
}
constexpr std::int64_t kernels_of(const NllLossGradArgs&) { return 2; }
constexpr std::int64_t kernels_of(const SoftmaxCrossEntropyArgs& args) {
  const std::int64_t rows = args.outer * args.inner;
  return (rows > 0 ? 1 : 0) + (!adds_losses(args) ? 0 : loss_parts(rows) > 1 ? 2 : 1);
}

// Every pass of a sort counts digits, adds the counts up and moves the entries.
constexpr std::int64_t sort_kernels(std::int64_t rows) {
  std::int64_t kernels = 3;
  for (int shift = 8; rows >> shift != 0; shift += 8) kernels += 3;
  return kernels;
}
constexpr std::int64_t kernels_of(const GatherGradArgs& args) {
  const std::int64_t zeros = args.adds ? 0 : 1;
  if (args.count == 0) return zeros;
  return zeros + sort_kernels(args.axis_size) + (args.count > kGatherGradChunk ? 2 : 1);
}

inline std::int64_t kernels_of(const IndexScatterArgs& args) {
  return portable::items_of(args.walk) > 0 ? sort_kernels(args.places) + 1 : 0;
}
inline std::int64_t kernels_of(const GridSampleGradArgs& args) {
  const GridSampleArgs& s = args.shape;
  const std::int64_t points = s.n * portable::grid_area(s.out), pixels = s.n * portable::grid_area(s.in);
  const std::int64_t data = points > 0 ? sort_kernels(pixels) + 1 : 1;
  return (args.dgrid != nullptr && points > 0 ? 1 : 0) + (args.dx != nullptr && s.c * pixels > 0 ? data : 0);
}

constexpr std::int64_t kernels_of(const OptimizerArgs& args) {
  const bool factors = args.kind == OptimizerKind::adafactor;
  const std::int64_t most = optimizer_batch(args);
  const std::int64_t each = factors ? (args.factored ? 6 : 3) : args.kind == OptimizerKind::lamb ? 3 : 1;
  return (args.count + most - 1) / most * each;
}
// Batches of `most` tensors with anything in them.
constexpr std::int64_t filled_batches(std::int64_t count, const std::int64_t* sizes, std::int64_t most) {
  std::int64_t batches = 0;
  for (std::int64_t first = 0; first < count; first += most) {
    const std::int64_t end = first + most < count ? first + most : count;
    bool any = false;
    for (std::int64_t i = first; i < end; ++i) any = any || sizes == nullptr || sizes[i] > 0;
    batches += any ? 1 : 0;
  }
  return batches;
}
constexpr std::int64_t kernels_of(const GlobalNormArgs& args) {
  return filled_batches(args.count, args.sizes, kNormBatch) + 1;  // the other adds the sums of squares
}
constexpr std::int64_t kernels_of(const AccumulateArgs& args) {
  return filled_batches(args.count, args.sizes, kAccumulateBatch);
}

constexpr std::int64_t kernels_of(const GemmArgs& args) {
  std::int64_t products = 1;
  for (int d = 0; d < args.batch_rank; ++d) products *= args.batch_dims[d];
  const ProductCut cut = product_cut(products, args.m, args.n, args.k, args.dtype);
  const bool room = args.workspace_bytes >= product_bytes(cut, products, args.m, args.n, args.dtype);
  std::int64_t kernels = cut.slices > 1 && room ? 2 : 1;
  if (args.sums_of != GemmOperand::none)
    kernels +=
        kernels_of(ReduceArgs{args.dtype, Reduction::sum, 1, args.k,
                              args.sums_of == GemmOperand::a ? args.m : args.n, nullptr, nullptr, nullptr});
  return kernels;
}
constexpr std::int64_t kernels_of(const ConvolutionArgs& args) {
  if (is_depthwise(args)) return 1;
  const ConvolutionProduct p = convolution_product(args);
  return product_cut(args.shape.groups, p.rows, p.cols, p.depth, args.shape.dtype).slices > 1 ? 2 : 1;
}
constexpr std::int64_t kernels_of(const FlashAttentionGradArgs& args) {
  std::int64_t parts = 1;
  for (int d = 0; d < args.forward.batch_rank; ++d) parts *= args.forward.batch_dims[d];
  return (parts * args.forward.rows > 0 ? 1 : 0) + (parts * args.forward.keys > 0 ? 1 : 0);
}
constexpr std::int64_t kernels_of(const StoreArgs& args) {
  return (args.bytes + kStoreChunk - 1) / kStoreChunk;
}

}  // namespace gradloom::kernels::gpu
