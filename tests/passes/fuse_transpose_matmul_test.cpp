#include <gtest/gtest.h>

#include "tests/passes/matmul_support.h"

namespace gradloom {
namespace {

using test::f64;
using test::Perm;
using FuseTransposeMatMul = test::MatMulTest;

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
  graph.outputs = {
      b.op("MatMul", {transposed(transposed(x, {0, 2, 1, 3}), {0, 1, 3, 2}), transposed(y, {0, 1, 3, 2})})};
  EXPECT_EQ(graph.type(graph.outputs[0]).shape, (Shape{2, 4, 5, 5}));
  expect_matched("fuse-transpose-matmul", {{"FusedMatMul", 1}});
}

TEST_F(FuseTransposeMatMul, ATransposedResultExchangesTheOperands) {
  const ValueId x = b.input("x", {f64, {4, 3}}), y = b.input("y", {f64, {5, 4}});
  graph.outputs = {
      transposed(b.op("FusedMatMul", {x, y}, {{"perm_a", Perm{1, 0}}, {"perm_b", Perm{1, 0}}}), {1, 0})};
  expect_matched("fuse-transpose-matmul", {{"FusedMatMul", 1}});
  for (const Node& node : graph.nodes) {
    if (node.alive()) {
      EXPECT_EQ(to_string(node.attrs), "{}");  // y x: both transposes cancelled
    }
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

}  // namespace
}  // namespace gradloom
