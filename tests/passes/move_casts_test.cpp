#include "engine/ops/inference.h"
#include "tests/passes/support.h"

namespace gradloom {
namespace {

using test::Counts;
using test::op_counts;
using test::run_and_compare;
using test::why_nots;

struct MoveCasts : ::testing::Test {
  Graph graph;
  GraphBuilder b{graph};
  ValueId full = b.input("full", {DType::f32, {4, 6}});
  ValueId low = b.input("low", {DType::bf16, {4, 6}}), low2 = b.input("low2", {DType::bf16, {4, 6}});

  ValueId cast(ValueId v, DType to) { return b.op("Cast", {v}, {{"to", onnx_from_dtype(to)}}); }
  ValueId narrow(ValueId v) { return cast(v, DType::bf16); }
  ValueId widen(ValueId v) { return cast(v, DType::f32); }
  ValueId transpose(ValueId v) { return b.op("Transpose", {v}, {{"perm", std::vector<std::int64_t>{1, 0}}}); }
  ValueId flat(ValueId v) { return b.op("Reshape", {v, b.i64s({-1})}); }
  ValueId slice(ValueId v, std::int64_t begin, std::int64_t end) {
    return b.op("Slice", {v, b.i64s({begin}), b.i64s({end}), b.i64s({1})});
  }
  ValueId concat(std::vector<ValueId> parts) {
    return b.op("Concat", std::move(parts), {{"axis", std::int64_t{1}}});
  }
  ValueId softmax(ValueId v) { return b.op("Softmax", {v}); }  // takes no cast in
  PassReport run(std::vector<ValueId> outputs) {
    graph.outputs = std::move(outputs);
    return run_and_compare(graph, "move-casts", 0);
  }
  void expect_left(std::vector<ValueId> outputs, const std::string& why) {
    const PassReport report = run(std::move(outputs));
    EXPECT_EQ(report.matched, 0);
    EXPECT_NE(why_nots(report).find(why), std::string::npos) << why_nots(report);
  }
  DType type_read_by(const std::string& op) {
    for (const Node& node : graph.nodes)
      if (node.alive() && is_op(node, op)) return graph.type(node.inputs[0]).dtype;
    return DType::f64;
  }
  // A parameter that a step of sgd updates.
  ValueId trained(const std::string& name, const Shape& shape) {
    return b.parameter(name, Tensor(DType::f32, shape));
  }
  void update(ValueId parameter, ValueId gradient) {
    const ValueId lr = b.input("lr", {DType::f64, {}}, Role::hyper);
    const ValueId step = b.input("step", {DType::i64, {}}, Role::hyper);
    const auto next = b.ops(op_by_name("Optimizer"), {lr, step, kNone, kNone, parameter, gradient},
                            {{"kind", std::string("sgd")}, {"n", std::int64_t{1}}}, 1);
    graph.updates = {{parameter, next[0]}};
  }
};

TEST_F(MoveCasts, ATransposeMovesSmallElements) {
  EXPECT_EQ(run({softmax(narrow(transpose(full)))}).matched, 1);
  EXPECT_EQ(type_read_by("Transpose"), DType::bf16);
}
TEST_F(MoveCasts, AlsoWhereTheCastComesFirst) {
  EXPECT_EQ(run({softmax(transpose(widen(low)))}).matched, 1);
  EXPECT_EQ(type_read_by("Transpose"), DType::bf16);
  EXPECT_EQ(op_counts(graph)["Cast"], 1);
}
TEST_F(MoveCasts, InversesMeet) {
  EXPECT_EQ(run({softmax(narrow(flat(transpose(widen(low)))))}).matched, 1);
  EXPECT_EQ(op_counts(graph), (Counts{{"Reshape", 1}, {"Softmax", 1}, {"Transpose", 1}}));
}
TEST_F(MoveCasts, AlsoWhereTheWideValueIsReadElsewhere) {
  const ValueId wide = widen(low);
  EXPECT_EQ(run({softmax(wide), softmax(narrow(transpose(wide)))}).matched, 1);
  EXPECT_EQ(op_counts(graph), (Counts{{"Cast", 1}, {"Softmax", 2}, {"Transpose", 1}}));
}
TEST_F(MoveCasts, AllPartsOfAConcatWereWide) {
  EXPECT_EQ(run({softmax(narrow(concat({widen(low), widen(low2)})))}).matched, 1);
  EXPECT_EQ(op_counts(graph), (Counts{{"Concat", 1}, {"Softmax", 1}}));
}
TEST_F(MoveCasts, CastsOfAllPartsAreOneCast) {
  EXPECT_EQ(run({softmax(concat({widen(low), widen(low2)}))}).matched, 1);
  EXPECT_EQ(op_counts(graph), (Counts{{"Cast", 1}, {"Concat", 1}, {"Softmax", 1}}));
}
TEST_F(MoveCasts, PartsOfAWideValueThatAreCastBack) {
  const auto parts = b.ops(op_by_name("Split"), {widen(low), b.i64s({2, 4})}, {{"axis", std::int64_t{1}}}, 2);
  EXPECT_EQ(
      run({softmax(narrow(parts[0])), softmax(narrow(flat(b.op("Expand", {parts[1], b.i64s({4, 4})}))))})
          .matched,
      1);
  EXPECT_EQ(op_counts(graph)["Cast"], 0);
}
TEST_F(MoveCasts, AViewOfWhatIsCastAlreadySharesThat) {
  EXPECT_EQ(run({softmax(narrow(full)), softmax(narrow(flat(full)))}).matched, 1);
  EXPECT_EQ(op_counts(graph)["Cast"], 1);
}
TEST_F(MoveCasts, ConstantsAreConverted) {
  const ValueId one = b.constant(Tensor::from_f64(DType::f32, {4, 1}, {1, 0.3, 1e30, 3.4e38}));
  EXPECT_EQ(run({softmax(narrow(concat({widen(low), one})))}).matched, 1);
  EXPECT_EQ(op_counts(graph)["Cast"], 0);
}
TEST_F(MoveCasts, ElementwiseOperatorsTakeThemIn) {
  const ValueId parts = concat({b.op("Exp", {full}), b.op("Tanh", {full})});
  EXPECT_EQ(run({softmax(narrow(parts))}).matched, 1);
  EXPECT_EQ(type_read_by("Concat"), DType::bf16);
}
TEST_F(MoveCasts, TrainedParametersHaveCopies) {
  const ValueId w = trained("w", {4, 6});
  update(w, full);
  const ValueId parts = concat({slice(w, 4, 6), slice(w, 0, 2), slice(w, 2, 4)});
  EXPECT_EQ(run({softmax(narrow(parts))}).matched, 1);
  EXPECT_EQ(type_read_by("Slice"), DType::bf16);
  EXPECT_EQ(test::run_pass(graph, "fuse-weight-casts").matched, 1);
  EXPECT_EQ(op_counts(graph)["Cast"], 0);
}
TEST_F(MoveCasts, AlsoThroughTheirParts) {
  const ValueId w = trained("w", {4, 6});
  update(w, full);
  const auto parts = b.ops(op_by_name("Split"), {w, b.i64s({2, 4})}, {{"axis", std::int64_t{1}}}, 2);
  EXPECT_EQ(run({softmax(narrow(concat({parts[1], parts[0]})))}).matched, 1);
  EXPECT_EQ(type_read_by("Split"), DType::bf16);
  EXPECT_EQ(test::run_pass(graph, "fuse-weight-casts").matched, 1);
  EXPECT_EQ(op_counts(graph)["Cast"], 0);
}
TEST_F(MoveCasts, PartsThatAreReadElsewhereStay) {
  const ValueId w = trained("w", {4, 6});
  update(w, full);
  const auto parts = b.ops(op_by_name("Split"), {w, b.i64s({2, 4})}, {{"axis", std::int64_t{1}}}, 2);
  expect_left({softmax(narrow(parts[1])), softmax(parts[0])}, "is also read by node Softmax");
}
TEST_F(MoveCasts, TheUpdateReadsSmallGradients) {
  const ValueId w = trained("w", {24});
  update(w, flat(widen(low)));
  EXPECT_EQ(run({softmax(full)}).matched, 1);
  EXPECT_EQ(test::run_pass(graph, "fuse-weight-casts").matched, 1);
  EXPECT_EQ(op_counts(graph)["Cast"], 0);
}

TEST_F(MoveCasts, AViewAloneIsNoGain) {
  expect_left({softmax(narrow(flat(full)))}, "nothing before it takes it in, and nothing between copies");
}
TEST_F(MoveCasts, WhatIsReadElsewhereStays) {
  const ValueId moved = transpose(full);
  expect_left({softmax(narrow(moved)), softmax(moved)}, "is also read by node Softmax");
}
TEST_F(MoveCasts, AnOutputOfTheGraphStays) {
  const ValueId moved = transpose(full);
  expect_left({moved, softmax(narrow(moved))}, "is also an output of the graph");
}
TEST_F(MoveCasts, MoreCastsThanBeforeStay) {
  const ValueId other = b.input("other", {DType::f32, {4, 6}});
  expect_left({softmax(narrow(concat({full, other})))}, "it would take 2 casts");
}
TEST_F(MoveCasts, APartIsCastAlone) {
  expect_left({softmax(narrow(slice(full, 0, 2)))}, "has more elements than are read of it");
}
TEST_F(MoveCasts, RowsOfATableAreCastAlone) {
  const ValueId table = trained("table", {100, 6});
  const ValueId rows = b.op("Gather", {table, b.input("i", {DType::i64, {3}})});
  expect_left({softmax(narrow(rows))}, "the whole of table would be cast");
}
TEST_F(MoveCasts, WideReadersOfAllPartsKeepOneCast) {
  const auto parts = b.ops(op_by_name("Split"), {widen(low), b.i64s({2, 4})}, {{"axis", std::int64_t{1}}}, 2);
  expect_left({softmax(parts[0]), softmax(parts[1])}, "2 casts would follow node");
}
TEST_F(MoveCasts, WhatIsCopiedManyTimesIsCastBefore) {
  const ValueId one = slice(low, 0, 1);
  expect_left({softmax(b.op("Expand", {widen(one), b.i64s({4, 6})}))}, "has more elements");
}
TEST_F(MoveCasts, PartsOfOtherTypesStay) {
  expect_left({softmax(concat({widen(low), full}))}, "reads full, which is not cast so");
}
TEST_F(MoveCasts, NodesThatComputeStay) {
  expect_left({softmax(narrow(flat(b.op("Softmax", {full}))))}, "nothing before it takes it in");
}

}  // namespace
}  // namespace gradloom
