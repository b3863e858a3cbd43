// LayerNormalization and BatchNormalization against the definition; hidden outputs; what inference refuses.
#include "tests/engine/ops/numeric_support.h"

namespace gradloom {
namespace {

using namespace gradloom::test;

TEST(LayerNormalization, MatchesTheDefinitionForEveryAxis) {
  for (DType dtype : {DType::f32, DType::f64}) {
    const Tensor x = numbers(dtype, {2, 3, 4}, 1);
    for (std::int64_t axis : {-1, 1, 0}) {
      const std::int64_t cols = axis == -1 ? 4 : axis == 1 ? 12 : 24, rows = 24 / cols;
      const Tensor scale = numbers(dtype, {cols}, 2), bias = numbers(dtype, {cols}, 3);
      std::vector<double> y, means, inv_stds;
      for (std::int64_t r = 0; r < rows; ++r) {
        double mean = 0, var = 0;
        for (std::int64_t c = 0; c < cols; ++c) mean += x.at(r * cols + c) / static_cast<double>(cols);
        for (std::int64_t c = 0; c < cols; ++c)
          var += std::pow(x.at(r * cols + c) - mean, 2) / static_cast<double>(cols);
        means.push_back(mean);
        inv_stds.push_back(1 / std::sqrt(var + 0.01));
        for (std::int64_t c = 0; c < cols; ++c)
          y.push_back((x.at(r * cols + c) - mean) * inv_stds.back() * scale.at(c) + bias.at(c));
      }
      const auto got = run("LayerNormalization", {{"axis", axis}, {"epsilon", 0.01}}, {x, scale, bias}, 3);
      const Shape statistics = axis == -1 ? Shape{2, 3, 1} : axis == 1 ? Shape{2, 1, 1} : Shape{1, 1, 1};
      expect_near(got[0], {2, 3, 4}, y, tolerance(dtype), "y");
      expect_near(got[1], statistics, means, tolerance(dtype), "mean");
      expect_near(got[2], statistics, inv_stds, 10 * tolerance(dtype), "inv_std");
      // The statistics may be left out.
      expect_near(run("LayerNormalization", {{"axis", axis}, {"epsilon", 0.01}}, {x, scale, bias})[0],
                  {2, 3, 4}, got[0].to_f64(), 0);
    }
  }
}

TEST(LayerNormalization, InferenceNamesWhatDoesNotFit) {
  const auto f32 = [](Shape s) { return Type{DType::f32, std::move(s)}; };
  EXPECT_EQ(inference_error("LayerNormalization", {{"axis", std::int64_t{1}}}, {f32({2, 4, 5}), f32({3})}),
            "scale has 3 elements, the normalized dims of [2, 4, 5] have 20");
  EXPECT_EQ(inference_error("LayerNormalization", {{"axis", std::int64_t{3}}}, {f32({2, 4, 5}), f32({5})}),
            "axis 3 is out of range for rank 3");
  EXPECT_EQ(inferred("LayerNormalization", {}, {f32({-1, -2, 5}), f32({5})}, 3)[1].shape, (Shape{-1, -2, 1}));
}

std::vector<Tensor> batch_inputs(DType dtype, const Shape& x) {
  const Shape c{x[1]};
  std::vector<double> variance;
  for (std::int64_t i = 0; i < c[0]; ++i) variance.push_back(0.5 + 0.25 * static_cast<double>(i));
  return {numbers(dtype, x, 1), numbers(dtype, c, 2), numbers(dtype, c, 3), numbers(dtype, c, 4),
          Tensor::from_f64(dtype, c, variance)};
}

TEST(BatchNormalization, TrainingUsesAndUpdatesStatistics) {
  for (DType dtype : {DType::f32, DType::f64}) {
    const std::vector<Tensor> in = batch_inputs(dtype, {3, 2, 5});
    const double momentum = 0.75, epsilon = 0.01;
    std::vector<double> y(30), mean(2), var(2), running_mean, running_var, inv_std;
    for (std::size_t c = 0; c < 2; ++c) {
      const auto at = [&](std::int64_t i) { return (i / 5 * 2 + static_cast<std::int64_t>(c)) * 5 + i % 5; };
      const auto channel = static_cast<std::int64_t>(c);
      for (std::int64_t i = 0; i < 15; ++i) mean[c] += in[0].at(at(i)) / 15;
      for (std::int64_t i = 0; i < 15; ++i) var[c] += std::pow(in[0].at(at(i)) - mean[c], 2) / 15;
      inv_std.push_back(1 / std::sqrt(var[c] + epsilon));
      for (std::int64_t i = 0; i < 15; ++i)
        y[static_cast<std::size_t>(at(i))] =
            (in[0].at(at(i)) - mean[c]) * inv_std[c] * in[1].at(channel) + in[2].at(channel);
      running_mean.push_back(in[3].at(channel) * momentum + mean[c] * (1 - momentum));
      running_var.push_back(in[4].at(channel) * momentum + var[c] * (1 - momentum));
    }
    const Attrs attrs{{"training_mode", std::int64_t{1}}, {"momentum", momentum}, {"epsilon", epsilon}};
    const auto got = run("BatchNormalization", attrs, in, 5);
    expect_near(got[0], {3, 2, 5}, y, tolerance(dtype), "y");
    expect_near(got[1], {2}, running_mean, tolerance(dtype), "running mean");
    expect_near(got[2], {2}, running_var, tolerance(dtype), "running variance");
    expect_near(got[3], {2}, mean, tolerance(dtype), "saved mean");
    expect_near(got[4], {2}, inv_std, 10 * tolerance(dtype), "saved inv_std");
    // Before opset 14 a node trains when it has statistics as outputs.
    const Attrs old_attrs{{"momentum", momentum}, {"epsilon", epsilon}};
    expect_near(run(*find_op("BatchNormalization", "", 9), old_attrs, in, 5)[0], {3, 2, 5}, got[0].to_f64(),
                0);
  }
}

TEST(BatchNormalization, InferenceModeUsesRunningStatistics) {
  for (int opset : {9, 15}) {
    const std::vector<Tensor> in = batch_inputs(DType::f64, {2, 3, 2, 2});
    std::vector<double> y;
    for (std::int64_t i = 0; i < 24; ++i) {
      const std::int64_t c = i / 4 % 3;
      y.push_back((in[0].at(i) - in[3].at(c)) / std::sqrt(in[4].at(c) + 1e-5) * in[1].at(c) + in[2].at(c));
    }
    expect_near(run(*find_op("BatchNormalization", "", opset), {}, in)[0], {2, 3, 2, 2}, y, 1e-13);
  }
}

TEST(BatchNormalization, GradientAsksForTheSavedStatistics) {
  const std::vector<Tensor> in = batch_inputs(DType::f64, {3, 2, 5});
  const Tensor seed = numbers(DType::f64, {3, 2, 5}, 9);
  const Attrs attrs{{"training_mode", std::int64_t{1}}};
  Differentiated d = differentiate(op_by_name("BatchNormalization"), attrs, in, seed, {0, 1, 2});
  EXPECT_EQ(d.graph.nodes[0].outputs.size(), 5u);
  // y does not change when a channel of x is shifted: the gradient of each channel sums to zero.
  for (std::int64_t c = 0; c < 2; ++c) {
    double total = 0, bias = 0;
    for (std::int64_t i = 0; i < 15; ++i) {
      total += d.grad(0).at((i / 5 * 2 + c) * 5 + i % 5);
      bias += seed.at((i / 5 * 2 + c) * 5 + i % 5);
    }
    EXPECT_NEAR(total, 0, 1e-13);
    EXPECT_NEAR(d.grad(2).at(c), bias, 1e-13);
  }
}

TEST(BatchNormalization, InferenceNamesWhatDoesNotFit) {
  const auto f32 = [](Shape s) { return Type{DType::f32, std::move(s)}; };
  const Type c = f32({3});
  EXPECT_EQ(inference_error("BatchNormalization", {}, {f32({2, 4, 5}), c, c, c, c}),
            "scale [3] does not fit [2, 4, 5]");
  EXPECT_EQ(inference_error("BatchNormalization", {}, {f32({2, 3}), c, c, c, c}, 3),
            "running statistics are outputs in training mode only");
  EXPECT_EQ(inferred("BatchNormalization", {}, {f32({-1, 3, -2}), c, c, c, c})[0].shape, (Shape{-1, 3, -2}));
}

}  // namespace
}  // namespace gradloom
