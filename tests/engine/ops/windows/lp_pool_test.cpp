// LpPool, GlobalLpPool, GlobalMaxPool: values by hand, and gradients where the norm has no slope.
#include "tests/engine/ops/numeric_support.h"

namespace gradloom {
namespace {

using namespace gradloom::test;

TEST(LpPool, IsTheNormOfWhatIsInside) {
  const Tensor x = Tensor::from_f64(DType::f64, {1, 1, 4}, {3, -4, 0, 5});
  Attrs attrs{{"kernel_shape", Ints{2}}, {"pads", Ints{1, 0}}};
  expect_near(run("LpPool", attrs, {x})[0], {1, 1, 4}, {3, 5, 4, 5}, 1e-15);
  attrs.set("p", std::int64_t{1});
  expect_near(run("LpPool", attrs, {x})[0], {1, 1, 4}, {3, 7, 4, 5}, 1e-15);
  attrs.set("p", std::int64_t{3});
  expect_near(run("LpPool", attrs, {x})[0], {1, 1, 4}, {3, std::cbrt(91.0), 4, 5}, 1e-14);
  EXPECT_EQ(inference_error("LpPool", {{"kernel_shape", Ints{2}}, {"p", std::int64_t{0}}},
                            {{DType::f32, {1, 1, 4}}}),
            "p is 0");
}

TEST(LpPool, GradientIsZeroWhereTheNormIs) {
  const Tensor x = Tensor::from_f64(DType::f64, {1, 1, 4}, {0, 0, 3, -4}),
               dy = Tensor::from_f64(DType::f64, {1, 1, 2}, {7, 10});
  Differentiated d =
      differentiate(op_by_name("LpPool"), {{"kernel_shape", Ints{2}}, {"strides", Ints{2}}}, {x}, dy, {0});
  expect_near(d.grad(0), {1, 1, 4}, {0, 0, 6, -8}, 1e-14);
}

TEST(GlobalPools, OverAllPositions) {
  const Tensor x = Tensor::from_f64(DType::f64, {1, 2, 2, 2}, {3, 0, -4, 0, -1, -2, -5, -2});
  expect_near(run("GlobalLpPool", {}, {x})[0], {1, 2, 1, 1}, {5, std::sqrt(34.0)}, 1e-15);
  expect_near(run("GlobalMaxPool", {}, {x})[0], {1, 2, 1, 1}, {3, -1}, 0);
  const Tensor equal = Tensor::from_f64(DType::f64, {1, 1, 3}, {2, 1, 2}),
               dy = Tensor::from_f64(DType::f64, {1, 1, 1}, {6});
  Differentiated d = differentiate(op_by_name("GlobalMaxPool"), {}, {equal}, dy, {0});
  expect_near(d.grad(0), {1, 1, 3}, {3, 0, 3}, 0);
}

}  // namespace
}  // namespace gradloom
