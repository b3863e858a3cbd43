// The HIP runtime of ROCm FAKE_ROCM (5, 6 or 7), as far as a device is told and memory taken. Properties lie where that version's
// hip_runtime_api.h has them.
#include <cstdlib>
#include <cstring>

#include "tests/engine/device/gpu/runtime/fake_calls.h"

namespace {

int counted(const char* name) { return gradloom::test::fake_calls().call(name); }

template <class T>
void put(void* properties, std::size_t at, T value) {
  std::memcpy(static_cast<char*>(properties) + at, &value, sizeof value);
}

}  // namespace

#define FAKE extern "C" __attribute__((visibility("default")))

FAKE int hipGetDeviceCount(int* count) {
  *count = 1;
  return counted("hipGetDeviceCount");
}
FAKE int hipGetLastError() { return 0; }
FAKE const char* hipGetErrorName(int) { return "hipErrorOutOfMemory"; }
FAKE int hipMalloc(void** memory, std::size_t bytes) {
  const int status = counted("hipMalloc");
  if (status == 0) *memory = std::malloc(bytes);
  return status;
}
FAKE int hipFree(void* memory) {
  std::free(memory);
  return counted("hipFree");
}

// Of ROCm 5; later runtimes keep it for programs that were built with that one's headers.
FAKE int hipGetDeviceProperties(void* properties, int) {
  std::strcpy(static_cast<char*>(properties), "an old layout");
  put(properties, 256, std::size_t{1} << 30);
  put(properties, 264, std::size_t{65536});
  put(properties, 276, 64);
  put(properties, 336, 104);
  std::strcpy(static_cast<char*>(properties) + 396, "gfx90a:sramecc+:xnack-");
  return counted("properties");
}
#if FAKE_ROCM >= 6
FAKE int hipGetDevicePropertiesR0600(void* properties, int) {
  std::strcpy(static_cast<char*>(properties), "a new layout");
  put(properties, 288, std::size_t{1} << 31);
  put(properties, 296, std::size_t{32768});
  put(properties, 308, 32);
  put(properties, 388, 96);
  std::strcpy(static_cast<char*>(properties) + 1160, "gfx1100");
  return counted("properties");
}
#endif
