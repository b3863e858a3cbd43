#include "passes/zero.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>
#include <set>

#include "engine/ops/collectives/all_reduce.h"
#include "engine/ops/collectives/reduce_gradients.h"
#include "engine/ops/collectives/share_parameters.h"
#include "passes/compile.h"
#include "tests/passes/support.h"

namespace gradloom {
namespace {

using test::why_nots;

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
                 double ema = 0, double clip_norm = 0, std::int64_t accumulate = 1) {
  CompileOptions options;
  options.train.clip_norm = clip_norm;
  options.train.accumulate = accumulate;
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

// The nodes of an operator in the order in which they run.
std::vector<const Node*> nodes_of(const Compiled& c, const OpDef& op) {
  std::vector<const Node*> nodes;
  for (const PlanStep& step : c.plan.steps)
    if (c.train.graph.nodes[step.node].op == &op) nodes.push_back(&c.train.graph.nodes[step.node]);
  return nodes;
}

const PassReport& report_of(const Compiled& c, const char* pass) {
  return *std::find_if(c.reports.begin(), c.reports.end(),
                       [&](const PassReport& report) { return report.name == pass; });
}

TEST(ZeroTwo, EachGradientIsAtOneRank) {
  for (const char* rest :
       {"default,zero{stage=2,rank=", "default,data-parallel{overlap=false},zero{stage=2,rank=",
        "default,-data-parallel,zero{stage=2,rank=", "zero{stage=2,rank="}) {
    std::size_t gradients = 0;
    std::vector<std::vector<std::int64_t>> orders;
    for (int rank = 0; rank < 3; ++rank) {
      const Compiled c = trained(rest + std::to_string(rank) + "}", 3, "adamw", 0, 1);
      std::vector<std::int64_t>& order = orders.emplace_back();
      std::size_t inputs = 0;
      for (const Node* node : nodes_of(c, reduce_gradients_op())) {
        for (const std::int64_t owner : node->attrs.integers("owners")) order.push_back(owner);
        inputs += node->inputs.size();
        gradients += node->outputs.size() - 1;
        EXPECT_EQ(node->attrs.integer("rank"), rank);
      }
      EXPECT_EQ(inputs, 5u) << rest << ": every rank sends all";
      EXPECT_EQ(nodes_of(c, all_reduce_op()).size() + nodes_of(c, all_reduce_begin_op()).size(), 1u)
          << "of the loss";
      EXPECT_EQ(nodes_of(c, share_parameters_op()).size(), 2u) << "squares and parameters";
      EXPECT_EQ(report_of(c, "zero").rejected, 0);
    }
    EXPECT_EQ(gradients, 5u) << rest;
    EXPECT_EQ(orders[0], orders[1]) << "every rank in the same order";
    EXPECT_EQ(orders[0], orders[2]);
  }
}

TEST(ZeroTwo, ExchangesAreInTheSameOrderOnAllRanks) {
  for (const char* passes : {"default,zero{stage=2,rank=", "zero{stage=2,rank=", "memory-order,zero{rank="}) {
    std::vector<std::string> orders;
    for (int rank = 0; rank < 2; ++rank) {
      const Compiled c = trained(passes + std::to_string(rank) + "}", 2, "adamw", 0.9, 0.5, 2);
      std::string& order = orders.emplace_back();
      for (const PlanStep& step : c.plan.steps) {
        const Node& node = c.train.graph.nodes[step.node];
        for (const OpDef* op :
             {&all_reduce_op(), &all_reduce_begin_op(), &reduce_gradients_op(), &share_parameters_op()})
          if (node.op == op) order += node.name + "\n";
      }
    }
    EXPECT_EQ(orders[0], orders[1]) << passes;
    EXPECT_NE(orders[0], "");
  }
}

TEST(ZeroTwo, GradientsOfOthersTakeNoMemory) {
  for (const double clip : {0.0, 1.0}) {
    const Compiled one = trained("default,-early-updates,zero{rank=0}", 2, "adamw", 0, clip),
                   two = trained("default,-early-updates,zero{stage=2,rank=0}", 2, "adamw", 0, clip);
    EXPECT_EQ(two.plan.state_bytes, one.plan.state_bytes);
    EXPECT_LT(two.plan.arena_bytes, one.plan.arena_bytes);
  }
}

TEST(ZeroTwo, DividesGradientsWhereNothingIsRemembered) {
  const Compiled c = trained("default,zero{stage=2,rank=1}", 2, "sgd");
  ASSERT_NE(sharing(c), nullptr);
  EXPECT_EQ(nodes_of(c, reduce_gradients_op()).size(), 1u);
  EXPECT_EQ(updated(c).size(), 5u);
}

TEST(ZeroTwo, AParameterThatIsExceptedStaysOnAllRanks) {
  const Compiled c = trained("default,zero{stage=2,rank=1,except=a/Optimizer}", 2, "adamw", 0, 1);
  EXPECT_EQ(updated(c).count("a/m"), 1u);
  std::size_t inputs = 0;
  for (const Node* node : nodes_of(c, reduce_gradients_op())) inputs += node->inputs.size();
  EXPECT_EQ(inputs, 4u);
  const auto norms = nodes_of(c, norm_of_squares_op());
  ASSERT_EQ(norms.size(), 1u);
  EXPECT_EQ(norms[0]->attrs.integers("from"), (std::vector<std::int64_t>{2, 0, 1, 1, 1}))
      << "its squares come from this rank";
}

TEST(ZeroTwo, OneRankIsLeftAlone) {
  EXPECT_EQ(trained("default,zero{stage=2}", 1).plan.hash, trained("default", 1).plan.hash);
}

TEST(ZeroTwo, SaysWhyNot) {
  const Compiled late = trained("data-parallel,zero{stage=2}", 2);
  EXPECT_NE(why_nots(report_of(late, "zero"))
                .find("gradients at a/Optimizer: its gradient has no exchange of its own"),
            std::string::npos)
      << why_nots(report_of(late, "zero"));
  EXPECT_TRUE(nodes_of(late, reduce_gradients_op()).empty());
  EXPECT_NE(sharing(late), nullptr) << "states are divided all the same";
  CompileOptions options;
  options.train.loss = "loss";
  options.train.ranks = 2;
  options.pipeline = *parse_pipeline("zero{stage=2},adasum");
  const auto compiled = compile(layers(), options);
  ASSERT_FALSE(compiled.ok());
  EXPECT_EQ(compiled.error().code, Errc::usage);
  EXPECT_NE(compiled.error().message.find("zero{stage=1}"), std::string::npos) << compiled.error().message;
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
