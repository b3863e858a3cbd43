#include "tests/passes/support.h"

namespace gradloom {
namespace {

using testing::Counts;
using testing::op_counts;
using testing::run_and_compare;
using testing::why_nots;

struct SimplifySlices : ::testing::Test {
  Graph graph;
  GraphBuilder b{graph};
  ValueId x = b.input("x", {DType::f32, {4, 6}});
  ValueId slice(std::int64_t begin, std::int64_t end, std::int64_t axis = 1) {
    return b.op("Slice", {x, b.i64s({begin}), b.i64s({end}), b.i64s({axis})});
  }
  ValueId gather(ValueId indices) { return b.op("Gather", {x, indices}, {{"axis", std::int64_t{-1}}}); }
  ValueId concat(std::vector<ValueId> parts, std::int64_t axis = 1) {
    return b.op("Concat", std::move(parts), {{"axis", axis}});
  }
  void expect_rewritten(ValueId result, const Counts& counts) {
    graph.outputs = {b.op("Exp", {result})};
    EXPECT_EQ(run_and_compare(graph, "simplify-slices", 0).matched, 1);
    Counts left = op_counts(graph);
    left.erase("Exp");
    EXPECT_EQ(left, counts);
  }
  void expect_left(ValueId result, const std::string& why) {
    graph.outputs = {b.op("Exp", {result})};
    const PassReport report = run_and_compare(graph, "simplify-slices", 0);
    EXPECT_EQ(report.matched, 0);
    EXPECT_NE(why_nots(report).find(why), std::string::npos) << why_nots(report);
  }
};

TEST_F(SimplifySlices, AGatherOfARangeIsASlice) {
  expect_rewritten(gather(b.i64s({1, 2, 3})), {{"Slice", 1}});
}
TEST_F(SimplifySlices, AlsoWithSteps) { expect_rewritten(gather(b.i64s({0, 2, 4})), {{"Slice", 1}}); }
TEST_F(SimplifySlices, AlsoFromTheEnd) { expect_rewritten(gather(b.i64s({-2, -1})), {{"Slice", 1}}); }
TEST_F(SimplifySlices, AGatherOfOneElementDropsItsDim) {
  expect_rewritten(gather(b.constant(Tensor::scalar(DType::i64, 2))), {{"Reshape", 1}, {"Slice", 1}});
}
TEST_F(SimplifySlices, OtherIndicesStay) { expect_left(gather(b.i64s({0, 2, 3})), "not evenly ascending"); }
TEST_F(SimplifySlices, EqualIndicesStay) { expect_left(gather(b.i64s({2, 2})), "not evenly ascending"); }
TEST_F(SimplifySlices, DescendingIndicesStay) { expect_left(gather(b.i64s({3, 2})), "not evenly ascending"); }
TEST_F(SimplifySlices, TablesOfIndicesStay) {
  expect_left(gather(b.constant(Tensor::from_f64(DType::i64, {1, 2}, {0, 1}))), "the indices are no list");
}
TEST_F(SimplifySlices, UnknownIndicesStay) {
  graph.outputs = {gather(b.input("i", {DType::i64, {2}}))};
  EXPECT_EQ(testing::run_pass(graph, "simplify-slices").matched, 0);
}

TEST_F(SimplifySlices, WhatIsKnownBeforeRunningStays) {
  const ValueId shape = b.op("Shape", {x});
  const ValueId rows = b.op("Gather", {shape, b.i64s({0})}, {{"axis", std::int64_t{0}}});
  graph.values[rows].data = Tensor::from_i64({4});  // as import finds it
  graph.outputs = {b.op("Neg", {rows})};
  EXPECT_EQ(run_and_compare(graph, "simplify-slices", 0).matched, 0);
}

TEST_F(SimplifySlices, SlicesThatFollowEachOtherAreOne) {
  expect_rewritten(concat({slice(1, 3), slice(3, 4), slice(4, 5)}), {{"Slice", 1}});
}
TEST_F(SimplifySlices, SlicesOfAllAreTheTensor) { expect_rewritten(concat({slice(0, 2), slice(2, 6)}), {}); }
TEST_F(SimplifySlices, SoAreTheResultsOfASplit) {
  const auto parts = b.ops(op_by_name("Split"), {x, b.i64s({1, 2, 3})}, {{"axis", std::int64_t{1}}}, 3);
  expect_rewritten(concat(parts), {});
}
TEST_F(SimplifySlices, SlicesWithGapsStay) {
  expect_left(concat({slice(0, 2), slice(3, 6)}), "does not begin where the one before it ends");
}
TEST_F(SimplifySlices, SlicesInAnotherOrderStay) {
  expect_left(concat({slice(2, 6), slice(0, 2)}), "does not begin where the one before it ends");
}
TEST_F(SimplifySlices, SlicesAlongAnotherAxisStay) {
  expect_left(concat({slice(0, 2, 0), slice(2, 4, 0)}), "along another axis");
}
TEST_F(SimplifySlices, SlicesOfOtherTensorsStay) {
  const ValueId z = b.input("z", {DType::f32, {4, 6}});
  expect_left(concat({slice(0, 2), z}), "z is not of the same tensor");
}
TEST_F(SimplifySlices, AnOutputOfTheGraphKeepsItsNode) {
  graph.outputs = {concat({slice(0, 2), slice(2, 6)})};
  const PassReport report = run_and_compare(graph, "simplify-slices", 0);
  EXPECT_EQ(report.matched, 0);
  EXPECT_NE(why_nots(report).find("is an output of the graph"), std::string::npos) << why_nots(report);
}

}  // namespace
}  // namespace gradloom
