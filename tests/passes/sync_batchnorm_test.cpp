#include <gtest/gtest.h>

#include <algorithm>

#include "engine/ops/collectives/all_reduce.h"
#include "engine/ops/collectives/sync_batch_norm.h"
#include "passes/compile.h"
#include "tests/passes/support.h"

namespace gradloom {
namespace {

using test::why_nots;

// A product, its normalization with running statistics, and another product; the loss also reads what `more` makes of the former.
Graph normalized(bool reads_statistics = false) {
  Graph graph;
  GraphBuilder b(graph);
  const Tensor ones = Tensor::from_f64(DType::f64, {4}, {1, 1, 1, 1});
  const ValueId x = b.input("x", {DType::f64, {6, 5}});
  const ValueId h = b.op("MatMul", {x, b.parameter("w", Tensor(DType::f64, {5, 4}))});
  const ValueId mean = b.state("mean", Tensor(DType::f64, {4})), variance = b.state("variance", ones);
  const auto y =
      b.ops(op_by_name("BatchNormalization"),
            {h, b.parameter("scale", ones), b.parameter("bias", Tensor(DType::f64, {4})), mean, variance},
            {{"training_mode", std::int64_t{1}}, {"unbiased", std::int64_t{1}}, {"momentum", 0.7}}, 3);
  b.update(mean, y[1]);
  b.update(variance, y[2]);
  const Attrs whole{{"keepdims", std::int64_t{0}}};
  ValueId loss =
      b.op("ReduceMean", {b.op("MatMul", {y[0], b.parameter("v", Tensor(DType::f64, {4, 2}))})}, whole);
  if (reads_statistics) loss = b.op("Add", {loss, b.op("ReduceMean", {y[1]}, whole)});
  graph.values[loss].name = "loss";
  graph.outputs = {loss};
  return graph;
}

Compiled trained_normalized(const std::string& passes, std::int64_t ranks,
                            const Graph& graph = normalized()) {
  CompileOptions options;
  options.train.loss = "loss";
  options.train.ranks = ranks;
  options.pipeline = *parse_pipeline(passes);
  auto compiled = compile(graph, options);
  EXPECT_TRUE(compiled.ok()) << compiled.error().message;
  EXPECT_TRUE(check_plan(compiled->train.graph, compiled->plan).ok());
  return std::move(compiled).value();
}

std::size_t count_of(const Compiled& c, const OpDef& op) {
  return static_cast<std::size_t>(
      std::count_if(c.plan.steps.begin(), c.plan.steps.end(),
                    [&](const PlanStep& step) { return c.train.graph.nodes[step.node].op == &op; }));
}

const PassReport& report_of(const Compiled& c) {
  return *std::find_if(c.reports.begin(), c.reports.end(),
                       [](const PassReport& report) { return report.name == "sync-batchnorm"; });
}

TEST(SyncBatchNorm, ExchangesTwiceEachWay) {
  for (const char* passes :
       {"sync-batchnorm", "default,sync-batchnorm", "default,zero{stage=2},sync-batchnorm"}) {
    SCOPED_TRACE(passes);
    const Compiled c = trained_normalized(passes, 3);
    EXPECT_EQ(report_of(c).matched, 2) << "forward and backward";
    EXPECT_EQ(count_of(c, batch_moments_op()), 1u);
    EXPECT_EQ(count_of(c, batch_grad_sums_op()), 1u);
    std::size_t in_its_midst = 0;
    for (const PlanStep& step : c.plan.steps) {
      const Node& node = c.train.graph.nodes[step.node];
      if (node.op == &all_reduce_op() && node.origin.phase != Phase::optimizer) ++in_its_midst;
      EXPECT_FALSE(is_op(node, "BatchNormGrad"));
    }
    EXPECT_EQ(in_its_midst, 4u);
    for (const Update& u : c.train.graph.updates) {
      const NodeId maker = c.train.graph.values[u.next].producer;
      if (c.train.graph.values[u.state].role == Role::state) {
        EXPECT_NE(c.train.graph.nodes[maker].op, &all_reduce_op()) << "it is the same on all ranks";
      }
    }
  }
}

TEST(SyncBatchNorm, OneRankIsLeftAlone) {
  EXPECT_EQ(trained_normalized("default,sync-batchnorm", 1).plan.hash,
            trained_normalized("default", 1).plan.hash);
}

TEST(SyncBatchNorm, WithoutItEachRankHasItsOwn) {
  const Compiled c = trained_normalized("default", 3);
  EXPECT_EQ(count_of(c, batch_moments_op()), 0u);
}

TEST(SyncBatchNorm, SaysWhyNot) {
  const Compiled c = trained_normalized("sync-batchnorm", 2, normalized(true));
  EXPECT_EQ(report_of(c).matched, 0);
  EXPECT_NE(why_nots(report_of(c)).find("others than its gradient read its statistics"), std::string::npos)
      << why_nots(report_of(c));
}

}  // namespace
}  // namespace gradloom
