// HIP's side of gpu.h.
#pragma once

#ifndef __HIPCC_RTC__
#include <hip/hip_runtime.h>
#endif

#define GRADLOOM_DEVICE __device__ __forceinline__
#define GRADLOOM_PROGRAM(name, Params) \
  extern "C" __global__ void __launch_bounds__(256) name(const Params params)  // program_source.h

namespace gradloom::kernels::gpu {

// By the processor's family: compilers no longer tell the width of a wave (ROCm 7 dropped __AMDGCN_WAVEFRONT_SIZE), and a family
// that is not known here must not be taken for one of 32.
#if defined(__GFX9__)
constexpr int kWarp = 64;
#elif defined(__GFX10__) || defined(__GFX11__) || defined(__GFX12__) || !defined(__HIP_DEVICE_COMPILE__)
constexpr int kWarp = 32;  // also what host code sees, which must not use it
#else
#error "gradloom: the width of this processor's waves is not known (kWarp in kernels/gpu/hip.h)"
#endif
// Later compilers warn of its use.
#if defined(__AMDGCN_WAVEFRONT_SIZE) && defined(__HIP_DEVICE_COMPILE__) && __clang_major__ < 19
static_assert(kWarp == __AMDGCN_WAVEFRONT_SIZE);
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
GRADLOOM_DEVICE void sync_warp() {
  __builtin_amdgcn_fence(__ATOMIC_RELEASE, "wavefront");
  __builtin_amdgcn_wave_barrier();
  __builtin_amdgcn_fence(__ATOMIC_ACQUIRE, "wavefront");
}
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
