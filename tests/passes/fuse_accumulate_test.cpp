#include <gtest/gtest.h>

#include "passes/compile.h"
#include "tests/passes/support.h"

namespace gradloom {
namespace {

using test::op_counts;
using test::run_pass;
using test::why_nots;

struct FuseAccumulate : ::testing::Test {
  Graph graph;
  GraphBuilder b{graph, {.origin = {{}, Phase::backward}}};
  ValueId micro = b.input("micro", {DType::i64, {}}, Role::hyper);
  ValueId acc = b.input("acc", {DType::f64, {4, 3}}, Role::state);
  ValueId x = b.input("x", {DType::f64, {8, 4}}), dy = b.input("dy", {DType::f64, {8, 3}});
  const Attrs turned{{"perm_a", std::vector<std::int64_t>{1, 0}}};

  void accumulate(ValueId gradient) {
    graph.updates = {{acc, b.op("Accumulate", {acc, gradient, micro}, {{"count", std::int64_t{2}}})}};
  }
};

TEST_F(FuseAccumulate, TheProductAddsToTheAccumulator) {
  accumulate(b.op("FusedMatMul", {x, dy}, turned));
  EXPECT_EQ(test::run_and_compare(graph, "fuse-accumulate", 1e-12).matched, 1);
  EXPECT_EQ(op_counts(graph), (test::Counts{{"AccumulateMatMul", 1}}));
}

TEST_F(FuseAccumulate, AProductThatIsReadElsewhereStays) {
  const ValueId gradient = b.op("FusedMatMul", {x, dy}, turned);
  accumulate(gradient);
  graph.outputs = {gradient};
  const PassReport report = test::run_and_compare(graph, "fuse-accumulate", 0);
  EXPECT_EQ(report.matched, 0);
  EXPECT_NE(why_nots(report).find("also an output"), std::string::npos) << why_nots(report);
}

TEST_F(FuseAccumulate, AProductWithBiasStays) {
  accumulate(b.op("FusedMatMul", {x, dy, b.input("bias", {DType::f64, {3}})}, turned));
  const PassReport report = test::run_and_compare(graph, "fuse-accumulate", 0);
  EXPECT_NE(why_nots(report).find("bias"), std::string::npos) << why_nots(report);
}

TEST_F(FuseAccumulate, OtherGradientsStay) {
  accumulate(b.op("Tanh", {b.input("g", {DType::f64, {4, 3}})}));
  EXPECT_EQ(test::run_and_compare(graph, "fuse-accumulate", 0).matched, 0);
}

TEST_F(FuseAccumulate, ACastOfTheProductIsPartOfIt) {
  Graph low;
  GraphBuilder c(low, {.origin = {{}, Phase::backward}});
  const ValueId m = c.input("micro", {DType::i64, {}}, Role::hyper),
                sum = c.input("acc", {DType::f32, {4, 3}}, Role::state);
  const ValueId a = c.input("x", {DType::bf16, {8, 4}}), d = c.input("dy", {DType::bf16, {8, 3}});
  const ValueId wide = c.op("Cast", {c.op("FusedMatMul", {a, d}, turned)}, {{"to", std::int64_t{1}}});
  low.updates = {{sum, c.op("Accumulate", {sum, wide, m})}};
  EXPECT_EQ(run_pass(low, "fuse-accumulate").matched, 1);
  EXPECT_EQ(op_counts(low), (test::Counts{{"AccumulateMatMul", 1}}));
}

}  // namespace
}  // namespace gradloom
