#include <gtest/gtest.h>

#include "engine/ops/collectives/adasum.h"
#include "engine/ops/collectives/all_reduce.h"
#include "engine/train/optimizers.h"
#include "passes/compile.h"
#include "tests/passes/support.h"

namespace gradloom {
namespace {

Result<Compiled> try_adasum(const char* passes, std::int64_t ranks) {
  Graph graph;
  GraphBuilder b(graph);
  ValueId h = b.input("x", {DType::f32, {8, 16}});
  for (const char* name : {"a", "b"})
    h = b.op("Tanh", {b.op("MatMul", {h, b.parameter(name, Tensor(DType::f32, {16, 16}))})});
  const ValueId loss = b.op("ReduceMean", {h}, {{"keepdims", std::int64_t{0}}});
  graph.values[loss].name = "loss";
  graph.outputs = {loss};
  CompileOptions options;
  options.train.loss = "loss";
  options.train.ranks = ranks;
  options.train.clip_norm = 1;
  options.train.optimizer = *parse_optimizer("adamw");
  options.pipeline = *parse_pipeline(passes);
  return compile(std::move(graph), options);
}

Compiled adasum_trained(const char* passes, std::int64_t ranks) {
  auto compiled = try_adasum(passes, ranks);
  EXPECT_TRUE(compiled.ok()) << compiled.error().message;
  EXPECT_TRUE(check_plan(compiled->train.graph, compiled->plan).ok());
  return std::move(compiled).value();
}

int count(const Compiled& c, const OpDef& op) {
  int found = 0;
  for (const Node& node : c.train.graph.nodes) found += node.alive() && node.op == &op;
  return found;
}

TEST(AdasumPass, TakesGradientsAndLeavesTheLoss) {
  const Compiled c = adasum_trained("adasum", 4);
  EXPECT_EQ(count(c, all_reduce_adasum_op()), 1) << "both gradients in one";
  EXPECT_EQ(count(c, all_reduce_op()), 1) << "the loss is a mean";
  for (const Node& node : c.train.graph.nodes) {
    if (!node.alive() || !is_op(node, "GlobalNorm")) continue;
    for (const ValueId in : node.inputs)
      EXPECT_EQ(c.train.graph.nodes[c.train.graph.values[in].producer].op, &all_reduce_adasum_op())
          << "clipping sees what the update sees";
  }
}

// Of each parameter one rank has the update: what ranks exchange is the same on all.
TEST(AdasumPass, TakesTheSameGradientsOnRanksThatKeepStatesApart) {
  for (const char* passes : {"zero{rank=0},adasum", "zero{rank=1},adasum"}) {
    const Compiled c = adasum_trained(passes, 2);
    ASSERT_EQ(count(c, all_reduce_adasum_op()), 1) << passes;
    EXPECT_EQ(count(c, all_reduce_op()), 1) << passes << ": the loss";
    for (const Node& node : c.train.graph.nodes) {
      if (node.alive() && node.op == &all_reduce_adasum_op()) {
        EXPECT_EQ(node.inputs.size(), 2u) << passes;
      }
    }
  }
}

TEST(AdasumPass, RefusesWhatItCannotPair) {
  for (const std::int64_t ranks : {3, 6}) {
    const auto compiled = try_adasum("adasum", ranks);
    ASSERT_FALSE(compiled.ok()) << "means would be another training than the one that was asked for";
    EXPECT_EQ(compiled.error().code, Errc::usage);
    EXPECT_EQ(compiled.error().message, "pass adasum: AdaSum combines pairs of ranks: " +
                                            std::to_string(ranks) + " are no power of two");
  }
  EXPECT_EQ(adasum_trained("adasum", 1).plan.hash, adasum_trained("none", 1).plan.hash);
}

}  // namespace
}  // namespace gradloom
