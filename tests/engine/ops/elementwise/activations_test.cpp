// Activations beyond the generic suite: values outside of the samples, kinks, errors.
#include <cmath>
#include <limits>

#include "tests/engine/ops/support.h"

namespace gradloom {
namespace {

constexpr double kInf = std::numeric_limits<double>::infinity();

TEST(Activations, FarFromZero) {
  const Tensor x = tensor({4}, {-1000, 1000, -kInf, kInf});
  EXPECT_NEAR(run("Selu", {x})[0], -1.0507009873554804934 * 1.6732632423543772848, 1e-6);
  EXPECT_EQ(run("Celu", {x}, {{"alpha", 2.0}}), (std::vector<double>{-2, 1000, -2, kInf}));
  EXPECT_EQ(run("ThresholdedRelu", {x}), (std::vector<double>{0, 1000, 0, kInf}));
  EXPECT_EQ(run("Shrink", {x}, {{"bias", 1.0}}), (std::vector<double>{-999, 999, -kInf, kInf}));
  EXPECT_EQ(run("Mish", {tensor({2}, {-1000, 1000})}), (std::vector<double>{0, 1000}));
  EXPECT_EQ(run("Swish", {tensor({2}, {-1000, 1000})}), (std::vector<double>{0, 1000}));
}

TEST(Activations, AgreeWithTheirFormulas) {
  for (const double x : {-3.0, -0.4, 0.0, 0.7, 2.5}) {
    const Tensor t = tensor({1}, {x});
    EXPECT_NEAR(run("Mish", {t})[0], x * std::tanh(std::log1p(std::exp(x))), 1e-14);
    EXPECT_NEAR(run("Swish", {t}, {{"alpha", 1.5}})[0], x / (1 + std::exp(-1.5 * x)), 1e-14);
    EXPECT_NEAR(run("Celu", {t}, {{"alpha", 1.5}})[0],
                std::max(x, 0.0) + std::min(0.0, 1.5 * std::expm1(x / 1.5)), 1e-14);
  }
}

TEST(Activations, AtKinks) {
  EXPECT_EQ(gradient("ThresholdedRelu", {tensor({3}, {0.5, 1, 2})}, 0), (std::vector<double>{0, 0, 1}));
  EXPECT_EQ(gradient("Shrink", {tensor({5}, {-1, -0.5, 0, 0.5, 1})}, 0),
            (std::vector<double>{1, 0, 0, 0, 1}));
  EXPECT_EQ(gradient("LeakyRelu", {tensor({3}, {-1, 0, 1})}, 0, {{"alpha", 0.25}}),
            (std::vector<double>{0.25, 0.25, 1}));
  EXPECT_EQ(gradient("HardSwish", {tensor({4}, {-4, -3, 3, 4})}, 0), (std::vector<double>{0, 0, 1, 1}));
}

TEST(Activations, PReluOfIntegers) {
  EXPECT_EQ(run("PRelu", {ints({-3, 0, 4}), ints({5, 6, 7})}), (std::vector<double>{-15, 0, 4}));
  EXPECT_EQ(run("PRelu", {tensor({2}, {0, 4}, DType::u32), tensor({1}, {5}, DType::u32)}),
            (std::vector<double>{0, 4}));
}

TEST(Activations, RefuseWrongInputs) {
  EXPECT_TRUE(mentions(error_of("Selu", {i64({2})}), "needs floating point"));
  EXPECT_TRUE(mentions(error_of("Celu", {f32({2})}, {{"alpha", 0.0}}), "alpha is 0"));
  EXPECT_TRUE(mentions(error_of("Shrink", {Type{DType::boolean, {2}}}), "does not take bool"));
}

TEST(Shrink, KeepsIntegers) {
  EXPECT_EQ(run("Shrink", {ints({-3, -1, 0, 1, 3})}, {{"lambd", 1.5}, {"bias", 1.0}}),
            (std::vector<double>{-2, 0, 0, 0, 2}));
}

}  // namespace
}  // namespace gradloom
