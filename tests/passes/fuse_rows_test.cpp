#include <gtest/gtest.h>

#include <limits>

#include "tests/passes/support.h"

namespace gradloom {
namespace {

using test::Counts;
using test::op_counts;
using test::run_and_compare;
using test::run_pass;
using test::why_nots;

constexpr const char* kRows = "fuse-rows{devices=all}";
constexpr double kTight = 1e-13;

struct FuseRows : ::testing::Test {
  Graph graph;
  GraphBuilder b{graph};
  Type type{DType::f64, {3, 4, 6}}, row{DType::f64, {6}}, column{DType::f64, {3, 4, 1}};
  ValueId x = b.input("x", type), y = b.input("y", type), scale = b.input("scale", row),
          bias = b.input("bias", row);
  Attrs last{{"axis", std::int64_t{-1}}};

  ValueId reduce(const char* name, ValueId v, std::vector<std::int64_t> axes = {-1}, bool keepdims = true) {
    return b.op(name, {v, b.i64s(axes)}, {{"keepdims", std::int64_t{keepdims}}});
  }
  ValueId number(double value) { return b.scalar(DType::f64, value); }
  ValueId drop(ValueId v) {
    return b.op("Dropout", {v, number(0.25), b.scalar(DType::boolean, 1)}, {{"key", std::int64_t{5}}});
  }
  std::string code() const {
    for (const Node& node : graph.nodes)
      if (is_op(node, "FusedRows")) return node.attrs.text("code");
    return "";
  }
  // All of it is one node.
  void expect_one(double tolerance = kTight) {
    const PassReport report = run_and_compare(graph, kRows, tolerance);
    EXPECT_EQ(report.matched, 1) << why_nots(report);
    EXPECT_EQ(op_counts(graph), (Counts{{"FusedRows", 1}}));
  }
  void expect_left(const std::string& why, const std::string& pass = kRows) {
    const PassReport report = run_pass(graph, pass, kernels::Target::cpu);
    EXPECT_EQ(report.matched, 0);
    EXPECT_NE(why_nots(report).find(why), std::string::npos) << why_nots(report);
  }
};

TEST_F(FuseRows, BiasDropoutResidualAndNorm) {
  const ValueId sum = b.op("Add", {drop(b.op("Add", {x, bias})), y});
  const auto norm = b.ops(op_by_name("LayerNormalization"), {sum, scale, bias}, last, 3);
  graph.outputs = {sum, norm[0], norm[1], norm[2]};
  expect_one();
}

TEST_F(FuseRows, ResidualAndRmsNormOfTwoDims) {
  const ValueId sum = b.op("Add", {x, y});
  const auto norm = b.ops(op_by_name("RMSNormalization"), {sum, b.input("w", {DType::f64, {4, 6}})},
                          {{"axis", std::int64_t{1}}}, 2);
  graph.outputs = {b.op("Tanh", {norm[0]}), norm[1]};
  expect_one();
}

TEST_F(FuseRows, ANormInPiecesAndWhatFollowsIt) {
  const ValueId d = b.op("Sub", {x, reduce("ReduceMean", x)});
  const ValueId variance = reduce("ReduceMean", b.op("Pow", {d, number(2)}));
  const ValueId deviation = b.op("Sqrt", {b.op("Add", {variance, number(1e-5)})});
  graph.outputs = {b.op("Gelu", {b.op("Mul", {b.op("Div", {d, deviation}), scale})}), deviation};
  expect_one();
}

TEST_F(FuseRows, ScaleMaskAndSoftmax) {
  const ValueId masked =
      b.op("Where", {b.input("mask", {DType::boolean, {4, 6}}), b.op("Mul", {x, number(0.5)}), number(-1e4)});
  graph.outputs = {drop(b.op("Softmax", {masked}, last))};
  expect_one();
}

TEST_F(FuseRows, TheMaskOfDropoutIsAResult) {
  const auto dropped =
      b.ops(op_by_name("Dropout"), {b.op("Softmax", {x}, last), number(0.25), b.scalar(DType::boolean, 1)},
            {{"key", std::int64_t{5}}}, 2);
  graph.outputs = {dropped[0], dropped[1]};
  expect_one();
}

TEST_F(FuseRows, SoftmaxOfNothingButMinusInfinityIsZero) {
  const double infinity = std::numeric_limits<double>::infinity();
  const ValueId masked = b.op("Where", {b.input("mask", {DType::boolean, {3, 4, 1}}), x, number(-infinity)});
  graph.outputs = {b.op("Softmax", {masked}, {{"axis", std::int64_t{-1}}, {"safe", std::int64_t{1}}})};
  expect_one();
}

TEST_F(FuseRows, LogSoftmaxAndGradientsOfBoth) {
  graph.outputs = {
      b.op("Neg", {b.op("LogSoftmax", {x}, last)}),
      b.op("Mul", {b.op("SoftmaxGrad", {x, y}, last), number(0.5)}),
      b.op("SoftmaxGrad", {b.op("Exp", {x}), y}, {{"axis", std::int64_t{-1}}, {"log", std::int64_t{1}}})};
  EXPECT_EQ(run_and_compare(graph, kRows, kTight).matched, 3);
  EXPECT_EQ(op_counts(graph), (Counts{{"FusedRows", 3}}));
}

// Softmax before opset 13 is over all dims from its axis on.
TEST_F(FuseRows, SoftmaxOverSeveralDims) {
  const OpDef* old = find_op("Softmax", "", 11);
  ASSERT_NE(old, nullptr);
  graph.outputs = {b.op(*old, {b.op("Neg", {x})}, {{"axis", std::int64_t{1}}})};
  expect_one();
}

TEST_F(FuseRows, EveryReductionOfTheLastDims) {
  ValueId sum = kNone;
  for (const char* name :
       {"ReduceSum", "ReduceMean", "ReduceMax", "ReduceMin", "ReduceSumSquare", "ReduceL1", "ReduceL2"}) {
    const ValueId reduced = reduce(name, x);
    sum = sum == kNone ? reduced : b.op("Add", {sum, reduced});
  }
  graph.outputs = {b.op("Mul", {x, sum}), sum};
  expect_one();
}

TEST_F(FuseRows, GradientsOfNormsOfTheInputAlone) {
  const ValueId mean = b.input("mean", column), inv = b.input("inv", column),
                around = b.input("around", type);
  graph.outputs = {b.op("LayerNormGrad", {b.op("Mul", {x, y}), y, scale, mean, inv, around}, last)};
  expect_one();
  EXPECT_NE(code().find("RowMean"), std::string::npos);
}

TEST_F(FuseRows, GradientsOfRmsNorms) {
  const ValueId inv = b.input("inv", column);
  graph.outputs = {b.op("Add", {b.op("RMSNormGrad", {x, y, scale, inv}, last), x})};
  expect_one();
}

// In f32, with one rounding at the end.
TEST_F(FuseRows, SixteenBitsAreWidened) {
  const ValueId h = b.input("h", {DType::bf16, {3, 6}}), w = b.input("w", {DType::f32, {6}});
  const auto norm = b.ops(op_by_name("RMSNormalization"), {b.op("Add", {h, h}), w}, last, 2);
  graph.outputs = {b.op("Neg", {norm[0]}), norm[1]};
  expect_one(0x1p-6);
  EXPECT_NE(code().find("Cast:f32"), std::string::npos) << code();
  EXPECT_NE(code().find("Cast:bf16"), std::string::npos) << code();
}

// What fuse-elementwise made of the operators around it is taken whole.
TEST_F(FuseRows, RegionsOfElementwiseOperatorsJoin) {
  graph.outputs = {b.op("Exp", {b.op("Neg", {reduce("ReduceMax", b.op("Mul", {b.op("Add", {x, y}), y}))})})};
  run_pass(graph, "fuse-elementwise");
  EXPECT_EQ(op_counts(graph), (Counts{{"FusedElementwise", 2}, {"ReduceMax", 1}}));
  expect_one();
}

TEST_F(FuseRows, ANodeAloneStays) {
  graph.outputs = {b.op("Softmax", {x}, last), b.op("MatMul", {x, b.input("w", {DType::f64, {6, 6}})})};
  EXPECT_EQ(run_and_compare(graph, kRows, 0).matched, 0);
}

TEST_F(FuseRows, OtherRowsEndTheRegion) {
  graph.outputs = {reduce("ReduceSum", reduce("ReduceMax", b.op("Neg", {x}), {1, 2}), {2}),
                   b.op("Softmax", {b.op("Mul", {reduce("ReduceMean", b.op("Exp", {y}), {1, 2}), y})}, last)};
  const PassReport report = run_and_compare(graph, kRows, kTight);
  EXPECT_EQ(report.matched, 2) << why_nots(report);
  EXPECT_NE(why_nots(report).find("its rows are not those of node"), std::string::npos) << why_nots(report);
}

// A Dropout of one number per row draws by other places than the region.
TEST_F(FuseRows, RandomNumbersPerRowStayApart) {
  graph.outputs = {b.op("Mul", {x, drop(reduce("ReduceMean", b.op("Neg", {x})))})};
  const PassReport report = run_and_compare(graph, kRows, kTight);
  EXPECT_EQ(report.matched, 1);
  EXPECT_EQ(op_counts(graph).at("Dropout"), 1);
}

TEST_F(FuseRows, OtherAxesAndKeptDims) {
  graph.outputs = {reduce("ReduceSum", b.op("Neg", {x}), {0})};
  expect_left("it does not reduce over the last dims alone");
  graph.outputs = {reduce("ReduceSum", b.op("Neg", {y}), {-1}, false)};
  expect_left("it does not reduce over the last dims alone");
  graph.outputs = {b.op("Softmax", {b.op("Neg", {x})}, {{"axis", std::int64_t{1}}})};
  expect_left("it does not reduce over the last dims alone");
}

TEST_F(FuseRows, RowsOfOneElementAndOfTooMany) {
  graph.outputs = {b.op("Neg", {b.op("Softmax", {b.input("thin", {DType::f64, {3, 1}})}, last)})};
  expect_left("its rows have one element");
  graph.outputs = {b.op("Neg", {b.op("Softmax", {b.input("long", {DType::f64, {2, 8193}})}, last)})};
  expect_left("its rows of 8193 elements are more than the registers of a block hold");
}

TEST_F(FuseRows, ShapesAndParameters) {
  graph.outputs = {b.op("Neg", {b.op("Softmax", {b.input("open", {DType::f64, {-1, 6}})}, last)})};
  expect_left("its shape is not known");
  graph.outputs = {b.op("Neg", {b.op("LayerNormalization", {x, b.input("w", {DType::f64, {6, 1}})}, last)})};
  expect_left("its parameters have another shape than a row");
  const auto grads =
      b.ops(op_by_name("LayerNormGrad"),
            {b.op("Neg", {x}), y, scale, b.input("mean", column), b.input("inv", column)}, last, 3);
  graph.outputs = {grads[0], grads[1]};
  expect_left("it sums over columns too, for the gradients of its parameters");
}

TEST_F(FuseRows, OnTheCpuItSaysWhereItWouldRun) {
  graph.outputs = {b.op("Softmax", {b.op("Neg", {x})}, last)};
  expect_left("for GPUs: the CPU finds rows in its caches", "fuse-rows");
}

}  // namespace
}  // namespace gradloom
