// Every kernel with the name of its argument struct; the lists of each family stand beside the structs, in
// kernels/arguments/. From them come the tables of the CPU's levels, the launcher, the plugins and their version check.
#pragma once

#include "kernels/arguments.h"

#define GRADLOOM_SHARED_KERNELS(K)  \
  GRADLOOM_ELEMENT_KERNELS(K)       \
  GRADLOOM_ROW_KERNELS(K)           \
  GRADLOOM_NORMALIZATION_KERNELS(K) \
  GRADLOOM_INDEX_KERNELS(K)         \
  GRADLOOM_IMAGE_KERNELS(K)         \
  GRADLOOM_LOSS_KERNELS(K)          \
  GRADLOOM_RECURRENT_KERNELS(K)     \
  GRADLOOM_OPTIMIZER_KERNELS(K)     \
  GRADLOOM_PRODUCT_KERNELS(K)       \
  GRADLOOM_ATTENTION_KERNELS(K)

// The CPU interprets elementwise programs; for GPUs they are generated (kernels/gpu/program_source.h). The others
// are what one pass over memory pays for on the CPU; GPUs run the kernels that they are made of.
#define GRADLOOM_CPU_ONLY_KERNELS(K) \
  K(elementwise, ElementwiseArgs)    \
  K(resample_planes, ResamplePlanesArgs) K(lrn, LrnArgs) K(lrn_grad, LrnGradArgs)

#define GRADLOOM_CPU_KERNELS(K) GRADLOOM_CPU_ONLY_KERNELS(K) GRADLOOM_SHARED_KERNELS(K)

// Kernels that only GPUs have as such: the CPU's products and convolutions are objects of prepared/.
#define GRADLOOM_GPU_ONLY_KERNELS(K) \
  K(convolution, ConvolutionArgs)    \
  K(store, StoreArgs) K(grouped_gemm, GroupedGemmArgs)

#define GRADLOOM_GPU_KERNELS(K) GRADLOOM_SHARED_KERNELS(K) GRADLOOM_GPU_ONLY_KERNELS(K)
