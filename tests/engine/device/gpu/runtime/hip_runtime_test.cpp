// The HIP runtimes of ROCm 5, 6 and 7, each under its name in a toolkit of its own (fake_amdhip64.cpp). A process opens one.
#include "engine/device/gpu/runtime/hip_runtime.h"

#include <gtest/gtest.h>

#include <cstdio>
#include <cstdlib>

extern "C" void** __hipRegisterFatBinary(const void* code);  // the compiler's own declaration

namespace gradloom::kernels::gpu {
namespace {

// Prints what the runtime of this ROCm says of its device, and ends the process.
[[noreturn]] void tell(const char* version) {
  setenv("ROCM_PATH", (std::string(GRADLOOM_FAKE_ROCM) + version).c_str(), 1);
  unsetenv("CUDA_HOME");
  unsetenv("CUDA_PATH");
  int count = 0;
  HipProperties p;
  const bool works = missing_runtime().empty() && hipGetDeviceCount(&count) == hipSuccess && count == 1 &&
                     device_properties(&p, 0) == hipSuccess;
  if (works)
    std::fprintf(stderr, "%s, %s, %zu, %zu, %d, %d", p.name, p.gcnArchName, p.totalGlobalMem,
                 p.sharedMemPerBlock, p.warpSize, p.multiProcessorCount);
  // What the runtime lacks answers, and does not end the process.
  const bool lacks = hipDeviceSynchronize() == hipErrorNoDevice &&
                     __hipRegisterFatBinary(nullptr) == nullptr &&
                     optional_hip_function("hipInitActivityCallback") == nullptr;
  std::exit(works && lacks ? 0 : 1);
}

class HipRuntime : public ::testing::Test {
 protected:
  void SetUp() override { GTEST_FLAG_SET(death_test_style, "threadsafe"); }
};

TEST_F(HipRuntime, OfRocm5HasItsOwnProperties) {
  EXPECT_EXIT(tell("5"), ::testing::ExitedWithCode(0),
              "an old layout, gfx90a:sramecc\\+:xnack-, 1073741824, 65536, 64, 104");
}
TEST_F(HipRuntime, OfRocm6HasThoseThatReplacedThem) {
  EXPECT_EXIT(tell("6"), ::testing::ExitedWithCode(0), "a new layout, gfx1100, 2147483648, 32768, 32, 96");
}
TEST_F(HipRuntime, OfRocm7HasTheSame) {
  EXPECT_EXIT(tell("7"), ::testing::ExitedWithCode(0), "a new layout, gfx1100, 2147483648, 32768, 32, 96");
}

}  // namespace
}  // namespace gradloom::kernels::gpu
