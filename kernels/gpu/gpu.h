// What GPU kernel files (*.cu) and generated kernels may use. One spelling, CUDA's, for three targets: CUDA
// (nvcc, NVRTC), HIP (clang, hipRTC) and the host (engine/device/gpu/host: blocks of threads run as fibers, for
// tests without a GPU). Kernel files hold no #if.
//
//   __global__ __device__ __shared__ __syncthreads() threadIdx blockIdx blockDim gridDim   as in CUDA
//   kWarp                      lanes of a warp: 32, on gfx9 64. A kernel must be right for both.
//   shuffle_xor(v, lanes)  shuffle_down(v, n)  shuffle(v, lane)  ballot(p)      all lanes of the warp must take part
//   sync_warp()                all lanes must take part: what they wrote before is there for all after it. The functions above order no memory.
//   atomicAdd, atomicMax, atomicCAS of int, unsigned, unsigned long long; __threadfence()     as in CUDA
//   warp_reduce(v, op)  block_reduce(v, op, identity)     in a fixed order; every thread gets the result; block_reduce: every thread
//                              of the block must call it, blockDim.x a multiple of kWarp and at most 1024, one-dimensional blocks
//   dynamic_shared<T>()        the shared memory whose bytes launch() was given, 16-byte aligned
//   trap()                     CUDA and HIP alone: the kernel fails, and the device is lost to the process (engine/device/gpu/runtime/trials.h)
//   Pack<T>, load_pack, store_pack    16 bytes at a 16-byte boundary
//   f16, bf16, Accum<T>, to_accum(v), from_accum<T>(a)   storage types and the type to compute in: double for double, else float
//   launch(stream, kernel, grid, block, shared_bytes, args...)    from host code; errors show in the plugin's next status
// No float atomics, no cooperative groups, no cub or thrust, no device globals.
#pragma once

#if defined(GRADLOOM_GPU_HOST)
#include "kernels/gpu/host.h"
#elif defined(__HIP__) || defined(__HIPCC_RTC__)
#include "kernels/gpu/hip.h"
#else
#include "kernels/gpu/cuda.h"
#endif

#include "kernels/math.h"
#include "kernels/philox.h"

namespace gradloom::kernels::gpu {

using namespace gradloom::kernels::portable;  // math.h, philox.h

// ---- types ----------------------------------------------------------------------------------------------------------------------

// bfloat16: the upper half of a float, rounded to nearest even; NaN stays NaN.
struct bf16 {
  unsigned short bits;
};

GRADLOOM_HD float to_float(bf16 v) { return __builtin_bit_cast(float, unsigned(v.bits) << 16); }
GRADLOOM_HD bf16 to_bf16(float v) {
  const unsigned bits = __builtin_bit_cast(unsigned, v);
  if ((bits & 0x7fffffffu) > 0x7f800000u) return {static_cast<unsigned short>((bits >> 16) | 0x40u)};
  return {static_cast<unsigned short>((bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16)};
}

// IEEE 754's binary16, rounded to nearest even: subnormals are kept, what is too large becomes infinite.
struct f16 {
  unsigned short bits;
};

// CUDA knows no _Float16, and its header is not part of the prelude (program_source.h).
#if defined(__CUDACC__) && !defined(__HIP__)
GRADLOOM_DEVICE float to_float(f16 v) {
  float f;
  asm("cvt.f32.f16 %0, %1;" : "=f"(f) : "h"(v.bits));
  return f;
}
GRADLOOM_DEVICE f16 to_f16(float v) {
  f16 h;
  asm("cvt.rn.f16.f32 %0, %1;" : "=h"(h.bits) : "f"(v));
  return h;
}
GRADLOOM_DEVICE f16 to_f16(double v) {
  f16 h;
  asm("cvt.rn.f16.f64 %0, %1;" : "=h"(h.bits) : "d"(v));
  return h;
}
#else
GRADLOOM_DEVICE float to_float(f16 v) { return float(__builtin_bit_cast(_Float16, v.bits)); }
GRADLOOM_DEVICE f16 to_f16(float v) { return {__builtin_bit_cast(unsigned short, _Float16(v))}; }
GRADLOOM_DEVICE f16 to_f16(double v) { return {__builtin_bit_cast(unsigned short, _Float16(v))}; }
#endif

template <class T>
struct AccumOf {
  using type = T;
};
template <>
struct AccumOf<f16> {
  using type = float;
};
template <>
struct AccumOf<bf16> {
  using type = float;
};
template <class T>
using Accum = typename AccumOf<T>::type;

template <class T>
GRADLOOM_HD T to_accum(T v) {
  return v;
}
GRADLOOM_DEVICE float to_accum(f16 v) { return to_float(v); }
GRADLOOM_HD float to_accum(bf16 v) { return to_float(v); }

template <class T>
struct FromAccum {
  static GRADLOOM_HD T convert(T v) { return v; }
};
template <>
struct FromAccum<f16> {
  static GRADLOOM_DEVICE f16 convert(float v) { return to_f16(v); }
};
template <>
struct FromAccum<bf16> {
  static GRADLOOM_HD bf16 convert(float v) { return to_bf16(v); }
};
template <class T>
GRADLOOM_HD T from_accum(Accum<T> v) {
  return FromAccum<T>::convert(v);
}

// 16 bytes of T, loaded and stored at once.
template <class T>
struct alignas(16) Pack {
  static constexpr int kCount = 16 / int(sizeof(T));
  T v[kCount];
};
template <class T>
GRADLOOM_HD Pack<T> load_pack(const T* from) {
  return *reinterpret_cast<const Pack<T>*>(from);
}
template <class T>
GRADLOOM_HD void store_pack(T* to, const Pack<T>& pack) {
  *reinterpret_cast<Pack<T>*>(to) = pack;
}
// Whether every row of `cols` elements from these pointers starts at a 16-byte boundary.
template <class T>
GRADLOOM_HD bool packable(long long cols, const void* a, const void* b = nullptr, const void* c = nullptr) {
  const unsigned long long bits = reinterpret_cast<unsigned long long>(a) |
                                  reinterpret_cast<unsigned long long>(b) |
                                  reinterpret_cast<unsigned long long>(c);
  return cols % Pack<T>::kCount == 0 && bits % 16 == 0;
}

constexpr GRADLOOM_HD long long ceil_div(long long a, long long b) { return (a + b - 1) / b; }

// ---- reductions -----------------------------------------------------------------------------------------------------------------

struct Sum {
  template <class A>
  GRADLOOM_DEVICE A operator()(A a, A b) const {
    return a + b;
  }
};
// NaN wins, as in NumPy.
struct Max {
  template <class A>
  GRADLOOM_DEVICE A operator()(A a, A b) const {
    return max(a, b);
  }
};
struct Min {
  template <class A>
  GRADLOOM_DEVICE A operator()(A a, A b) const {
    return min(a, b);
  }
};

// Butterfly: lane l adds the value of lane l ^ 16, then l ^ 8, ...; commutative operators only.
template <class A, class Op>
GRADLOOM_DEVICE A warp_reduce(A v, Op op) {
  for (int lanes = kWarp / 2; lanes > 0; lanes /= 2) v = op(v, shuffle_xor(v, lanes));
  return v;
}

template <class A, class Op>
GRADLOOM_DEVICE A block_reduce(A v, Op op, A identity) {
  __shared__ A parts[1024 / 32];
  const int lane = int(threadIdx.x) % kWarp, warp = int(threadIdx.x) / kWarp, warps = int(blockDim.x) / kWarp;
  v = warp_reduce(v, op);
  if (warps == 1) return v;
  if (lane == 0) parts[warp] = v;
  __syncthreads();
  v = warp_reduce(lane < warps ? parts[lane] : identity, op);
  __syncthreads();  // parts may be written again
  return v;
}

}  // namespace gradloom::kernels::gpu
