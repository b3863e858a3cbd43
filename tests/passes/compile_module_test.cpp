// Plans in two parts: what runs when, where values lie, and that the checker sees what would go wrong between the parts.
#include <filesystem>

#include "engine/ir/builder.h"
#include "engine/onnx/import.h"
#include "passes/compile.h"
#include "tests/passes/support.h"
#include "tests/paths.h"

namespace gradloom::test {
namespace {

CompileOptions options_with(const std::string& passes, const std::string& planner = "best-fit",
                            bool in_place = true) {
  CompileOptions options;
  options.pipeline = *parse_pipeline(passes);
  options.planner = planner;
  options.in_place = in_place;
  return options;
}

TEST(CompileModule, PlansAreSound) {
  std::size_t plans = 0;
  for (const char* group : {"models", "modules"})
    for (const auto& entry :
         std::filesystem::directory_iterator(std::string(GRADLOOM_SOURCE_DIR "/tests/") + group)) {
      if (!std::filesystem::exists(entry.path() / "model.onnx") ||
          (std::string(group) == "modules" && ++plans % 4 != 0))
        continue;
      SCOPED_TRACE(entry.path().filename().string());
      ImportOptions bind;
      if (std::string(group) == "models") bind.dims = {{"batch", 2}};
      const auto model = import_onnx((entry.path() / "model.onnx").string(), bind);
      ASSERT_OK(model);
      if (!model->unbound_dims.empty()) continue;
      for (const bool gradients : {true, false})
        for (const CompileOptions& options : {options_with("default"), options_with("none", "none", false),
                                              options_with("default", "reuse")}) {
          const auto compiled = compile_module(model->graph, options, {.gradients = gradients});
          ASSERT_OK(compiled);
          const Plan& plan = compiled->plan;
          ASSERT_OK(check_plan(compiled->graph, plan));
          EXPECT_EQ(plan.forward_outputs, model->graph.outputs.size());
          if (!gradients) {
            EXPECT_EQ(static_cast<std::size_t>(plan.first_backward_step), plan.steps.size());
          }
        }
    }
}

// y = tanh(x w): the backward part needs y, and so finds it in the arena; a sum, which it does not need, is written to the caller.
struct TanhModule : ::testing::Test {
  Graph graph;
  CompiledModule compiled;
  void SetUp() override {
    GraphBuilder b(graph);
    const ValueId x = b.input("x", {DType::f32, {4, 8}}), w = b.parameter("w", Tensor(DType::f32, {8, 8}));
    const ValueId y = b.op("Tanh", {b.op("MatMul", {x, w})});
    graph.outputs = {y, b.op("Add", {y, b.scalar(DType::f32, 1)})};
    auto made = compile_module(graph, options_with("none"), {});
    ASSERT_OK(made);
    compiled = std::move(made).value();
  }
  Buffer& buffer(std::size_t output) {
    return compiled.plan
        .buffers[static_cast<std::size_t>(compiled.plan.buffer_of[compiled.graph.outputs[output]])];
  }
};

TEST_F(TanhModule, ResultsAreTheCallersUnlessTheyAreReadAgain) {
  EXPECT_EQ(buffer(0).place, Place::arena);
  EXPECT_GE(buffer(0).last_step, compiled.plan.first_backward_step);
  EXPECT_EQ(buffer(1).place, Place::result);
  ASSERT_EQ(compiled.gradients.given.size(), 2u);
  ASSERT_EQ(compiled.gradients.made.size(), 1u);
  EXPECT_EQ(compiled.gradients.made[0].of, "w");
  EXPECT_EQ(buffer(compiled.gradients.made[0].place).place, Place::result);
  EXPECT_EQ(compiled.plan.first_backward_step, 3);
}

TEST_F(TanhModule, TheCheckerKnowsTheBorder) {
  ASSERT_OK(check_plan(compiled.graph, compiled.plan));
  Plan late = compiled.plan;
  late.first_backward_step = 2;  // before an output is made
  EXPECT_FALSE(check_plan(compiled.graph, late).ok());
  Plan lost = compiled.plan;
  Buffer& y = lost.buffers[static_cast<std::size_t>(lost.buffer_of[compiled.graph.outputs[0]])];
  y.place = Place::result;  // where the caller may write before the backward part reads it
  y.offset = lost.result_bytes;
  lost.result_bytes += y.bytes;
  const Status status = check_plan(compiled.graph, lost);
  ASSERT_FALSE(status.ok());
  EXPECT_NE(status.error().message.find("after it was overwritten"), std::string::npos)
      << status.error().message;
}

// Whatever is the output: an input, a view, the same twice.
TEST(CompileModule, OutputsMayBeAnything) {
  Graph graph;
  GraphBuilder b(graph);
  const ValueId x = b.input("x", {DType::f32, {4, 8}}), w = b.parameter("w", Tensor(DType::f32, {4, 8}));
  const ValueId y = b.op("Mul", {x, w});
  const ValueId flat = b.op("Reshape", {y, b.i64s({32})});
  graph.outputs = {x, w, y, flat, y};
  const auto compiled = compile_module(graph, options_with("default"), {.input_gradients = {"x"}});
  ASSERT_OK(compiled);
  ASSERT_OK(check_plan(compiled->graph, compiled->plan));
  EXPECT_EQ(compiled->gradients.given.size(), 5u);
  EXPECT_EQ(compiled->gradients.made.size(), 2u);
}

TEST(CompileModule, NothingToTrainIsForwardAlone) {
  Graph graph;
  GraphBuilder b(graph);
  graph.outputs = {b.op("Tanh", {b.input("x", {DType::f32, {4, 8}})})};
  const auto compiled = compile_module(graph, options_with("default"), {});
  ASSERT_OK(compiled);
  EXPECT_TRUE(compiled->gradients.given.empty());
  EXPECT_TRUE(compiled->gradients.made.empty());
  EXPECT_EQ(static_cast<std::size_t>(compiled->plan.first_backward_step), compiled->plan.steps.size());
}

}  // namespace
}  // namespace gradloom::test
