// Codes of 8 bits against tables made from the formats' definition, products of codes against sums in doubles, scales against their
// rule. Source: OCP 8-bit Floating Point Specification 1.0, tables 1 and 2.
#include "engine/ops/products/fp8.h"

#include <cmath>
#include <limits>
#include <map>
#include <string>
#include <vector>

#include "engine/ops/inference.h"
#include "tests/engine/ops/numeric_support.h"

namespace gradloom {
namespace {

constexpr double kFp8Infinity = std::numeric_limits<double>::infinity();

// The number of a code: sign, exponent with its bias, fraction; NaN where the format says so, infinities for E5M2.
double fp8_number(const Fp8Format& format, int code) {
  const bool e4m3 = format.dtype == DType::f8e4m3fn;
  const int fraction_bits = e4m3 ? 3 : 2, bias = e4m3 ? 7 : 15;
  const int exponent = (code & 0x7f) >> fraction_bits, fraction = code & ((1 << fraction_bits) - 1);
  const double sign = (code & 0x80) != 0 ? -1 : 1;
  if (e4m3 ? (code & 0x7f) == 0x7f : exponent == 31 && fraction != 0)
    return std::numeric_limits<double>::quiet_NaN();
  if (!e4m3 && exponent == 31) return sign * kFp8Infinity;
  const double part = std::ldexp(fraction, -fraction_bits);
  return sign * (exponent == 0 ? std::ldexp(part, 1 - bias) : std::ldexp(1 + part, exponent - bias));
}

std::vector<Tensor> fp8_quantized(const Tensor& x, const std::string& format, double scale = 1) {
  return test::run("Fp8Quantize", {{"format", format}}, {x, Tensor::from_f64(DType::f32, {1}, {scale})}, 3);
}
std::vector<std::uint8_t> fp8_codes(const std::vector<double>& x, const Fp8Format& format, double scale = 1) {
  const Tensor given = Tensor::from_f64(DType::f32, {static_cast<std::int64_t>(x.size())}, x);
  const Tensor codes = fp8_quantized(given, format.name, scale)[0];
  const auto* const bytes = static_cast<const std::uint8_t*>(codes.data());
  return {bytes, bytes + codes.count()};
}

// The nearest finite number of the format, of two the one whose code is even; by going through all of them.
int nearest_fp8(const Fp8Format& format, double x) {
  int best = -1;
  double distance = kFp8Infinity;
  for (int code = std::signbit(x) ? 0x80 : 0, end = code + 0x80; code < end; ++code) {
    const double number = fp8_number(format, code);
    if (!std::isfinite(number)) continue;
    const double away = std::abs(number - x);
    if (away < distance || (away == distance && code % 2 == 0)) best = code, distance = away;
  }
  return best;
}

TEST(Fp8, LargestAndSmallestNumbersAreThoseOfTheSpecification) {
  const Fp8Format &e4m3 = *find_fp8_format("e4m3"), &e5m2 = *find_fp8_format("e5m2");
  EXPECT_EQ(fp8_number(e4m3, 0x7e), 448);
  EXPECT_EQ(fp8_number(e4m3, 0x08), 0x1p-6);
  EXPECT_EQ(fp8_number(e4m3, 0x01), 0x1p-9);
  EXPECT_EQ(fp8_number(e5m2, 0x7b), 57344);
  EXPECT_EQ(fp8_number(e5m2, 0x04), 0x1p-14);
  EXPECT_EQ(fp8_number(e5m2, 0x01), 0x1p-16);
  EXPECT_EQ(e4m3.largest, 448);
  EXPECT_EQ(e5m2.largest, 57344);
  EXPECT_EQ(find_fp8_format("e3m4"), nullptr);
}

TEST(Fp8, EveryFiniteNumberKeepsItsCode) {
  for (const Fp8Format& format : kFp8Formats) {
    std::vector<double> x;
    std::vector<std::uint8_t> codes;
    for (int code = 0; code < 256; ++code)
      if (std::isfinite(fp8_number(format, code))) {
        x.push_back(fp8_number(format, code));
        codes.push_back(static_cast<std::uint8_t>(code));
      }
    EXPECT_EQ(x.size(), format.dtype == DType::f8e4m3fn ? 254u : 248u);
    EXPECT_EQ(fp8_codes(x, format), codes) << format.name;
    for (double& number : x) number /= 64;
    EXPECT_EQ(fp8_codes(x, format, 64), codes) << format.name << " scaled";
  }
}

// Middles between neighbours, and the f32 numbers on either side of each.
TEST(Fp8, RoundsToTheNearestAndTiesToEven) {
  for (const Fp8Format& format : kFp8Formats) {
    std::vector<double> x;
    std::vector<std::uint8_t> expected;
    for (int code = 0; code + 1 < 128; ++code) {
      const double low = fp8_number(format, code), high = fp8_number(format, code + 1);
      if (!std::isfinite(low) || !std::isfinite(high)) continue;
      const auto middle = static_cast<float>((low + high) / 2);
      for (const float number : {std::nextafterf(middle, 0), middle, std::nextafterf(middle, 1e9f)})
        for (const double sign : {1.0, -1.0}) {
          x.push_back(sign * static_cast<double>(number));
          expected.push_back(static_cast<std::uint8_t>(nearest_fp8(format, x.back())));
        }
    }
    EXPECT_GT(x.size(), 700u);
    EXPECT_EQ(fp8_codes(x, format), expected) << format.name;
  }
}

TEST(Fp8, StaysAtTheEndsAndMakesNanOfWhatIsNotFinite) {
  for (const Fp8Format& format : kFp8Formats) {
    const auto most = static_cast<std::uint8_t>(format.dtype == DType::f8e4m3fn ? 0x7e : 0x7b);
    const std::vector<double> beyond = {format.largest, format.largest * 1.0001, format.largest * 1.5, 1e30,
                                        std::numeric_limits<float>::max()};
    EXPECT_EQ(fp8_codes(beyond, format), std::vector<std::uint8_t>(beyond.size(), most)) << format.name;
    // s x overflows in f32, x does not.
    EXPECT_EQ(fp8_codes({1e30, -1e30}, format, 1e18),
              (std::vector<std::uint8_t>{most, static_cast<std::uint8_t>(most | 0x80)}));
    for (const std::uint8_t code :
         fp8_codes({kFp8Infinity, -kFp8Infinity, std::numeric_limits<double>::quiet_NaN()}, format))
      EXPECT_TRUE(std::isnan(fp8_number(format, code))) << format.name << " " << int(code);
  }
}

TEST(Fp8, SmallNumbersUnderflowGradually) {
  const Fp8Format& e4m3 = *find_fp8_format("e4m3");
  EXPECT_EQ(fp8_codes({0x1p-10, -0x1p-10, 0x1.8p-10, 0x1.8p-9, 0.0, -0.0, 1e-30}, e4m3),
            (std::vector<std::uint8_t>{0x00, 0x80, 0x01, 0x02, 0x00, 0x80, 0x00}));
}

TEST(Fp8, ScalesByTheGivenNumberOrByTheTensorsOwn) {
  const Tensor x = Tensor::from_f64(DType::f32, {3}, {0.5, -2, 1});
  const auto given = test::run("Fp8Quantize", {{"slot", std::int64_t{1}}},
                               {x, Tensor::from_f64(DType::f32, {2}, {9, 16})}, 3);
  EXPECT_EQ(given[0].to_f64(), (std::vector<double>{8, -32, 16}));
  EXPECT_EQ(given[1].at(0), 1.0 / 16);
  EXPECT_EQ(given[2].at(0), static_cast<double>(2.0f / 448.0f));
  // No scale yet, or none at all: the largest magnitude becomes the largest number.
  for (const auto& own : {test::run("Fp8Quantize", {}, {x}, 3), fp8_quantized(x, "e4m3", 0)}) {
    EXPECT_EQ(own[0].to_f64(), (std::vector<double>{112, -448, 224}));
    EXPECT_NEAR(own[1].at(0), 2.0 / 448, 1e-9);
  }
  const auto zeros = test::run("Fp8Quantize", {}, {Tensor(DType::f32, {5})}, 3);
  EXPECT_EQ(zeros[0].to_f64(), std::vector<double>(5, 0));
  EXPECT_EQ(zeros[1].at(0), 1);
  EXPECT_EQ(zeros[2].at(0), 0);
  // Bounds: the inverse of the largest scale is a normal number.
  const auto tiny = test::run("Fp8Quantize", {}, {Tensor::from_f64(DType::f32, {1}, {1e-38})}, 3);
  EXPECT_EQ(tiny[1].at(0), 0x1p-63);
}

TEST(Fp8, HalvesAndDoublesHaveTheCodesOfTheirNumbers) {
  const Tensor x = test::numbers(DType::f32, {7, 11}).cast(DType::bf16);
  const Tensor scale = Tensor::from_f64(DType::f32, {1}, {37});
  const auto wide = test::run("Fp8Quantize", {}, {x.cast(DType::f32), scale}, 3),
             half = test::run("Fp8Quantize", {}, {x, scale}, 3),
             doubled = test::run("Fp8Quantize", {}, {x.cast(DType::f64), scale.cast(DType::f64)}, 3);
  for (std::size_t i = 0; i < 3; ++i) {
    EXPECT_TRUE(bit_equal(wide[i], half[i])) << i;
    EXPECT_EQ(wide[i].to_f64(), doubled[i].to_f64()) << i;
  }
  EXPECT_EQ(half[1].dtype(), DType::f32);
  EXPECT_EQ(doubled[1].dtype(), DType::f64);
}

// y[i, j] = sum over k of A'[i, k] B'[k, j], in doubles, from codes read through their table.
TEST(Fp8, ProductsOfCodesAreThoseOfTheirNumbers) {
  const std::int64_t m = 5, n = 6, k = 48;
  for (const Fp8Format& left : kFp8Formats)
    for (const Fp8Format& right : kFp8Formats)
      for (const DType to : {DType::f32, DType::bf16, DType::f16, DType::f64}) {
        const DType kept = to == DType::f64 ? DType::f64 : DType::f32;
        const Tensor a = fp8_quantized(test::numbers(DType::f32, {k, m}, 3), left.name, 300)[0],
                     b = fp8_quantized(test::numbers(DType::f32, {n, k}, 4), right.name, 300)[0];
        const double scales[] = {0.25, 0.125};
        const std::vector<Tensor> inputs = {a, b, Tensor::from_f64(kept, {1}, {scales[0]}),
                                            Tensor::from_f64(kept, {1}, {scales[1]})};
        const std::vector<std::int64_t> turned = {1, 0};
        const Tensor y = test::run("Fp8MatMul",
                                   {{"perm_a", turned},
                                    {"perm_b", turned},
                                    {"perm_y", turned},
                                    {"alpha", 3.0},
                                    {"to", onnx_from_dtype(to)}},
                                   inputs)[0];
        ASSERT_EQ(y.type(), (Type{to, {n, m}}));
        const auto* const a_codes = static_cast<const std::uint8_t*>(a.data());
        const auto* const b_codes = static_cast<const std::uint8_t*>(b.data());
        for (std::int64_t i = 0; i < m; ++i)
          for (std::int64_t j = 0; j < n; ++j) {
            double sum = 0, size = 0;
            for (std::int64_t l = 0; l < k; ++l) {
              const double term =
                  fp8_number(left, a_codes[l * m + i]) * fp8_number(right, b_codes[j * k + l]);
              sum += term;
              size += std::abs(term);
            }
            const double unit = to == DType::f64   ? 1e-15
                                : to == DType::f32 ? 1e-6
                                : to == DType::f16 ? 0x1p-10
                                                   : 0x1p-8;
            const double factor = 3 * scales[0] * scales[1];
            EXPECT_NEAR(y.at(j * m + i), factor * sum, factor * (unit * std::abs(sum) + 1e-6 * size))
                << left.name << " " << right.name << " " << dtype_name(to);
          }
      }
}

TEST(Fp8, ScalesFollowTheLargestOfTheLastSteps) {
  Tensor history(DType::f32, {3, 2}), scales(DType::f32, {2});
  const auto step = [&](double a, double b) {
    const auto next = test::run("Fp8Scales", {{"margin", std::int64_t{1}}},
                                {history, scales, Tensor::from_f64(DType::f32, {2}, {a, b})}, 2);
    history = next[0];
    scales = next[1];
  };
  step(0.5, 0);
  EXPECT_EQ(scales.to_f64(), (std::vector<double>{1, 0}));  // 2^-1 / 0.5; nothing to scale by
  step(0.25, 2);
  EXPECT_EQ(scales.to_f64(), (std::vector<double>{1, 0.25}));
  step(0.125, kFp8Infinity);  // an overflow repeats the step before
  EXPECT_EQ(scales.to_f64(), (std::vector<double>{1, 0.25}));
  EXPECT_EQ(history.to_f64(), (std::vector<double>{0.125, 2, 0.25, 2, 0.5, 0}));
  step(0.125, 1);  // 0.5 has left the window
  EXPECT_EQ(scales.to_f64(), (std::vector<double>{2, 0.25}));
  step(std::numeric_limits<double>::quiet_NaN(), 1);
  step(0.125, 1);
  EXPECT_EQ(scales.to_f64(), (std::vector<double>{4, 0.5}));
  EXPECT_EQ(history.to_f64(), (std::vector<double>{0.125, 1, 0.125, 1, 0.125, 1}));
}

TEST(Fp8, RefusesWhatDoesNotFit) {
  const Type x{DType::f32, {4, 8}}, codes{DType::f8e4m3fn, {4, 8}}, one{DType::f32, {1}};
  const auto says = [](const std::string& message, const std::string& part) {
    EXPECT_NE(message.find(part), std::string::npos) << message;
  };
  says(test::inference_error("Fp8Quantize", {{"format", std::string("e3m4")}}, {x}),
       "format 'e3m4' is unknown");
  says(test::inference_error("Fp8Quantize", {}, {codes}), "rounds floats, not f8e4m3fn");
  says(test::inference_error("Fp8Quantize", {}, {x, {DType::f64, {1}}}),
       "the scales must be a vector of f32");
  says(test::inference_error("Fp8Quantize", {{"slot", std::int64_t{1}}}, {x, one}),
       "there is no scale 1 of 1");
  says(test::inference_error("Fp8MatMul", {}, {x, codes, one, one}), "not f32");
  says(test::inference_error("Fp8MatMul", {}, {codes, codes, one, one}), "inner dims differ");
  says(test::inference_error("Fp8MatMul", {}, {codes, {DType::f8e5m2, {2, 8, 4}}, one, one}),
       "must have 2 dims");
  says(test::inference_error("Fp8MatMul", {}, {codes, {DType::f8e5m2, {8, 4}}, one, {DType::f32, {}}}),
       "inverse scales");
  says(test::inference_error("Fp8MatMul", {{"to", onnx_from_dtype(DType::i32)}},
                             {codes, {DType::f8e5m2, {8, 4}}, one, one}),
       "cannot be i32");
  says(
      test::inference_error("Fp8Scales", {}, {{DType::f32, {0, 2}}, {DType::f32, {2}}, {DType::f32, {2}}}, 2),
      "no step");
  says(
      test::inference_error("Fp8Scales", {}, {{DType::f32, {3, 2}}, {DType::f32, {3}}, {DType::f32, {2}}}, 2),
      "the scales are");
  says(test::inference_error("Fp8Scales", {{"margin", std::int64_t{99}}},
                             {{DType::f32, {3, 2}}, {DType::f32, {2}}, {DType::f32, {2}}}, 2),
       "the margin is 99");
}

}  // namespace
}  // namespace gradloom
