#include <gtest/gtest.h>

#include "engine/ops/inference.h"
#include "tests/passes/support.h"

namespace gradloom {
namespace {

using test::Counts;
using test::op_counts;
using test::Perm;
using test::run_and_compare;
using test::why_nots;

struct EliminateNoops : test::TwoInputs {
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

TEST_F(EliminateNoops, Identity) { expect_noop(b.op("Identity", {x}), "identity"); }

TEST_F(EliminateNoops, CastToTheSameType) {
  expect_noop(b.op("Cast", {x}, {{"to", std::int64_t{1}}}), "cast-same-type");
}
TEST_F(EliminateNoops, CastToAnotherTypeStays) { expect_kept(b.op("Cast", {x}, {{"to", std::int64_t{11}}})); }

TEST_F(EliminateNoops, TransposeInOrder) {
  expect_noop(b.op("Transpose", {x}, {{"perm", Perm{0, 1}}}), "transpose-identity");
}

TEST_F(EliminateNoops, TransposeOfASquareStays) {
  expect_kept(b.op("Transpose", {b.input("square", {DType::f32, {4, 4}})}, {{"perm", Perm{1, 0}}}));
}

TEST_F(EliminateNoops, ReshapeToTheSameShape) {
  expect_noop(b.op("Reshape", {x, b.i64s({3, -1})}), "view-same-shape");
}
TEST_F(EliminateNoops, ReshapeToAnotherShapeStays) { expect_kept(b.op("Reshape", {x, b.i64s({4, 3})})); }

TEST_F(EliminateNoops, ExpandToTheSameShape) {
  expect_noop(b.op("Expand", {x, b.i64s({1, 4})}), "expand-same-shape");
}
TEST_F(EliminateNoops, ExpandToALargerShapeStays) { expect_kept(b.op("Expand", {x, b.i64s({2, 3, 4})})); }
TEST_F(EliminateNoops, AddZero) { expect_noop(b.op("Add", {b.scalar(DType::f32, 0), x}), "add-zero"); }
TEST_F(EliminateNoops, MulOne) { expect_noop(b.op("Mul", {x, b.scalar(DType::f32, 1)}), "mul-one"); }
TEST_F(EliminateNoops, SubZero) { expect_noop(b.op("Sub", {x, b.scalar(DType::f32, 0)}), "sub-zero"); }
TEST_F(EliminateNoops, DivOne) { expect_noop(b.op("Div", {x, b.scalar(DType::f32, 1)}), "div-one"); }
TEST_F(EliminateNoops, PowOne) { expect_noop(b.op("Pow", {x, b.scalar(DType::f32, 1)}), "pow-one"); }
TEST_F(EliminateNoops, OneMinusXStays) { expect_kept(b.op("Sub", {b.scalar(DType::f32, 0), x})); }
TEST_F(EliminateNoops, OneOverXStays) { expect_kept(b.op("Div", {b.scalar(DType::f32, 1), x})); }

TEST_F(EliminateNoops, OnesThatBroadcastStay) {
  expect_kept(b.op(
      "Mul", {b.input("row", {DType::f32, {4}}), b.constant(Tensor::from_f64(DType::f32, {1, 1}, {1}))}));
}

TEST_F(EliminateNoops, DropoutThatIsOff) {
  expect_noop(b.op("Dropout", {x, b.scalar(DType::f32, 0.5), b.scalar(DType::boolean, 0)},
                   {{"key", std::int64_t{1}}}),
              "dropout-off");
}

TEST_F(EliminateNoops, DropoutThatIsOnStays) {
  expect_kept(b.op("Dropout", {x, b.scalar(DType::f32, 0.5), b.scalar(DType::boolean, 1)},
                   {{"key", std::int64_t{1}}}));
}

TEST_F(EliminateNoops, ReductionOfOneElement) {
  const ValueId column = b.input("column", {DType::f32, {3, 1}});
  expect_noop(b.op("ReduceSum", {column, b.i64s({1})}, {{"keepdims", std::int64_t{1}}}),
              "reduce-one-element");
}

// As torch's dynamo exporter transposes keys: [batch, heads, ..] joined, transposed, taken apart.
TEST_F(EliminateNoops, TransposesBetweenViewsTakeTheirPlace) {
  for (const Shape& from : {Shape{2, 3, 4, 5}, Shape{1, 3, 4, 5}, Shape{2, 1, 4, 5}, Shape{1, 1, 4, 5}}) {
    graph = Graph();
    GraphBuilder to_graph(graph);
    const ValueId v = to_graph.input("v", {DType::f32, from});
    const ValueId joined = to_graph.op("Reshape", {v, to_graph.i64s({-1, 4, 5})});
    const ValueId t = to_graph.op("Transpose", {joined}, {{"perm", Perm{0, 2, 1}}});
    graph.outputs = {
        to_graph.op("Exp", {to_graph.op("Reshape", {t, to_graph.i64s({from[0], from[1], 5, 4})})})};
    EXPECT_EQ(run_and_compare(graph, "eliminate-noops", 0).matched, 1);
    EXPECT_EQ(op_counts(graph), (Counts{{"Exp", 1}, {"Transpose", 1}}));
  }
}
TEST_F(EliminateNoops, TransposesBetweenOtherViewsStay) {
  for (const Shape& to : {Shape{6, 5, 4}, Shape{3, 2, 5, 4}, Shape{2, 3, 4, 5}, Shape{30, 4}}) {
    graph = Graph();
    GraphBuilder to_graph(graph);
    const ValueId v = to_graph.input("v", {DType::f32, {2, 3, 4, 5}});
    const ValueId joined = to_graph.op("Reshape", {v, to_graph.i64s({6, 4, 5})});
    const ValueId t = to_graph.op("Transpose", {joined}, {{"perm", Perm{0, 2, 1}}});
    graph.outputs = {to_graph.op("Exp", {to_graph.op("Reshape", {t, to_graph.i64s(to)})})};
    run_and_compare(graph, "eliminate-noops", 0);
    EXPECT_EQ(op_counts(graph)["Transpose"], 1) << to_string(to);
    EXPECT_GE(op_counts(graph)["Reshape"], 1) << to_string(to);
  }
  GraphBuilder cut(graph = Graph());  // a view that does not only join
  const ValueId v = cut.input("v", {DType::f32, {2, 6}});
  const ValueId t = cut.op("Transpose", {cut.op("Reshape", {v, cut.i64s({3, 4})})}, {{"perm", Perm{1, 0}}});
  graph.outputs = {cut.op("Exp", {cut.op("Reshape", {t, cut.i64s({6, 2})})})};
  EXPECT_EQ(run_and_compare(graph, "eliminate-noops", 0).matched, 0);
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
  graph.outputs = {b.op("Exp", {b.op("Reshape", {flat, b.i64s({3, 4})})}),
                   b.op("Exp", {b.op("Reshape", {flat, b.i64s({2, 6})})})};
  EXPECT_EQ(run_and_compare(graph, "eliminate-noops", 0).matched, 2);
  EXPECT_EQ(op_counts(graph), (Counts{{"Exp", 2}, {"Reshape", 1}}));
}

TEST_F(EliminateNoops, CastsOfWhatWasWidenedMergeOrCancel) {
  const auto cast = [&](ValueId v, DType to) { return b.op("Cast", {v}, {{"to", onnx_from_dtype(to)}}); };
  const ValueId low = b.input("low", {DType::bf16, {3, 4}});
  const ValueId wide = cast(low, DType::f32);
  graph.outputs = {b.op("Neg", {cast(wide, DType::bf16)}), b.op("Neg", {cast(wide, DType::f16)})};
  EXPECT_EQ(run_and_compare(graph, "eliminate-noops", 0).matched, 2);
  EXPECT_EQ(op_counts(graph), (Counts{{"Neg", 2}, {"Cast", 1}}));
}

TEST_F(EliminateNoops, ACastThatRoundedStays) {
  const auto cast = [&](ValueId v, DType to) { return b.op("Cast", {v}, {{"to", onnx_from_dtype(to)}}); };
  graph.outputs = {b.op("Neg", {cast(cast(x, DType::bf16), DType::f32)})};
  EXPECT_EQ(run_and_compare(graph, "eliminate-noops", 0).matched, 0);
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

}  // namespace
}  // namespace gradloom
