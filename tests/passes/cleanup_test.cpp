// fold-constants, eliminate-noops, cse and dead-code.
#include <gtest/gtest.h>

#include "tests/passes/support.h"

namespace gradloom {
namespace {

using testing::op_counts;
using testing::run_and_compare;
using testing::run_pass;
using testing::why_nots;
using Counts = std::map<std::string, int>;
using Perm = std::vector<std::int64_t>;

struct Cleanup : ::testing::Test {
  Graph graph;
  GraphBuilder b{graph};
  Type type{DType::f32, {3, 4}};
  ValueId x = b.input("x", type), y = b.input("y", type);
  // `noop` of x, then Exp so that the output is not the result itself.
  void expect_noop(ValueId noop, const char* rule) {
    graph.outputs = {b.op("Exp", {noop})};
    const PassReport report = run_and_compare(graph, "eliminate-noops", 0);
    ASSERT_EQ(report.matched, 1) << rule << why_nots(report);
    EXPECT_EQ(report.log[0].rule, rule);
    EXPECT_EQ(op_counts(graph), (Counts{{"Exp", 1}}));
  }
  void expect_kept(ValueId node) {
    graph.outputs = {b.op("Exp", {node})};
    const auto before = op_counts(graph);
    EXPECT_EQ(run_and_compare(graph, "eliminate-noops", 0).matched, 0);
    EXPECT_EQ(op_counts(graph), before);
  }
};
using FoldConstants = Cleanup;
using EliminateNoops = Cleanup;
using Cse = Cleanup;
using DeadCode = Cleanup;

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
  const ValueId d = b.op("Dropout", {ones, b.scalar(DType::f32, 0.5), b.scalar(DType::boolean, 1)}, {{"key", std::int64_t{1}}});
  graph.outputs = {b.op("Exp", {p}), d};
  EXPECT_EQ(run_and_compare(graph, "fold-constants", 0).matched, 0);
}

TEST_F(EliminateNoops, Identity) { expect_noop(b.op("Identity", {x}), "identity"); }
TEST_F(EliminateNoops, CastToTheSameType) { expect_noop(b.op("Cast", {x}, {{"to", std::int64_t{1}}}), "cast-same-type"); }
TEST_F(EliminateNoops, CastToAnotherTypeStays) { expect_kept(b.op("Cast", {x}, {{"to", std::int64_t{11}}})); }
TEST_F(EliminateNoops, TransposeInOrder) { expect_noop(b.op("Transpose", {x}, {{"perm", Perm{0, 1}}}), "transpose-identity"); }
TEST_F(EliminateNoops, TransposeOfASquareStays) {
  expect_kept(b.op("Transpose", {b.input("square", {DType::f32, {4, 4}})}, {{"perm", Perm{1, 0}}}));
}
TEST_F(EliminateNoops, ReshapeToTheSameShape) { expect_noop(b.op("Reshape", {x, b.i64s({3, -1})}), "view-same-shape"); }
TEST_F(EliminateNoops, ReshapeToAnotherShapeStays) { expect_kept(b.op("Reshape", {x, b.i64s({4, 3})})); }
TEST_F(EliminateNoops, ExpandToTheSameShape) { expect_noop(b.op("Expand", {x, b.i64s({1, 4})}), "expand-same-shape"); }
TEST_F(EliminateNoops, ExpandToALargerShapeStays) { expect_kept(b.op("Expand", {x, b.i64s({2, 3, 4})})); }
TEST_F(EliminateNoops, AddZero) { expect_noop(b.op("Add", {b.scalar(DType::f32, 0), x}), "add-zero"); }
TEST_F(EliminateNoops, MulOne) { expect_noop(b.op("Mul", {x, b.scalar(DType::f32, 1)}), "mul-one"); }
TEST_F(EliminateNoops, SubZero) { expect_noop(b.op("Sub", {x, b.scalar(DType::f32, 0)}), "sub-zero"); }
TEST_F(EliminateNoops, DivOne) { expect_noop(b.op("Div", {x, b.scalar(DType::f32, 1)}), "div-one"); }
TEST_F(EliminateNoops, PowOne) { expect_noop(b.op("Pow", {x, b.scalar(DType::f32, 1)}), "pow-one"); }
TEST_F(EliminateNoops, OneMinusXStays) { expect_kept(b.op("Sub", {b.scalar(DType::f32, 0), x})); }
TEST_F(EliminateNoops, OneOverXStays) { expect_kept(b.op("Div", {b.scalar(DType::f32, 1), x})); }
TEST_F(EliminateNoops, OnesThatBroadcastStay) {
  expect_kept(b.op("Mul", {b.input("row", {DType::f32, {4}}), b.constant(Tensor::from_f64(DType::f32, {1, 1}, {1}))}));
}
TEST_F(EliminateNoops, DropoutThatIsOff) {
  expect_noop(b.op("Dropout", {x, b.scalar(DType::f32, 0.5), b.scalar(DType::boolean, 0)}, {{"key", std::int64_t{1}}}), "dropout-off");
}
TEST_F(EliminateNoops, DropoutThatIsOnStays) {
  expect_kept(b.op("Dropout", {x, b.scalar(DType::f32, 0.5), b.scalar(DType::boolean, 1)}, {{"key", std::int64_t{1}}}));
}
TEST_F(EliminateNoops, ReductionOfOneElement) {
  const ValueId column = b.input("column", {DType::f32, {3, 1}});
  expect_noop(b.op("ReduceSum", {column, b.i64s({1})}, {{"keepdims", std::int64_t{1}}}), "reduce-one-element");
}

TEST_F(EliminateNoops, TransposesMergeOrCancel) {
  const ValueId v = b.input("v", {DType::f32, {2, 3, 4}});
  const ValueId t = b.op("Transpose", {v}, {{"perm", Perm{2, 0, 1}}});
  graph.outputs = {b.op("Exp", {b.op("Transpose", {t}, {{"perm", Perm{1, 2, 0}}})}),
                   b.op("Exp", {b.op("Transpose", {t}, {{"perm", Perm{0, 2, 1}}})})};
  EXPECT_EQ(run_and_compare(graph, "eliminate-noops", 0).matched, 2);
  EXPECT_EQ(op_counts(graph), (Counts{{"Exp", 2}, {"Transpose", 1}}));
}

TEST_F(EliminateNoops, ViewsMergeOrCancel) {
  const ValueId flat = b.op("Reshape", {x, b.i64s({12})});
  graph.outputs = {b.op("Exp", {b.op("Reshape", {flat, b.i64s({3, 4})})}), b.op("Exp", {b.op("Reshape", {flat, b.i64s({2, 6})})})};
  EXPECT_EQ(run_and_compare(graph, "eliminate-noops", 0).matched, 2);
  EXPECT_EQ(op_counts(graph), (Counts{{"Exp", 2}, {"Reshape", 1}}));
}

TEST_F(EliminateNoops, AnOutputKeepsItsNodeAndName) {
  const ValueId same = b.op("Identity", {x});
  graph.values[same].name = "out";
  graph.outputs = {same};
  const PassReport report = run_and_compare(graph, "eliminate-noops", 0);
  EXPECT_EQ(report.matched, 0);
  EXPECT_NE(why_nots(report).find("out is an output of the graph"), std::string::npos);
  EXPECT_EQ(graph.values[graph.outputs[0]].name, "out");
}

TEST_F(Cse, EqualNodesMergeThroughChainsAndCommutedOperands) {
  graph.outputs = {b.op("Sub", {b.op("Exp", {b.op("Mul", {x, y})}), b.op("Exp", {b.op("Mul", {y, x})})})};
  EXPECT_EQ(run_and_compare(graph, "cse", 0).matched, 2);
  EXPECT_EQ(op_counts(graph), (Counts{{"Exp", 1}, {"Mul", 1}, {"Sub", 1}}));
}

TEST_F(Cse, EqualConstantsAreEqualOperands) {
  const ValueId c = b.constant(Tensor::scalar(DType::f32, 2), "c"), d = b.constant(Tensor::scalar(DType::f32, 2), "d");
  const ValueId other = b.constant(Tensor::scalar(DType::f32, 3), "e");
  graph.outputs = {b.op("Sub", {b.op("Mul", {x, c}), b.op("Mul", {x, d})}), b.op("Exp", {b.op("Mul", {x, other})})};
  EXPECT_EQ(run_and_compare(graph, "cse", 0).matched, 1);
}

TEST_F(Cse, OtherAttributesOperandsOrOrdersStay) {
  graph.outputs = {b.op("Sub", {b.op("Sub", {x, y}), b.op("Sub", {y, x})}),
                   b.op("MatMul", {b.op("Softmax", {x}, {{"axis", std::int64_t{0}}}),
                                   b.op("Transpose", {b.op("Softmax", {x}, {{"axis", std::int64_t{1}}})}, {{"perm", Perm{1, 0}}})})};
  EXPECT_EQ(run_and_compare(graph, "cse", 0).matched, 0);
}

TEST_F(Cse, DropoutsWithDifferentKeysStayApartEqualKeysMerge) {
  const auto dropout = [&](std::int64_t key) {
    return b.op("Dropout", {x, b.scalar(DType::f32, 0.5), b.scalar(DType::boolean, 1)}, {{"key", key}});
  };
  const ValueId first = dropout(1), second = dropout(2), third = dropout(1);
  graph.outputs = {b.op("Sub", {b.op("Add", {first, second}), third})};
  EXPECT_EQ(run_and_compare(graph, "cse", 0).matched, 1);
  EXPECT_EQ(op_counts(graph).at("Dropout"), 2);
}

TEST_F(Cse, ParametersWithEqualContentsStayApart) {
  const ValueId p = b.parameter("p", Tensor(DType::f32, {3, 4})), q = b.parameter("q", Tensor(DType::f32, {3, 4}));
  graph.outputs = {b.op("Sub", {b.op("Exp", {p}), b.op("Exp", {q})})};
  EXPECT_EQ(run_and_compare(graph, "cse", 0).matched, 0);
}

TEST_F(Cse, OutputsOfTheGraphStay) {
  graph.outputs = {b.op("Exp", {x}), b.op("Exp", {x})};
  const PassReport report = run_and_compare(graph, "cse", 0);
  EXPECT_EQ(report.matched, 0);
  EXPECT_NE(why_nots(report).find("is an output of the graph"), std::string::npos);
}

TEST_F(Cse, SplitsIntoDifferentNumbersStayApart) {
  const OpDef& split = op_by_name("Split");
  const auto two = b.ops(split, {x, b.i64s({2, 2})}, {{"axis", std::int64_t{1}}}, 2);
  const auto four = b.ops(split, {x, b.i64s({1, 1, 1, 1})}, {{"axis", std::int64_t{1}}}, 4);
  graph.outputs = {two[0], four[0]};
  EXPECT_EQ(run_and_compare(graph, "cse", 0).matched, 0);
}

TEST_F(DeadCode, UnreadNodesGoOutputsLossAndUpdatesStay) {
  b.op("Exp", {b.op("Neg", {x})});
  const ValueId state = b.input("state", type, Role::state), loss = b.op("ReduceSum", {y}, {{"keepdims", std::int64_t{0}}});
  graph.updates = {{state, b.op("Add", {state, x})}};
  graph.outputs = {b.op("Tanh", {x})};
  graph.loss = loss;
  EXPECT_EQ(run_and_compare(graph, "dead-code", 0).matched, 2);
  EXPECT_EQ(op_counts(graph), (Counts{{"Add", 1}, {"ReduceSum", 1}, {"Tanh", 1}}));
}

TEST_F(DeadCode, UnreadOptionalOutputsAreNotWritten) {
  const auto d = b.ops(op_by_name("Dropout"), {x, b.scalar(DType::f32, 0.5), b.scalar(DType::boolean, 1)}, {{"key", std::int64_t{4}}}, 2);
  graph.outputs = {d[0]};
  EXPECT_EQ(run_and_compare(graph, "dead-code", 0).matched, 1);
  for (const Node& node : graph.nodes) {
    if (node.alive()) EXPECT_EQ(node.outputs.size(), 1u);
  }
}

TEST_F(DeadCode, OutputsThatCountForTheOthersStay) {
  const auto parts = b.ops(op_by_name("Split"), {x, b.i64s({1, 3})}, {{"axis", std::int64_t{1}}}, 2);
  graph.outputs = {parts[0]};
  EXPECT_EQ(run_and_compare(graph, "dead-code", 0).matched, 0);
}

}  // namespace
}  // namespace gradloom
