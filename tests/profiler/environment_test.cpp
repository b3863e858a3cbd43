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
