// MaxUnpool: undoes MaxPool; shapes; values that land on one place.
#include "tests/engine/ops/numeric_support.h"

namespace gradloom {
namespace {

using namespace gradloom::test;

TEST(MaxUnpool, PutsMaximaBack) {
  const Attrs attrs{{"kernel_shape", Ints{2, 2}}, {"strides", Ints{2, 2}}};
  for (DType dtype : {DType::f32, DType::f64}) {
    const Tensor x = numbers(dtype, {2, 3, 4, 6}, 1);
    const auto pooled = run("MaxPool", attrs, {x}, 2);
    const Tensor back = run("MaxUnpool", attrs, {pooled[0], pooled[1]})[0];
    ASSERT_EQ(back.shape(), x.shape());
    double total = 0;
    for (std::int64_t i = 0; i < back.count(); ++i) {
      EXPECT_TRUE(back.at(i) == 0 || back.at(i) == x.at(i));
      total += back.at(i);
    }
    double maxima = 0;
    for (std::int64_t i = 0; i < pooled[0].count(); ++i) maxima += pooled[0].at(i);
    EXPECT_NEAR(total, maxima, 1e-5);
  }
}

TEST(MaxUnpool, MeansWhereWindowsOverlapped) {
  const Tensor x = Tensor::from_f64(DType::f64, {1, 1, 3}, {5, 5, 2}),
               dy = Tensor::from_f64(DType::f64, {1, 1, 4}, {1, 2, 3, 4});
  const Tensor indices = Tensor::from_i64({1, 1, 3}).reshaped({1, 1, 3});
  const Attrs attrs{{"kernel_shape", Ints{2}}};
  expect_near(run("MaxUnpool", attrs, {x, indices})[0], {1, 1, 4}, {0, 5, 0, 2}, 0);
  Differentiated d = differentiate(op_by_name("MaxUnpool"), attrs, {x, indices}, dy, {0});
  expect_near(d.grad(0), {1, 1, 3}, {1, 1, 4}, 0);
}

// output_shape adds zeros after what the indices count in, or cuts it.
TEST(MaxUnpool, OutputShape) {
  const Tensor x = Tensor::from_f64(DType::f64, {1, 1, 2}, {5, 6}),
               indices = Tensor::from_i64({0, 3}).reshaped({1, 1, 2});
  const Attrs attrs{{"kernel_shape", Ints{2}}, {"strides", Ints{2}}};
  const auto y = [&](std::int64_t size) {
    return run("MaxUnpool", attrs, {x, indices, Tensor::from_i64({1, 1, size})})[0];
  };
  expect_near(y(4), {1, 1, 4}, {5, 0, 0, 6}, 0);
  expect_near(y(6), {1, 1, 6}, {5, 0, 0, 6, 0, 0}, 0);
  expect_near(y(3), {1, 1, 3}, {5, 0, 0}, 0);
}

TEST(MaxUnpool, Errors) {
  EXPECT_EQ(inference_error("MaxUnpool", {}, {{DType::f32, {1, 1, 3}}, {DType::i64, {1, 1, 3}}}),
            "attribute kernel_shape is missing");
  EXPECT_EQ(inference_error("MaxUnpool", {{"kernel_shape", Ints{2}}},
                            {{DType::f32, {1, 1, 3}}, {DType::i32, {1, 1, 3}}}),
            "indices must be i64 and of the input's shape");
}

}  // namespace
}  // namespace gradloom
