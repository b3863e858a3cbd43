// HIP's side of gpu.h.
#pragma once

#ifndef __HIPCC_RTC__
#include <hip/hip_runtime.h>
#endif

#define GRADLOOM_DEVICE __device__ __forceinline__
#define GRADLOOM_PROGRAM(name, Params) \
  extern "C" __global__ void __launch_bounds__(256) name(const Params params)  // program_source.h

namespace gradloom::kernels::gpu {

// By the processor: compilers no longer tell the width of a wave (ROCm 7 dropped __AMDGCN_WAVEFRONT_SIZE), and those
// before LLVM 17 do not tell the family.
#if defined(__GFX9__) || defined(__gfx900__) || defined(__gfx906__) || defined(__gfx908__) ||   \
    defined(__gfx90a__) || defined(__gfx940__) || defined(__gfx941__) || defined(__gfx942__) || \
    defined(__gfx950__)
constexpr int kWarp = 64;
#else
constexpr int kWarp = 32;  // gfx10 and later; host code must not use it
#endif

template <class T>
GRADLOOM_DEVICE T shuffle_xor(T v, int lanes) {
  return __shfl_xor(v, lanes);
}
template <class T>
GRADLOOM_DEVICE T shuffle_down(T v, int n) {
  return __shfl_down(v, n);
}
template <class T>
GRADLOOM_DEVICE T shuffle(T v, int lane) {
  return __shfl(v, lane);
}
GRADLOOM_DEVICE unsigned long long ballot(bool p) { return __ballot(p); }
GRADLOOM_DEVICE void trap() { __builtin_trap(); }

template <class T>
GRADLOOM_DEVICE T* dynamic_shared() {
  extern __shared__ uint4 gradloom_dynamic_shared[];
  return reinterpret_cast<T*>(gradloom_dynamic_shared);
}

#ifndef __HIPCC_RTC__
using Stream = hipStream_t;

// The kernel that this thread is about to launch, null: none any more (runtime/hip_activity.cpp).
void note_kernel(const void* kernel);

template <class... Params, class... Args>
void launch(Stream stream, void (*kernel)(Params...), dim3 grid, dim3 block, std::size_t shared_bytes,
            Args... args) {
  note_kernel(reinterpret_cast<const void*>(kernel));
  kernel<<<grid, block, shared_bytes, stream>>>(Params(args)...);
  note_kernel(nullptr);
}
#endif

}  // namespace gradloom::kernels::gpu
