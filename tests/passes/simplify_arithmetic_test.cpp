#include "tests/passes/support.h"

namespace gradloom {
namespace {

using test::Counts;
using test::op_counts;
using test::run_and_compare;
using test::run_pass;
using test::why_nots;

constexpr const char* kArithmeticPass = "simplify-arithmetic";

struct SimplifyArithmetic : test::TwoInputs {
  ValueId condition = b.input("condition", {DType::boolean, {3, 4}});
  void expect_left(const std::string& why) {
    const Counts before = op_counts(graph);
    const PassReport report = run_pass(graph, kArithmeticPass);
    EXPECT_EQ(report.matched, 0);
    EXPECT_NE(why_nots(report).find(why), std::string::npos) << why_nots(report);
    EXPECT_EQ(op_counts(graph), before);
  }
};

TEST_F(SimplifyArithmetic, ProductsWithReciprocalsAreQuotients) {
  const ValueId row = b.input("row", {DType::f32, {4}});
  graph.outputs = {b.op("Mul", {x, b.op("Reciprocal", {y})}),
                   b.op("Mul", {b.op("Div", {b.scalar(DType::f32, 1), y}), x}),
                   b.op("Mul", {row, b.op("Reciprocal", {y})})};
  EXPECT_EQ(run_and_compare(graph, kArithmeticPass, 1e-3).matched,
            3);  // some y are near 0: quotients are large
  EXPECT_EQ(op_counts(graph), (Counts{{"Div", 3}}));
}

TEST_F(SimplifyArithmetic, ReciprocalsThatOthersReadOrThatAreBroadcastStay) {
  const ValueId r = b.op("Reciprocal", {y});
  graph.outputs = {b.op("Mul", {x, r}), b.op("Exp", {r})};
  expect_left("is also read by node Exp");
  graph.outputs = {b.op("Mul", {x, b.op("Reciprocal", {b.input("row", {DType::f32, {4}})})})};
  run_pass(graph, "dead-code");
  expect_left("row is broadcast: fewer elements are divided as it is");
}

TEST_F(SimplifyArithmetic, IntegersAndOtherNumeratorsStay) {
  const Type ints{DType::i64, {4}};
  graph.outputs = {
      b.op("Mul", {b.input("i", ints), b.op("Div", {b.scalar(DType::i64, 1), b.input("j", ints)})}),
      b.op("Mul", {x, b.op("Div", {b.scalar(DType::f32, 2), y})})};
  EXPECT_EQ(run_pass(graph, kArithmeticPass).matched, 0);
}

TEST_F(SimplifyArithmetic, NegatedConditionsChooseTheOtherWayRound) {
  graph.outputs = {b.op("Where", {b.op("Not", {condition}), x, y})};
  EXPECT_EQ(run_and_compare(graph, kArithmeticPass, 0).matched, 1);
  EXPECT_EQ(op_counts(graph), (Counts{{"Where", 1}}));
}

TEST_F(SimplifyArithmetic, NegationsThatOthersReadStay) {
  const ValueId other = b.op("Not", {condition});
  graph.outputs = {b.op("Where", {other, x, y}), other};
  expect_left("is also an output of the graph");
}

}  // namespace
}  // namespace gradloom
