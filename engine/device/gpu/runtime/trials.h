// Failures that a real device does not show on demand, provoked for the trials of ./dev gpu. Environment, read once:
//   GRADLOOM_GPU_LEAVE_MB=64   the process takes all free memory of its first device but 64 MiB, and keeps it
//   GRADLOOM_GPU_TRAP=20       before its 20th kernel the process launches one that traps, and loses the device
#pragma once

#include "engine/device/gpu/runtime/names.h"

namespace gradloom::kernels::gpu {

void take_ballast();                       // of the thread's device; once per process
void trap_when_due(GPU(Stream_t) stream);  // before every kernel

// trap.cu
void queue_trap(void* stream);

}  // namespace gradloom::kernels::gpu
