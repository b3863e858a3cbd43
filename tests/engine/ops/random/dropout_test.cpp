// Dropout: which elements stay, that the gradient keeps the same ones, and when it is the identity.
#include "tests/engine/ops/numeric_support.h"

namespace gradloom {
namespace {

using namespace gradloom::test;

const Tensor kOn = Tensor::scalar(DType::boolean, 1), kOff = Tensor::scalar(DType::boolean, 0);

TEST(Dropout, KeepsTheWantedShareAndScalesIt) {
  const std::int64_t count = 40000;
  std::vector<double> ones(static_cast<std::size_t>(count), 1.0);
  for (DType dtype : {DType::f32, DType::f64}) {
    const Tensor x = Tensor::from_f64(dtype, {200, 200}, ones);
    for (double ratio : {0.1, 0.5, 0.75}) {
      const auto y = run("Dropout", {{"key", std::int64_t{77}}}, {x, Tensor::scalar(dtype, ratio), kOn}, 2);
      ASSERT_EQ(y[1].dtype(), DType::boolean);
      std::int64_t kept = 0;
      for (std::int64_t i = 0; i < count; ++i) {
        const bool keep = y[1].int_at(i) != 0;
        kept += keep;
        ASSERT_NEAR(y[0].at(i), keep ? 1 / (1 - ratio) : 0.0, 1e-6);
      }
      // Five standard deviations of a binomial count.
      const double n = static_cast<double>(count);
      EXPECT_NEAR(static_cast<double>(kept), n * (1 - ratio), 5 * std::sqrt(n * ratio * (1 - ratio)));
    }
  }
}

TEST(Dropout, MaskDependsOnKeySeedAndStepOnly) {
  const OpDef& op = op_by_name("Dropout");
  const Tensor x = numbers(DType::f32, {33, 7}), half = Tensor::scalar(DType::f32, 0.5);
  const auto mask = [&](Attrs attrs, const char* name, std::uint64_t seed, std::uint64_t step,
                        const Tensor& input) {
    auto y = evaluate(op, attrs, {input, half, kOn}, 2, name, seed, step);
    EXPECT_TRUE(y.ok());
    return y.value()[1].to_i64();
  };
  const Attrs key{{"key", std::int64_t{-5}}}, other{{"key", std::int64_t{6}}};
  const auto base = mask(key, "a", 1, 1, x);
  EXPECT_EQ(base, mask(key, "b", 1, 1, numbers(DType::f32, {33, 7}, 9)));
  EXPECT_EQ(base, mask(key, "a", 1, 1, x));
  EXPECT_NE(base, mask(other, "a", 1, 1, x));
  EXPECT_NE(base, mask(key, "a", 2, 1, x));
  EXPECT_NE(base, mask(key, "a", 1, 2, x));
  EXPECT_NE(mask({}, "a", 1, 1, x), mask({}, "b", 1, 1, x)) << "without a key the name decides";
}

TEST(Dropout, GradientDropsTheSameElements) {
  const Tensor x = numbers(DType::f64, {5, 9}, 1), seed = numbers(DType::f64, {5, 9}, 2);
  const std::vector<Tensor> inputs{x, Tensor::scalar(DType::f64, 0.4), kOn};
  for (const Attrs& attrs : {Attrs{{"key", std::int64_t{123}}}, Attrs{}}) {
    const auto mask = run("Dropout", attrs, inputs, 2)[1];
    Differentiated d = differentiate(op_by_name("Dropout"), attrs, inputs, seed, {0});
    EXPECT_EQ(d.grad(0).shape(), x.shape());
    for (std::int64_t i = 0; i < x.count(); ++i)
      EXPECT_NEAR(d.grad(0).at(i), mask.int_at(i) ? seed.at(i) / 0.6 : 0.0, 1e-14) << i;
  }
}

TEST(Dropout, IsTheIdentityOutsideTraining) {
  const Tensor x = numbers(DType::f32, {4, 5}), half = Tensor::scalar(DType::f32, 0.5);
  const std::vector<std::vector<Tensor>> inputs = {{x}, {x, half}, {x, half, kOff}};
  for (const auto& in : inputs) {
    const auto y = run("Dropout", {}, in, 2);
    EXPECT_TRUE(bit_equal(y[0], x));
    EXPECT_EQ(y[1].to_i64(), Ints(20, 1));
  }
  const auto old = run(*find_op("Dropout", "", 10), {{"ratio", 0.5}}, {x}, 2);
  EXPECT_TRUE(bit_equal(old[0], x));
  EXPECT_EQ(old[1].to_i64(), Ints(20, 1));
  Differentiated d = differentiate(op_by_name("Dropout"), {}, {x, half}, numbers(DType::f32, {4, 5}, 3), {0});
  expect_near(d.grad(0), {4, 5}, numbers(DType::f32, {4, 5}, 3).to_f64(), 0);
}

TEST(Dropout, RefusesWhatIsNoRatio) {
  const Tensor x = numbers(DType::f32, {4});
  for (double ratio : {-0.1, 1.0, 1.5, std::nan("")}) {
    auto y = evaluate(op_by_name("Dropout"), {}, {x, Tensor::scalar(DType::f32, ratio), kOn});
    ASSERT_FALSE(y.ok()) << ratio;
    EXPECT_NE(y.error().message.find("is outside [0, 1)"), std::string::npos) << y.error().message;
  }
}

}  // namespace
}  // namespace gradloom
