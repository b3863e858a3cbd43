#include <gtest/gtest.h>

#include "tests/passes/support.h"

namespace gradloom {
namespace {

using test::op_counts;
using test::run_and_compare;
using test::why_nots;

struct FuseOptimizer : ::testing::Test {
  Graph graph;
  GraphBuilder b{graph};
  ValueId lr = b.input("lr", {DType::f64, {}}, Role::hyper),
          step = b.input("step", {DType::i64, {}}, Role::hyper);
  int count = 0;
  // Adam: parameter, gradient, m, v.
  void add(const Shape& shape, ValueId scale = kNone, double beta1 = 0.9) {
    const std::string name = "p" + std::to_string(count++);
    const Type type{DType::f32, shape};
    const ValueId p = b.parameter(name, Tensor(DType::f32, shape)), g = b.input(name + "/g", type);
    const ValueId m = b.input(name + "/m", type, Role::state), v = b.op("Abs", {b.input(name + "/v", type)});
    const Attrs attrs{{"kind", std::string("adam")},
                      {"n", std::int64_t{1}},
                      {"beta1", beta1},
                      {"beta2", 0.99},
                      {"epsilon", 1e-8}};
    const auto next = b.ops(op_by_name("Optimizer"), {lr, step, scale, kNone, p, g, m, v}, attrs, 3);
    graph.updates.push_back({p, next[0]});
    graph.updates.push_back({m, next[1]});
    graph.outputs.push_back(next[2]);
  }
};

TEST_F(FuseOptimizer, AllUpdatesBecomeOneWithStatesInOrder) {
  add({4});
  add({2, 3});
  add({});
  EXPECT_EQ(run_and_compare(graph, "fuse-optimizer", 0).matched, 1);
  EXPECT_EQ(op_counts(graph), (std::map<std::string, int>{{"Abs", 3}, {"Optimizer", 1}}));
}

TEST_F(FuseOptimizer, FusedUpdatesFuseAgain) {
  add({4});
  add({5});
  run_and_compare(graph, "fuse-optimizer", 0);
  add({6});
  EXPECT_EQ(run_and_compare(graph, "fuse-optimizer", 0).matched, 1);
  EXPECT_EQ(op_counts(graph).at("Optimizer"), 1);
}

TEST_F(FuseOptimizer, OtherOptionsStayApart) {
  add({4});
  add({5}, kNone, 0.8);
  const PassReport report = run_and_compare(graph, "fuse-optimizer", 0);
  EXPECT_EQ(report.matched, 0);
  EXPECT_EQ(report.rejected, 2);
}

TEST_F(FuseOptimizer, AnotherGradientScaleStaysApart) {
  const ValueId scale = b.input("scale", {DType::f32, {}});
  add({4}, scale);
  add({5}, scale);
  add({6});
  EXPECT_EQ(run_and_compare(graph, "fuse-optimizer", 0).matched, 1);
  EXPECT_EQ(op_counts(graph).at("Optimizer"), 2);
}

TEST_F(FuseOptimizer, OneUpdateIsLeftAlone) {
  add({4});
  const PassReport report = run_and_compare(graph, "fuse-optimizer", 0);
  EXPECT_EQ(report.matched + report.rejected, 0);
}

}  // namespace
}  // namespace gradloom
