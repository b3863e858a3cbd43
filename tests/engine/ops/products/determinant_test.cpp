// Det: what its inference refuses; values and gradients are those of its samples and
// tests/kernels/determinant_test.cpp.
#include "tests/engine/ops/numeric_support.h"

namespace gradloom {
namespace {

using namespace gradloom::test;

TEST(Det, TakesSquareMatrices) {
  EXPECT_EQ(run("Det", {}, {Tensor::from_f64(DType::f64, {2, 2, 2}, {1, 2, 3, 4, 0, 1, 1, 0})})[0].to_f64(),
            (std::vector<double>{-2, -1}));
  EXPECT_EQ(inference_error("Det", {}, {{DType::f32, {3}}}),
            "the input [3] must be square matrices [.., n, n]");
  EXPECT_EQ(inference_error("Det", {}, {{DType::f32, {2, 3, 4}}}),
            "the input [2, 3, 4] must be square matrices [.., n, n]");
  EXPECT_EQ(inference_error("DetGrad", {}, {{DType::f32, {3}}, {DType::f32, {2, 4, 4}}}),
            "the gradient must be [2] of the input's type");
}

}  // namespace
}  // namespace gradloom
