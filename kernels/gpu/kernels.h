// The launchers of kernels/gpu/*.cu: host functions that queue a kernel on a stream. Arguments as on the CPU
// (kernels/arguments.h) with pointers into the device's memory; results as the CPU's within rounding. One
// kernel file per CPU kernel file, same name. All take f32, f16, bf16 and f64 (f64 for proofs); integer types
// where the CPU kernel has them.
#pragma once

#include "kernels/arguments.h"
#include "kernels/kernel_list.h"
#include "kernels/gpu/gpu.h"

namespace gradloom::kernels::gpu {

#define GRADLOOM_DECLARE(name, Args) void name(const Args& args, Stream stream);
GRADLOOM_GPU_KERNELS(GRADLOOM_DECLARE)
#undef GRADLOOM_DECLARE
// What `gemm` does with the product itself, which is in C: bias, activation, aux and sums. Behind a library
// without this epilogue.
void gemm_epilogue(const GemmArgs& args, Stream stream);
// The bias of a forward convolution that a library has left in `out`; nothing without one.
void convolution_bias(const ConvolutionArgs& args, Stream stream);

// f<float>(...), f<f16>(...), f<bf16>(...) or f<double>(...) by the storage type.
#define GRADLOOM_GPU_FLOATS(type, f, ...) \
  do {                                    \
    if ((type) == DType::f64) {           \
      f<double>(__VA_ARGS__);             \
    } else if ((type) == DType::f16) {    \
      f<f16>(__VA_ARGS__);                \
    } else if ((type) == DType::bf16) {   \
      f<bf16>(__VA_ARGS__);               \
    } else {                              \
      f<float>(__VA_ARGS__);              \
    }                                     \
  } while (false)

// f<T, P>(...) by the storage type and the type of what may be wider: the parameters of a normalization, the
// loss of logits.
#define GRADLOOM_GPU_MIXED(type, wide, f, ...)                   \
  do {                                                           \
    if ((type) == DType::f64) {                                  \
      f<double, double>(__VA_ARGS__);                            \
    } else if ((type) == DType::f16 && (wide) == DType::f16) {   \
      f<f16, f16>(__VA_ARGS__);                                  \
    } else if ((type) == DType::f16) {                           \
      f<f16, float>(__VA_ARGS__);                                \
    } else if ((type) == DType::bf16 && (wide) == DType::bf16) { \
      f<bf16, bf16>(__VA_ARGS__);                                \
    } else if ((type) == DType::bf16) {                          \
      f<bf16, float>(__VA_ARGS__);                               \
    } else {                                                     \
      f<float, float>(__VA_ARGS__);                              \
    }                                                            \
  } while (false)

}  // namespace gradloom::kernels::gpu
