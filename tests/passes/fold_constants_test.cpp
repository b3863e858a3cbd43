#include <gtest/gtest.h>

#include "tests/passes/support.h"

namespace gradloom {
namespace {

using test::Counts;
using test::op_counts;
using test::run_and_compare;
using test::why_nots;

struct FoldConstants : test::TwoInputs {};

TEST_F(FoldConstants, ConstantInputsCascade) {
  const ValueId c = b.op("Exp", {b.op("Mul", {b.scalar(DType::f32, 2), b.scalar(DType::f32, 3)})});
  graph.outputs = {b.op("Add", {x, c})};
  EXPECT_EQ(run_and_compare(graph, "fold-constants", 0).matched, 2);
  EXPECT_EQ(op_counts(graph), (Counts{{"Add", 1}}));
}

TEST_F(FoldConstants, KnownContentsReplaceTheNode) {
  const ValueId shape = b.op("Shape", {x});
  graph.values[shape].data = Tensor::from_i64({3, 4});
  graph.outputs = {b.op("Reshape", {b.op("Exp", {y}), shape})};
  EXPECT_EQ(run_and_compare(graph, "fold-constants", 0).matched, 1);
  EXPECT_EQ(op_counts(graph), (Counts{{"Exp", 1}, {"Reshape", 1}}));
}

TEST_F(FoldConstants, ResultsAboveMaxBytesStay) {
  const ValueId c = b.op("Expand", {b.scalar(DType::f32, 2), b.i64s({100})});
  graph.outputs = {b.op("Mul", {b.input("z", {DType::f32, {100}}), c})};
  const PassReport report = run_and_compare(graph, "fold-constants{max_bytes=399}", 0);
  EXPECT_EQ(report.matched, 0);
  EXPECT_NE(why_nots(report).find("above max_bytes"), std::string::npos) << why_nots(report);
  EXPECT_EQ(run_and_compare(graph, "fold-constants{max_bytes=400}", 0).matched, 1);
}

TEST_F(FoldConstants, ParametersAndRandomNodesStay) {
  const ValueId p = b.parameter("p", Tensor(DType::f32, {3, 4}));
  const ValueId ones = b.constant(Tensor::from_f64(DType::f32, {4}, {1, 1, 1, 1}));
  const ValueId d = b.op("Dropout", {ones, b.scalar(DType::f32, 0.5), b.scalar(DType::boolean, 1)},
                         {{"key", std::int64_t{1}}});
  graph.outputs = {b.op("Exp", {p}), d};
  EXPECT_EQ(run_and_compare(graph, "fold-constants", 0).matched, 0);
}

}  // namespace
}  // namespace gradloom
