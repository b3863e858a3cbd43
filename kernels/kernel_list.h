// Every kernel, one row each: name, argument struct (kernels/arguments/). The tables of the CPU's levels,
// the launcher, the plugins and their check of versions are made of these lists.
#pragma once

// clang-format off
#define GRADLOOM_SHARED_KERNELS(K)                                                                           \
  K(dropout, DropoutArgs)                                                                                    \
  K(strided_copy, StridedCopyArgs) K(fill, FillArgs) K(reduce, ReduceArgs)                                   \
  K(softmax, SoftmaxArgs) K(softmax_grad, SoftmaxGradArgs)                                                   \
  K(layer_norm, LayerNormArgs) K(layer_norm_grad, LayerNormGradArgs)                                         \
  K(group_norm, GroupNormArgs) K(group_norm_grad, GroupNormGradArgs)                                         \
  K(batch_norm, BatchNormArgs) K(batch_norm_grad, BatchNormGradArgs)                                         \
  K(gather, GatherArgs) K(gather_grad, GatherGradArgs)                                                       \
  K(index_gather, IndexGatherArgs) K(index_scatter, IndexScatterArgs) K(one_hot, OneHotArgs)                 \
  K(reverse_sequence, ReverseSequenceArgs) K(trilu, TriluArgs) K(cum_sum, CumSumArgs)                        \
  K(determinant, DeterminantArgs) K(determinant_grad, DeterminantGradArgs)                                   \
  K(arg_extreme, ArgExtremeArgs) K(top_k, TopKArgs) K(resample, ResampleArgs)                                \
  K(grid_sample, GridSampleArgs) K(grid_sample_grad, GridSampleGradArgs)                                     \
  K(nll_loss, NllLossArgs) K(nll_loss_grad, NllLossGradArgs)                                                 \
  K(softmax_cross_entropy, SoftmaxCrossEntropyArgs) K(softmax_cross_entropy_grad, SoftmaxCrossEntropyGradArgs)\
  K(max_pool, MaxPoolArgs) K(max_pool_grad, MaxPoolGradArgs)                                                 \
  K(average_pool, AveragePoolArgs) K(average_pool_grad, AveragePoolGradArgs)                                 \
  K(recurrent_step, RecurrentStepArgs) K(recurrent_step_grad, RecurrentStepGradArgs)                         \
  K(optimizer, OptimizerArgs) K(global_norm, GlobalNormArgs) K(gemm, GemmArgs)
// clang-format on

// The CPU interprets elementwise programs; for GPUs they are generated (kernels/gpu/program_source.h). The others
// are what one pass over memory pays for on the CPU; GPUs run the kernels that they are made of.
#define GRADLOOM_CPU_ONLY_KERNELS(K) \
  K(elementwise, ElementwiseArgs)    \
  K(resample_planes, ResamplePlanesArgs) K(lrn, LrnArgs) K(lrn_grad, LrnGradArgs)

#define GRADLOOM_CPU_KERNELS(K) GRADLOOM_CPU_ONLY_KERNELS(K) GRADLOOM_SHARED_KERNELS(K)

// Kernels that only GPUs have as such: the CPU's products and convolutions are objects of prepared/.
#define GRADLOOM_GPU_ONLY_KERNELS(K) K(convolution, ConvolutionArgs) K(store, StoreArgs)

#define GRADLOOM_GPU_KERNELS(K) GRADLOOM_SHARED_KERNELS(K) GRADLOOM_GPU_ONLY_KERNELS(K)
