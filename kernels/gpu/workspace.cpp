// Workspace sizes of the GPU kernels; see the kernel files for what is kept there.
#include "kernels/gpu/workspace.h"

#include <algorithm>

#include "kernels/grid.h"
#include "kernels/index_walk.h"
#include "kernels/library_kernels.h"

namespace gradloom::kernels::gpu {

// Results of the parts: 8 bytes at most, of log-sum-exp two numbers.
std::size_t workspace_bytes(const ReduceArgs& args) {
  if (args.outer * args.inner == 0) return 0;
  const ReduceCut cut = reduce_cut(args);
  const std::size_t state_bytes = args.op == Reduction::log_sum_exp ? 16 : 8;
  return cut.parts > 1 ? std::size_t(args.outer * cut.parts * args.inner) * state_bytes : 0;
}
std::size_t workspace_bytes(const LayerNormGradArgs& args) {
  return std::size_t(2 * layer_norm_grad_cut(args.rows, args.cols).parts * args.cols) *
         (args.dtype == DType::f64 ? 8 : 4);
}
// Two sums of every channel of every image.
std::size_t workspace_bytes(const GroupNormGradArgs& args) {
  return std::size_t(2 * args.n * args.groups * args.channels) * (args.dtype == DType::f64 ? 8 : 4);
}
std::size_t workspace_bytes(const BatchNormArgs& args) {
  const std::int64_t slots = args.training ? batch_norm_cut(args.n, args.c, args.spatial).slots : 0;
  return std::size_t(2 * args.c * (slots + 1)) * sizeof(double);
}
std::size_t workspace_bytes(const BatchNormGradArgs& args) {
  return std::size_t(2 * args.c * (batch_norm_cut(args.n, args.c, args.spatial).slots + 1)) * sizeof(double);
}
std::size_t workspace_bytes(const GatherGradArgs& args) { return gather_grad_space(args).bytes; }
// The items sorted by place.
std::size_t workspace_bytes(const IndexScatterArgs& args) {
  return sort_space(portable::items_of(args.walk)).bytes;
}
// Key and index of what was chosen, in the order of the indices.
std::size_t workspace_bytes(const NllLossArgs& args) {
  const std::int64_t parts = loss_parts(args.outer * args.inner);
  return parts > 1 ? std::size_t(2 * parts) * 8 : 0;
}
std::size_t workspace_bytes(const TopKArgs& args) {
  return std::size_t(args.outer * args.inner * args.k) * 16;
}
// What the points read, sorted by pixel, for dx.
std::size_t workspace_bytes(const GridSampleGradArgs& args) {
  const GridSampleArgs& s = args.shape;
  return sort_space(s.n * portable::grid_area(s.out) * portable::grid_point_taps(s.mode, s.rank)).bytes;
}
// LAMB and Adafactor: squares of parameter and update of every piece. LAMB: the ratio of every tensor. Adafactor: the factors of
// update and parameter of every tensor, and a mean of every matrix.
std::size_t workspace_bytes(const OptimizerArgs& args) {
  if (args.kind != OptimizerKind::lamb && args.kind != OptimizerKind::adafactor) return 0;
  const std::int64_t factors = (args.kind == OptimizerKind::lamb ? 1 : 2) * args.count;
  return std::size_t(2 * tensor_pieces(args.count, args.sizes) + factors + factored_matrices(args)) *
         sizeof(double);
}
// The squares of every piece.
std::size_t workspace_bytes(const GlobalNormArgs& args) {
  return std::size_t(tensor_pieces(args.count, args.sizes)) * sizeof(double);
}
std::size_t workspace_bytes(const ConvolutionArgs& args) {
  if (is_depthwise(args)) return 0;
  const ConvolutionDesc& s = args.shape;
  const ConvolutionProduct p = convolution_product(args);
  return product_bytes(product_cut(s.groups, p.rows, p.cols, p.depth, s.dtype), s.groups, p.rows, p.cols,
                       s.dtype);
}
// What is taken off the scores of every row, what their exponentials are multiplied with, and their slope.
std::size_t workspace_bytes(const FlashAttentionGradArgs& args) {
  const FlashAttentionArgs& a = args.forward;
  std::int64_t rows = a.rows;
  for (int d = 0; d < a.batch_rank; ++d) rows *= a.batch_dims[d];
  return std::size_t(3 * rows) * sizeof(float);
}
std::size_t workspace_bytes(const GemmArgs& args) {
  std::int64_t batches = 1;
  for (int d = 0; d < args.batch_rank; ++d) batches *= args.batch_dims[d];
  const std::size_t product = product_bytes(product_cut(batches, args.m, args.n, args.k, args.dtype), batches,
                                            args.m, args.n, args.dtype);
  if (args.sums_of == GemmOperand::none) return product;
  ReduceArgs sums{
      args.dtype, Reduction::sum, 1,      args.k, args.sums_of == GemmOperand::a ? args.m : args.n,
      nullptr,    nullptr,        nullptr};
  return std::max(product, workspace_bytes(sums));
}

}  // namespace gradloom::kernels::gpu

// ---- libraries --------------------------------------------------------------------------------------------------------------------

namespace gradloom::kernels {
namespace {

// Of the scores that the deterministic gradient keeps: beyond it ours, which keeps a few rows of them,
// serves. NVIDIA's cudnn-frontend has the same limit.
constexpr std::int64_t kMostScoreBytes = std::int64_t{256} << 20;

std::int64_t filled(std::int64_t n, std::int64_t step) { return (n + step - 1) / step * step; }

}  // namespace

// What NVIDIA gives cuBLAS on Hopper (cublasSetWorkspace: 32 MiB, on devices before it 4). Slices of a sum lie there;
// of a small result more than 32 of them are no use.
std::size_t library_workspace_bytes(const GemmArgs& args) {
  constexpr std::int64_t kMost = std::int64_t{32} << 20, kSlices = 32, kTile = 128;
  std::int64_t batches = 1;
  for (int d = 0; d < args.batch_rank; ++d) batches *= args.batch_dims[d];
  const double slices = double(kSlices * batches) * double(filled(args.m, kTile)) *
                        double(filled(args.n, kTile)) * (args.dtype == DType::f64 ? 8 : 4);
  return slices < double(kMost) ? std::size_t(slices) : std::size_t(kMost);
}

// Images of the operands with channels last and filled up to packs of 16 bytes in
// every group, and some tables.
std::size_t library_workspace_bytes(const ConvolutionArgs& args) {
  const ConvolutionDesc& s = args.shape;
  if (s.dtype == DType::f64 || gpu::is_depthwise(args)) return 0;
  const std::int64_t bytes = std::int64_t(dtype_bytes(s.dtype)), pack = 16 / bytes;
  const std::int64_t c = filled(s.c / s.groups, pack), k = filled(s.k / s.groups, pack) * s.groups;
  const std::int64_t x = s.n * c * s.groups * s.d * s.h * s.w, w = k * c * s.t * s.r * s.s,
                     y = s.n * k * s.od * s.oh * s.ow;
  return std::size_t((x + w + y) * bytes) + gpu::kLibraryTables;
}

// Of half types alone: f32 would be rounded to TF32.
std::size_t library_workspace_bytes(const AttentionArgs& args) {
  if (!is_half(args.dtype)) return 0;
  return attention_engine_at(args) + gpu::kLibraryTables;
}

// The scores in tiles of 128 x 128.
std::size_t library_workspace_bytes(const AttentionGradArgs& args) {
  const AttentionArgs& a = args.forward;
  const std::int64_t scores =
      a.batch * a.heads * filled(a.rows, 128) * filled(a.keys, 128) * std::int64_t(dtype_bytes(a.dtype));
  if (!is_half(a.dtype) || scores > kMostScoreBytes) return 0;
  return attention_engine_at(a) + std::size_t(scores) + gpu::kLibraryTables;
}

}  // namespace gradloom::kernels
