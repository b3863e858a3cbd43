// rocBLAS that counts, fails on demand and computes nothing (rocblas-functions.h).
#include <cstddef>
#include <cstdint>

#include "tests/engine/device/gpu/runtime/fake_calls.h"

namespace {

int counted(const char* name) { return gradloom::test::fake_calls().call(name); }

int object = 0;
std::size_t workspace_bytes = 0;

}  // namespace

#define FAKE extern "C" __attribute__((visibility("default")))

FAKE std::size_t fake_workspace() { return workspace_bytes; }

FAKE int rocblas_create_handle(void** handle) {
  *handle = &object;
  return counted("create");
}
FAKE int rocblas_destroy_handle(void*) { return counted("destroy"); }
FAKE int rocblas_set_stream(void*, void*) { return counted("stream"); }
FAKE int rocblas_set_atomics_mode(void*, int) { return counted("atomics"); }
FAKE int rocblas_set_workspace(void*, void* memory, std::size_t bytes) {
  workspace_bytes = memory != nullptr ? bytes : 0;
  return counted("workspace");
}
FAKE int rocblas_get_version_string(char* text, std::size_t bytes) {
  if (bytes < 6) return 1;
  for (const char c : {'5', '.', '0', '\0'}) *text++ = c;
  return 0;
}
FAKE int rocblas_gemm_strided_batched_ex(void*, int, int, int, int, int, const void*, const void*, int, int,
                                         std::int64_t, const void*, int, int, std::int64_t, const void*,
                                         const void*, int, int, std::int64_t, void*, int, int, std::int64_t,
                                         int, int, int, std::int32_t, std::uint32_t) {
  return counted("gemm");
}
