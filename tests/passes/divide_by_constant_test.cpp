#include "tests/passes/support.h"

namespace gradloom {
namespace {

using testing::Counts;
using testing::op_counts;
using testing::run_and_compare;
using testing::why_nots;

struct DivideByConstant : testing::TwoInputs {
  PassReport run(ValueId divisor, const std::string& pass = "divide-by-constant", double tolerance = 0) {
    graph.outputs = {b.op("Div", {x, divisor})};
    return run_and_compare(graph, pass, tolerance);
  }
};

TEST_F(DivideByConstant, PowersOfTwoAreExact) {
  EXPECT_EQ(run(b.constant(Tensor::from_f64(DType::f32, {4}, {8, -0.25, 1, 0x1p120}))).matched, 1);
  EXPECT_EQ(op_counts(graph), (Counts{{"Mul", 1}}));
}
TEST_F(DivideByConstant, OthersAreRounded) {
  const PassReport report = run(b.scalar(DType::f32, 3));
  EXPECT_EQ(report.matched, 0);
  EXPECT_NE(why_nots(report).find("is rounded (inexact)"), std::string::npos) << why_nots(report);
}
TEST_F(DivideByConstant, OthersAreTakenWhereAllowed) {
  EXPECT_EQ(run(b.scalar(DType::f32, 3), "divide-by-constant{inexact=true}", 1e-6).matched, 1);
}
TEST_F(DivideByConstant, WithoutReciprocalStay) {
  for (const double c : {0.0, 0x1p-140, 0x1p127}) {
    const PassReport report = run(b.scalar(DType::f32, c), "divide-by-constant{inexact=true}", 0);
    EXPECT_EQ(report.matched, 0) << c;
    EXPECT_NE(why_nots(report).find("has no reciprocal in f32"), std::string::npos) << why_nots(report);
  }
}
TEST_F(DivideByConstant, UnknownDivisorsStay) { EXPECT_EQ(run(y).matched, 0); }
TEST_F(DivideByConstant, IntegersStay) {
  graph.outputs = {b.op("Div", {b.input("n", {DType::i32, {4}}), b.scalar(DType::i32, 2)})};
  EXPECT_EQ(testing::run_pass(graph, "divide-by-constant").matched, 0);
}

}  // namespace
}  // namespace gradloom
