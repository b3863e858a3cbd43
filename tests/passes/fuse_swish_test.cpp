#include "tests/passes/support.h"

namespace gradloom {
namespace {

using test::Counts;
using test::op_counts;
using test::run_and_compare;
using test::why_nots;

using FuseSwish = test::TwoInputs;

TEST_F(FuseSwish, SiluBecomesOneNode) {
  graph.outputs = {b.op("Mul", {b.op("Sigmoid", {x}), x})};
  EXPECT_EQ(run_and_compare(graph, "fuse-swish", 1e-6).matched, 1);
  EXPECT_EQ(op_counts(graph), (Counts{{"Swish", 1}}));
  EXPECT_EQ(graph.nodes.back().attrs.real("alpha"), 1);
}
TEST_F(FuseSwish, QuickGeluBecomesOneNode) {
  graph.outputs = {b.op("Mul", {x, b.op("Sigmoid", {b.op("Mul", {x, b.scalar(DType::f32, 1.702)})})})};
  EXPECT_EQ(run_and_compare(graph, "fuse-swish", 1e-6).matched, 1);
  EXPECT_EQ(op_counts(graph), (Counts{{"Swish", 1}}));
}
TEST_F(FuseSwish, AGateIsNoSwish) {
  graph.outputs = {b.op("Mul", {y, b.op("Sigmoid", {x})})};
  EXPECT_EQ(run_and_compare(graph, "fuse-swish", 0).matched, 0);
}
TEST_F(FuseSwish, ASigmoidReadElsewhereKeepsThePieces) {
  const ValueId s = b.op("Sigmoid", {x});
  graph.outputs = {b.op("Mul", {x, s}), b.op("Neg", {s})};
  const PassReport report = run_and_compare(graph, "fuse-swish", 0);
  EXPECT_EQ(report.matched, 0);
  EXPECT_NE(why_nots(report).find("is also read by node Neg"), std::string::npos) << why_nots(report);
}
TEST_F(FuseSwish, AnotherTypeOfTheResultKeepsThePieces) {
  const ValueId alpha = b.constant(Tensor::from_f64(DType::f32, {1, 1, 1}, {1.5}));
  graph.outputs = {b.op("Mul", {x, b.op("Sigmoid", {b.op("Mul", {x, alpha})})})};
  const PassReport report = run_and_compare(graph, "fuse-swish", 0);
  EXPECT_EQ(report.matched, 0);
  EXPECT_NE(why_nots(report).find("another type"), std::string::npos) << why_nots(report);
}

}  // namespace
}  // namespace gradloom
