// Arguments of optimizers (conventions: kernels/arguments.h).
#pragma once

#include "kernels/optimizer_kind.h"
#include "kernels/types.h"

namespace gradloom::kernels {

// Multi-tensor optimizers: one kernel updates `count` tensors of sizes[i] elements, in place (the *_out
// pointer equals the input or not; both work). lr: f64 scalar, step: i64 scalar (1 at the first update),
// grad_scale: scalar of dtype or null. Formulas and their sources: the rows of kernels/optimizers.def, whose
// options are the members from beta1 to correct_bias.
struct OptimizerArgs {
  DType dtype;
  OptimizerKind kind;
  std::int64_t count;
  const std::int64_t* sizes;
  double beta1, beta2, epsilon, weight_decay;
  double momentum, dampening;    // SGD
  double lr_decay, initial_sum;  // Adagrad
  bool nesterov, maximize, correct_bias;
  const double* lr;
  const std::int64_t* step;
  const void* grad_scale;
  const bool* apply;  // false: nothing changes (on a GPU in place); null: true
  const void* const* grad;
  const void* const* param;
  const void* const* state1;  // m, momentum or sum
  const void* const* state2;  // v
  void* const* param_out;
  void* const* state1_out;
  void* const* state2_out;
  void* workspace;  // LAMB: update vectors' norms
};
// out (scalar of dtype) = sqrt(sum over tensors of sum of squares), f64 accumulation in fixed order.
struct GlobalNormArgs {
  DType dtype;
  std::int64_t count;
  const std::int64_t* sizes;
  const void* const* tensors;
  void* out;
  void* workspace;
};

}  // namespace gradloom::kernels

// clang-format off
// Its kernels: K(name, arguments).
#define GRADLOOM_OPTIMIZER_KERNELS(K) \
  K(optimizer, OptimizerArgs) K(global_norm, GlobalNormArgs)
// clang-format on
