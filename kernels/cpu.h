// CPU kernels: pointers and shapes in, numbers out. Every kernel takes one plain struct of arguments.
// No allocation, no failure, no logging. Parallel (threads.h) above a size threshold; work is cut into parts
// that do not depend on the number of threads, so that the same bits come out for any thread count. f32
// reductions accumulate in f32 lanes over fixed blocks, partial sums in f64.
#pragma once

#include "kernels/arguments.h"
#include "kernels/kernel_list.h"

namespace gradloom::kernels {

struct CpuKernels {
  const char* isa;
#define GRADLOOM_MEMBER(name, Args) void (*name)(const Args&);
  GRADLOOM_CPU_KERNELS(GRADLOOM_MEMBER)
#undef GRADLOOM_MEMBER
};

// The kernels of the best x86-64 level that this machine supports (GRADLOOM_ISA=v2|v3|v4 in
// the environment lowers it).
const CpuKernels& cpu();

// Every compiled level that this machine supports, lowest first; returns how many (for tests and benchmarks).
int cpu_levels(const CpuKernels** levels, int capacity);

// Threads that kernels use, at most 1024; set once per run. 0: as many as there are processors for us.
void set_threads(int threads);
int threads();

}  // namespace gradloom::kernels
