// Arguments of optimizers (conventions: kernels/arguments.h).
#pragma once

#include "kernels/optimizer_kind.h"
#include "kernels/types.h"

namespace gradloom::kernels {

struct RandomState;  // elements.h

// Multi-tensor optimizers: one kernel updates `count` tensors of sizes[i] elements, in place (the *_out
// pointer equals the input or not; both work). lr: f64 scalar, step: i64 scalar (1 at the first update),
// grad_scale: scalar of dtype or null. Formulas and their sources: the rows of kernels/optimizers.def, whose
// options are the members from beta1 to eight_bit_states.
struct OptimizerArgs {
  DType dtype;
  OptimizerKind kind;
  std::int64_t count;
  const std::int64_t* sizes;
  double beta1, beta2, epsilon, weight_decay;
  double momentum, dampening;                   // SGD
  double lr_decay, initial_sum;                 // Adagrad
  double epsilon2, clip_threshold, decay_rate;  // Adafactor
  double alpha, momentum_decay;                 // RMSprop, Adadelta; NAdam
  bool nesterov, maximize, correct_bias, scale_parameter, relative_step, warmup_init;
  bool amsgrad, centered, decoupled;
  // Not with a third state: every state is encoded_bytes(sizes[i]) bytes (kernels/block_quantization.h), and what is computed of it
  // in a step is encoded again.
  bool eight_bit_states;
  double lr_factor;  // of lr
  // LAMB: lr is multiplied with |p| / |u| already, which are those of wholes of which the tensors are parts
  bool ratio_in_lr;
  double clip_value;  // largest size of a gradient's element after grad_scale; 0: any
  // Adafactor: whether tensors are matrices [.., rows[i], columns[i]] with means of rows and columns for states
  bool factored;
  const std::int64_t* rows;
  const std::int64_t* columns;
  const double* lr;
  const std::int64_t* step;
  const void* grad_scale;
  const bool* apply;  // false: nothing changes (on a GPU in place); null: true
  const void* const* grad;
  const void* const* param;
  const void* const* state1;  // m, momentum, sum, row, square_avg; v of what Adafactor does not factor
  const void* const* state2;  // v, column, acc_delta; RMSprop's momentum or null
  const void* const* state3;  // Adafactor's m, vmax of AMSGrad, RMSprop's grad_avg or null
  void* const* param_out;
  void* const* state1_out;
  void* const* state2_out;
  void* const* state3_out;
  // What is of 16 bits where dtype is wider.
  const DType* grad_types;  // of each tensor's gradient: dtype, f16 or bf16; null: dtype
  DType low_type;           // f16 or bf16: of copy_out
  // Of each tensor: the place in copy_out that gets param_out rounded to low_type, or -1; null: none
  const std::int64_t* copies;
  void* const* copy_out;
  // Whether parameters are of low_type themselves (and dtype is what they are computed in); rounded at random then.
  bool low_params;
  const RandomState* random;  // whose seed counts; the numbers are of `step`, which is the same on all ranks
  const std::uint64_t* keys;  // of each tensor's random numbers
  void* workspace;            // LAMB and Adafactor: norms, means
};
// Matrices of all factored tensors; none of them is empty.
inline std::int64_t factored_matrices(const OptimizerArgs& args) {
  std::int64_t matrices = 0;
  for (std::int64_t t = 0; args.factored && t < args.count; ++t)
    matrices += args.sizes[t] / (args.rows[t] * args.columns[t]);
  return matrices;
}
// out (scalar of dtype) = sqrt(sum over tensors of sum of squares), f64 accumulation in fixed order.
struct GlobalNormArgs {
  DType dtype;
  std::int64_t count;
  const std::int64_t* sizes;
  const void* const* tensors;
  void* out;
  void* workspace;
  const DType* types;  // of each tensor: dtype, or f16 or bf16 where that is wider; null: dtype
};

// out = (*micro == 0 ? 0 : sums) + parts / divisor, of `count` tensors of sizes[i] elements; in place (out equals sums) or not.
struct AccumulateArgs {
  DType dtype;
  std::int64_t count;
  const std::int64_t* sizes;
  double divisor;
  const void* const* sums;
  const void* const* parts;
  const DType* part_types;  // of each tensor in parts: dtype, or f16 or bf16 where that is wider; null: dtype
  const std::int64_t* micro;
  void* const* out;
};

}  // namespace gradloom::kernels

// clang-format off
// Its kernels: K(name, arguments).
#define GRADLOOM_OPTIMIZER_KERNELS(K) \
  K(optimizer, OptimizerArgs) K(global_norm, GlobalNormArgs) K(accumulate, AccumulateArgs)
// clang-format on
