#include "engine/device/gpu/runtime/trials.h"

#include <cstdlib>

namespace gradloom::kernels::gpu {
namespace {

// The variable's number; -1: not set.
long wanted(const char* name) {
  const char* value = std::getenv(name);
  return value != nullptr && *value != 0 ? std::atol(value) : -1;
}

}  // namespace

void take_ballast() {
  static bool taken = false;
  const long leave_mb = wanted("GRADLOOM_GPU_LEAVE_MB");
  std::size_t free = 0, total = 0;
  if (leave_mb < 0 || taken || GPU(MemGetInfo)(&free, &total) != GPU(Success)) return;
  taken = true;
  const std::size_t leave = std::size_t(leave_mb) << 20;
  // The free memory may be in pieces: smaller and smaller blocks are asked for until one is given, then the rest.
  for (std::size_t bytes = free > leave ? free - leave : 0; bytes >= (std::size_t(2) << 20);) {
    void* ballast = nullptr;
    if (GPU(Malloc)(&ballast, bytes) != GPU(Success)) bytes -= bytes / 16;
    if (GPU(MemGetInfo)(&free, &total) != GPU(Success)) break;
    if (ballast != nullptr) bytes = free > leave ? free - leave : 0;
  }
  (void)GPU(GetLastError)();
}

void trap_when_due(GPU(Stream_t) stream) {
  static long queued = 0;
  static const long at = wanted("GRADLOOM_GPU_TRAP");
  if (at > 0 && ++queued == at) queue_trap(stream);
}

}  // namespace gradloom::kernels::gpu
