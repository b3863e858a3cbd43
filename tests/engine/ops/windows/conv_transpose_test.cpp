// ConvTranspose against the definition (each input value adds a scaled filter) and its output shapes.
#include "tests/engine/ops/numeric_support.h"

namespace gradloom {
namespace {

using namespace gradloom::test;

Shape shape_of(const Attrs& attrs, const Shape& x, const Shape& w) {
  return inferred("ConvTranspose", attrs, {{DType::f32, x}, {DType::f32, w}})[0].shape;
}

TEST(ConvTranspose, AddsScaledFilters) {
  const Shape x_shape{2, 4, 3, 2}, w_shape{4, 3, 3, 2};
  const std::int64_t groups = 2, stride[] = {2, 3}, pad[] = {1, 0}, dilation[] = {2, 1};
  const Attrs attrs{{"group", groups},
                    {"strides", Ints{2, 3}},
                    {"pads", Ints{1, 0, 2, 1}},
                    {"dilations", Ints{2, 1}},
                    {"output_padding", Ints{1, 2}}};
  const Shape y_shape{2, 6, 2 * 2 + 1 + 5 - 3, 3 + 2 + 2 - 1};
  for (DType dtype : {DType::f32, DType::f64}) {
    const Tensor x = numbers(dtype, x_shape, 1), w = numbers(dtype, w_shape, 2),
                 bias = numbers(dtype, {6}, 3);
    std::vector<double> y(static_cast<std::size_t>(element_count(y_shape)));
    for (std::int64_t i = 0; i < element_count(y_shape); ++i)
      y[static_cast<std::size_t>(i)] = bias.at(i / (y_shape[2] * y_shape[3]) % 6);
    for (std::int64_t i = 0; i < x.count(); ++i) {
      const std::int64_t col = i % 2, row = i / 2 % 3, c = i / 6 % 4, n = i / 24;
      for (std::int64_t tap = 0; tap < 3 * 3 * 2; ++tap) {
        const std::int64_t k = tap / 6, u = tap / 2 % 3, v = tap % 2;
        const std::int64_t oy = row * stride[0] - pad[0] + u * dilation[0],
                           ox = col * stride[1] - pad[1] + v * dilation[1];
        if (oy < 0 || oy >= y_shape[2] || ox < 0 || ox >= y_shape[3]) continue;
        const std::int64_t channel = c / (4 / groups) * 3 + k;
        y[static_cast<std::size_t>(((n * 6 + channel) * y_shape[2] + oy) * y_shape[3] + ox)] +=
            x.at(i) * w.at(c * 18 + tap);
      }
    }
    expect_near(run("ConvTranspose", attrs, {x, w, bias})[0], y_shape, y, tolerance(dtype));
  }
}

TEST(ConvTranspose, Shapes) {
  const Shape x{1, 1, 3, 3}, w{1, 2, 3, 3};
  EXPECT_EQ(shape_of({}, x, w), (Shape{1, 2, 5, 5}));
  EXPECT_EQ(shape_of({{"strides", Ints{3, 2}}}, x, w), (Shape{1, 2, 9, 7}));
  EXPECT_EQ(shape_of({{"strides", Ints{3, 2}}, {"output_padding", Ints{1, 1}}}, x, w), (Shape{1, 2, 10, 8}));
  EXPECT_EQ(shape_of({{"strides", Ints{3, 2}}, {"output_shape", Ints{10, 8}}}, x, w), (Shape{1, 2, 10, 8}));
  EXPECT_EQ(shape_of({{"strides", Ints{2, 2}}, {"auto_pad", std::string("SAME_UPPER")}}, x, w),
            (Shape{1, 2, 6, 6}));
  EXPECT_EQ(shape_of({{"strides", Ints{3, 2}}, {"pads", Ints{1, 2, 1, 2}}}, x, w), (Shape{1, 2, 7, 3}));
}

// The odd pad: SAME_UPPER puts it at the end, so the first value of a row is that of the padded result.
TEST(ConvTranspose, WhereTheOddPadGoes) {
  const Tensor x = Tensor::from_f64(DType::f64, {1, 1, 2}, {1, 10}),
               w = Tensor::from_f64(DType::f64, {1, 1, 3}, {1, 2, 3});
  const auto same = [&](const char* name) {
    return run("ConvTranspose", {{"auto_pad", std::string(name)}, {"strides", Ints{2}}}, {x, w})[0];
  };
  expect_near(same("SAME_UPPER"), {1, 1, 4}, {1, 2, 13, 20}, 1e-15);
  expect_near(same("SAME_LOWER"), {1, 1, 4}, {2, 13, 20, 30}, 1e-15);
}

TEST(ConvTranspose, Errors) {
  const Type x{DType::f32, {1, 2, 4, 4}}, w{DType::f32, {2, 1, 3, 3}};
  EXPECT_EQ(inference_error("ConvTranspose", {}, {x, {DType::f32, {3, 1, 3, 3}}}),
            "weight [3, 1, 3, 3] does not fit the channels of [1, 2, 4, 4]");
  EXPECT_EQ(inference_error("ConvTranspose", {{"output_padding", Ints{1, 0}}}, {x, w}),
            "output_padding 1 must be smaller than the stride or the dilation");
  EXPECT_EQ(inference_error("ConvTranspose", {{"pads", Ints{3, 3, 3, 3}}}, {x, w}),
            "output dim 0 is out of range");
  EXPECT_EQ(inference_error("ConvTranspose", {{"group", std::int64_t{3}}}, {x, w}),
            "2 input channels are not divisible by 3 groups");
}

}  // namespace
}  // namespace gradloom
