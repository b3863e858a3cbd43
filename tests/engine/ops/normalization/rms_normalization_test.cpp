// RMSNormalization against the definition.
#include "tests/engine/ops/numeric_support.h"

namespace gradloom {
namespace {

using namespace gradloom::test;

TEST(RMSNormalization, DividesByTheRootMeanSquare) {
  const Tensor x = Tensor::from_f64(DType::f64, {2, 2}, {3, 4, 1, 7}),
               scale = Tensor::from_f64(DType::f64, {2}, {1, 2});
  const double first = std::sqrt(12.5), second = 5;
  auto y = run("RMSNormalization", {{"epsilon", 0.0}}, {x, scale}, 2);
  expect_near(y[0], {2, 2}, {3 / first, 8 / first, 1 / second, 14 / second}, 1e-15);
  expect_near(y[1], {2, 1}, {1 / first, 1 / second}, 1e-15);
  const double all = std::sqrt(75.0 / 4 + 0.25);
  y = run("RMSNormalization", {{"epsilon", 0.25}, {"axis", std::int64_t{0}}},
          {x, Tensor::from_f64(DType::f64, {2, 2}, {1, 1, 1, 1})});
  expect_near(y[0], {2, 2}, {3 / all, 4 / all, 1 / all, 7 / all}, 1e-15);
}

TEST(RMSNormalization, Errors) {
  EXPECT_EQ(inference_error("RMSNormalization", {}, {{DType::f32, {3, 4}}, {DType::f32, {3}}}),
            "scale [3] does not fit the normalized dims of [3, 4]");
}

}  // namespace
}  // namespace gradloom
