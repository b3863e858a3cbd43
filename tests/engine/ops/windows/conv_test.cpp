// Conv against the definition, loop by loop; its gradients against the definition's adjoints.
#include "tests/engine/ops/numeric_support.h"

namespace gradloom {
namespace {

using namespace gradloom::test;

struct Case {
  Shape x, w;
  std::int64_t stride_h = 1, stride_w = 1, top = 0, left = 0, bottom = 0, right = 0, dilation_h = 1,
               dilation_w = 1, groups = 1;
  Attrs attrs() const {
    return {{"strides", Ints{stride_h, stride_w}},
            {"pads", Ints{top, left, bottom, right}},
            {"dilations", Ints{dilation_h, dilation_w}},
            {"group", groups}};
  }
  Shape y() const {
    const auto out = [](std::int64_t in, std::int64_t k, std::int64_t stride, std::int64_t pads,
                        std::int64_t dilation) { return (in + pads - (k - 1) * dilation - 1) / stride + 1; };
    return {x[0], w[0], out(x[2], w[2], stride_h, top + bottom, dilation_h),
            out(x[3], w[3], stride_w, left + right, dilation_w)};
  }
  // Calls visit(index into y, into x, into w) for every product of the sum.
  template <class Visit>
  void products(const Visit& visit) const {
    const Shape out = y();
    const std::int64_t per_group = w[0] / groups;
    for (std::int64_t n = 0; n < x[0]; ++n)
      for (std::int64_t k = 0; k < w[0]; ++k)
        for (std::int64_t i = 0; i < out[2]; ++i)
          for (std::int64_t j = 0; j < out[3]; ++j)
            for (std::int64_t c = 0; c < w[1]; ++c)
              for (std::int64_t u = 0; u < w[2]; ++u)
                for (std::int64_t v = 0; v < w[3]; ++v) {
                  const std::int64_t row = i * stride_h - top + u * dilation_h,
                                     col = j * stride_w - left + v * dilation_w;
                  if (row < 0 || row >= x[2] || col < 0 || col >= x[3]) continue;
                  const std::int64_t channel = k / per_group * w[1] + c;
                  visit(static_cast<std::size_t>(((n * w[0] + k) * out[2] + i) * out[3] + j),
                        static_cast<std::size_t>(((n * x[1] + channel) * x[2] + row) * x[3] + col),
                        static_cast<std::size_t>(((k * w[1] + c) * w[2] + u) * w[3] + v));
                }
  }
};

const std::vector<Case>& cases() {
  static const std::vector<Case> all = {
      {.x = {2, 3, 5, 6}, .w = {4, 3, 3, 2}},
      {.x = {2, 2, 5, 4}, .w = {3, 2, 3, 3}, .top = 1, .bottom = 2, .right = 1},
      {.x = {1, 2, 7, 8},
       .w = {3, 2, 3, 3},
       .stride_h = 2,
       .stride_w = 3,
       .top = 1,
       .left = 1,
       .bottom = 1,
       .right = 1},
      {.x = {1, 2, 6, 5}, .w = {2, 2, 3, 3}, .top = 2, .bottom = 2, .dilation_h = 2},
      {.x = {2, 4, 4, 4}, .w = {6, 2, 3, 3}, .groups = 2},
      {.x = {2, 3, 4, 5}, .w = {3, 1, 3, 3}, .top = 1, .left = 1, .bottom = 1, .right = 1, .groups = 3},
      {.x = {3, 5, 3, 3}, .w = {4, 5, 1, 1}},
  };
  return all;
}

TEST(Conv, MatchesTheDefinition) {
  for (DType dtype : {DType::f32, DType::f64}) {
    for (std::size_t i = 0; i < cases().size(); ++i) {
      const Case& c = cases()[i];
      const Tensor x = numbers(dtype, c.x, 1), w = numbers(dtype, c.w, 2), bias = numbers(dtype, {c.w[0]}, 3);
      const Shape out = c.y();
      std::vector<double> y;
      for (std::int64_t j = 0; j < element_count(out); ++j)
        y.push_back(bias.at(j / (out[2] * out[3]) % out[1]));
      c.products([&](std::size_t at, std::size_t in, std::size_t tap) {
        y[at] += x.at(static_cast<std::int64_t>(in)) * w.at(static_cast<std::int64_t>(tap));
      });
      expect_near(run("Conv", c.attrs(), {x, w, bias})[0], out, y, tolerance(dtype),
                  "case " + std::to_string(i));
    }
  }
}

TEST(Conv, GradientsAreTheAdjoints) {
  for (DType dtype : {DType::f32, DType::f64}) {
    for (std::size_t i = 0; i < cases().size(); ++i) {
      const Case& c = cases()[i];
      const Tensor x = numbers(dtype, c.x, 1), w = numbers(dtype, c.w, 2), bias = numbers(dtype, {c.w[0]}, 3);
      const Shape out = c.y();
      const Tensor dy = numbers(dtype, out, 4);
      std::vector<double> dx(static_cast<std::size_t>(x.count())), dw(static_cast<std::size_t>(w.count()));
      std::vector<double> dbias(static_cast<std::size_t>(c.w[0]));
      c.products([&](std::size_t at, std::size_t in, std::size_t tap) {
        dx[in] += dy.at(static_cast<std::int64_t>(at)) * w.at(static_cast<std::int64_t>(tap));
        dw[tap] += dy.at(static_cast<std::int64_t>(at)) * x.at(static_cast<std::int64_t>(in));
      });
      for (std::int64_t j = 0; j < dy.count(); ++j)
        dbias[static_cast<std::size_t>(j / (out[2] * out[3]) % out[1])] += dy.at(j);
      Differentiated d = differentiate(op_by_name("Conv"), c.attrs(), {x, w, bias}, dy, {0, 1, 2});
      const std::string what = "case " + std::to_string(i);
      expect_near(d.grad(0), c.x, dx, tolerance(dtype), what + " dx");
      expect_near(d.grad(1), c.w, dw, 10 * tolerance(dtype), what + " dw");
      expect_near(d.grad(2), {c.w[0]}, dbias, 10 * tolerance(dtype), what + " dbias");
    }
  }
}

TEST(Conv, OneDimensionIsAnImageOfHeightOne) {
  const Tensor x = numbers(DType::f32, {2, 3, 7}, 1), w = numbers(DType::f32, {2, 3, 3}, 2);
  const Tensor y = run("Conv", {{"strides", Ints{2}}, {"pads", Ints{1, 1}}}, {x, w})[0];
  const Tensor flat = run("Conv", {{"strides", Ints{1, 2}}, {"pads", Ints{0, 1, 0, 1}}},
                          {x.reshaped({2, 3, 1, 7}), w.reshaped({2, 3, 1, 3})})[0];
  expect_near(y, {2, 2, 4}, flat.to_f64(), 0);
}

TEST(Conv, AutoPadSplitsOddPaddingByName) {
  const Tensor x = numbers(DType::f64, {1, 1, 5, 6}, 1), w = numbers(DType::f64, {1, 1, 2, 3}, 2);
  // Height 5, kernel 2, stride 2: out 3, one row of padding; width 6, kernel 3, stride 2: out 3, one column.
  const auto with = [&](const char* auto_pad) {
    return run("Conv", {{"auto_pad", std::string(auto_pad)}, {"strides", Ints{2, 2}}}, {x, w})[0];
  };
  const auto pads = [&](Ints p) { return run("Conv", {{"pads", p}, {"strides", Ints{2, 2}}}, {x, w})[0]; };
  expect_near(with("SAME_UPPER"), {1, 1, 3, 3}, pads({0, 0, 1, 1}).to_f64(), 0);
  expect_near(with("SAME_LOWER"), {1, 1, 3, 3}, pads({1, 1, 0, 0}).to_f64(), 0);
  expect_near(with("VALID"), {1, 1, 2, 2}, pads({0, 0, 0, 0}).to_f64(), 0);
}

TEST(Conv, InferenceNamesWhatDoesNotFit) {
  const auto f32 = [](Shape s) { return Type{DType::f32, std::move(s)}; };
  const Type x = f32({1, 4, 8, 8}), w = f32({2, 3, 3, 3});
  EXPECT_EQ(inference_error("Conv", {}, {x, w}), "weight has 3 input channels, input has 4 (groups 1)");
  EXPECT_EQ(inference_error("Conv", {{"group", std::int64_t{4}}}, {x, f32({6, 1, 3, 3})}),
            "weight has 6 output channels, not divisible by 4 groups");
  EXPECT_EQ(inference_error("Conv", {{"group", std::int64_t{0}}}, {x, w}), "group is 0");
  EXPECT_EQ(inference_error("Conv", {}, {x, f32({2, 4, 9, 3})}),
            "a window of 9 does not fit the padded input of 8");
  EXPECT_EQ(inference_error("Conv", {{"strides", Ints{1}}}, {x, f32({2, 4, 3, 3})}),
            "strides has 1 entries, expected 2");
  EXPECT_EQ(inference_error("Conv", {{"strides", Ints{0, 1}}}, {x, f32({2, 4, 3, 3})}),
            "strides entry 0 is out of range");
  EXPECT_EQ(inference_error("Conv", {{"pads", Ints{0, 0, std::int64_t{1} << 62, 0}}}, {x, f32({2, 4, 3, 3})}),
            "pads entry 4611686018427387904 is out of range");
  EXPECT_EQ(inference_error("Conv", {{"kernel_shape", Ints{3, 1}}}, {x, f32({2, 4, 3, 3})}),
            "kernel_shape is [3, 1], the weight has [3, 3]");
  EXPECT_EQ(inference_error("Conv", {}, {x, f32({2, 4, 3, 3}), f32({3})}),
            "bias [3] does not fit 2 output channels");
}

TEST(Conv, SymbolicDimsPropagate) {
  const auto f32 = [](Shape s) { return Type{DType::f32, std::move(s)}; };
  const Type w = f32({2, 3, 3, 3});
  const Attrs same{{"pads", Ints{1, 1, 1, 1}}}, strided{{"pads", Ints{1, 1, 1, 1}}, {"strides", Ints{2, 2}}};
  EXPECT_EQ(inferred("Conv", same, {f32({-1, 3, -2, -3}), w})[0].shape, (Shape{-1, 2, -2, -3}));
  const Shape y = inferred("Conv", strided, {f32({-1, -4, -2, 8}), w})[0].shape;
  EXPECT_EQ(y[0], -1);
  EXPECT_LT(y[2], 0);
  EXPECT_NE(y[2], -2);
  EXPECT_EQ(y[3], 4);
  EXPECT_EQ(inferred("Conv", strided, {f32({-1, -4, -2, 8}), w})[0].shape, y) << "inference is repeatable";
}

}  // namespace
}  // namespace gradloom
