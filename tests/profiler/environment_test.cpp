#include "profiler/environment.h"

#include <gtest/gtest.h>

namespace gradloom {
namespace {

TEST(Environment, DescribesThisMachine) {
  Environment environment = read_environment();
  EXPECT_GT(environment.logical_cores, 0);
  EXPECT_GE(environment.logical_cores, environment.usable_cores);
  EXPECT_GT(environment.usable_cores, 0);
  EXPECT_GT(environment.threads, 0);
  EXPECT_GT(environment.memory_bytes, 1 << 20);
  EXPECT_GE(environment.memory_bytes, environment.available_bytes);
  EXPECT_GE(environment.load_before, 0);
  EXPECT_EQ(environment.load_after, -1);
  EXPECT_FALSE(environment.isa.empty());
  EXPECT_FALSE(environment.kernel.empty());
  EXPECT_FALSE(environment.compiler.empty());
  EXPECT_FALSE(environment.version.empty());
  EXPECT_EQ(environment_rows(environment).count("load_after"), 0u) << "unknown things are left out";
  finish_environment(environment);
  const auto rows = environment_rows(environment);
  EXPECT_EQ(rows.count("load_after"), 1u);
  EXPECT_EQ(rows.at("hardware"), hardware_text(environment));
  EXPECT_EQ(rows.at("threads"), std::to_string(environment.threads));
}

TEST(Environment, AGpuIsRecordedFromStartToEnd) {
  Environment cpu = read_environment();
  begin_gpu(cpu, DeviceInfo{"cpu", "some CPU", true});
  watch_gpu(cpu, true);
  EXPECT_FALSE(cpu.gpu);
  for (const auto& [name, value] : environment_rows(cpu)) EXPECT_NE(name.rfind("gpu.", 0), 0u) << name;

  Environment e;
  e.cpu_model = "CPU";
  e.threads = 2;
  e.isa = "x86-64-v3";
  e.gpu.emplace();
  e.gpu->info.name = "NVIDIA H200, sm_90";
  e.gpu->info.driver = "580.1";
  e.gpu->info.libraries = "runtime 13.0, cublasLt 13.1";
  e.gpu->start.sm_clock_mhz = 345;
  for (const auto& [clock, reason, others] :
       {std::tuple{1980, "none", 0}, std::tuple{1410, "power cap, thermal", 3},
        std::tuple{1700, "power cap", 1}}) {
    DeviceState state;
    state.sm_clock_mhz = clock;
    state.throttle = reason;
    state.other_processes = others;
    state.temperature_c = clock == 1410 ? 88 : 60;
    add_state(*e.gpu, state);
  }
  const auto rows = environment_rows(e);
  EXPECT_EQ(rows.at("gpu.name"), "NVIDIA H200, sm_90");
  EXPECT_EQ(rows.at("gpu.driver"), "580.1");
  EXPECT_EQ(rows.at("gpu.libraries"), "runtime 13.0, cublasLt 13.1");
  EXPECT_EQ(rows.at("gpu.start.sm_clock_mhz"), "345");
  EXPECT_EQ(rows.at("gpu.sm_clock_mhz"), "1700");
  EXPECT_EQ(rows.at("gpu.min_sm_clock_mhz"), "1410");
  EXPECT_EQ(rows.at("gpu.max_temperature_c"), "88");
  EXPECT_EQ(rows.at("gpu.throttle"), "power cap, thermal");
  EXPECT_EQ(rows.at("gpu.other_processes"), "3");
  EXPECT_EQ(rows.at("gpu.power_mw"), "not measured");
  EXPECT_EQ(rows.at("gpu.max_power_mw"), "not measured");
  EXPECT_EQ(rows.at("gpu.start.throttle"), "not measured");
  EXPECT_EQ(rows.at("hardware"), "NVIDIA H200, sm_90; CPU, 2 threads, x86-64-v3");
  EXPECT_EQ(gpu_disturbances(rows),
            "the GPU's clocks were held down (power cap, thermal), 3 other processes ran on the GPU");
  EXPECT_EQ(gpu_disturbances({{"gpu.throttle", "none"}, {"gpu.other_processes", "0"}}), "");
  EXPECT_EQ(gpu_disturbances({{"gpu.throttle", "not measured"}, {"gpu.other_processes", "1"}}),
            "1 other process ran on the GPU");
  EXPECT_EQ(gpu_disturbances({}), "");
}

TEST(Environment, HardwareTextTellsThreadsAndLevel) {
  Environment environment;
  environment.cpu_model = "AMD EPYC 9654";
  environment.threads = 2;
  environment.isa = "x86-64-v4";
  EXPECT_EQ(hardware_text(environment), "AMD EPYC 9654, 2 threads, x86-64-v4");
  environment.threads = 1;
  environment.cpu_model = "";
  EXPECT_EQ(hardware_text(environment), "unknown CPU, 1 thread, x86-64-v4");
}

}  // namespace
}  // namespace gradloom
