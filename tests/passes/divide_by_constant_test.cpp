#include "tests/passes/support.h"

namespace gradloom {
namespace {

using test::Counts;
using test::op_counts;
using test::run_and_compare;
using test::why_nots;

struct DivideByConstant : test::TwoInputs {
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
struct TwoScales : test::TwoInputs {
  ValueId scaled(const std::string& op, ValueId v, double c) {
    return b.op(op.c_str(), {v, b.scalar(DType::f32, c)});
  }
  PassReport run(ValueId result, const std::string& pass = "divide-by-constant", double tolerance = 0) {
    graph.outputs = {result};
    return run_and_compare(graph, pass, tolerance);
  }
  void expect_left(ValueId result, const std::string& why) {
    const PassReport report = run(result);
    EXPECT_EQ(report.matched, 0);
    EXPECT_NE(why_nots(report).find(why), std::string::npos) << why_nots(report);
  }
  double constant() {
    double c = 0;
    for (const Node& node : graph.nodes) {
      if (!node.alive()) continue;
      EXPECT_TRUE(scalar_constant(graph, node.inputs[1], &c));
    }
    return c;
  }
};

TEST_F(TwoScales, AreOneWhereOneIsAPowerOfTwo) {
  const struct {
    const char *first, *second, *result;
    double c, d, both;
  } cases[] = {{"Mul", "Mul", "Mul", 3, 4, 12},      {"Mul", "Mul", "Mul", 4, 3, 12},
               {"Div", "Mul", "Div", 3, 4, 0.75},    {"Mul", "Div", "Div", 4, 3, 0.75},
               {"Mul", "Div", "Mul", 3, 4, 0.75},    {"Div", "Mul", "Mul", 4, 3, 0.75},
               {"Div", "Div", "Div", 3, 0.25, 0.75}, {"Div", "Div", "Div", -0.25, 3, -0.75}};
  for (const auto& one : cases) {
    graph = {};
    GraphBuilder fresh(graph);
    const ValueId in = fresh.input("x", type);
    const ValueId first = fresh.op(one.first, {in, fresh.scalar(DType::f32, one.c)});
    graph.outputs = {fresh.op(one.second, {first, fresh.scalar(DType::f32, one.d)})};
    EXPECT_GE(run_and_compare(graph, "divide-by-constant", 0).matched, 1) << one.first << one.second;
    EXPECT_EQ(op_counts(graph), (Counts{{one.result, 1}})) << one.first << one.second;
    EXPECT_EQ(constant(), one.both);
  }
}
TEST_F(TwoScales, ThreeAreOne) {
  EXPECT_EQ(run(scaled("Mul", scaled("Mul", scaled("Mul", x, 2), 3), 4)).matched, 2);
  EXPECT_EQ(op_counts(graph), (Counts{{"Mul", 1}}));
  EXPECT_EQ(constant(), 24);
}
TEST_F(TwoScales, OthersAreRoundedTwice) {
  expect_left(scaled("Mul", scaled("Div", x, 3), 5), "neither constant is a power of two (inexact)");
}
TEST_F(TwoScales, OthersAreOneWhereAllowed) {
  EXPECT_EQ(run(scaled("Mul", scaled("Mul", x, 3), 5), "divide-by-constant{inexact=true}", 1e-5).matched, 1);
  EXPECT_EQ(op_counts(graph), (Counts{{"Mul", 1}}));
}
TEST_F(TwoScales, AValueReadElsewhereStays) {
  const ValueId first = scaled("Mul", x, 3);
  const ValueId second = scaled("Mul", first, 4);
  graph.outputs = {second, b.op("Exp", {first})};
  const PassReport report = run_and_compare(graph, "divide-by-constant", 0);
  EXPECT_EQ(report.matched, 0);
  EXPECT_NE(why_nots(report).find("is also read by node Exp"), std::string::npos) << why_nots(report);
}
TEST_F(TwoScales, WhatTogetherLeavesTheTypeStays) {
  expect_left(scaled("Mul", scaled("Mul", x, 0x1p100), 0x1p100), "both constants together are no normal f32");
  expect_left(scaled("Mul", scaled("Mul", x, 0x1p-100), 0x1p-100),
              "both constants together are no normal f32");
}
TEST_F(TwoScales, TensorsAndMoreDimsStay) {
  const ValueId row = b.constant(Tensor::from_f64(DType::f32, {4}, {1, 2, 3, 4}));
  const ValueId deep = b.constant(Tensor::from_f64(DType::f32, {1, 1, 1}, {3}));
  graph.outputs = {scaled("Mul", b.op("Mul", {x, row}), 4), scaled("Mul", b.op("Mul", {y, deep}), 4)};
  EXPECT_EQ(run_and_compare(graph, "divide-by-constant", 0).matched, 0);
}

TEST_F(DivideByConstant, UnknownDivisorsStay) { EXPECT_EQ(run(y).matched, 0); }
TEST_F(DivideByConstant, IntegersStay) {
  graph.outputs = {b.op("Div", {b.input("n", {DType::i32, {4}}), b.scalar(DType::i32, 2)})};
  EXPECT_EQ(test::run_pass(graph, "divide-by-constant").matched, 0);
}

}  // namespace
}  // namespace gradloom
