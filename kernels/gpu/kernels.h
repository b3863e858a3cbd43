// The launchers of kernels/gpu/*.cu: host functions that queue a kernel on a stream. Arguments as on the CPU (kernels/arguments.h) with
// pointers into the device's memory; results as the CPU's within rounding. One kernel file per CPU kernel file, same name.
// All take f32, bf16 and f64 (f64 for proofs); integer types where the CPU kernel has them.
#pragma once

#include "kernels/arguments.h"
#include "kernels/gpu/gpu.h"

namespace gradloom::kernels::gpu {

// Every kernel of kernels/launcher.h but `elementwise`, whose programs are generated (generate.h).
#define GRADLOOM_GPU_KERNELS(K)                                                                                \
  K(dropout, DropoutArgs) K(strided_copy, StridedCopyArgs) K(fill, FillArgs) K(reduce, ReduceArgs)             \
  K(softmax, SoftmaxArgs) K(softmax_grad, SoftmaxGradArgs)                                                     \
  K(layer_norm, LayerNormArgs) K(layer_norm_grad, LayerNormGradArgs)                                           \
  K(group_norm, GroupNormArgs) K(group_norm_grad, GroupNormGradArgs)                                           \
  K(batch_norm, BatchNormArgs) K(batch_norm_grad, BatchNormGradArgs)                                           \
  K(gather, GatherArgs) K(gather_grad, GatherGradArgs)                                                         \
  K(index_gather, IndexGatherArgs) K(index_scatter, IndexScatterArgs) K(one_hot, OneHotArgs)                   \
  K(reverse_sequence, ReverseSequenceArgs) K(trilu, TriluArgs) K(cum_sum, CumSumArgs)                          \
  K(arg_extreme, ArgExtremeArgs) K(top_k, TopKArgs) K(resample, ResampleArgs)                                  \
  K(grid_sample, GridSampleArgs) K(grid_sample_grad, GridSampleGradArgs)                                       \
  K(nll_loss, NllLossArgs) K(nll_loss_grad, NllLossGradArgs)                                                   \
  K(softmax_cross_entropy, SoftmaxCrossEntropyArgs) K(softmax_cross_entropy_grad, SoftmaxCrossEntropyGradArgs) \
  K(max_pool, MaxPoolArgs) K(max_pool_grad, MaxPoolGradArgs)                                                   \
  K(average_pool, AveragePoolArgs) K(average_pool_grad, AveragePoolGradArgs)                                   \
  K(recurrent_step, RecurrentStepArgs) K(recurrent_step_grad, RecurrentStepGradArgs)                           \
  K(optimizer, OptimizerArgs) K(global_norm, GlobalNormArgs)                                                   \
  K(gemm, GemmArgs) K(convolution, ConvolutionArgs) K(store, StoreArgs)

#define GRADLOOM_DECLARE(name, Args) void name(const Args& args, Stream stream);
GRADLOOM_GPU_KERNELS(GRADLOOM_DECLARE)
#undef GRADLOOM_DECLARE
// What `gemm` does with the product itself, which is in C: bias, activation, aux and sums. Behind a library without this epilogue.
void gemm_epilogue(const GemmArgs& args, Stream stream);
// The bias of a forward convolution that a library has left in `out`; nothing without one.
void convolution_bias(const ConvolutionArgs& args, Stream stream);

// f<float>(...), f<bf16>(...) or f<double>(...) by the storage type.
#define GRADLOOM_GPU_FLOATS(type, f, ...)                          \
  do {                                                             \
    if ((type) == DType::f64) {                                    \
      f<double>(__VA_ARGS__);                                      \
    } else if ((type) == DType::bf16) {                            \
      f<bf16>(__VA_ARGS__);                                        \
    } else {                                                       \
      f<float>(__VA_ARGS__);                                       \
    }                                                              \
  } while (false)

// f<T, P>(...) by the storage type and the type of what may be wider: the parameters of a normalization, the loss of logits.
#define GRADLOOM_GPU_MIXED(type, wide, f, ...)                              \
  do {                                                                      \
    if ((type) == DType::f64) {                                             \
      f<double, double>(__VA_ARGS__);                                       \
    } else if ((type) == DType::bf16 && (wide) == DType::bf16) {            \
      f<bf16, bf16>(__VA_ARGS__);                                           \
    } else if ((type) == DType::bf16) {                                     \
      f<bf16, float>(__VA_ARGS__);                                          \
    } else {                                                                \
      f<float, float>(__VA_ARGS__);                                         \
    }                                                                       \
  } while (false)

}  // namespace gradloom::kernels::gpu
