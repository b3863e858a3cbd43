// Profiles of ONNX Runtime.
#include "profiler/import/onnxruntime.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <string>
#include <vector>

#include "tests/paths.h"
#include "tests/profiler/import/trace_text.h"

namespace gradloom::test {
namespace {

std::string event(const char* category, const std::string& name, int start_us, int duration_us,
                  const std::string& args = "") {
  return fmt::format(R"({{"cat":"{}","pid":1,"tid":1,"dur":{},"ts":{},"ph":"X","name":"{}","args":{{{}}}}})",
                     category, duration_us, start_us, name, args);
}

std::string node(const std::string& name, const std::string& op, int start_us, int duration_us) {
  return event(
      "Node", name + "_kernel_time", start_us, duration_us,
      R"("op_name":")" + op +
          R"(","provider":"CPUExecutionProvider","input_type_shape":[{"float":[4,64]},{"int64":[1]}],)"
          R"("thread_scheduling_stats":{"main_thread":{"core":-1,"block_size":[]}})");
}

TEST(OnnxRuntime, RunsOfTheSessionAreStepsAndNodesKernels) {
  std::string text = "[" + event("Session", "model_loading_uri", 0, 50);
  for (const int t : {100, 300})
    text += ",\n" + node("/blocks.0/up/MatMul", "MatMul", t + 1, 40) + "," +
            event("Node", "/blocks.0/up/MatMul_fence_before", t, 0) + "," +
            node("Cast_3", "Cast", t + 50, 10) + "," + node("MatMul_Grad/Gemm", "FusedMatMul", t + 70, 5) +
            "," + event("Session", "model_run", t, 120);
  const auto read = read_text(text + "]");
  ASSERT_TRUE(read.ok()) << read.error().message;
  EXPECT_EQ(read->origin, "onnxruntime");
  EXPECT_EQ(read->environment.at("trace.providers"), "CPUExecutionProvider");
  ASSERT_EQ(read->steps.size(), 2u);
  ASSERT_EQ(read->kernels.size(), 3u);
  const ImportedKernel* const product = find_kernel(*read, "MatMul", "forward");
  ASSERT_NE(product, nullptr);
  EXPECT_EQ(product->info.node, "/blocks.0/up/MatMul");
  EXPECT_EQ(product->info.scope, "blocks.0/up");
  EXPECT_EQ(product->inputs, "f32[4, 64] i64[1]");
  EXPECT_EQ(read->operators[product->info.sources.at(0)].name, "/blocks.0/up/MatMul");
  EXPECT_NE(find_kernel(*read, "FusedMatMul", "backward"), nullptr);
  for (const ImportedStep& step : read->steps) {
    EXPECT_EQ(step.duration_ns, 120'000);
    EXPECT_EQ(time_of(step), 55'000);
  }
}

// The body of a Loop is told before the Loop itself, on its thread.
TEST(OnnxRuntime, TimeInsideALoopCountsOnce) {
  const auto read =
      read_text("[" + node("/body/MatMul", "MatMul", 105, 30) + "," + node("/body/Tanh", "Tanh", 140, 20) +
                "," + node("/body/MatMul", "MatMul", 165, 25) + "," + node("/loop", "Loop", 100, 100) + "," +
                node("/relu", "Relu", 201, 4) + "," + event("Session", "model_run", 99, 110) + "]");
  ASSERT_TRUE(read.ok()) << read.error().message;
  ASSERT_EQ(read->steps.size(), 1u);
  std::map<std::string, std::int64_t> by_op;
  for (const KernelSample& s : read->steps[0].samples)
    by_op[read->kernels[static_cast<std::size_t>(s.plan_step)].info.op] += s.duration_ns;
  EXPECT_EQ(by_op, (std::map<std::string, std::int64_t>{
                       {"Loop", 25'000}, {"MatMul", 55'000}, {"Relu", 4'000}, {"Tanh", 20'000}}));
  EXPECT_LE(time_of(read->steps[0]), read->steps[0].duration_ns);
}

TEST(OnnxRuntime, WithoutARunThereIsNothing) {
  for (const std::string& text :
       {"[" + event("Session", "model_loading_uri", 0, 50) + "]", "[" + node("a", "Add", 0, 1) + "]",
        "[" + event("Session", "model_run", 0, 10) + "]"}) {
    const auto read = read_text(text);
    ASSERT_FALSE(read.ok());
    EXPECT_EQ(read.error().code, Errc::bad_input);
  }
}

// make_onnxruntime_profile.py has written it with ONNX Runtime 1.19.2; the numbers are sums over its text.
TEST(OnnxRuntime, AProfileOfTheProgramItself) {
  const auto read = read_json_trace(GRADLOOM_SOURCE_DIR "/tests/profiler/import/onnxruntime_profile.json.gz");
  ASSERT_TRUE(read.ok()) << read.error().message;
  EXPECT_EQ(read->origin, "onnxruntime");
  EXPECT_EQ(read->environment.at("trace.providers"), "CPUExecutionProvider");
  ASSERT_EQ(read->steps.size(), 3u);
  std::vector<std::int64_t> durations;
  std::map<std::string, std::int64_t> by_op;
  std::int64_t sum = 0;
  for (const ImportedStep& step : read->steps) {
    durations.push_back(step.duration_ns);
    EXPECT_EQ(step.samples.size(), 93u);
    for (const KernelSample& s : step.samples) {
      by_op[read->kernels[static_cast<std::size_t>(s.plan_step)].info.op] += s.duration_ns;
      sum += s.duration_ns;
    }
  }
  EXPECT_EQ(durations, (std::vector<std::int64_t>{1'185'000, 858'000, 4'981'000}));
  EXPECT_EQ(read->kernels.size(), 93u) << "each node is one row";
  EXPECT_EQ(sum, 5'956'000);
  EXPECT_EQ(by_op["Gelu"], 4'149'000);
  EXPECT_EQ(by_op["MatMul"], 334'000);
  EXPECT_EQ(by_op["LayerNormalization"], 116'000);
  const auto key = std::find_if(read->kernels.begin(), read->kernels.end(), [](const ImportedKernel& k) {
    return k.info.node == "/layers.0/key/MatMul";
  });
  ASSERT_NE(key, read->kernels.end());
  EXPECT_EQ(key->info.scope, "layers.0/key");
  EXPECT_EQ(key->inputs, "f32[4, 32, 64]");
  EXPECT_TRUE(read->notes.empty()) << read->notes.front();
}

}  // namespace
}  // namespace gradloom::test
