// GroupNormalization and InstanceNormalization against the definition.
#include "tests/engine/ops/numeric_support.h"

namespace gradloom {
namespace {

using namespace gradloom::test;

// y of x [n, c, s] in groups of `channels` channels; scale, bias: one value per channel.
std::vector<double> normalized(const Tensor& x, std::int64_t channels, const std::vector<double>& scale,
                               const std::vector<double>& bias, double epsilon) {
  const std::int64_t c = x.shape()[1], spatial = x.count() / x.shape()[0] / c, cols = channels * spatial;
  std::vector<double> y;
  for (std::int64_t i = 0; i < x.count(); ++i) {
    const std::int64_t first = i / cols * cols;
    double mean = 0, squares = 0;
    for (std::int64_t k = first; k < first + cols; ++k) mean += x.at(k) / static_cast<double>(cols);
    for (std::int64_t k = first; k < first + cols; ++k) squares += (x.at(k) - mean) * (x.at(k) - mean);
    const auto channel = static_cast<std::size_t>(i / spatial % c);
    y.push_back((x.at(i) - mean) / std::sqrt(squares / static_cast<double>(cols) + epsilon) * scale[channel] +
                bias[channel]);
  }
  return y;
}

TEST(GroupNormalization, ScalesChannelsOrGroups) {
  for (DType dtype : {DType::f32, DType::f64}) {
    const Tensor x = numbers(dtype, {2, 6, 5}, 1), scale = numbers(dtype, {6}, 2),
                 bias = numbers(dtype, {6}, 3);
    const Attrs attrs{{"num_groups", std::int64_t{2}}, {"epsilon", 0.01}};
    const OpDef *v18 = find_op("GroupNormalization", "", 18), *v21 = find_op("GroupNormalization", "", 21);
    expect_near(run(*v21, attrs, {x, scale, bias})[0], {2, 6, 5},
                normalized(x, 3, scale.to_f64(), bias.to_f64(), 0.01), tolerance(dtype));
    const std::vector<double> s{1, 1, 1, -2, -2, -2}, b{0.5, 0.5, 0.5, 3, 3, 3};
    const Tensor per_group = Tensor::from_f64(dtype, {2}, {1, -2}),
                 shift = Tensor::from_f64(dtype, {2}, {0.5, 3});
    expect_near(run(*v18, attrs, {x, per_group, shift})[0], {2, 6, 5}, normalized(x, 3, s, b, 0.01),
                tolerance(dtype));
  }
}

TEST(InstanceNormalization, IsOneGroupPerChannel) {
  const Tensor x = numbers(DType::f64, {2, 3, 2, 4}, 1), scale = numbers(DType::f64, {3}, 2),
               bias = numbers(DType::f64, {3}, 3);
  expect_near(run("InstanceNormalization", {}, {x, scale, bias})[0], {2, 3, 2, 4},
              normalized(x, 1, scale.to_f64(), bias.to_f64(), 1e-5), 1e-13);
}

TEST(GroupNormalization, Errors) {
  const Type x{DType::f32, {2, 6, 5}}, six{DType::f32, {6}}, two{DType::f32, {2}};
  EXPECT_EQ(inference_error("GroupNormalization", {{"num_groups", std::int64_t{4}}}, {x, six, six}),
            "num_groups 4 does not divide the channels of [2, 6, 5]");
  EXPECT_EQ(inference_error("GroupNormalization", {{"num_groups", std::int64_t{2}}}, {x, two, two}),
            "scale [2] does not fit [2, 6, 5]");
  EXPECT_EQ(inference_error("InstanceNormalization", {}, {{DType::f32, {2, 6}}, six, six}),
            "input [2, 6] must have 3 or more dims");
}

}  // namespace
}  // namespace gradloom
