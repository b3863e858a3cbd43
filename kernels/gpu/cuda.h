// CUDA's side of gpu.h.
#pragma once

#ifndef __CUDACC_RTC__
#include <cuda_runtime.h>
#endif

#define GRADLOOM_DEVICE __device__ __forceinline__
#define GRADLOOM_PROGRAM(name, Params) \
  extern "C" __global__ void __launch_bounds__(256) name(const Params params)  // program_source.h

namespace gradloom::kernels::gpu {

constexpr int kWarp = 32;

template <class T>
GRADLOOM_DEVICE T shuffle_xor(T v, int lanes) {
  return __shfl_xor_sync(0xffffffffu, v, lanes);
}
template <class T>
GRADLOOM_DEVICE T shuffle_down(T v, int n) {
  return __shfl_down_sync(0xffffffffu, v, n);
}
template <class T>
GRADLOOM_DEVICE T shuffle(T v, int lane) {
  return __shfl_sync(0xffffffffu, v, lane);
}
GRADLOOM_DEVICE unsigned long long ballot(bool p) { return __ballot_sync(0xffffffffu, p); }
GRADLOOM_DEVICE void sync_warp() { __syncwarp(); }
GRADLOOM_DEVICE void trap() { __trap(); }

template <class T>
GRADLOOM_DEVICE T* dynamic_shared() {
  extern __shared__ uint4 gradloom_dynamic_shared[];
  return reinterpret_cast<T*>(gradloom_dynamic_shared);
}

#ifndef __CUDACC_RTC__
using Stream = cudaStream_t;

template <class... Params, class... Args>
void launch(Stream stream, void (*kernel)(Params...), dim3 grid, dim3 block, std::size_t shared_bytes,
            Args... args) {
  kernel<<<grid, block, shared_bytes, stream>>>(Params(args)...);
}
#endif

}  // namespace gradloom::kernels::gpu
