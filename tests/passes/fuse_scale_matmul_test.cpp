#include <gtest/gtest.h>

#include "tests/passes/matmul_support.h"

namespace gradloom {
namespace {

using test::f64;
using test::Perm;
using test::run_and_compare;
using FuseScaleMatMul = test::MatMulTest;

TEST_F(FuseScaleMatMul, ResultTimesOrOverAConstant) {
  const ValueId x = b.input("x", {f64, {3, 4}}), y = b.input("y", {f64, {4, 5}});
  graph.outputs = {b.op("Mul", {b.scalar(f64, 0.25), b.op("MatMul", {x, y})}),
                   b.op("Div", {b.op("FusedMatMul", {y, x}, {{"perm_a", Perm{1, 0}}, {"perm_b", Perm{1, 0}}}),
                                b.scalar(f64, 3)})};
  expect_matched("fuse-scale-matmul", {{"FusedMatMul", 2}});
}

TEST_F(FuseScaleMatMul, FactorsMultiply) {
  const ValueId x = b.input("x", {f64, {3, 4}}), y = b.input("y", {f64, {4, 5}});
  const ValueId p = b.op("FusedMatMul", {x, b.op("Mul", {y, b.scalar(f64, 5)})}, {{"alpha", 0.5}});
  graph.outputs = {b.op("Mul", {p, b.scalar(f64, 3)})};
  expect_matched("fuse-scale-matmul", {{"FusedMatMul", 1}});
  for (const Node& node : graph.nodes) {
    if (node.alive()) {
      EXPECT_DOUBLE_EQ(node.attrs.real("alpha"), 7.5);
    }
  }
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
  const ValueId x = b.input("x", {f64, {3, 4}}), y = b.input("y", {f64, {4, 5}}),
                bias = b.input("bias", {f64, {5}});
  graph.outputs = {b.op("Mul", {b.op("FusedMatMul", {x, y, bias}), b.scalar(f64, 2)})};
  expect_rejected("fuse-scale-matmul", "adds a bias");
}

TEST_F(FuseScaleMatMul, AFactorThatIsNotConstantStays) {
  const ValueId x = b.input("x", {f64, {3, 4}}), y = b.input("y", {f64, {4, 5}});
  graph.outputs = {b.op("Mul", {b.op("MatMul", {x, y}), b.input("c", {f64, {}})})};
  EXPECT_EQ(run_and_compare(graph, "fuse-scale-matmul", 0).matched, 0);
}

}  // namespace
}  // namespace gradloom
