// The maps against bitsandbytes' way to make them, codes against the nearest of all values.
#include "kernels/block_quantization.h"

#include <algorithm>

#include "tests/kernels/support.h"

namespace gradloom::kernels::test {
namespace {

using namespace portable;

// create_dynamic_map(signed, max_exponent_bits=7, total_bits=8) of bitsandbytes, in doubles.
std::vector<double> dynamic_map(bool is_signed) {
  std::vector<double> map;
  for (int i = 0; i < 7; ++i) {
    const int parts = is_signed ? 1 << i : 2 << i;
    for (int k = 0; k < parts; ++k) {
      const double low = 0.1 + 0.9 * k / parts, high = 0.1 + 0.9 * (k + 1) / parts;
      const double mean = std::pow(10, i - 6) * (low + high) / 2;
      map.push_back(mean);
      if (is_signed) map.push_back(-mean);
    }
  }
  map.push_back(0);
  map.push_back(1);
  std::sort(map.begin(), map.end());
  return map;
}

TEST(BlockQuantization, MapsAreThoseOfThePaper) {
  for (const bool positive : {false, true}) {
    const std::vector<double> map = dynamic_map(!positive);
    ASSERT_EQ(map.size(), std::size_t(kCodes));
    for (int code = 0; code < kCodes; ++code)
      EXPECT_NEAR(map_value(code, positive), map[std::size_t(code)], 1e-7 * std::fabs(map[std::size_t(code)]))
          << code;
  }
}

// Numbers of all sizes, and the values, the middles between them and what is beside these.
std::vector<float> probes(bool positive) {
  std::vector<float> all{0, 1, 1e-30F, 1e-7F, 3e-7F};
  Random random(5);
  for (int i = 0; i < 20000; ++i) all.push_back(float(std::pow(10, random.uniform(-8, 0))));
  for (int code = 0; code < kCodes; ++code) {
    const float value = std::fabs(map_value(code, positive));
    all.push_back(value);
    if (code + 1 == kCodes) continue;
    const float middle = std::fabs(value + std::fabs(map_value(code + 1, positive))) / 2;
    for (const float side : {0.9999F, 1.0F, 1.0001F}) all.push_back(std::min(middle * side, 1.0F));
  }
  const std::size_t count = all.size();
  for (std::size_t i = 0; !positive && i < count; ++i) all.push_back(-all[i]);
  return all;
}

TEST(BlockQuantization, CodesAreTheNearest) {
  for (const bool positive : {false, true}) {
    const std::vector<double> map = dynamic_map(!positive);
    for (const float x : probes(positive)) {
      const int code = positive ? code_of<true>(x) : code_of<false>(x);
      ASSERT_TRUE(code >= 0 && code < kCodes) << x;
      double nearest = 2;
      for (int k = positive && x > 0 ? 1 : 0; k < kCodes; ++k)
        nearest = std::min(nearest, std::fabs(map[std::size_t(k)] - double(x)));
      EXPECT_LE(std::fabs(map[std::size_t(code)] - double(x)), nearest + 2e-7 * std::fabs(x)) << x;
      EXPECT_TRUE(!positive || (code == 0) == (x == 0)) << "a second moment does not vanish: " << x;
    }
  }
}

TEST(BlockQuantization, EveryValueIsItsOwnCode) {
  for (const float scale : {1.0F, -3.7F, 1.1e-20F, 3e38F}) {
    for (int code = 0; code < kCodes; ++code) {
      EXPECT_EQ(code_in_block<false>(map_value(code, false) * scale, scale), code) << scale;
      EXPECT_EQ(code_in_block<true>(map_value(code, true) * std::fabs(scale), std::fabs(scale)), code)
          << scale;
    }
  }
}

// The number of the largest size is the scale, with its sign, so that it stays exact.
TEST(BlockQuantization, ScalesAreTheLargestNumbers) {
  EXPECT_EQ(block_scale(-2.0, 1.5), -2.0F);
  EXPECT_EQ(block_scale(-1.0, 1.5), 1.5F);
  EXPECT_EQ(block_scale(-1.5, 1.5), 1.5F);
  EXPECT_EQ(map_value(code_in_block<false>(-2.0, -2.0F), false) * -2.0F, -2.0F);
  EXPECT_EQ(block_scale(0.0F, 0.0F), 0.0F);
  EXPECT_EQ(block_scale(-1e-38F, 0.0F), 0.0F) << "too small to divide by";
  EXPECT_EQ(map_value(code_in_block<false>(1e-38F, 0.0F), false) * 0.0F, 0.0F);
  for (const double bad : {double(NAN), double(INFINITY), 1e39}) {
    EXPECT_TRUE(std::isnan(block_scale(-1.0, bad))) << bad;
    EXPECT_TRUE(std::isnan(block_scale(-std::fabs(bad), 1.0))) << bad;
    EXPECT_EQ(code_in_block<false>(bad, NAN), 127);
  }
}

TEST(BlockQuantization, ZeroBytesAreZeros) {
  EXPECT_EQ(map_value(0, true), 0.0F);
  EXPECT_EQ(map_value(0, false) * 0.0F, 0.0F);
  EXPECT_EQ(encoded_bytes(0), 0);
  EXPECT_EQ(encoded_bytes(1), 5);
  EXPECT_EQ(encoded_bytes(256), 260);
  EXPECT_EQ(encoded_bytes(257), 265);
}

}  // namespace
}  // namespace gradloom::kernels::test
