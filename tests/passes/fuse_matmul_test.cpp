// fuse-transpose-matmul, fuse-scale-matmul and fuse-bias-activation: what surrounds a product.
#include <gtest/gtest.h>

#include "tests/passes/support.h"

namespace gradloom {
namespace {

using testing::op_counts;
using testing::run_and_compare;
using testing::why_nots;
using Perm = std::vector<std::int64_t>;
using Counts = std::map<std::string, int>;
constexpr DType f64 = DType::f64;
constexpr double kRounding = 1e-13;

struct MatMulTest : ::testing::Test {
  Graph graph;
  GraphBuilder b{graph};
  ValueId transposed(ValueId v, Perm perm) { return b.op("Transpose", {v}, {{"perm", std::move(perm)}}); }
  void expect_rejected(const char* pass, const std::string& reason, int matched = 0) {
    const PassReport report = run_and_compare(graph, pass, kRounding);
    EXPECT_EQ(report.matched, matched);
    EXPECT_NE(why_nots(report).find(reason), std::string::npos) << why_nots(report);
  }
  void expect_matched(const char* pass, const Counts& counts) {
    const PassReport report = run_and_compare(graph, pass, kRounding);
    EXPECT_GE(report.matched, 1) << why_nots(report);
    EXPECT_EQ(op_counts(graph), counts);
  }
};
using FuseTransposeMatMul = MatMulTest;
using FuseScaleMatMul = MatMulTest;
using FuseBiasActivation = MatMulTest;

TEST_F(FuseTransposeMatMul, LinearWeight) {
  const ValueId x = b.input("x", {f64, {2, 3, 4}}), w = b.input("w", {f64, {5, 4}});
  graph.outputs = {b.op("MatMul", {x, transposed(w, {1, 0})})};
  expect_matched("fuse-transpose-matmul", {{"FusedMatMul", 1}});
}

TEST_F(FuseTransposeMatMul, HeadsOfOperandsAndResult) {
  const ValueId p = b.input("p", {f64, {2, 5, 3, 3}}), v = b.input("v", {f64, {2, 3, 5, 4}});
  graph.outputs = {transposed(b.op("MatMul", {p, transposed(v, {0, 2, 1, 3})}), {0, 2, 1, 3})};
  expect_matched("fuse-transpose-matmul", {{"FusedMatMul", 1}});
}

TEST_F(FuseTransposeMatMul, TransposesOfTransposesCompose) {
  const ValueId x = b.input("x", {f64, {2, 3, 4, 5}}), y = b.input("y", {f64, {2, 4, 5, 3}});
  graph.outputs = {b.op("MatMul", {transposed(transposed(x, {0, 2, 1, 3}), {0, 1, 3, 2}), transposed(y, {0, 1, 3, 2})})};
  EXPECT_EQ(graph.type(graph.outputs[0]).shape, (Shape{2, 4, 5, 5}));
  expect_matched("fuse-transpose-matmul", {{"FusedMatMul", 1}});
}

TEST_F(FuseTransposeMatMul, ATransposedResultExchangesTheOperands) {
  const ValueId x = b.input("x", {f64, {4, 3}}), y = b.input("y", {f64, {5, 4}});
  graph.outputs = {transposed(b.op("FusedMatMul", {x, y}, {{"perm_a", Perm{1, 0}}, {"perm_b", Perm{1, 0}}}), {1, 0})};
  expect_matched("fuse-transpose-matmul", {{"FusedMatMul", 1}});
  for (const Node& node : graph.nodes) {
    if (node.alive()) EXPECT_EQ(to_string(node.attrs), "{}");       // y x: both transposes cancelled
  }
}

TEST_F(FuseTransposeMatMul, ATransposeReadTwiceStaysOnlyForTheOtherReader) {
  const ValueId x = b.input("x", {f64, {3, 4}}), w = b.input("w", {f64, {5, 4}}), wt = transposed(w, {1, 0});
  graph.outputs = {b.op("MatMul", {x, wt}), b.op("Exp", {wt})};
  expect_matched("fuse-transpose-matmul", {{"FusedMatMul", 1}, {"Transpose", 1}, {"Exp", 1}});
}

TEST_F(FuseTransposeMatMul, AnOrderWithoutAContiguousMatrixAxisStays) {
  const ValueId x = b.input("x", {f64, {2, 3, 4}}), y = b.input("y", {f64, {3, 2}});
  graph.outputs = {b.op("MatMul", {transposed(x, {2, 0, 1}), y})};
  expect_rejected("fuse-transpose-matmul", "leaves no matrix axis contiguous");
}

TEST_F(FuseTransposeMatMul, AResultWithoutContiguousRowsStays) {
  const ValueId x = b.input("x", {f64, {2, 3, 4}}), y = b.input("y", {f64, {4, 5}});
  graph.outputs = {transposed(b.op("MatMul", {x, y}), {2, 1, 0})};
  expect_rejected("fuse-transpose-matmul", "leaves rows not contiguous");
}

TEST_F(FuseTransposeMatMul, AResultReadTwiceIsNotTransposed) {
  const ValueId x = b.input("x", {f64, {3, 4}}), y = b.input("y", {f64, {4, 5}}), p = b.op("MatMul", {x, y});
  graph.outputs = {transposed(p, {1, 0}), b.op("Exp", {p})};
  expect_rejected("fuse-transpose-matmul", "read by more than node Transpose");
}

TEST_F(FuseScaleMatMul, ResultTimesOrOverAConstant) {
  const ValueId x = b.input("x", {f64, {3, 4}}), y = b.input("y", {f64, {4, 5}});
  graph.outputs = {b.op("Mul", {b.scalar(f64, 0.25), b.op("MatMul", {x, y})}),
                   b.op("Div", {b.op("FusedMatMul", {y, x}, {{"perm_a", Perm{1, 0}}, {"perm_b", Perm{1, 0}}}), b.scalar(f64, 3)})};
  expect_matched("fuse-scale-matmul", {{"FusedMatMul", 2}});
}

TEST_F(FuseScaleMatMul, AnOperandReadByProductsOnly) {
  const ValueId x = b.input("x", {f64, {4, 4}}), y = b.input("y", {f64, {4, 4}});
  const ValueId s = b.op("Mul", {x, b.scalar(f64, 0.5)});
  graph.outputs = {b.op("MatMul", {s, y}), b.op("MatMul", {y, s})};
  expect_matched("fuse-scale-matmul", {{"FusedMatMul", 2}});
}

TEST_F(FuseScaleMatMul, AnOperandReadByOthersStays) {
  const ValueId x = b.input("x", {f64, {4, 4}}), y = b.input("y", {f64, {4, 4}});
  const ValueId s = b.op("Mul", {x, b.scalar(f64, 0.5)});
  graph.outputs = {b.op("MatMul", {s, y}), b.op("Exp", {s})};
  expect_rejected("fuse-scale-matmul", "also read by node Exp");
}

TEST_F(FuseScaleMatMul, AProductReadElsewhereStays) {
  const ValueId p = b.op("MatMul", {b.input("x", {f64, {3, 4}}), b.input("y", {f64, {4, 5}})});
  graph.outputs = {b.op("Mul", {p, b.scalar(f64, 2)}), p};
  expect_rejected("fuse-scale-matmul", "also an output of the graph");
}

TEST_F(FuseScaleMatMul, AProductWithABiasStays) {
  const ValueId x = b.input("x", {f64, {3, 4}}), y = b.input("y", {f64, {4, 5}}), bias = b.input("bias", {f64, {5}});
  graph.outputs = {b.op("Mul", {b.op("FusedMatMul", {x, y, bias}), b.scalar(f64, 2)})};
  expect_rejected("fuse-scale-matmul", "adds a bias");
}

TEST_F(FuseScaleMatMul, AFactorThatIsNotConstantStays) {
  const ValueId x = b.input("x", {f64, {3, 4}}), y = b.input("y", {f64, {4, 5}});
  graph.outputs = {b.op("Mul", {b.op("MatMul", {x, y}), b.input("c", {f64, {}})})};
  EXPECT_EQ(run_and_compare(graph, "fuse-scale-matmul", 0).matched, 0);
}

TEST_F(FuseBiasActivation, BiasOnEitherSideAndRelu) {
  const ValueId x = b.input("x", {f64, {2, 3, 4}}), y = b.input("y", {f64, {4, 5}}), bias = b.input("bias", {f64, {5}});
  graph.outputs = {b.op("Relu", {b.op("Add", {bias, b.op("MatMul", {x, y})})}), b.op("Add", {b.op("MatMul", {x, y}), bias})};
  expect_matched("fuse-bias-activation", {{"FusedMatMul", 2}});
}

TEST_F(FuseBiasActivation, GemmAndRelu) {
  const ValueId x = b.input("x", {f64, {3, 4}}), w = b.input("w", {f64, {5, 4}}), bias = b.input("bias", {f64, {5}});
  graph.outputs = {b.op("Relu", {b.op("Gemm", {x, w, bias}, {{"transB", std::int64_t{1}}})})};
  expect_matched("fuse-bias-activation", {{"FusedMatMul", 1}});
}

TEST_F(FuseBiasActivation, ABiasOfAnotherShapeStays) {
  const ValueId x = b.input("x", {f64, {3, 4}}), y = b.input("y", {f64, {4, 5}}), one = b.input("one", {f64, {1}});
  graph.outputs = {b.op("Add", {b.op("MatMul", {x, y}), one})};
  expect_rejected("fuse-bias-activation", "the bias is f64[1], the product has 5 columns");
}

TEST_F(FuseBiasActivation, ASecondBiasStays) {
  const ValueId x = b.input("x", {f64, {3, 4}}), y = b.input("y", {f64, {4, 5}}), bias = b.input("bias", {f64, {5}});
  graph.outputs = {b.op("Add", {b.op("FusedMatMul", {x, y, bias}), bias})};
  expect_rejected("fuse-bias-activation", "has a bias or an activation already");
}

TEST_F(FuseBiasActivation, AProductWrittenTransposedStays) {
  const ValueId x = b.input("x", {f64, {5, 4}}), y = b.input("y", {f64, {4, 5}}), bias = b.input("bias", {f64, {5}});
  graph.outputs = {b.op("Add", {b.op("FusedMatMul", {x, y}, {{"perm_y", Perm{1, 0}}}), bias})};
  expect_rejected("fuse-bias-activation", "writes its result transposed");
}

TEST_F(FuseBiasActivation, AProductReadElsewhereStays) {
  const ValueId x = b.input("x", {f64, {3, 4}}), y = b.input("y", {f64, {4, 5}}), bias = b.input("bias", {f64, {5}});
  const ValueId p = b.op("MatMul", {x, y}), s = b.op("Add", {p, bias});
  graph.outputs = {s, b.op("Exp", {p})};
  expect_rejected("fuse-bias-activation", "is also read by node Exp");
}

TEST_F(FuseBiasActivation, AValueReadBesidesReluStays) {
  const ValueId x = b.input("x", {f64, {3, 4}}), y = b.input("y", {f64, {4, 5}}), p = b.op("MatMul", {x, y});
  graph.outputs = {b.op("Relu", {p}), b.op("Exp", {p})};
  expect_rejected("fuse-bias-activation", "is also read by node Exp");
}

TEST_F(FuseBiasActivation, GeluStaysAndSaysWhy) {
  const ValueId x = b.input("x", {f64, {3, 4}}), y = b.input("y", {f64, {4, 5}});
  graph.outputs = {b.op("Gelu", {b.op("MatMul", {x, y})})};
  expect_rejected("fuse-bias-activation", "the gradient of GELU reads the value before it");
}

}  // namespace
}  // namespace gradloom
