// Random tensors: moments, independence of streams and steps, the same numbers twice, typed errors.
#include <cmath>

#include "tests/engine/ops/support.h"

namespace gradloom {
namespace {

constexpr std::int64_t kCount = 100000;

std::vector<double> draw(const char* op, Attrs attrs, const std::vector<Tensor>& inputs = {},
                         std::uint64_t seed = 1, std::uint64_t step = 0, const std::string& node = "n") {
  auto y = evaluate(op_by_name(op), attrs, inputs, 1, node, seed, step);
  EXPECT_TRUE(y.ok()) << (y.ok() ? "" : y.error().message);
  return y.ok() ? (*y)[0].to_f64() : std::vector<double>{};
}

Attrs shaped(Attrs attrs = {}) {
  attrs.set("shape", std::vector<std::int64_t>{kCount});
  return attrs;
}

double mean(const std::vector<double>& x) {
  double sum = 0;
  for (const double v : x) sum += v;
  return sum / static_cast<double>(x.size());
}
double covariance(const std::vector<double>& x, const std::vector<double>& y) {
  const double mx = mean(x), my = mean(y);
  double sum = 0;
  for (std::size_t i = 0; i < x.size(); ++i) sum += (x[i] - mx) * (y[i] - my);
  return sum / static_cast<double>(x.size());
}

// Five standard errors everywhere.
TEST(RandomUniform, HasItsMoments) {
  const auto x = draw("RandomUniform", shaped({{"low", -2.0}, {"high", 4.0}}));
  EXPECT_NEAR(mean(x), 1, 5 * std::sqrt(3.0 / kCount));
  EXPECT_NEAR(covariance(x, x), 3, 5 * std::sqrt(7.2 / kCount));
  EXPECT_GE(*std::min_element(x.begin(), x.end()), -2);
  EXPECT_LE(*std::max_element(x.begin(), x.end()), 4);
  std::vector<double> bins(16, 0);
  for (const double v : x) ++bins[static_cast<std::size_t>(std::min(15.0, (v + 2) / 6 * 16))];
  double chi = 0;
  for (const double n : bins) chi += (n - kCount / 16.0) * (n - kCount / 16.0) / (kCount / 16.0);
  EXPECT_LT(chi, 45) << "chi squared with 15 degrees of freedom, p < 1e-4";
}

TEST(RandomNormal, HasItsMoments) {
  const auto x = draw("RandomNormal", shaped({{"mean", 3.0}, {"scale", 2.0}}));
  EXPECT_NEAR(mean(x), 3, 5 * 2 / std::sqrt(kCount));
  EXPECT_NEAR(covariance(x, x), 4, 5 * 4 * std::sqrt(2.0 / kCount));
  double third = 0, fourth = 0, within = 0;
  for (const double v : x) {
    const double z = (v - 3) / 2;
    third += z * z * z / kCount;
    fourth += z * z * z * z / kCount;
    within += std::fabs(z) < 1 ? 1.0 / kCount : 0;
  }
  EXPECT_NEAR(third, 0, 5 * std::sqrt(15.0 / kCount));
  EXPECT_NEAR(fourth, 3, 5 * std::sqrt(96.0 / kCount));
  EXPECT_NEAR(within, 0.682689, 5 * std::sqrt(0.22 / kCount));
}

TEST(Bernoulli, FollowsTheProbability) {
  for (const double p : {0.0, 0.1, 0.75, 1.0}) {
    const auto x =
        draw("Bernoulli", {}, {Tensor::from_f64(DType::f32, {kCount}, std::vector<double>(kCount, p))});
    EXPECT_NEAR(mean(x), p, 5 * std::sqrt(p * (1 - p) / kCount)) << p;
  }
}

TEST(Multinomial, FollowsTheProbabilities) {
  const std::vector<double> p = {0.5, 0.125, 0, 0.375};
  std::vector<double> logits;
  for (const double v : p) logits.push_back(std::log(v) + 7);  // not normalized
  const auto x = draw("Multinomial", {{"sample_size", kCount}}, {tensor({1, 4}, logits, DType::f32)});
  std::vector<double> counts(4, 0);
  for (const double v : x) ++counts.at(static_cast<std::size_t>(v));
  for (std::size_t c = 0; c < 4; ++c)
    EXPECT_NEAR(counts[c] / kCount, p[c], 5 * std::sqrt(p[c] * (1 - p[c]) / kCount)) << c;
}

TEST(Random, StreamsAreIndependentAndRepeatable) {
  const Attrs attrs = shaped();
  for (const char* op : {"RandomUniform", "RandomNormal"}) {
    const auto x = draw(op, attrs);
    EXPECT_EQ(x, draw(op, attrs)) << "the same seed, step and node";
    const double deviation = std::sqrt(covariance(x, x)),
                 limit = 5 * deviation * deviation / std::sqrt(kCount);
    for (const auto& other :
         {draw(op, attrs, {}, 2), draw(op, attrs, {}, 1, 1), draw(op, attrs, {}, 1, 0, "m")})
      EXPECT_NEAR(covariance(x, other), 0, limit);
    std::vector<double> shifted(x.begin() + 1, x.end());
    shifted.push_back(x[0]);
    EXPECT_NEAR(covariance(x, shifted), 0, limit);
  }
}

TEST(Random, LikeTakesShapeAndType) {
  const Tensor like = tensor({2, 3}, {1, 2, 3, 4, 5, 6}, DType::f32);
  EXPECT_EQ(draw("RandomUniformLike", {{"key", std::int64_t{5}}}, {like}),
            draw("RandomUniform", {{"key", std::int64_t{5}}, {"shape", std::vector<std::int64_t>{2, 3}}}));
  EXPECT_EQ((*infer("RandomNormalLike", {i64({4})}, {{"dtype", std::int64_t{11}}}))[0],
            (Type{DType::f64, {4}}));
}

TEST(Random, RefusesWrongTypes) {
  EXPECT_TRUE(mentions(error_of("RandomUniformLike", {i64({4})}), "floating point"));
  EXPECT_TRUE(mentions(error_of("Bernoulli", {i64({4})}), "needs floating point"));
  EXPECT_TRUE(mentions(error_of("Multinomial", {f32({4})}), "[batch, classes]"));
  EXPECT_TRUE(mentions(error_of("Multinomial", {f32({2, 4})}, {{"dtype", std::int64_t{1}}}), "integers"));
}

}  // namespace
}  // namespace gradloom
