#include "passes/fusion.h"

#include <gtest/gtest.h>

#include "tests/passes/support.h"

namespace gradloom {
namespace {

// Exp(Neg(x)) -> Reciprocal(Exp(x)), refused for x of more than 4 elements.
FusionRule rule() {
  auto apply = [](Rewriter& rw, const Match& match) -> std::string {
    const ValueId x = match.value("x");
    if (element_count(rw.graph().type(x).shape) > 4) return "too many elements";
    GraphBuilder& b = rw.begin("exp-neg", match.root, match.nodes);
    rw.replace(match.value("y"), b.op("Reciprocal", {b.op("Exp", {x})}));
    rw.commit();
    return "";
  };
  return {"exp-neg", Pattern("y = Exp(n); n = Neg(x)"), "Neg", apply};
}

struct FusionTest : ::testing::Test {
  Graph graph;
  GraphBuilder b{graph};
  ValueId x = b.input("x", {DType::f32, {4}}), wide = b.input("wide", {DType::f32, {5}});
  std::vector<RewriteRecord> run() {
    const FusionRule rules[] = {rule()};
    Rewriter rw(graph, "test");
    const Status status = run_fusion(rw, rules);
    EXPECT_TRUE(status.ok());
    EXPECT_TRUE(verify(graph).ok());
    return rw.log();
  }
};

TEST_F(FusionTest, AppliesEverywhereAndTheResultTakesTheAnchorsName) {
  graph.outputs = {b.op("Exp", {b.op("Neg", {x})}), b.op("Exp", {b.op("Neg", {b.op("Tanh", {x})})})};
  const auto log = run();
  ASSERT_EQ(log.size(), 2u);
  EXPECT_TRUE(log[0].matched && log[1].matched);
  EXPECT_EQ(graph.nodes[graph.values[graph.outputs[0]].producer].name, log[0].site);
  EXPECT_EQ(test::op_counts(graph), (std::map<std::string, int>{{"Exp", 2}, {"Reciprocal", 2}, {"Tanh", 1}}));
}

TEST_F(FusionTest, ANearMissIsReportedOnceAtTheKeyNode) {
  const ValueId n = b.op("Neg", {x});
  graph.outputs = {b.op("Exp", {n}), b.op("Tanh", {n})};
  const auto log = run();
  ASSERT_EQ(log.size(), 1u);
  EXPECT_FALSE(log[0].matched);
  EXPECT_EQ(log[0].site, "Neg");
  EXPECT_NE(log[0].why.find("is also read by node Tanh"), std::string::npos);
}

TEST_F(FusionTest, ARefusedMatchGivesTheRulesReason) {
  graph.outputs = {b.op("Exp", {b.op("Neg", {wide})})};
  const auto log = run();
  ASSERT_EQ(log.size(), 1u);
  EXPECT_EQ(log[0].why, "too many elements");
}

TEST_F(FusionTest, ARootWithoutTheKeyOperatorIsNoNearMiss) {
  graph.outputs = {b.op("Exp", {b.op("Tanh", {x})}), b.op("Neg", {x})};
  EXPECT_TRUE(run().empty());
}

}  // namespace
}  // namespace gradloom
