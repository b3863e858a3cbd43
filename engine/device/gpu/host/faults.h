// Failures on demand: GRADLOOM_HOSTGPU_FAIL="allocate:3=4,run:10=6" makes the third call of `allocate` return
// status 4 (GpuStatus) and the tenth of `run` status 6. Names are those of GpuPlugin's members, those of kernels (their launches), and `library`, the
// stand-in for a library of products, whose failure is no failure of the call. A new value starts counting anew.
#pragma once

#include <map>
#include <string>

#include "engine/device/gpu/plugin.h"

namespace gradloom::kernels::gpu::host {

class InjectedFaults {
 public:
  // Counts a call; GPU_OK: nothing is to fail.
  GpuStatus call(const char* entry);

 private:
  std::string text_;
  std::map<std::string, long> calls_;
};

}  // namespace gradloom::kernels::gpu::host
