// The plugins that this build made, as a program loads them. A machine without a driver must load them and be
// told why there is no device; on a machine with one, the device is described and opened.
#include "engine/device/gpu/plugin.h"

#include <dlfcn.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <cstddef>
#include <cstdio>
#include <memory>

#include "engine/device/gpu/abi.h"
#include "tests/paths.h"

namespace gradloom::kernels::gpu {
namespace {

std::string output_of(const std::string& command) {
  std::string text;
  char part[4096];
  std::FILE* pipe = popen(command.c_str(), "r");
  if (pipe == nullptr) return "";
  while (std::fgets(part, sizeof part, pipe) != nullptr) text += part;
  return pclose(pipe) == 0 ? text : "";
}

class Plugin : public ::testing::TestWithParam<const char*> {
 protected:
  void SetUp() override {
    struct stat file;
    if (stat(GetParam(), &file) != 0) GTEST_SKIP() << GetParam() << " is not built";
    void* library = dlopen(GetParam(), RTLD_NOW | RTLD_LOCAL);
    ASSERT_NE(library, nullptr) << dlerror();
    const auto entry = reinterpret_cast<GpuPluginFn>(dlsym(library, GRADLOOM_GPU_ENTRY));
    ASSERT_NE(entry, nullptr) << dlerror();
    EXPECT_EQ(entry(GRADLOOM_GPU_VERSION + 1), nullptr);
    plugin_ = entry(GRADLOOM_GPU_VERSION);
    ASSERT_NE(plugin_, nullptr);
  }
  const GpuPlugin* plugin_ = nullptr;
};

TEST_P(Plugin, FitsThisProgram) {
  EXPECT_EQ(plugin_->version, std::uint32_t(GRADLOOM_GPU_VERSION));
  EXPECT_EQ(plugin_->struct_bytes, sizeof(GpuPlugin));
  EXPECT_EQ(plugin_->kernel_abi, kernel_abi());
  EXPECT_NE(std::string(GetParam()).find(std::string("libgradloom_") + plugin_->kind), std::string::npos);
  // No function is missing.
  const auto* words = reinterpret_cast<void* const*>(&plugin_->message);
  const std::size_t functions = (sizeof(GpuPlugin) - offsetof(GpuPlugin, message)) / sizeof(void*);
  for (std::size_t i = 0; i < functions; ++i) EXPECT_NE(words[i], nullptr) << "function " << i;
}

TEST_P(Plugin, SaysWhatDevicesThereAre) {
  std::int32_t count = -1;
  const GpuStatus status = plugin_->device_count(&count);
  const std::string message = plugin_->message(nullptr);
  GpuDescription description;
  GpuEnvironment environment;
  GpuContext* context = nullptr;
  if (status == GPU_OK) {
    ASSERT_GT(count, 0);
    EXPECT_EQ(plugin_->describe(0, &description), GPU_OK) << plugin_->message(nullptr);
    EXPECT_EQ(plugin_->environment(0, &environment), GPU_OK) << plugin_->message(nullptr);
    EXPECT_GT(description.memory_bytes, 0);
    EXPECT_EQ(plugin_->describe(count, &description), GPU_NO_DEVICE);
    return;
  }
  ASSERT_TRUE(status == GPU_NO_DRIVER || status == GPU_NO_DEVICE) << status << " " << message;
  EXPECT_EQ(count, 0);
  EXPECT_NE(message.find(status == GPU_NO_DRIVER ? "driver" : "device"), std::string::npos) << message;
  EXPECT_EQ(plugin_->describe(0, &description), status);
  EXPECT_EQ(plugin_->environment(0, &environment), status);
  EXPECT_EQ(plugin_->open(0, &context), status);
  EXPECT_EQ(context, nullptr);
  EXPECT_NE(std::string(plugin_->message(nullptr)), "");
}

TEST_P(Plugin, ShowsOneSymbolAndNeedsNoDriver) {
  const std::string symbols = output_of(std::string("nm -D --defined-only '") + GetParam() + "'");
  if (symbols.empty()) GTEST_SKIP() << "no nm here";
  EXPECT_NE(symbols.find(" T gradloom_gpu_plugin\n"), std::string::npos) << symbols;
  EXPECT_EQ(symbols.find('\n'), symbols.size() - 1) << "more than one: " << symbols;
  const std::string needed = output_of(std::string("readelf -d '") + GetParam() + "'");
  EXPECT_NE(needed.find("libc.so"), std::string::npos) << needed;
  EXPECT_NE(needed.find("NODELETE"), std::string::npos)
      << "the driver calls back into what dlclose took away";
  for (const char* library : {"libcuda.so", "libcublas", "libcupti", "libnvrtc", "libnvidia-ml", "librocblas",
                              "libcudart.so", "libamdhip64"})
    EXPECT_EQ(needed.find(library), std::string::npos) << library;
}

INSTANTIATE_TEST_SUITE_P(Built, Plugin, ::testing::Values(GRADLOOM_CUDA_PLUGIN, GRADLOOM_HIP_PLUGIN),
                         [](const auto& plugin) { return std::string(plugin.index == 0 ? "cuda" : "hip"); });

}  // namespace
}  // namespace gradloom::kernels::gpu
