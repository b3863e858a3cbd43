// The host's side of gpu.h: blocks run one after another on one OS thread, their threads as fibers
// (executor.cpp). No includes: generated kernels are compiled with it at run time.
//
// What differs from a GPU and is meant to: shared memory is NaN when a block starts, launches run only after
// the launcher has returned, threads run in a chosen order between barriers, and what a GPU leaves undefined
// is an error with the names of kernel, block and thread (list in executor.h).
#pragma once

#ifndef GRADLOOM_GPU_WARP
#define GRADLOOM_GPU_WARP 32
#endif

// NOLINTBEGIN(bugprone-reserved-identifier): CUDA's names
#define __global__
#define __device__
#define __host__
#define __shared__ static  // a variable of its own for ASan; the executor finds it by its symbol
#define __launch_bounds__(...)
// NOLINTEND(bugprone-reserved-identifier)
#define GRADLOOM_DEVICE inline __attribute__((always_inline))

struct dim3 {
  unsigned x, y, z;
  constexpr dim3(unsigned x_ = 1, unsigned y_ = 1, unsigned z_ = 1) : x(x_), y(y_), z(z_) {}
};
struct alignas(16) uint4 {
  unsigned x, y, z, w;
};

namespace gradloom::kernels::gpu {

constexpr int kWarp = GRADLOOM_GPU_WARP;

namespace host {

using Size = decltype(sizeof(0));

enum class Wait : unsigned char { barrier, shuffle_xor, shuffle_down, shuffle, ballot, gather, sync_warp };

// Where in the source a thread waits.
struct Place {
  const char* file;
  int line;
};

constexpr Size kGatherBytes = 64;

// What the running thread sees, and how it reaches the executor: a table, because compiled modules share no
// symbols with it.
struct Machine {
  dim3 thread, block, block_dims, grid_dims;
  void* dynamic_shared = nullptr;
  void (*barrier)(Place) = nullptr;
  // Gives `bytes` (at most 16) of this lane to the warp; `out` gets those of lane `lane`
  // (ballot: an 8-byte mask).
  void (*exchange)(Wait, const void* in, void* out, Size bytes, int lane, Place) = nullptr;
  // Gives `bytes` (at most kGatherBytes) of this lane; returns those of all lanes, one after another, until the next wait.
  const void* (*gather)(const void* in, Size bytes, Place) = nullptr;
};
#ifdef GRADLOOM_GPU_MODULE  // a file compiled at run time: whoever loads it sets the pointer
extern "C" {
__attribute__((visibility("default"))) Machine* gradloom_gpu_machine = nullptr;
}
#else
extern "C" __attribute__((visibility("hidden"))) Machine* gradloom_gpu_machine;
#endif

// One launch: thread(closure) is what every thread runs.
struct Launch {
  const void* kernel;  // the function, for its name
  dim3 grid, block;
  Size shared_bytes;
  void (*thread)(const void* closure);
  const void* closure;
  Size closure_bytes;
};

// Where launches go (executor.h): they copy the closure.
struct Queue {
  void (*take)(Queue*, const Launch&);
};

template <class T>
GRADLOOM_DEVICE T exchange(Wait wait, T v, int lane, Place place) {
  static_assert(sizeof(T) <= 16 && __is_trivially_copyable(T));
  T other = v;
  gradloom_gpu_machine->exchange(wait, &v, &other, sizeof(T), lane, place);
  return other;
}

}  // namespace host

template <class T>
GRADLOOM_DEVICE T shuffle_xor(T v, int lanes, int line = __builtin_LINE(),
                              const char* file = __builtin_FILE()) {
  return host::exchange(host::Wait::shuffle_xor, v, lanes, {file, line});
}
template <class T>
GRADLOOM_DEVICE T shuffle_down(T v, int n, int line = __builtin_LINE(), const char* file = __builtin_FILE()) {
  return host::exchange(host::Wait::shuffle_down, v, n, {file, line});
}
template <class T>
GRADLOOM_DEVICE T shuffle(T v, int lane, int line = __builtin_LINE(), const char* file = __builtin_FILE()) {
  return host::exchange(host::Wait::shuffle, v, lane, {file, line});
}
GRADLOOM_DEVICE unsigned long long ballot(bool p, int line = __builtin_LINE(),
                                          const char* file = __builtin_FILE()) {
  return host::exchange<unsigned long long>(host::Wait::ballot, p ? 1 : 0, 0, {file, line});
}

GRADLOOM_DEVICE void sync_warp(int line = __builtin_LINE(), const char* file = __builtin_FILE()) {
  host::gradloom_gpu_machine->exchange(host::Wait::sync_warp, nullptr, nullptr, 0, 0, {file, line});
}

// What all lanes give, by lane, until this one waits again: for what other devices have an instruction for (mma.h).
template <class T>
GRADLOOM_DEVICE const T* gather(const T& v, int line = __builtin_LINE(),
                                const char* file = __builtin_FILE()) {
  static_assert(sizeof(T) <= host::kGatherBytes && __is_trivially_copyable(T));
  return static_cast<const T*>(host::gradloom_gpu_machine->gather(&v, sizeof(T), {file, line}));
}

template <class T>
GRADLOOM_DEVICE T* dynamic_shared() {
  return static_cast<T*>(host::gradloom_gpu_machine->dynamic_shared);
}

using Stream = host::Queue*;

template <class... Params, class... Args>
void launch(Stream stream, void (*kernel)(Params...), dim3 grid, dim3 block, host::Size shared_bytes,
            Args... args) {
  const auto thread = [=] { kernel(Params(args)...); };
  using Thread = decltype(thread);
  static_assert(__is_trivially_copyable(Thread), "kernels take plain values");
  const auto run = [](const void* closure) { (*static_cast<Thread*>(closure))(); };
  stream->take(stream, {reinterpret_cast<const void*>(kernel), grid, block, shared_bytes, run, &thread,
                        sizeof thread});
}

// A program of program_source.h: its one argument comes by address.
#define GRADLOOM_PROGRAM(name, Params)                                              \
  static void name##_body(const Params& params);                                    \
  extern "C" __attribute__((visibility("default"))) void name(const void* params) { \
    name##_body(*static_cast<const Params*>(params));                               \
  }                                                                                 \
  static void name##_body([[maybe_unused]] const Params& params)

}  // namespace gradloom::kernels::gpu

#define threadIdx (::gradloom::kernels::gpu::host::gradloom_gpu_machine->thread)
#define blockIdx (::gradloom::kernels::gpu::host::gradloom_gpu_machine->block)
#define blockDim (::gradloom::kernels::gpu::host::gradloom_gpu_machine->block_dims)
#define gridDim (::gradloom::kernels::gpu::host::gradloom_gpu_machine->grid_dims)

// NOLINTBEGIN(bugprone-reserved-identifier)
inline void __syncthreads(int line = __builtin_LINE(), const char* file = __builtin_FILE()) {
  gradloom::kernels::gpu::host::gradloom_gpu_machine->barrier({file, line});
}
// One thread runs at a time: for the race checker (engine/device/gpu/host/races.h), as that the atomics below are such.
inline void __threadfence() { __atomic_thread_fence(__ATOMIC_SEQ_CST); }
// NOLINTEND(bugprone-reserved-identifier)

// Integer atomics; the old value comes back, as in CUDA.
#define GRADLOOM_ATOMIC(T)                                                                    \
  inline T atomicAdd(T* at, T v) { return __atomic_fetch_add(at, v, __ATOMIC_RELAXED); }      \
  inline T atomicMax(T* at, T v) {                                                            \
    T old = __atomic_load_n(at, __ATOMIC_RELAXED);                                            \
    while (!__atomic_compare_exchange_n(at, &old, old > v ? old : v, false, __ATOMIC_RELAXED, \
                                        __ATOMIC_RELAXED)) {                                  \
    }                                                                                         \
    return old;                                                                               \
  }                                                                                           \
  inline T atomicCAS(T* at, T expected, T v) {                                                \
    __atomic_compare_exchange_n(at, &expected, v, false, __ATOMIC_RELAXED, __ATOMIC_RELAXED); \
    return expected;                                                                          \
  }
GRADLOOM_ATOMIC(int)
GRADLOOM_ATOMIC(unsigned)
GRADLOOM_ATOMIC(unsigned long long)
#undef GRADLOOM_ATOMIC
