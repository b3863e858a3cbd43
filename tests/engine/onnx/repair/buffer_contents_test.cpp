// Patterns of buffers are found, and what parameters start from or are trained to is none of them.
#include "engine/onnx/repair/buffer_contents.h"

#include <gtest/gtest.h>

#include <cmath>
#include <functional>

namespace gradloom {
namespace {

Tensor filled(const Shape& shape, const std::function<double(std::int64_t)>& element,
              DType dtype = DType::f32) {
  std::vector<double> values;
  for (std::int64_t i = 0; i < element_count(shape); ++i) values.push_back(element(i));
  return Tensor::from_f64(dtype, shape, values);
}

// Evenly spread, and different for each i.
double noise(std::int64_t i) { return std::fmod(static_cast<double>(i) * 0.6180339887, 1) - 0.5; }

// Of rotary positions: frequencies of `columns` / 2 angles, twice.
double angle(std::int64_t t, std::int64_t c, std::int64_t columns) {
  return static_cast<double>(t) *
         std::pow(10000.0, -2.0 * static_cast<double>(c % (columns / 2)) / static_cast<double>(columns));
}
Tensor rotary(std::int64_t rows, std::int64_t columns, DType dtype, double (*wave)(double)) {
  return filled(
      {rows, columns}, [&](std::int64_t i) { return wave(angle(i / columns, i % columns, columns)); }, dtype);
}
double cosine(double x) { return std::cos(x); }
double sine(double x) { return std::sin(x); }

// What parameters are made of: nothing says that they are buffers.
std::vector<Tensor> parameters() {
  return {filled({8}, [](std::int64_t) { return 1.0; }),
          filled({8}, [](std::int64_t) { return 0.0; }),
          filled({6, 8}, noise),
          filled({6, 8}, [](std::int64_t i) { return i % 9 == 0 ? 1.0 : 0.0; }),
          filled({4, 1, 3, 3}, noise),
          filled({16}, [](std::int64_t i) { return std::log(static_cast<double>(i + 1)); }),
          filled(
              {6, 8}, [](std::int64_t i) { return 0.02 * noise(i); }, DType::bf16),
          filled({2, 1, 5, 4}, [](std::int64_t) { return 1.0; }),
          filled({1}, [](std::int64_t) { return 1.0; }),
          filled({}, [](std::int64_t) { return 1.0; }),
          filled({0, 4}, noise)};
}

TEST(BufferContents, ParametersAreNone) {
  for (const Tensor& t : parameters()) {
    SCOPED_TRACE(to_string(t.type()));
    EXPECT_FALSE(is_additive_mask(t));
    EXPECT_FALSE(is_triangle(t));
    EXPECT_FALSE(is_range(t, 0));
    EXPECT_FALSE(is_range(t, 1));
    EXPECT_EQ(waves_of(t), Waves::none);
    EXPECT_FALSE(is_frequencies(t));
    EXPECT_FALSE(is_distance_bias(t));
    EXPECT_FALSE(is_shared_filter(t));
  }
  EXPECT_FALSE(is_additive_mask(Tensor()));
  EXPECT_EQ(waves_of(Tensor()), Waves::none);
}

TEST(BufferContents, Masks) {
  for (const double hidden : {-100.0, -1e9, -3.4e38, -static_cast<double>(INFINITY)}) {
    const auto causal = [&](std::int64_t i) { return i % 5 > i / 5 ? hidden : 0; };
    EXPECT_TRUE(is_additive_mask(filled({5, 5}, causal))) << hidden;
  }
  EXPECT_FALSE(is_additive_mask(filled({5, 5}, [](std::int64_t i) { return i % 5 > i / 5 ? -1.0 : 0.0; })));
  const auto lower = [](std::int64_t i) { return i % 6 <= i / 6 % 6 ? 1.0 : 0.0; };
  const auto upper = [](std::int64_t i) { return i % 6 > i / 6 % 6 ? 1.0 : 0.0; };
  EXPECT_TRUE(is_triangle(filled({1, 1, 6, 6}, lower)));
  EXPECT_TRUE(is_triangle(filled({2, 6, 6}, upper)));
  EXPECT_FALSE(is_triangle(filled({6, 6}, [&](std::int64_t i) { return i == 7 ? 0 : lower(i); })));
  EXPECT_TRUE(is_zero_one(filled({6, 6}, [&](std::int64_t i) { return i == 7 ? 0 : lower(i); })));
  EXPECT_FALSE(is_zero_one(filled({6, 6}, [](std::int64_t i) { return i == 3 ? 0.5 : i % 2; })));
}

TEST(BufferContents, Ranges) {
  EXPECT_TRUE(is_range(filled({1, 9}, [](std::int64_t i) { return static_cast<double>(i); }), 0));
  EXPECT_TRUE(is_range(filled({5, 3}, [](std::int64_t i) { return static_cast<double>(i / 3); }), 0));
  EXPECT_TRUE(is_range(filled({5}, [](std::int64_t i) { return static_cast<double>(i + 1); }), 1));
  EXPECT_FALSE(is_range(filled({3}, [](std::int64_t i) { return static_cast<double>(i); }), 0))
      << "too few to tell";
  EXPECT_FALSE(
      is_range(filled({9}, [](std::int64_t i) { return i == 8 ? 9.0 : static_cast<double>(i); }), 0));
}

TEST(BufferContents, TablesOfWaves) {
  for (const DType dtype : {DType::f32, DType::f64, DType::bf16, DType::f16}) {
    EXPECT_EQ(waves_of(rotary(40, 16, dtype, cosine)), Waves::cosines) << dtype_name(dtype);
    EXPECT_EQ(waves_of(rotary(40, 16, dtype, sine)), Waves::sines) << dtype_name(dtype);
    EXPECT_EQ(waves_of(rotary(40, 16, dtype, cosine).cast(DType::f64)), Waves::cosines) << "widened";
  }
  EXPECT_EQ(waves_of(rotary(2000, 128, DType::f32, cosine)), Waves::cosines);
  EXPECT_EQ(waves_of(rotary(6, 4, DType::f32, sine)), Waves::sines);
  const auto interleaved = [](std::int64_t i) {
    const double x = static_cast<double>(i / 8) * std::pow(10000.0, -static_cast<double>(i % 8 / 2 * 2) / 8);
    return i % 2 == 0 ? std::sin(x) : std::cos(x);
  };
  EXPECT_EQ(waves_of(filled({1, 12, 8}, interleaved)), Waves::both);
  EXPECT_EQ(waves_of(filled({12, 1, 8}, interleaved)), Waves::both);
  // A row of zeros for padding, before the positions begin.
  EXPECT_EQ(waves_of(filled({12, 8}, [&](std::int64_t i) { return i / 8 == 1 ? 0 : interleaved(i); })),
            Waves::both);
  // One number that was trained.
  EXPECT_EQ(waves_of(filled({12, 8}, [&](std::int64_t i) { return interleaved(i) + (i == 44 ? 0.01 : 0); })),
            Waves::none);
  EXPECT_EQ(waves_of(filled({12, 8}, [&](std::int64_t i) { return interleaved(i) + 0.01 * noise(i); })),
            Waves::none);
}

// Rows and columns of an image of 5 x 5, after a token of zeros or without it.
TEST(BufferContents, WavesOfAnImage) {
  for (const std::int64_t tokens : {0, 1}) {
    const auto position = [&](std::int64_t i) {
      const std::int64_t at = i / 16 - tokens, c = i % 16;
      if (at < 0) return 0.0;
      const std::int64_t p = c < 8 ? at % 5 : at / 5;
      const double x = static_cast<double>(p) * std::pow(10000.0, -static_cast<double>(c % 4) / 4);
      return c % 8 < 4 ? std::sin(x) : std::cos(x);
    };
    EXPECT_EQ(waves_of(filled({1, 25 + tokens, 16}, position)), Waves::both) << tokens;
    EXPECT_EQ(
        waves_of(filled({1, 25 + tokens, 16}, [&](std::int64_t i) { return position(i) + 0.01 * noise(i); })),
        Waves::none);
  }
}

TEST(BufferContents, FrequenciesAndSlopes) {
  EXPECT_TRUE(is_frequencies(
      filled({8}, [](std::int64_t i) { return std::pow(10000.0, -static_cast<double>(i) / 8); })));
  EXPECT_TRUE(is_frequencies(filled({1, 2, 1}, [](std::int64_t i) { return i == 0 ? 1 : 0.01; })));
  EXPECT_FALSE(is_frequencies(filled({8}, noise)));
  EXPECT_FALSE(is_frequencies(filled({8}, [](std::int64_t i) { return i == 0 ? 1.0 : noise(i); })));
  const auto bias = [](std::int64_t i) {
    return -std::pow(2.0, -4.0 * static_cast<double>(i / 36 + 1)) * std::abs(i % 6 - i / 6 % 6);
  };
  EXPECT_TRUE(is_distance_bias(filled({3, 6, 6}, bias)));
  EXPECT_FALSE(
      is_distance_bias(filled({3, 6, 6}, [&](std::int64_t i) { return bias(i) + 0.001 * noise(i); })));
}

TEST(BufferContents, FiltersAndRoots) {
  const auto blur = [](std::int64_t i) {
    return std::vector<double>{1, 2, 1}[static_cast<std::size_t>(i % 3)] / 4;
  };
  EXPECT_TRUE(is_shared_filter(filled({5, 1, 3}, blur)));
  EXPECT_FALSE(is_shared_filter(filled({1, 1, 3}, blur))) << "one channel";
  EXPECT_FALSE(is_shared_filter(filled({5, 3}, blur))) << "no convolution's";
  EXPECT_TRUE(is_root_of_integer(std::sqrt(64.0f)));
  EXPECT_TRUE(is_root_of_integer(std::sqrt(12.0f)));
  for (const double number : {0.07, 1.0, 1.5, 14.285714}) EXPECT_FALSE(is_root_of_integer(number)) << number;
}

}  // namespace
}  // namespace gradloom
