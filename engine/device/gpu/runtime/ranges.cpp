#include "engine/device/gpu/runtime/ranges.h"

#if defined(GRADLOOM_HIP)

#include "engine/device/gpu/runtime/library.h"

namespace gradloom::kernels::gpu {
namespace {

struct Roctx {
  Library library{"librocprofiler-sdk-roctx.so.1", "libroctx64.so.4", "libroctx64.so"};
  int (*push)(const char*) = nullptr;
  int (*pop)() = nullptr;
  Roctx() {
    if (library) library.bind(push, "roctxRangePushA") && library.bind(pop, "roctxRangePop");
  }
};
const Roctx& roctx() {
  static const Roctx functions;
  return functions;
}

}  // namespace

void push_range(const char* name) {
  if (roctx().pop != nullptr) (void)roctx().push(name);
}
void pop_range() {
  if (roctx().pop != nullptr) (void)roctx().pop();
}

}  // namespace gradloom::kernels::gpu

#elif __has_include(<nvtx3/nvToolsExt.h>)

#include <nvtx3/nvToolsExt.h>

namespace gradloom::kernels::gpu {

void push_range(const char* name) { (void)nvtxRangePushA(name); }
void pop_range() { (void)nvtxRangePop(); }

}  // namespace gradloom::kernels::gpu

#else  // nvcc may come without it: NVIDIA's tools show kernels without ranges

namespace gradloom::kernels::gpu {

void push_range(const char*) {}
void pop_range() {}

}  // namespace gradloom::kernels::gpu

#endif
