#include "passes/zero.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>
#include <set>

#include "engine/ops/collectives/share_parameters.h"
#include "passes/compile.h"
#include "tests/passes/support.h"

namespace gradloom {
namespace {

using testing::why_nots;

// Five parameters, each half of the one before.
Graph layers() {
  Graph graph;
  GraphBuilder b(graph);
  const ValueId x = b.input("x", {DType::f32, {8, 64}});
  std::vector<ValueId> means;
  std::int64_t width = 256;
  for (const char* name : {"a", "b", "c", "d", "e"}) {
    const ValueId y = b.op("MatMul", {x, b.parameter(name, Tensor(DType::f32, {64, width}))});
    means.push_back(b.op("ReduceMean", {b.op("Mul", {y, y})}, {{"keepdims", std::int64_t{0}}}));
    width /= 2;
  }
  ValueId loss = means[0];
  for (std::size_t i = 1; i < means.size(); ++i) loss = b.op("Add", {loss, means[i]});
  graph.values[loss].name = "loss";
  graph.outputs = {loss};
  return graph;
}

Compiled trained(const std::string& passes, std::int64_t ranks, const char* optimizer = "adamw",
                 double ema = 0) {
  CompileOptions options;
  options.train.loss = "loss";
  options.train.optimizer = *parse_optimizer(optimizer);
  options.train.ranks = ranks;
  options.train.ema = ema;
  options.pipeline = *parse_pipeline(passes);
  auto compiled = compile(layers(), options);
  EXPECT_TRUE(compiled.ok()) << compiled.error().message;
  EXPECT_TRUE(check_plan(compiled->train.graph, compiled->plan).ok());
  return std::move(compiled).value();
}

std::set<std::string> updated(const Compiled& c) {
  std::set<std::string> names;
  for (const Update& u : c.train.graph.updates) names.insert(c.train.graph.values[u.state].name);
  return names;
}

const Node* sharing(const Compiled& c) {
  for (const PlanStep& step : c.plan.steps)
    if (c.train.graph.nodes[step.node].op == &share_parameters_op()) return &c.train.graph.nodes[step.node];
  return nullptr;
}

TEST(Zero, SharesAreAsEvenAsWholeParametersAllow) {
  EXPECT_EQ(zero_owners({8, 4, 2, 1}, 2), (std::vector<std::int64_t>{0, 1, 1, 1}));
  EXPECT_EQ(zero_owners({1, 1, 1, 1}, 4), (std::vector<std::int64_t>{0, 1, 2, 3}));
  EXPECT_EQ(zero_owners({3, 9, 3, 3}, 2), (std::vector<std::int64_t>{1, 0, 1, 1}));
  EXPECT_EQ(zero_owners({5}, 3), (std::vector<std::int64_t>{0}));
  EXPECT_TRUE(zero_owners({}, 3).empty());
}

TEST(Zero, EachStateIsOnOneRankAndEachParameterOnAll) {
  const Compiled all = trained("default", 3);
  std::map<std::string, int> ranks_with;
  std::int64_t bytes = 0;
  for (int rank = 0; rank < 3; ++rank) {
    const Compiled c = trained("default,zero{rank=" + std::to_string(rank) + "}", 3);
    for (const std::string& name : updated(c)) ++ranks_with[name];
    bytes += c.plan.state_bytes;
    EXPECT_LT(c.plan.state_bytes, all.plan.state_bytes);
    const Node* const share = sharing(c);
    ASSERT_NE(share, nullptr);
    EXPECT_EQ(share->inputs.size(), 5u);
    EXPECT_EQ(share->attrs.integers("owners"), (std::vector<std::int64_t>{0, 1, 2, 2, 2}));
  }
  for (const char* parameter : {"a", "b", "c", "d", "e"}) {
    EXPECT_EQ(ranks_with[parameter], 3);
    EXPECT_EQ(ranks_with[std::string(parameter) + "/m"], 1);
    EXPECT_EQ(ranks_with[std::string(parameter) + "/v"], 1);
  }
  EXPECT_EQ(ranks_with.size(), 15u);
  const std::int64_t parameters = all.plan.state_bytes / 3;  // m and v are as large
  EXPECT_EQ(bytes, 3 * parameters + 2 * parameters);
}

TEST(Zero, WhatReadsAnUpdateReadsWhatWasShared) {
  const Compiled c = trained("default,zero{rank=1}", 2, "adamw", 0.9);
  const Graph& graph = c.train.graph;
  int averages = 0;
  for (const Node& node : graph.nodes) {
    if (!node.alive() || !is_op(node, "MovingAverage")) continue;
    ++averages;
    EXPECT_EQ(graph.nodes[graph.values[node.inputs[1]].producer].op, &share_parameters_op());
  }
  EXPECT_EQ(averages, 5) << "every rank keeps the averages";
}

TEST(Zero, OneRankIsLeftAlone) {
  EXPECT_EQ(trained("default,zero", 1).plan.hash, trained("default", 1).plan.hash);
}

TEST(Zero, AParameterThatIsExceptedStaysOnAllRanks) {
  const Compiled c = trained("default,zero{rank=1,except=a/Optimizer}", 2);
  EXPECT_EQ(updated(c).count("a/m"), 1u);
  ASSERT_NE(sharing(c), nullptr);
  EXPECT_EQ(sharing(c)->inputs.size(), 4u);
}

TEST(Zero, SaysWhyNot) {
  const Compiled plain = trained("zero", 2, "sgd");
  for (const PassReport& report : plain.reports)
    if (report.name == "zero") {
      EXPECT_EQ(report.matched, 0);
      EXPECT_NE(why_nots(report).find("states at a/Optimizer: the optimizer remembers nothing"),
                std::string::npos)
          << why_nots(report);
    }
  CompileOptions options;
  options.train.loss = "loss";
  options.train.ranks = 2;
  options.pipeline = *parse_pipeline("zero{rank=2}");
  const auto compiled = compile(layers(), options);
  ASSERT_FALSE(compiled.ok());
  EXPECT_EQ(compiled.error().code, Errc::usage);
}

}  // namespace
}  // namespace gradloom
