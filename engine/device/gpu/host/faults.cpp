#include "engine/device/gpu/host/faults.h"

#include <cstdio>
#include <cstdlib>
#include <sstream>

namespace gradloom::kernels::gpu::host {

GpuStatus InjectedFaults::call(const char* entry) {
  const char* wanted = std::getenv("GRADLOOM_HOSTGPU_FAIL");
  if (wanted == nullptr || *wanted == 0) return GPU_OK;
  if (text_ != wanted) {
    text_ = wanted;
    calls_.clear();
  }
  const long call = ++calls_[entry];
  std::istringstream rules(text_);
  for (std::string rule; std::getline(rules, rule, ',');) {
    const std::size_t colon = rule.find(':');
    long number = 0;
    int status = 0;
    if (colon == std::string::npos || rule.compare(0, colon, entry) != 0) continue;
    if (std::sscanf(rule.c_str() + colon, ":%ld=%d", &number, &status) == 2 && number == call)
      return GpuStatus(status);
  }
  return GPU_OK;
}

}  // namespace gradloom::kernels::gpu::host
