// The way in which GPU kernels that need workspace cut their work, shared by the kernels (.cu)
// and by the functions that report sizes. Parts depend on shapes only, never on the device,
// so that every device adds in the same order.
#pragma once

#include "kernels/arguments.h"

namespace gradloom::kernels::gpu {

struct Cut {
  std::int64_t parts, length;  // the last part may be shorter
};
// `n` in at most `most` parts (at least one) of at least `least`, lengths multiples of `step`.
constexpr Cut cut_of(std::int64_t n, std::int64_t most, std::int64_t least, std::int64_t step) {
  std::int64_t parts = n / least < most ? n / least : most;
  parts = parts < 1 ? 1 : parts;
  const std::int64_t length = ((n + parts - 1) / parts + step - 1) / step * step;
  return {length > 0 ? (n + length - 1) / length : 1, length};
}
// Blocks that keep a large device busy: work is cut until there are about as many.
constexpr std::int64_t kManyBlocks = 1024;

// Reduce: parts of n, each with a result in the workspace.
enum class ReduceWay : std::uint8_t { serial, rows, columns };
struct ReduceCut {
  ReduceWay way;
  std::int64_t parts, length;
};
constexpr ReduceCut reduce_cut(const ReduceArgs& args) {
  const std::int64_t results = args.outer * args.inner;
  if (args.n <= 16 || (args.inner > 1 && results >= 32768 && args.n <= 64))
    return {ReduceWay::serial, 1, args.n};
  const std::int64_t strips = args.outer * ((args.inner + 127) / 128);
  const Cut cut = args.inner == 1 ? cut_of(args.n, kManyBlocks / args.outer, 4096, 64)
                                  : cut_of(args.n, kManyBlocks / strips, 64, 8);
  return {args.inner == 1 ? ReduceWay::rows : ReduceWay::columns, cut.parts, cut.length};
}

// Layer normalization's gradient: parts of the rows, each with sums of dscale and dbias in the workspace,
// [parts, 2, cols]. The longer the rows, the more threads has a part, and the fewer parts there are.
constexpr Cut layer_norm_grad_cut(std::int64_t rows, std::int64_t cols) {
  std::int64_t threads = 32;
  while (threads < 512 && threads * 16 < cols) threads *= 2;
  return rows > 0 ? cut_of(rows, 65536 / threads, 8, 8) : Cut{0, 0};
}

// Rows that the threads of a block hold in registers (rows.h).
constexpr int kRowValues = 16;    // elements of a row that one thread holds
constexpr int kRowThreads = 512;  // most threads for one row
constexpr std::int64_t kHeldColumns = std::int64_t{kRowValues} * kRowThreads;

// Batch normalization, [n, c, spatial]: pairs of doubles in the workspace, one per channel, then one per slot
// of each channel.
//   long planes    a slot is a slice of `length` elements of the channel, image after image
//   short planes   a slot is one position of the planes in a slice of `length` images: slot = slice * spatial + position
struct BatchNormCut {
  bool long_planes;
  std::int64_t slices, length, slots;
};
constexpr BatchNormCut batch_norm_cut(std::int64_t n, std::int64_t c, std::int64_t spatial) {
  if (n * c * spatial == 0) return {true, 0, 0, 0};
  const bool long_planes = spatial >= 16;
  const Cut cut =
      long_planes ? cut_of(n * spatial, (2 * kManyBlocks + c - 1) / c, 4096, 64) : cut_of(n, 64, 32, 16);
  return {long_planes, cut.parts, cut.length, long_planes ? cut.parts : cut.parts * spatial};
}

// Losses: rows whose sum is one block's. Negative log-likelihood of more rows than two blocks take: sum of
// losses and of weights of every block in the workspace.
constexpr std::int64_t kRowsPerSum = 4096;
constexpr std::int64_t loss_parts(std::int64_t rows) {
  return rows <= 2 * kRowsPerSum ? 1 : (rows + kRowsPerSum - 1) / kRowsPerSum;
}

// Whether anybody reads what the losses and weights of the rows add up to.
constexpr bool adds_losses(const SoftmaxCrossEntropyArgs& args) {
  return args.reduction != LossReduction::none || args.total_weight != nullptr;
}
// Loss and gradient of a row in one kernel: what its threads hold of it as it is stored; longer rows are read again.
constexpr int kWholeRowThreads = 1024, kWholeRowPacks = 8;
constexpr std::int64_t kWholeRowBytes = std::int64_t{kWholeRowThreads} * kWholeRowPacks * 16;

// Optimizers and global norm: tensors of one launch.
constexpr int kOptimizerBatch = 46, kWideOptimizerBatch = 40, kAdafactorBatch = 23, kNormBatch = 128,
              kAccumulateBatch = 96;
constexpr int optimizer_batch(const OptimizerArgs& args) {
  if (args.kind == OptimizerKind::adafactor) return kAdafactorBatch;
  return args.kind == OptimizerKind::rmsprop || args.amsgrad ? kWideOptimizerBatch : kOptimizerBatch;
}
// Store: bytes that the arguments of one launch carry.
constexpr std::int64_t kStoreChunk = 2048;

// Optimizers and global norm: elements that a block takes, and pieces of all tensors.
constexpr std::int64_t kTensorPiece = 8192;
constexpr std::int64_t tensor_pieces(std::int64_t count, const std::int64_t* sizes) {
  std::int64_t pieces = 0;
  for (std::int64_t t = 0; t < count; ++t) pieces += (sizes[t] + kTensorPiece - 1) / kTensorPiece;
  return pieces;
}

// Sorted positions (sort.h): two lists of entries (16 bytes each), then the digit counts of the sort.
constexpr std::int64_t kSortTile = 2048;
constexpr std::size_t whole_packs(std::int64_t bytes) { return std::size_t(bytes + 15) / 16 * 16; }
struct SortSpace {
  std::size_t table, bytes;
};
constexpr SortSpace sort_space(std::int64_t count) {
  const std::size_t table = whole_packs(32 * count);
  return {table, table + whole_packs(2048 * ((count + kSortTile - 1) / kSortTile))};
}

// Gather gradient: the sort, then from byte `partial` the sums of rows that go over chunks.
constexpr std::int64_t kGatherGradChunk = 64;
struct GatherGradSpace {
  std::size_t partial, bytes;
};
constexpr GatherGradSpace gather_grad_space(const GatherGradArgs& args) {
  const std::int64_t chunks = (args.count + kGatherGradChunk - 1) / kGatherGradChunk;
  const std::int64_t sum_bytes = args.dtype == DType::f64 ? 8 : 4;
  const std::size_t partial = sort_space(args.count).bytes;
  return {partial,
          partial + (chunks > 1 ? whole_packs(2 * args.outer * chunks * args.inner * sum_bytes) : 0)};
}

// Products and convolutions: `products` times rows x cols sums over `depth`. Large tiles (128 x 128, not in
// f64) where they fill a device and are filled themselves; otherwise 64 x 64, and when those are few the
// depth is cut into slices, whose sums go to the workspace.
struct ProductCut {
  bool large_tiles;
  std::int64_t slices, length;
};
constexpr ProductCut product_cut(std::int64_t products, std::int64_t rows, std::int64_t cols,
                                 std::int64_t depth, DType dtype) {
  const auto tiles = [&](std::int64_t side) {
    return products * ((rows + side - 1) / side) * ((cols + side - 1) / side);
  };
  const std::int64_t large = tiles(128), small = tiles(64);
  if (dtype != DType::f64 && large >= 96 && large * 3 < small) return {true, 1, depth};
  const Cut cut = cut_of(depth, small > 0 ? kManyBlocks / 2 / small : 1, 256, 16);
  return {false, cut.parts, cut.length};
}
constexpr std::size_t product_bytes(const ProductCut& cut, std::int64_t products, std::int64_t rows,
                                    std::int64_t cols, DType dtype) {
  return cut.slices > 1 ? std::size_t(cut.slices * products * rows * cols) * (dtype == DType::f64 ? 8 : 4)
                        : 0;
}
// A convolution as products, one per group: rows x cols results, sums over depth.
constexpr std::size_t kLibraryTables = 1 << 20;
struct ConvolutionProduct {
  std::int64_t rows, cols, depth;
};
// One channel of x per group: no tiles, no workspace.
constexpr bool is_depthwise(const ConvolutionArgs& args) {
  return args.shape.groups > 1 && args.shape.c == args.shape.groups;
}
constexpr ConvolutionProduct convolution_product(const ConvolutionArgs& args) {
  const ConvolutionDesc& d = args.shape;
  const std::int64_t c = d.c / d.groups, k = d.k / d.groups, window = d.t * d.r * d.s,
                     pixels = d.n * d.od * d.oh * d.ow;
  switch (args.kind) {
    case ConvolutionKind::forward: return {k, pixels, c * window};
    case ConvolutionKind::backward_data: return {c, d.n * d.d * d.h * d.w, k * window};
    case ConvolutionKind::backward_weights: return {k, c * window, pixels};
  }
  return {};
}

std::size_t workspace_bytes(const ReduceArgs& args);
std::size_t workspace_bytes(const LayerNormGradArgs& args);
std::size_t workspace_bytes(const GroupNormGradArgs& args);
std::size_t workspace_bytes(const BatchNormArgs& args);
std::size_t workspace_bytes(const BatchNormGradArgs& args);
std::size_t workspace_bytes(const GatherGradArgs& args);
std::size_t workspace_bytes(const IndexScatterArgs& args);
std::size_t workspace_bytes(const TopKArgs& args);
std::size_t workspace_bytes(const NllLossArgs& args);
std::size_t workspace_bytes(const GridSampleGradArgs& args);
std::size_t workspace_bytes(const OptimizerArgs& args);
std::size_t workspace_bytes(const GlobalNormArgs& args);
std::size_t workspace_bytes(const ConvolutionArgs& args);
std::size_t workspace_bytes(const GemmArgs& args);
std::size_t workspace_bytes(const FlashAttentionGradArgs& args);

}  // namespace gradloom::kernels::gpu
