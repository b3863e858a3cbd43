#include <gtest/gtest.h>

#include "passes/compile.h"
#include "tests/passes/support.h"

namespace gradloom {
namespace {

using test::why_nots;

// Three layers of 512 x 512 and their mean square.
Graph layers() {
  Graph graph;
  GraphBuilder b(graph);
  const Type type{DType::f32, {8, 512}};
  ValueId h = b.input("x", type);
  for (const char* name : {"a", "b", "c"})
    h = b.op("Tanh", {b.op("MatMul", {h, b.parameter(name, Tensor(DType::f32, {512, 512}))})});
  const ValueId loss = b.op("ReduceMean", {b.op("Mul", {h, h})}, {{"keepdims", std::int64_t{0}}});
  graph.values[loss].name = "loss";
  graph.outputs = {loss};
  return graph;
}

Result<Compiled> trained(const char* passes, void (*change)(TrainSpec&) = nullptr) {
  CompileOptions options;
  options.train.loss = "loss";
  options.train.optimizer = *parse_optimizer("adamw");
  options.pipeline = *parse_pipeline(passes);
  if (change != nullptr) change(options.train);
  return compile(layers(), options);
}

std::vector<std::string> schedule(const Compiled& compiled) {
  std::vector<std::string> ops;
  for (const PlanStep& step : compiled.plan.steps)
    ops.push_back(compiled.train.graph.nodes[step.node].op->name);
  return ops;
}

TEST(EarlyUpdates, GradientsLiveForAMomentOnly) {
  const auto late = trained("fuse-optimizer"), early = trained("early-updates,fuse-optimizer");
  ASSERT_OK(late);
  ASSERT_OK(early);
  ASSERT_OK(check_plan(early->train.graph, early->plan));
  EXPECT_LT(early->plan.arena_bytes, late->plan.arena_bytes / 2);
  const auto ops = schedule(*early);
  EXPECT_EQ(std::count(ops.begin(), ops.end(), "Optimizer"), 3);
  EXPECT_EQ(schedule(*late).back(), "Optimizer");
  test::expect_same_results(late->train.graph, early->train.graph, 0);
}

// b is read to pass the gradient on to a: its update comes after that.
TEST(EarlyUpdates, TheParameterIsReadByAllBefore) {
  const auto early = trained("early-updates");
  ASSERT_OK(early);
  const Graph& graph = early->train.graph;
  std::map<ValueId, std::size_t> updated;
  for (std::size_t i = 0; i < early->plan.steps.size(); ++i) {
    const Node& node = graph.nodes[early->plan.steps[i].node];
    for (const ValueId in : node.inputs) {
      EXPECT_EQ(updated.count(in), 0u) << graph.values[in == kNone ? 0 : in].name << " read by " << node.name;
    }
    if (std::string_view(node.op->name) == "Optimizer") updated[node.inputs[4]] = i;
  }
  EXPECT_EQ(updated.size(), 3u);
}

TEST(EarlyUpdates, WhatWaitsForAllGradientsStays) {
  for (const auto& [change, why] : {std::pair<void (*)(TrainSpec&), const char*>{
                                        [](TrainSpec& s) { s.clip_norm = 1; }, "norm of all gradients"},
                                    {[](TrainSpec& s) { s.accumulate = 2; }, "last micro-batch"}}) {
    const auto compiled = trained("early-updates", change);
    ASSERT_OK(compiled);
    const PassReport& report = compiled->reports.back();
    EXPECT_EQ(report.matched, 0);
    EXPECT_NE(why_nots(report).find(why), std::string::npos) << why_nots(report);
  }
}

TEST(EarlyUpdates, SmallParametersStayTogether) {
  const auto compiled = trained("early-updates{min_kib=1025}");
  ASSERT_OK(compiled);
  EXPECT_EQ(compiled->reports.back().matched, 0);
}

}  // namespace
}  // namespace gradloom
