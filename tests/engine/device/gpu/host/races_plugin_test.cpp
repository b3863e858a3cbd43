// The plugin that finds races, loaded as the program loads it: it sees the accesses of programs that it compiles, too.
#include <dlfcn.h>
#include <gtest/gtest.h>

#include <string>

#include "engine/device/gpu/plugin.h"
#include "kernels/gpu/program_source.h"

namespace gradloom::kernels::gpu::test {
namespace {

constexpr const char* kPrograms = R"(
namespace gradloom::kernels::gpu {
struct Params { int* out; };
GRADLOOM_PROGRAM(apart, Params) { params.out[blockIdx.x * blockDim.x + threadIdx.x] = 1; }
GRADLOOM_PROGRAM(together, Params) { params.out[threadIdx.x] = 1; }
})";

TEST(RacesPlugin, SeesCompiledPrograms) {
  void* const library = dlopen(GRADLOOM_RACES_PLUGIN, RTLD_NOW | RTLD_LOCAL);
  ASSERT_NE(library, nullptr) << dlerror();
  const auto entry = reinterpret_cast<GpuPluginFn>(dlsym(library, GRADLOOM_GPU_ENTRY));
  const GpuPlugin* const gpu = entry(GRADLOOM_GPU_VERSION);
  GpuContext* context = nullptr;
  ASSERT_EQ(gpu->open(0, &context), GPU_OK) << gpu->message(nullptr);
  const char* entries[] = {"apart", "together"};
  GpuModule* module = nullptr;
  ASSERT_EQ(gpu->compile(context, (generated_prelude() + kPrograms).c_str(), entries, 2, nullptr, &module),
            GPU_OK)
      << gpu->message(context);
  void* out = nullptr;
  ASSERT_EQ(gpu->allocate(context, 2 * 64 * sizeof(int), 0, &out), GPU_OK);
  const auto run = [&](int index) {
    return gpu->run_program(context, GPU_COMPUTE, module, index, {2, 1, 1}, {64, 1, 1}, &out, sizeof out);
  };
  EXPECT_EQ(run(0), GPU_OK) << gpu->message(context);
  EXPECT_EQ(run(1), GPU_DEVICE_LOST);
  const std::string text = gpu->message(context);
  EXPECT_NE(
      text.find(
          "kernel together, block (1, 0, 0), thread (0, 0, 0): race: its write of 4 bytes at array (word 0 "
          "of the arguments)+0 ("),
      std::string::npos)
      << text;
  gpu->unload(context, module);
  gpu->close(context);
}

}  // namespace
}  // namespace gradloom::kernels::gpu::test
