#include "passes/product.h"

#include <gtest/gtest.h>

#include "tests/passes/matmul_support.h"

namespace gradloom {
namespace {

using test::f64;
using ProductTest = test::MatMulTest;

TEST(Perms, ComposeLikeTransposes) {
  EXPECT_TRUE(is_identity(identity_perm(3)));
  EXPECT_TRUE(is_identity({}));
  EXPECT_FALSE(is_identity({1, 0}));
  // Axis i of transpose(transpose(x, p), q) is axis p[q[i]] of x.
  EXPECT_EQ(composed({2, 0, 1}, {1, 0, 2}), (Perm{0, 2, 1}));
  EXPECT_TRUE(is_identity(composed({2, 0, 1}, {1, 2, 0})));
}

TEST_F(ProductTest, ATransposeWithoutPermReverses) {
  b.op("Transpose", {b.input("x", {f64, {2, 3, 4}})});
  EXPECT_EQ(perm_of_transpose(graph, graph.nodes[0]), (Perm{2, 1, 0}));
}

TEST_F(ProductTest, GemmIsReadAsPermutations) {
  const ValueId x = b.input("x", {f64, {4, 3}}), w = b.input("w", {f64, {5, 4}}),
                bias = b.input("bias", {f64, {5}});
  b.op("Gemm", {x, w, bias}, {{"transA", std::int64_t{1}}, {"transB", std::int64_t{1}}, {"alpha", 0.5}});
  const auto product = read_product(graph, 0);
  ASSERT_TRUE(product.has_value());
  EXPECT_EQ(product->perm_a, (Perm{1, 0}));
  EXPECT_EQ(product->perm_b, (Perm{1, 0}));
  EXPECT_TRUE(is_identity(product->perm_y));
  EXPECT_EQ(product->alpha, 0.5);
  EXPECT_EQ(product->bias, bias);
}

TEST_F(ProductTest, GemmThatAddsAMatrixOrScalesItIsNotAProductWithBias) {
  const ValueId x = b.input("x", {f64, {3, 4}}), w = b.input("w", {f64, {4, 5}});
  b.op("Gemm", {x, w, b.input("c", {f64, {3, 5}})});
  b.op("Gemm", {x, w, b.input("bias", {f64, {5}})}, {{"beta", 0.5}});
  EXPECT_FALSE(read_product(graph, 0).has_value());
  EXPECT_FALSE(read_product(graph, 1).has_value());
}

TEST_F(ProductTest, VectorsAreNotRead) {
  b.op("MatMul", {b.input("x", {f64, {4}}), b.input("y", {f64, {4, 5}})});
  EXPECT_FALSE(read_product(graph, 0).has_value());
}

TEST_F(ProductTest, WritesBackWhatItRead) {
  const ValueId x = b.input("x", {f64, {2, 3, 4, 5}}), y = b.input("y", {f64, {2, 3, 4, 5}});
  const Attrs attrs{{"perm_a", Perm{0, 2, 1, 3}},
                    {"perm_b", Perm{0, 2, 3, 1}},
                    {"perm_y", Perm{0, 2, 1, 3}},
                    {"alpha", 0.25},
                    {"activation", std::string("relu")}};
  b.op("FusedMatMul", {x, y}, attrs);
  const auto product = read_product(graph, 0);
  ASSERT_TRUE(product.has_value());
  const ValueId copy = add_product(b, *product);
  EXPECT_TRUE(graph.nodes[graph.values[copy].producer].attrs == attrs);
}

}  // namespace
}  // namespace gradloom
