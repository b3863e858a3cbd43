#include "tests/passes/support.h"

namespace gradloom {
namespace {

using test::Counts;
using test::op_counts;
using test::run_and_compare;
using test::why_nots;

struct SimplifySlices : ::testing::Test {
  Graph graph;
  GraphBuilder b{graph};
  ValueId x = b.input("x", {DType::f32, {4, 6}});
  ValueId slice(std::int64_t begin, std::int64_t end, std::int64_t axis = 1) {
    return range(x, begin, end, axis);
  }
  ValueId range(ValueId v, std::int64_t begin, std::int64_t end, std::int64_t axis = 1) {
    return b.op("Slice", {v, b.i64s({begin}), b.i64s({end}), b.i64s({axis})});
  }
  void expect_no_split(const std::vector<ValueId>& slices, const std::string& why) {
    for (const ValueId s : slices) graph.outputs.push_back(b.op("Exp", {s}));
    const PassReport report = run_and_compare(graph, "simplify-slices", 0);
    EXPECT_EQ(report.matched, 0);
    EXPECT_NE(why_nots(report).find(why), std::string::npos) << why_nots(report);
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
TEST_F(SimplifySlices, AGatherOfOneElementOfAnEmptyTensorToo) {
  const ValueId none = b.input("none", {DType::f32, {3, 0, 4}});
  expect_rewritten(b.op("Gather", {none, b.constant(Tensor::scalar(DType::i64, 1))}),
                   {{"Slice", 1}, {"Reshape", 1}});
}
TEST_F(SimplifySlices, OtherIndicesStay) { expect_left(gather(b.i64s({0, 2, 3})), "not evenly ascending"); }
TEST_F(SimplifySlices, EqualIndicesStay) { expect_left(gather(b.i64s({2, 2})), "not evenly ascending"); }
TEST_F(SimplifySlices, DescendingIndicesStay) { expect_left(gather(b.i64s({3, 2})), "not evenly ascending"); }
TEST_F(SimplifySlices, TablesOfIndicesStay) {
  expect_left(gather(b.constant(Tensor::from_f64(DType::i64, {1, 2}, {0, 1}))), "the indices are no list");
}
TEST_F(SimplifySlices, UnknownIndicesStay) {
  graph.outputs = {gather(b.input("i", {DType::i64, {2}}))};
  EXPECT_EQ(test::run_pass(graph, "simplify-slices").matched, 0);
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
  expect_left(concat({slice(2, 5), slice(0, 2)}), "does not begin where the one before it ends");
}
TEST_F(SimplifySlices, SlicesAlongAnotherAxisStay) {
  expect_left(concat({slice(0, 1, 0), slice(1, 2, 0)}), "along another axis");
}
TEST_F(SimplifySlices, SlicesOfOtherTensorsStay) {
  const ValueId z = b.input("z", {DType::f32, {4, 6}});
  expect_left(concat({slice(0, 2), z}), "z is not of the same tensor");
}
TEST_F(SimplifySlices, ASliceOfAConcatIsItsPart) {
  const ValueId z = b.input("z", {DType::f32, {4, 3}});
  graph.outputs = {b.op("Exp", {range(concat({x, z}), 6, 9)}), b.op("Tanh", {range(concat({x, z}), 1, 4)})};
  EXPECT_EQ(run_and_compare(graph, "simplify-slices", 0).matched, 2);
  EXPECT_EQ(op_counts(graph), (Counts{{"Exp", 1}, {"Slice", 1}, {"Tanh", 1}}));
}
TEST_F(SimplifySlices, ASliceOfTwoPartsStays) {
  const ValueId z = b.input("z", {DType::f32, {4, 3}});
  expect_left(range(concat({x, z}), 4, 7), "no part of node Concat has all of it");
}
TEST_F(SimplifySlices, ASliceOfNothingStays) {
  const ValueId z = b.input("z", {DType::f32, {4, 3}});
  expect_left(range(concat({x, z}), 2, 2), "no part of node Concat has all of it");
}
TEST_F(SimplifySlices, ASliceAcrossThePartsStays) {
  const ValueId z = b.input("z", {DType::f32, {4, 3}});
  expect_left(range(concat({x, z}), 0, 2, 0), "node Concat joins along another axis");
}
TEST_F(SimplifySlices, ASliceWithStepsStays) {
  const ValueId z = b.input("z", {DType::f32, {4, 3}});
  const ValueId both = concat({x, z});
  expect_left(b.op("Slice", {both, b.i64s({0}), b.i64s({4}), b.i64s({1}), b.i64s({2})}),
              "it is no range of one axis");
}
TEST_F(SimplifySlices, APartThatIsAnOutputKeepsItsNode) {
  const ValueId z = b.input("z", {DType::f32, {4, 3}});
  graph.outputs = {range(concat({x, z}), 6, 9)};
  const PassReport report = run_and_compare(graph, "simplify-slices", 0);
  EXPECT_EQ(report.matched, 0);
  EXPECT_NE(why_nots(report).find("is an output of the graph"), std::string::npos) << why_nots(report);
}

TEST_F(SimplifySlices, SlicesThatAreAllOfAnAxisAreOneSplit) {
  graph.outputs = {b.op("Exp", {slice(4, 6)}), b.op("Tanh", {slice(0, 1)}), b.op("Neg", {slice(1, 4)})};
  EXPECT_EQ(run_and_compare(graph, "simplify-slices", 0).matched, 1);
  EXPECT_EQ(op_counts(graph), (Counts{{"Exp", 1}, {"Neg", 1}, {"Split", 1}, {"Tanh", 1}}));
}
TEST_F(SimplifySlices, SoAreGathersOfEachElement) {
  std::vector<ValueId> outputs;
  for (const std::int64_t i : {1, 0, 3, 2})
    outputs.push_back(b.op("Exp", {b.op("Gather", {x, b.i64s({i})}, {{"axis", std::int64_t{0}}})}));
  graph.outputs = outputs;
  EXPECT_EQ(run_and_compare(graph, "simplify-slices", 0).matched, 5);
  EXPECT_EQ(op_counts(graph), (Counts{{"Exp", 4}, {"Split", 1}}));
}
TEST_F(SimplifySlices, SlicesThatAreReadTwiceAreOneResult) {
  graph.outputs = {b.op("Exp", {slice(0, 2)}), b.op("Tanh", {slice(2, 6)}), b.op("Neg", {slice(0, 2)})};
  EXPECT_EQ(run_and_compare(graph, "simplify-slices", 0).matched, 1);
  EXPECT_EQ(op_counts(graph)["Split"], 1);
}
TEST_F(SimplifySlices, SlicesThatLeaveElementsOutAreNoSplit) {
  expect_no_split({slice(0, 2), slice(3, 6)}, "elements 2 to 3 of axis 1 are in no slice");
}
TEST_F(SimplifySlices, NorAreThoseThatEndEarly) {
  expect_no_split({slice(0, 2), slice(2, 5)}, "elements from 5 of axis 1 are in no slice");
}
TEST_F(SimplifySlices, NorThoseThatOverlap) {
  expect_no_split({slice(0, 3), slice(2, 6)}, "begins before another slice ends");
}
TEST_F(SimplifySlices, NorThoseOfSeveralLengths) {
  expect_no_split({slice(0, 3), slice(0, 2), slice(3, 6)}, "ends elsewhere than another slice");
}
TEST_F(SimplifySlices, NorThoseOfTwoAxes) {
  graph.outputs = {b.op("Exp", {slice(0, 3)}), b.op("Exp", {slice(1, 4, 0)})};
  EXPECT_EQ(run_and_compare(graph, "simplify-slices", 0).matched, 0);
}

TEST_F(SimplifySlices, AnOutputOfTheGraphKeepsItsNode) {
  graph.outputs = {concat({slice(0, 2), slice(2, 6)})};
  const PassReport report = run_and_compare(graph, "simplify-slices", 0);
  EXPECT_EQ(op_counts(graph), (Counts{{"Concat", 1}, {"Split", 1}}));
  EXPECT_NE(why_nots(report).find("is an output of the graph"), std::string::npos) << why_nots(report);
}

}  // namespace
}  // namespace gradloom
