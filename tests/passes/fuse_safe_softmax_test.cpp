#include <gtest/gtest.h>

#include <cmath>

#include "engine/autodiff/autodiff.h"
#include "tests/passes/support.h"

namespace gradloom {
namespace {

using test::op_counts;
using test::run_and_compare;
using test::run_pass;

// As torch.onnx writes the softmax of scaled_dot_product_attention.
struct Attention {
  Graph graph;
  ValueId x, softmax;
  explicit Attention(DType dtype, double replacement = 0) {
    GraphBuilder b(graph);
    x = b.input("x", {dtype, {3, 4}});
    softmax = b.op("Softmax", {x}, {{"axis", std::int64_t{-1}}});
    graph.outputs = {b.op("Where", {b.op("IsNaN", {softmax}), b.scalar(dtype, replacement), softmax})};
  }
};

TEST(FuseSafeSoftmax, BecomesOneNode) {
  Attention a(DType::f64);
  EXPECT_EQ(run_and_compare(a.graph, "fuse-safe-softmax", 0).matched, 1);
  EXPECT_EQ(op_counts(a.graph), (std::map<std::string, int>{{"Softmax", 1}}));
}

TEST(FuseSafeSoftmax, OtherReadersAndOtherNumbersKeepThePieces) {
  Attention read(DType::f64);
  read.graph.outputs.push_back(read.softmax);
  const PassReport report = run_and_compare(read.graph, "fuse-safe-softmax", 0);
  EXPECT_EQ(report.matched, 0);
  EXPECT_NE(test::why_nots(report), "");
  Attention other(DType::f64, 0.5);
  EXPECT_EQ(run_and_compare(other.graph, "fuse-safe-softmax", 0).matched, 0);
}

// A row that sees nothing: zeros with the pass and without, but the gradient of the pieces is NaN.
TEST(FuseSafeSoftmax, GradientsOfEmptyRowsAreZeros) {
  for (const DType dtype : {DType::f32, DType::f64}) {
    for (const bool fused : {false, true}) {
      Attention a(dtype);
      if (fused) {
        EXPECT_EQ(run_pass(a.graph, "fuse-safe-softmax").matched, 1);
      }
      GraphBuilder b(a.graph);
      const ValueId y = a.graph.outputs[0];
      const ValueId loss = b.op("ReduceSum", {b.op("Mul", {y, y})}, {{"keepdims", std::int64_t{0}}});
      const auto gradients = add_gradients(a.graph, loss, {a.x});
      ASSERT_OK(gradients);
      const ValueId dx = gradients->at(a.x);
      test::Contents contents = test::random_inputs(a.graph, 1);  // and constants
      const double none = -INFINITY;
      contents[a.x] =
          Tensor::from_f64(dtype, {3, 4}, {1, 2, none, 4, none, none, none, none, none, 1, none, 1});
      const auto values = test::evaluate_graph(a.graph, contents);
      ASSERT_OK(values);
      for (std::int64_t i = 4; i < 8; ++i) {
        EXPECT_EQ(values->at(y).at(i), 0);
        if (fused) {
          EXPECT_EQ(values->at(dx).at(i), 0);
        } else {
          EXPECT_TRUE(std::isnan(values->at(dx).at(i)));
        }
      }
      for (const std::int64_t i : {0, 1, 2, 3, 8, 9, 10, 11}) EXPECT_FALSE(std::isnan(values->at(dx).at(i)));
      EXPECT_NEAR(values->at(y).at(9), 0.5, 1e-6);
    }
  }
}

}  // namespace
}  // namespace gradloom
