#include "passes/recompute.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "passes/compile.h"
#include "passes/planners.h"
#include "tests/passes/support.h"

namespace gradloom {
namespace {

// Layers of a product and two activations, which the backward pass reads.
Graph network(int layers, bool with_dropout = false) {
  Graph graph;
  GraphBuilder b(graph);
  ValueId x = b.input("x", {DType::f32, {256, 16}});
  for (int i = 0; i < layers; ++i) {
    std::vector<double> numbers(256);
    for (std::size_t k = 0; k < 256; ++k) numbers[k] = std::sin(static_cast<double>(k + 1) * (i + 1)) / 4;
    const ValueId w = b.parameter("w" + std::to_string(i), Tensor::from_f64(DType::f32, {16, 16}, numbers));
    x = b.op("Tanh", {b.op("Sigmoid", {b.op("MatMul", {x, w})})});
    if (with_dropout)
      x = b.op("Dropout", {x, b.scalar(DType::f32, 0.5), b.scalar(DType::boolean, 1)},
               {{"key", std::int64_t{i}}});
  }
  const ValueId loss = b.op("ReduceMean", {b.op("Square", {x})}, {{"keepdims", std::int64_t{0}}});
  graph.values[loss].name = "loss";
  graph.outputs = {loss};
  return graph;
}

CompileOptions training(std::int64_t budget = 0) {
  CompileOptions options;
  options.train.loss = "loss";
  options.train.optimizer = *parse_optimizer("sgd{lr=0.1}");
  options.memory_budget_bytes = budget;
  return options;
}

TEST(Recompute, TheCurveGoesFromNothingToTheSmallestPeak) {
  const auto compiled = compile(network(12), training());
  ASSERT_OK(compiled);
  const auto curve = memory_curve(*compiled, training());
  ASSERT_OK(curve);
  ASSERT_GE(curve->size(), 4u);
  EXPECT_TRUE(curve->front().nodes.empty());
  EXPECT_EQ(curve->front().cost, 0);
  EXPECT_EQ(curve->front().peak_bytes, compiled->plan.peak_lower_bound_bytes());
  for (std::size_t i = 1; i < curve->size(); ++i) {
    EXPECT_GT((*curve)[i].cost, (*curve)[i - 1].cost);
    EXPECT_LT((*curve)[i].peak_bytes, (*curve)[i - 1].peak_bytes);
  }
  const std::int64_t fixed = compiled->plan.peak_bytes() - compiled->plan.arena_bytes;
  EXPECT_LT(curve->back().peak_bytes - fixed, compiled->plan.arena_bytes / 2) << "the arena is halved";
}

TEST(Recompute, EveryChoiceIsAPlanThatHoldsAndGivesTheSame) {
  for (const bool with_dropout : {false, true}) {
    const auto compiled = compile(network(9, with_dropout), training());
    ASSERT_OK(compiled);
    const auto curve = memory_curve(*compiled, training());
    ASSERT_OK(curve);
    for (const RecomputeChoice& choice : *curve) {
      Graph graph = compiled->train.graph;
      std::vector<PassReport> reports;
      ASSERT_OK(apply_recompute(graph, choice.nodes, reports));
      ASSERT_OK(verify(graph));
      EXPECT_EQ(reports[0].matched == 0, choice.nodes.empty());
      const auto plan = make_plan(graph, {find_planner("best-fit")->plan, "best-fit"});
      ASSERT_OK(plan);
      ASSERT_OK(check_plan(graph, *plan));
      EXPECT_EQ(plan->peak_lower_bound_bytes(), choice.peak_bytes);
      testing::expect_same_results(compiled->train.graph, graph, 0);
    }
  }
}

TEST(Recompute, ABudgetIsMetAtTheLeastCostOrRefused) {
  const auto whole = compile(network(12), training());
  ASSERT_OK(whole);
  const std::int64_t peak = whole->plan.peak_bytes();
  std::size_t before = 0;
  for (const double part : {1.0, 0.9, 0.8, 0.7}) {
    const auto budget = static_cast<std::int64_t>(static_cast<double>(peak) * part);
    const auto compiled = compile(network(12), training(budget));
    ASSERT_OK(compiled);
    EXPECT_LE(compiled->plan.peak_bytes(), budget);
    ASSERT_OK(check_plan(compiled->train.graph, compiled->plan));
    EXPECT_GE(compiled->plan.steps.size(), std::max(before, whole->plan.steps.size())) << part;
    before = compiled->plan.steps.size();
    EXPECT_EQ(compiled->reports.empty(), part == 1.0);
  }
  const auto refused = compile(network(12), training(1000));
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(refused.error().code, Errc::device);
  EXPECT_NE(refused.error().message.find("cannot be met"), std::string::npos) << refused.error().message;
}

TEST(Recompute, ItCanBeStopped) {
  const auto compiled = compile(network(6), training());
  ASSERT_OK(compiled);
  std::stop_source stop;
  stop.request_stop();
  const auto curve = memory_curve(*compiled, training(), stop.get_token());
  ASSERT_FALSE(curve.ok());
  EXPECT_EQ(curve.error().code, Errc::interrupted);
}

}  // namespace
}  // namespace gradloom
