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

// Columns 0 to 2 of [5, 6], and of [5, 12] the first halves of two groups of columns: what the first of two ranks has.
TEST(Dropout, APartDropsWhatTheWholeDoes) {
  for (const std::int64_t groups : {1, 2}) {
    const std::int64_t columns = 6 * groups, half = columns / 2, run_of = half / groups;
    const Tensor x = numbers(DType::f64, {5, columns}, 3), ratio = Tensor::scalar(DType::f64, 0.4);
    std::vector<double> own;
    for (std::int64_t i = 0; i < x.count(); ++i)
      if (i % columns % (2 * run_of) < run_of) own.push_back(x.at(i));
    const Tensor part = Tensor::from_f64(DType::f64, {5, half}, own);
    const Attrs whole{{"key", std::int64_t{9}}},
        of_part{{"key", std::int64_t{9}}, {"parts", std::int64_t{2}}, {"run", run_of}};
    const auto all = run("Dropout", whole, {x, ratio, kOn})[0],
               some = run("Dropout", of_part, {part, ratio, kOn})[0];
    const Tensor seed = numbers(DType::f64, {5, half}, 4);
    Differentiated d = differentiate(op_by_name("Dropout"), of_part, {part, ratio, kOn}, seed, {0});
    std::int64_t dropped = 0;
    for (std::int64_t i = 0, at = 0; i < x.count(); ++i) {
      if (i % columns % (2 * run_of) >= run_of) continue;
      EXPECT_EQ(some.at(at), all.at(i)) << i;
      EXPECT_EQ(d.grad(0).at(at) == 0, all.at(i) == 0) << i;
      dropped += all.at(i) == 0;
      ++at;
    }
    EXPECT_GT(dropped, 0);
    EXPECT_LT(dropped, part.count());
  }
}

TEST(Dropout, RefusesWhatIsNoPart) {
  const Type x{DType::f64, {4, 6}};
  const auto error = [&](std::int64_t parts, std::int64_t run_of) {
    return inference_error("Dropout", {{"parts", parts}, {"run", run_of}}, {x});
  };
  EXPECT_EQ(error(2, 3), "");
  EXPECT_NE(error(0, 3).find("parts are between 1"), std::string::npos);
  EXPECT_NE(error(2, 5).find("no runs of 5"), std::string::npos);
  EXPECT_NE(error(2, 0).find("no runs of 0"), std::string::npos);
  const Attrs third{{"parts", std::int64_t{2}}, {"run", std::int64_t{3}}, {"part", std::int64_t{2}}};
  EXPECT_NE(inference_error("Dropout", third, {x}).find("part 2 is none of 2"), std::string::npos);
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
