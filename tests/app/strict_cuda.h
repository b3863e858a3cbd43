// The plugin over the strict driver in a test: found by the program, and asked what it complained about.
#pragma once

#include <dlfcn.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <string>

#include "tests/engine/device/gpu/driver/control.h"

namespace gradloom {

// The device: "cuda:0", or "hip:0" where the tests are built over HIP's spelling of the driver (GRADLOOM_STRICT_KIND).
inline constexpr const char* kStrictDevice = GRADLOOM_STRICT_KIND ":0";

// From now on that kind is that plugin, here and in programs that this one starts.
inline void use_strict_cuda() {
  setenv("GRADLOOM_PLUGINS", GRADLOOM_STRICT_FOLDER, 1);
  for (const char* home : {"CUDA_HOME", "ROCM_PATH"}) setenv(home, GRADLOOM_STRICT_FOLDER, 1);
  setenv("GRADLOOM_CACHE", GRADLOOM_STRICT_FOLDER "/cache", 1);
}

// Without libraries of the device, which are found where a toolkit has none of them first: our own kernels do everything.
inline void use_bare_strict_cuda() {
  use_strict_cuda();
  setenv("CUDA_HOME", GRADLOOM_STRICT_FOLDER "/bare", 1);
}

class StrictCuda {
 public:
  explicit StrictCuda(void (*use)() = use_strict_cuda) {
    use();
    library_ =
        dlopen(GRADLOOM_STRICT_FOLDER "/libgradloom_" GRADLOOM_STRICT_KIND ".so", RTLD_NOW | RTLD_LOCAL);
    EXPECT_NE(library_, nullptr) << dlerror();
  }
  std::string complaints() const { return function<StrictComplaintsFn>(STRICT_COMPLAINTS)(); }
  std::string left() const { return function<StrictLeftFn>(STRICT_LEFT)(); }
  StrictCounts counts() const {
    StrictCounts counts;
    function<StrictCountsFn>(STRICT_COUNTS)(&counts);
    return counts;
  }

 private:
  template <class F>
  F function(const char* name) const {
    return reinterpret_cast<F>(dlsym(library_, name));
  }
  void* library_ = nullptr;
};

}  // namespace gradloom
