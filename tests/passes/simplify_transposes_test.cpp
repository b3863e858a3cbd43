#include "tests/passes/support.h"

namespace gradloom {
namespace {

using test::Counts;
using test::op_counts;
using test::Perm;
using test::run_and_compare;
using test::why_nots;

struct SimplifyTransposes : ::testing::Test {
  Graph graph;
  GraphBuilder b{graph};
  ValueId x = b.input("x", {DType::f32, {2, 3, 4}}), y = b.input("y", {DType::f32, {2, 3, 4}});
  ValueId turned(ValueId v, const Perm& perm) { return b.op("Transpose", {v}, {{"perm", perm}}); }
  PassReport run() { return run_and_compare(graph, "simplify-transposes", 0); }
  void expect_left(const std::string& why) {
    const Counts before = op_counts(graph);
    const PassReport report = run();
    EXPECT_EQ(report.matched, 0);
    EXPECT_NE(why_nots(report).find(why), std::string::npos) << why_nots(report);
    EXPECT_EQ(op_counts(graph), before);
  }
};

TEST_F(SimplifyTransposes, OfDimsOfSizeOneAreViews) {
  const ValueId one = b.input("one", {DType::f32, {3, 1, 4}});
  graph.outputs = {b.op("Exp", {turned(one, {1, 0, 2})})};
  EXPECT_EQ(run().matched, 1);
  EXPECT_EQ(op_counts(graph), (Counts{{"Exp", 1}, {"Reshape", 1}}));
}

TEST_F(SimplifyTransposes, OfLargerDimsStay) {
  graph.outputs = {b.op("Exp", {turned(x, {1, 0, 2})})};
  EXPECT_EQ(run().matched, 0);
}

TEST_F(SimplifyTransposes, MeetThroughAnyChain) {
  ValueId v = turned(x, {2, 0, 1});
  v = b.op("Mul", {b.op("Tanh", {v}), b.scalar(DType::f32, 2)});
  v = b.op("Sub", {b.scalar(DType::f32, 1), b.op("Exp", {v})});
  graph.outputs = {turned(v, {1, 2, 0})};
  EXPECT_EQ(run().matched, 1);
  EXPECT_EQ(op_counts(graph).count("Transpose"), 0u);
}

TEST_F(SimplifyTransposes, OfSeveralOperandsBecomeOne) {
  const ValueId sum = b.op("Add", {turned(x, {0, 2, 1}), turned(y, {0, 2, 1})});
  graph.outputs = {turned(b.op("Mul", {sum, b.op("Sigmoid", {sum})}), {2, 0, 1})};
  EXPECT_EQ(run().matched, 1);
  EXPECT_EQ(op_counts(graph).at("Transpose"), 1);
}

TEST_F(SimplifyTransposes, OfOtherOrdersStay) {
  const ValueId z = b.input("z", {DType::f32, {2, 4, 3}});
  graph.outputs = {turned(b.op("Add", {turned(b.input("w", {DType::f32, {3, 3, 3}}), {0, 2, 1}),
                                       turned(b.input("u", {DType::f32, {3, 3, 3}}), {2, 1, 0})}),
                          {0, 2, 1}),
                   z};
  expect_left("transposes otherwise");
}

TEST_F(SimplifyTransposes, ValuesReadElsewhereKeepTheirs) {
  const ValueId e = b.op("Exp", {turned(x, {0, 2, 1})});
  graph.outputs = {turned(e, {0, 2, 1}), b.op("Neg", {e})};
  expect_left("is also read by node Neg");
}

TEST_F(SimplifyTransposes, ThatWouldAllStayAreLeft) {
  const ValueId t = turned(x, {0, 2, 1});
  graph.outputs = {turned(b.op("Exp", {t}), {1, 0, 2}), b.op("Neg", {t})};
  expect_left("read elsewhere too");
}

TEST_F(SimplifyTransposes, BroadcastsAndOtherOperatorsStopThem) {
  const ValueId row = b.input("row", {DType::f32, {3}});
  graph.outputs = {turned(b.op("Add", {turned(x, {0, 2, 1}), row}), {0, 2, 1})};
  const PassReport broadcast = run();
  EXPECT_EQ(broadcast.matched, 0);
  graph.outputs = {turned(b.op("Softmax", {turned(x, {0, 2, 1})}, {{"axis", std::int64_t{-1}}}), {0, 2, 1})};
  EXPECT_EQ(run().matched, 0);
}

}  // namespace
}  // namespace gradloom
