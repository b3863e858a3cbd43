// Workspace sizes of the CPU kernels, the same for every x86-64 level.
#include "kernels/cpu/workspace.h"

namespace gradloom::kernels {

using namespace portable;

std::size_t reduce_workspace_bytes(const ReduceArgs& args) {
  const std::int64_t blocks = blocks_of(args.n, reduce_block(args.n, args.inner));
  return blocks > 1 ? std::size_t(args.outer * blocks * args.inner) * 8 : 0;
}

std::size_t layer_norm_grad_workspace_bytes(const LayerNormGradArgs& args) {
  const std::int64_t blocks = blocks_of(args.rows, layer_norm_grad_block(args.rows));
  return std::size_t(2 * blocks * args.cols) * dtype_bytes(args.dtype);
}

// Start of each destination row's list, then the sources sorted by destination.
std::size_t gather_grad_workspace_bytes(const GatherGradArgs& args) {
  return std::size_t(args.axis_size + 1 + args.count) * 8;
}

// Loss and weight of every row.
std::size_t softmax_cross_entropy_workspace_bytes(const SoftmaxCrossEntropyArgs& args) {
  return std::size_t(2 * args.outer * args.inner) * 8;
}

// LAMB: squared norms of the parameter and of the update, per piece.
std::size_t optimizer_workspace_bytes(const OptimizerArgs& args) {
  return args.kind == OptimizerKind::lamb ? std::size_t(2 * pieces_of(args.count, args.sizes)) * 8 : 0;
}

std::size_t global_norm_workspace_bytes(const GlobalNormArgs& args) {
  return std::size_t(pieces_of(args.count, args.sizes)) * 8;
}

}  // namespace gradloom::kernels
