// The strict driver's device as HIP tells it, in place of engine/device/gpu/runtime/hip_runtime.cpp.
#include "engine/device/gpu/runtime/hip_runtime.h"

#include <cstdio>

#include "tests/engine/device/gpu/driver/memory.h"

namespace gradloom::kernels::gpu {

hipError_t device_properties(HipProperties* properties, int device) {
  if (device != 0) return hipErrorInvalidDevice;
  *properties = {};
  std::snprintf(properties->name, sizeof properties->name, "strict driver");
  std::snprintf(properties->gcnArchName, sizeof properties->gcnArchName, "gfx1030");
  properties->sharedMemPerBlock = 49152;
  properties->warpSize = 32;
  properties->multiProcessorCount = 4;
  properties->totalGlobalMem = strict::device_bytes();
  return hipSuccess;
}

void* optional_hip_function(const char*) { return nullptr; }

std::string missing_runtime() { return ""; }

}  // namespace gradloom::kernels::gpu
