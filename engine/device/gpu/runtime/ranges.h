// Names of plan steps for the vendors' profilers: NVTX, roctx. They cost next to nothing when no profiler is attached.
#pragma once

namespace gradloom::kernels::gpu {

void push_range(const char* name);
void pop_range();

}  // namespace gradloom::kernels::gpu
