// CPU kernels: pointers and shapes in, numbers out. Every kernel takes one plain struct of arguments.
// No allocation, no failure, no logging. Parallel with OpenMP above a size threshold; work is cut into parts that do
// not depend on the number of threads, so that the same bits come out for any thread count. f32 reductions accumulate
// in f32 lanes over fixed blocks, partial sums in f64.
#pragma once

#include "kernels/arguments.h"

namespace gradloom::kernels {

// Every kernel, one row each: name, argument struct. dispatch.cpp builds the table per x86-64 level from this list.
#define GRADLOOM_CPU_KERNELS(K)                                                                             \
  K(elementwise, ElementwiseArgs) K(dropout, DropoutArgs)                                                   \
  K(strided_copy, StridedCopyArgs) K(fill, FillArgs) K(reduce, ReduceArgs)                                  \
  K(softmax, SoftmaxArgs) K(softmax_grad, SoftmaxGradArgs)                                                  \
  K(layer_norm, LayerNormArgs) K(layer_norm_grad, LayerNormGradArgs)                                        \
  K(group_norm, GroupNormArgs) K(group_norm_grad, GroupNormGradArgs)                                        \
  K(batch_norm, BatchNormArgs) K(batch_norm_grad, BatchNormGradArgs)                                        \
  K(gather, GatherArgs) K(gather_grad, GatherGradArgs)                                                      \
  K(index_gather, IndexGatherArgs) K(index_scatter, IndexScatterArgs) K(one_hot, OneHotArgs)                \
  K(reverse_sequence, ReverseSequenceArgs) K(trilu, TriluArgs) K(cum_sum, CumSumArgs)                       \
  K(arg_extreme, ArgExtremeArgs) K(top_k, TopKArgs) K(resample, ResampleArgs)                               \
  K(grid_sample, GridSampleArgs) K(grid_sample_grad, GridSampleGradArgs)                                    \
  K(nll_loss, NllLossArgs) K(nll_loss_grad, NllLossGradArgs)                                                \
  K(softmax_cross_entropy, SoftmaxCrossEntropyArgs) K(softmax_cross_entropy_grad, SoftmaxCrossEntropyGradArgs) \
  K(max_pool, MaxPoolArgs) K(max_pool_grad, MaxPoolGradArgs)                                                \
  K(average_pool, AveragePoolArgs) K(average_pool_grad, AveragePoolGradArgs)                                \
  K(recurrent_step, RecurrentStepArgs) K(recurrent_step_grad, RecurrentStepGradArgs)                        \
  K(optimizer, OptimizerArgs) K(global_norm, GlobalNormArgs) K(gemm, GemmArgs)

struct CpuKernels {
  const char* isa;
#define GRADLOOM_MEMBER(name, Args) void (*name)(const Args&);
  GRADLOOM_CPU_KERNELS(GRADLOOM_MEMBER)
#undef GRADLOOM_MEMBER
};

// The kernels of the best x86-64 level that this machine supports (GRADLOOM_ISA=v2|v3|v4 in the environment lowers it).
const CpuKernels& cpu();

// Every compiled level that this machine supports, lowest first; returns how many (for tests and benchmarks).
int cpu_levels(const CpuKernels** levels, int capacity);

// Threads that kernels use; set once per run.
void set_threads(int threads);
int threads();

}  // namespace gradloom::kernels
