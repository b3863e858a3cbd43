// What a real device does not do at will, for the trials of ./dev gpu. Environment, read once:
//   GRADLOOM_GPU_LEAVE_MB=64   the process takes and keeps the free memory of its first device but this much
//   GRADLOOM_GPU_TRAP=20       a kernel that traps goes before the process's 20th: the device is lost to it
#pragma once

#include "engine/device/gpu/runtime/names.h"

namespace gradloom::kernels::gpu {

void take_ballast();                       // of the thread's device; once per process
void trap_when_due(GPU(Stream_t) stream);  // before every kernel

// trap.cu
void queue_trap(void* stream);

}  // namespace gradloom::kernels::gpu
