#include <gtest/gtest.h>

#include "tests/passes/matmul_support.h"

namespace gradloom {
namespace {

using test::f64;
using test::Perm;
using FuseBiasActivation = test::MatMulTest;

TEST_F(FuseBiasActivation, BiasOnEitherSideAndRelu) {
  const ValueId x = b.input("x", {f64, {2, 3, 4}}), y = b.input("y", {f64, {4, 5}}),
                bias = b.input("bias", {f64, {5}});
  graph.outputs = {b.op("Relu", {b.op("Add", {bias, b.op("MatMul", {x, y})})}),
                   b.op("Add", {b.op("MatMul", {x, y}), bias})};
  expect_matched("fuse-bias-activation", {{"FusedMatMul", 2}});
}

TEST_F(FuseBiasActivation, GemmAndRelu) {
  const ValueId x = b.input("x", {f64, {3, 4}}), w = b.input("w", {f64, {5, 4}}),
                bias = b.input("bias", {f64, {5}});
  graph.outputs = {b.op("Relu", {b.op("Gemm", {x, w, bias}, {{"transB", std::int64_t{1}}})})};
  expect_matched("fuse-bias-activation", {{"FusedMatMul", 1}});
}

TEST_F(FuseBiasActivation, ABiasOfAnotherShapeStays) {
  const ValueId x = b.input("x", {f64, {3, 4}}), y = b.input("y", {f64, {4, 5}}),
                one = b.input("one", {f64, {1}});
  graph.outputs = {b.op("Add", {b.op("MatMul", {x, y}), one})};
  expect_rejected("fuse-bias-activation", "the bias is f64[1], the product has 5 columns");
}

TEST_F(FuseBiasActivation, ASecondBiasStays) {
  const ValueId x = b.input("x", {f64, {3, 4}}), y = b.input("y", {f64, {4, 5}}),
                bias = b.input("bias", {f64, {5}});
  graph.outputs = {b.op("Add", {b.op("FusedMatMul", {x, y, bias}), bias})};
  expect_rejected("fuse-bias-activation", "has a bias or an activation already");
}

TEST_F(FuseBiasActivation, AProductWrittenTransposedStays) {
  const ValueId x = b.input("x", {f64, {5, 4}}), y = b.input("y", {f64, {4, 5}}),
                bias = b.input("bias", {f64, {5}});
  graph.outputs = {b.op("Add", {b.op("FusedMatMul", {x, y}, {{"perm_y", Perm{1, 0}}}), bias})};
  expect_rejected("fuse-bias-activation", "writes its result transposed");
}

TEST_F(FuseBiasActivation, AProductReadElsewhereStays) {
  const ValueId x = b.input("x", {f64, {3, 4}}), y = b.input("y", {f64, {4, 5}}),
                bias = b.input("bias", {f64, {5}});
  const ValueId p = b.op("MatMul", {x, y}), s = b.op("Add", {p, bias});
  graph.outputs = {s, b.op("Exp", {p})};
  expect_rejected("fuse-bias-activation", "is also read by node Exp");
}

TEST_F(FuseBiasActivation, AValueReadBesidesReluStays) {
  const ValueId x = b.input("x", {f64, {3, 4}}), y = b.input("y", {f64, {4, 5}}), p = b.op("MatMul", {x, y});
  graph.outputs = {b.op("Relu", {p}), b.op("Exp", {p})};
  expect_rejected("fuse-bias-activation", "is also read by node Exp");
}

}  // namespace
}  // namespace gradloom
