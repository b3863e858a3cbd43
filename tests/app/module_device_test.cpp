// Modules on a GPU: on the host's executor of the same kernels.
#include "tests/app/host_gpu_support.h"
#include "tests/app/module_on_device.h"

namespace gradloom {
namespace {

TEST(ModuleOnDevice, GradientsArePyTorchs) {
  REQUIRE_HOST_GPU();
  for (const char* const name : {"mlp", "cnn-digits", "bert-tiny", "gpt-char", "batch-norm2d", "lstm"})
    expect_module_on("host-gpu", name, {}, 1e-3);
}

TEST(ModuleOnDevice, InFloat64Too) {
  REQUIRE_HOST_GPU();
  for (const char* const name : {"batch-norm2d", "lstm"})
    expect_module_on("host-gpu", name, {"--precision", "f64"}, 1e-8);
}

// All modules of a device share it, and it goes with the last.
TEST(ModuleOnDevice, ManyAtATime) {
  REQUIRE_HOST_GPU();
  const auto device = open_device("host-gpu");
  ASSERT_TRUE(device.ok()) << device.error().message;
  auto first = open_folder("mlp", {"--device", "host-gpu"}),
       second = open_folder("batch-norm2d", {"--device", "host-gpu"});
  ASSERT_NE(first, nullptr);
  ASSERT_NE(second, nullptr);
  DeviceLoop one(*first->module, first->loop(), **device), two(*second->module, second->loop(), **device);
  ASSERT_TRUE(one.forward().ok());
  ASSERT_TRUE(two.forward().ok());
  ASSERT_TRUE(one.backward().ok());
  first.reset();
  ASSERT_TRUE(two.backward().ok());
  for (const NamedTensor& want : second->gradients)
    expect_like(*two.loop.gradient(want.name), want.tensor, 1e-3, want.name);
}

// An arena has the forward that was last in it, whichever module's.
TEST(ModuleOnDevice, AnArenaThatAnotherModuleTookIsRefused) {
  REQUIRE_HOST_GPU();
  const auto device = open_device("host-gpu");
  ASSERT_TRUE(device.ok()) << device.error().message;
  const auto first = open_folder("mlp", {"--device", "host-gpu"}),
             second = open_folder("mlp", {"--device", "host-gpu"});
  ASSERT_NE(first, nullptr);
  ASSERT_NE(second, nullptr);
  DeviceLoop one(*first->module, first->loop(), **device), two(*second->module, second->loop(), **device);
  ASSERT_TRUE(one.forward().ok());
  ASSERT_TRUE(two.forward_in(one).ok());
  const Status refused = one.backward();
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(refused.error().code, Errc::usage) << refused.error().message;
  EXPECT_TRUE(two.backward().ok());
}

TEST(ModuleOnDevice, OneThatIsNotThereIsSaid) {
  const auto module =
      ModelModule::open(folder_of_module("mlp") + "/model.onnx", {"--dim", "batch=2", "--device", "cuda:99"});
  ASSERT_FALSE(module.ok());
  EXPECT_EQ(module.error().code, Errc::device) << module.error().message;
}

}  // namespace
}  // namespace gradloom
