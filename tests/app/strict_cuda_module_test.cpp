// Modules through the CUDA plugin's own code, over the strict driver: a loop's memory is the device's, and its work is in the default stream.
#include "tests/app/module_on_device.h"
#include "tests/app/strict_cuda.h"

namespace gradloom {
namespace {

TEST(StrictCudaModules, GradientsArePyTorchs) {
  const StrictCuda strict;
  for (const char* const name : {"mlp", "cnn-digits"}) expect_module_on(kStrictDevice, name, {}, 1e-3);
  EXPECT_EQ(strict.complaints(), "");
  EXPECT_EQ(strict.left(), "");
  EXPECT_GT(strict.counts().work, 100);
}

}  // namespace
}  // namespace gradloom
