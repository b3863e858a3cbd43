#include "engine/run/step_results.h"

#include <gtest/gtest.h>

#include "tests/engine/run/queued_device.h"

namespace gradloom {
namespace {

// A graph whose loss is an f32 scalar in the arena.
struct ScalarPlan {
  Graph graph;
  StepNames names;
  Plan plan;

  ScalarPlan() {
    GraphBuilder b(graph);
    names.loss = b.op("ReduceSum", {b.input("x", {DType::f32, {4}})}, {{"keepdims", std::int64_t{0}}});
    graph.outputs = {names.loss};
    auto made = make_plan(graph, {stack_all, "stack", true});
    EXPECT_TRUE(made.ok());
    plan = std::move(made).value();
  }
};

TEST(StepResults, ScalarsArriveWithTheirStepAndTimesDoNotOverlap) {
  const ScalarPlan small;
  QueuedDevice device;
  Blocks blocks(small.plan, device);
  StepResults results(small.graph, device, blocks);
  ASSERT_TRUE(blocks.allocate(64).ok());
  ASSERT_TRUE(results.allocate().ok());
  for (const float loss : {1.5f, 2.5f}) {
    std::memcpy(blocks.address(small.names.loss), &loss, sizeof loss);
    StepOutcome outcome;
    outcome.step = static_cast<std::int64_t>(loss);
    outcome.start_ns = 100;
    ASSERT_TRUE(results.push(small.names, std::move(outcome)).ok());
  }
  EXPECT_EQ(results.size(), 2u);
  device.clock_ns = 500;
  const auto first = results.pop();
  ASSERT_TRUE(first.ok());
  EXPECT_EQ(first->loss, 1.5) << "as it was when the step was queued";
  EXPECT_EQ(first->grad_norm, -1) << "not computed";
  EXPECT_EQ(first->start_ns, 100);
  EXPECT_EQ(first->end_ns, 500);
  device.clock_ns = 450;  // the device's clock and the host's agree within a microsecond
  ASSERT_TRUE(results.finish_all().ok());
  device.clock_ns = 900;
  const auto second = results.pop();
  ASSERT_TRUE(second.ok());
  EXPECT_EQ(second->loss, 2.5);
  EXPECT_EQ(second->start_ns, 500) << "when the step before ended";
  EXPECT_EQ(second->end_ns, 500) << "as it was when it was first waited for, and not before its start";
  EXPECT_EQ(results.size(), 0u);
}

}  // namespace
}  // namespace gradloom
