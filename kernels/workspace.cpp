// Workspace sizes of the kernels. CPU: the same for every x86-64 level. GPU: the same for every device.
#include "kernels/cpu/workspace.h"
#include "kernels/determinant.h"
#include "kernels/gpu/workspace.h"

namespace gradloom::kernels {

using namespace portable;

std::size_t workspace_bytes(Target target, const ReduceArgs& args) {
  if (target == Target::gpu) return gpu::workspace_bytes(args);
  const std::int64_t blocks = blocks_of(args.n, reduce_block(args.n, args.inner));
  return blocks > 1 ? std::size_t(args.outer * blocks * args.inner) * 8 : 0;
}

std::size_t workspace_bytes(Target target, const LayerNormGradArgs& args) {
  if (target == Target::gpu) return gpu::workspace_bytes(args);
  const std::int64_t blocks = blocks_of(args.rows, layer_norm_grad_block(args.rows));
  return std::size_t(2 * blocks * args.cols) * dtype_bytes(args.dtype);
}

// Two sums of every channel of every image.
std::size_t workspace_bytes(Target target, const GroupNormGradArgs& args) {
  if (target == Target::gpu) return gpu::workspace_bytes(args);
  return std::size_t(2 * args.n * args.groups * args.channels) * sizeof(double);
}

// Two sums of every channel of every part, then two numbers of every channel.
namespace {
template <class Args>
std::size_t batch_norm_bytes(const Args& args) {
  const std::int64_t parts = batch_norm_parts(args);
  return parts > 0 ? std::size_t(2 * (parts + 1) * args.c) * sizeof(double) : 0;
}
}  // namespace
std::size_t workspace_bytes(Target target, const BatchNormArgs& args) {
  if (target == Target::gpu) return gpu::workspace_bytes(args);
  return batch_norm_bytes(args);
}

std::size_t workspace_bytes(Target target, const BatchNormGradArgs& args) {
  if (target == Target::gpu) return gpu::workspace_bytes(args);
  return batch_norm_bytes(args);
}

// CPU: start of each destination row's list, then the sources sorted by destination.
std::size_t workspace_bytes(Target target, const GatherGradArgs& args) {
  if (target == Target::gpu) return gpu::workspace_bytes(args);
  return std::size_t(args.axis_size + 1 + args.count) * 8;
}

// On the CPU results are made in place.
std::size_t workspace_bytes(Target target, const IndexScatterArgs& args) {
  return target == Target::gpu ? gpu::workspace_bytes(args) : 0;
}
std::size_t workspace_bytes(Target, const DeterminantArgs& args) {
  return std::size_t(determinant_slots(args.matrices) * determinant_slot(args.n)) * sizeof(double);
}
std::size_t workspace_bytes(Target, const DeterminantGradArgs& args) {
  return std::size_t(determinant_slots(args.matrices) * determinant_grad_slot(args.n)) * sizeof(double);
}
std::size_t workspace_bytes(Target target, const TopKArgs& args) {
  return target == Target::gpu ? gpu::workspace_bytes(args) : 0;
}

std::size_t workspace_bytes(Target target, const GridSampleArgs& args) {
  return target == Target::gpu ? 0 : std::size_t(grid_slots(args) * grid_image_bytes(args));
}
// CPU: also the gradients of the grid by each group of channels.
std::size_t workspace_bytes(Target target, const GridSampleGradArgs& args) {
  if (target == Target::gpu) return gpu::workspace_bytes(args);
  const GridSampleArgs& s = args.shape;
  const std::int64_t numbers = s.n * s.out[0] * s.out[1] * s.out[2] * s.rank;
  return std::size_t(2 * grid_slots(s) * grid_image_bytes(s)) +
         std::size_t(grid_groups(s) * numbers) * dtype_bytes(s.dtype);
}

std::size_t workspace_bytes(Target target, const NllLossArgs& args) {
  return target == Target::gpu ? gpu::workspace_bytes(args) : 0;
}

// Loss and weight of every row; on the CPU of every strip.
std::size_t workspace_bytes(Target target, const SoftmaxCrossEntropyArgs& args) {
  const bool gpu = target == Target::gpu;
  return std::size_t(2 * (gpu ? args.outer * args.inner : loss_strips(args.outer, args.inner))) * 8;
}

// CPU, LAMB and Adafactor: squared norms of the parameter and of the update, per piece. Adafactor also: of factored tensors,
// the first matrix of each, and a mean of every matrix.
std::size_t workspace_bytes(Target target, const OptimizerArgs& args) {
  if (target == Target::gpu) return gpu::workspace_bytes(args);
  if (args.kind != OptimizerKind::lamb && args.kind != OptimizerKind::adafactor) return 0;
  const std::int64_t firsts = args.factored ? args.count : 0;
  return std::size_t(2 * pieces_of(args.count, args.sizes) + firsts + factored_matrices(args)) * 8;
}

std::size_t workspace_bytes(Target target, const GlobalNormArgs& args) {
  if (target == Target::gpu) return gpu::workspace_bytes(args);
  return std::size_t(pieces_of(args.count, args.sizes)) * 8;
}

std::size_t workspace_bytes(Target, const ConvolutionArgs& args) { return gpu::workspace_bytes(args); }
std::size_t workspace_bytes(Target, const GemmArgs& args) { return gpu::workspace_bytes(args); }

std::size_t workspace_bytes(Target target, const FlashAttentionGradArgs& args) {
  if (target == Target::gpu) return gpu::workspace_bytes(args);
  std::int64_t parts = attention_parts(args.forward);
  for (int d = 0; d < args.forward.batch_rank; ++d) parts *= args.forward.batch_dims[d];
  return std::size_t(parts * attention_grad_sums(args.forward)) * sizeof(float);
}

}  // namespace gradloom::kernels
