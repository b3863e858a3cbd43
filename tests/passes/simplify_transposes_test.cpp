#include "tests/passes/support.h"

namespace gradloom {
namespace {

using test::Counts;
using test::op_counts;
using test::Perm;
using test::run_and_compare;
using test::run_pass;
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

TEST_F(SimplifyTransposes, OfEmptyBatchesAreViews) {
  const ValueId none = b.input("none", {DType::f32, {0, 1}});
  graph.outputs = {b.op("Exp", {turned(none, {1, 0})})};
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

TEST_F(SimplifyTransposes, BroadcastOperandsComeAlongWhereNothingMoves) {
  const ValueId row = b.input("row", {DType::f32, {3}}), image = b.input("image", {DType::f32, {2, 1, 1}});
  const ValueId sum = b.op("Add", {turned(x, {0, 2, 1}), row});
  graph.outputs = {turned(b.op("Mul", {image, sum}), {0, 2, 1})};
  EXPECT_EQ(run().matched, 1);
  EXPECT_EQ(op_counts(graph), (Counts{{"Add", 1}, {"Mul", 1}, {"Reshape", 2}}));
}

TEST_F(SimplifyTransposes, BroadcastOperandsThatWouldMoveStopThem) {
  const ValueId page = b.input("page", {DType::f32, {4, 3}});
  graph.outputs = {turned(b.op("Add", {turned(x, {0, 2, 1}), page}), {0, 2, 1})};
  expect_left("broadcasts page, whose dims would move");
}

TEST_F(SimplifyTransposes, SoftmaxTakesItsAxisAlong) {
  const Attrs middle{{"axis", std::int64_t{1}}};
  const ValueId soft = b.op("Softmax", {turned(x, {0, 2, 1})}, middle);
  graph.outputs = {turned(b.op("LogSoftmax", {soft}, middle), {0, 2, 1})};
  EXPECT_EQ(run_and_compare(graph, "simplify-transposes", 1e-6).matched, 1);
  EXPECT_EQ(op_counts(graph), (Counts{{"Softmax", 1}, {"LogSoftmax", 1}}));
}

TEST_F(SimplifyTransposes, SoftmaxStaysOnTheLastDim) {
  graph.outputs = {turned(b.op("Softmax", {turned(x, {0, 2, 1})}, {{"axis", std::int64_t{-1}}}), {0, 2, 1})};
  expect_left("would leave the last dim");
}

TEST_F(SimplifyTransposes, ConcatAndPadTakeTheirAxesAlong) {
  const ValueId joined =
      b.op("Concat", {turned(x, {2, 0, 1}), turned(y, {2, 0, 1})}, {{"axis", std::int64_t{-1}}});
  const ValueId padded = b.op("Pad", {joined, b.i64s({1, 0, 2, 0, 3, 0})});
  graph.outputs = {turned(padded, {1, 2, 0})};
  EXPECT_EQ(run().matched, 1);
  EXPECT_EQ(op_counts(graph), (Counts{{"Concat", 1}, {"Pad", 1}}));
}

TEST_F(SimplifyTransposes, PadsOfSomeDimsStopThem) {
  graph.outputs = {
      turned(b.op("Pad", {turned(x, {2, 0, 1}), b.i64s({1, 1}), kNone, b.i64s({1})}), {1, 2, 0})};
  expect_left("are not known for each dim");
}

TEST_F(SimplifyTransposes, ReductionsReadWhatIsNotTransposed) {
  const Attrs drops{{"keepdims", std::int64_t{0}}};
  graph.outputs = {
      b.op("ReduceMean", {turned(x, {2, 0, 1}), b.i64s({0, 2})}, drops),  // [2]: nothing is left to move
      b.op("ReduceMax", {turned(y, {2, 1, 0}), b.i64s({-1})}, drops)};    // [4, 3] of [3, 4]
  EXPECT_EQ(run_and_compare(graph, "simplify-transposes", 1e-6).matched, 2);
  EXPECT_EQ(op_counts(graph), (Counts{{"ReduceMean", 1}, {"ReduceMax", 1}, {"Transpose", 1}}));
  EXPECT_EQ(run_and_compare(graph, "simplify-transposes", 0).matched, 0);
}

TEST_F(SimplifyTransposes, ReductionsThatKeepDimsLetThemMeet) {
  const ValueId t = turned(x, {0, 2, 1}), mean = b.op("ReduceSum", {t, b.i64s({2})});
  graph.outputs = {turned(b.op("Sub", {t, mean}), {0, 2, 1})};
  EXPECT_EQ(run_and_compare(graph, "simplify-transposes", 1e-6).matched, 2);
  EXPECT_EQ(op_counts(graph), (Counts{{"ReduceSum", 1}, {"Sub", 1}, {"Reshape", 2}}));
  graph.outputs = {turned(b.op("Exp", {b.op("ReduceMax", {turned(y, {2, 1, 0}), b.i64s({1})})}), {2, 1, 0})};
  run_pass(graph, "dead-code");
  EXPECT_EQ(run().matched, 2);
  EXPECT_EQ(op_counts(graph), (Counts{{"ReduceMax", 1}, {"Exp", 1}}));
}

TEST_F(SimplifyTransposes, ReductionsBetweenThemTakeTheirAxesAlong) {
  const ValueId t = turned(x, {0, 2, 1}), most = b.op("ReduceMax", {t, b.i64s({2})});
  graph.outputs = {turned(b.op("Concat", {t, most}, {{"axis", std::int64_t{2}}}), {0, 2, 1})};
  EXPECT_EQ(run().matched, 1);
  EXPECT_EQ(op_counts(graph), (Counts{{"ReduceMax", 1}, {"Concat", 1}}));
}

TEST_F(SimplifyTransposes, ReductionsOfWhatOthersReadStay) {
  const ValueId t = turned(x, {0, 2, 1});
  graph.outputs = {b.op("ReduceMean", {t, b.i64s({2})}), b.op("Exp", {t})};
  expect_left("is also read by node Exp");
}

TEST_F(SimplifyTransposes, ReductionsOverAllAxesStay) {
  graph.outputs = {b.op("ReduceMean", {turned(x, {0, 2, 1})})};
  expect_left("names no axes");
}

TEST_F(SimplifyTransposes, OtherOperatorsStopThem) {
  const ValueId t = turned(x, {0, 2, 1});
  graph.outputs = {turned(b.op("Add", {t, b.op("CumSum", {t, b.scalar(DType::i64, 1)})}), {0, 2, 1})};
  expect_left("knows its dims by their place");
}

}  // namespace
}  // namespace gradloom
