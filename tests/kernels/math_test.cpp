// Accuracy of the formula functions in units in the last place, against long double, over wide ranges.
#include "kernels/math.h"

#include "tests/kernels/support.h"

namespace gradloom::kernels::test {
namespace {

template <class T>
double ulps(T actual, long double expected) {
  const T rounded = T(expected);
  if (actual == rounded) return 0;
  const T next = std::nextafter(std::abs(rounded), std::numeric_limits<T>::infinity());
  return double(std::abs((long double)(actual)-expected) / ((long double)(next)-std::abs(rounded)));
}

template <class T, class F, class G>
double worst(double low, double high, const F& function, const G& reference) {
  double most = 0;
  for (const T x : values<T>(400000, 11, low, high))
    most = std::max(most, ulps<T>(function(x), reference((long double)(x))));
  return most;
}

#define EXPECT_WORST(T, name, low, high, limit)                                                           \
  EXPECT_LT(                                                                                              \
      (worst<T>(                                                                                          \
          low, high, [](T x) { return portable::name(x); }, [](long double x) { return std::name(x); })), \
      limit)                                                                                              \
      << #name " " #T

TEST(Math, Float32WithinTwoUlp) {
  EXPECT_WORST(float, exp, -87, 88, 2.0);
  EXPECT_WORST(float, exp, -1, 1, 2.0);
  EXPECT_WORST(float, log, 1e-30, 1e30, 2.0);
  EXPECT_WORST(float, log, 0.5, 2, 2.0);
  EXPECT_WORST(float, tanh, -10, 10, 2.0);
  EXPECT_WORST(float, tanh, -0.7, 0.7, 2.0);
  EXPECT_WORST(float, erf, -5, 5, 2.0);
  EXPECT_WORST(float, erf, -1, 1, 2.0);
}

TEST(Math, InverseTrigonometricWithinThreeUlp) {
  EXPECT_WORST(float, asin, -1, 1, 3.0);
  EXPECT_WORST(float, acos, -1, 1, 3.0);
  EXPECT_WORST(float, atan, -3, 3, 3.0);
  EXPECT_WORST(float, atan, -1e6, 1e6, 3.0);
  EXPECT_WORST(double, asin, -1, 1, 3.0);
  EXPECT_WORST(double, acos, -1, 1, 3.0);
  EXPECT_WORST(double, atan, -3, 3, 3.0);
  EXPECT_WORST(double, atan, -1e6, 1e6, 3.0);
}

TEST(Math, HyperbolicWithinFourUlp) {
  EXPECT_WORST(float, sinh, -1.1, 1.1, 4.0);
  EXPECT_WORST(float, sinh, -89.3, 89.3, 4.0);
  EXPECT_WORST(float, cosh, -89.3, 89.3, 4.0);
  EXPECT_WORST(float, asinh, -3, 3, 4.0);
  EXPECT_WORST(float, asinh, -1e30, 1e30, 4.0);
  EXPECT_WORST(float, acosh, 1, 3, 4.0);
  EXPECT_WORST(float, acosh, 1, 1e30, 4.0);
  EXPECT_WORST(float, atanh, -1, 1, 4.0);
  EXPECT_WORST(double, sinh, -1.1, 1.1, 4.0);
  EXPECT_WORST(double, sinh, -700, 700, 4.0);
  EXPECT_WORST(double, cosh, -700, 700, 4.0);
  EXPECT_WORST(double, asinh, -3, 3, 4.0);
  EXPECT_WORST(double, asinh, -1e300, 1e300, 4.0);
  EXPECT_WORST(double, acosh, 1, 3, 4.0);
  EXPECT_WORST(double, acosh, 1, 1e300, 4.0);
  EXPECT_WORST(double, atanh, -1, 1, 4.0);
}

TEST(Math, TrigonometricWithinOneUlp) {
  for (const double range : {0.01, 1.0, 7.0, 1000.0, 1e6, 1e30}) {  // beyond 1e6 by the library
    EXPECT_WORST(float, sin, -range, range, 0.6);
    EXPECT_WORST(float, cos, -range, range, 0.6);
    EXPECT_WORST(float, tan, -range, range, 1.5);
    EXPECT_WORST(double, sin, -range, range, 1.0);
    EXPECT_WORST(double, cos, -range, range, 1.0);
    EXPECT_WORST(double, tan, -range, range, 1.5);
  }
}

// The floats nearest to multiples of pi / 2 within the range of the polynomials,
// where sin or cos is smallest.
TEST(Math, TrigonometricNearMultiplesOfPi) {
  double most = 0;
  for (int k = 1; k < 600000; k += 7) {
    const float x = float(k * 1.57079632679489661923);
    const long double wide = x;
    most = std::max(most, ulps<float>(portable::sin(x), std::sin(wide)));
    most = std::max(most, ulps<float>(portable::cos(x), std::cos(wide)));
    most = std::max(most, ulps<float>(portable::tan(x), std::tan(wide)));
  }
  EXPECT_LT(most, 0.7);
}

// Every 997th float, whatever its size: what the ranges above leave out.
TEST(Math, EverySizeOfFloat) {
  using Function = float (*)(float);
  using Reference = double (*)(double);
  struct Row {
    const char* name;
    Function function;
    Reference reference;
    double limit;
  };
  const Row rows[] = {
      {"exp", [](float x) { return portable::exp(x); }, std::exp, 1.2},
      {"log", [](float x) { return portable::log(x); }, std::log, 1.2},
      {"tanh", [](float x) { return portable::tanh(x); }, std::tanh, 1.5},
      {"erf", [](float x) { return portable::erf(x); }, std::erf, 1.5},
      {"asin", [](float x) { return portable::asin(x); }, std::asin, 3},
      {"acos", [](float x) { return portable::acos(x); }, std::acos, 2},
      {"atan", [](float x) { return portable::atan(x); }, std::atan, 3},
      {"sinh", [](float x) { return portable::sinh(x); }, std::sinh, 2.2},
      {"cosh", [](float x) { return portable::cosh(x); }, std::cosh, 2},
      {"asinh", [](float x) { return portable::asinh(x); }, std::asinh, 2.2},
      {"acosh", [](float x) { return portable::acosh(x); }, std::acosh, 2.2},
      {"atanh", [](float x) { return portable::atanh(x); }, std::atanh, 2.2},
      {"softplus", [](float x) { return portable::softplus(x); },
       [](double x) { return std::max(x, 0.0) + std::log1p(std::exp(-std::abs(x))); }, 2.7},
  };
  for (const Row& row : rows) {
    double most = 0;
    float at = 0;
    for (std::uint64_t bits = 0; bits < 1ull << 32; bits += 997) {
      const float x = __builtin_bit_cast(float, std::uint32_t(bits)), y = row.function(x);
      const double expected = row.reference(double(x));
      if (std::isnan(expected) || std::isinf(float(expected))) {
        ASSERT_TRUE(std::isnan(expected) ? std::isnan(y) : y == float(expected)) << row.name << " of " << x;
        continue;
      }
      // softplus: exp(x) below 2^-126 is 0.
      if (std::abs(expected) < 1.2e-38 && y == 0.0f) continue;
      if (const double error = ulps<float>(y, expected); error > most) most = error, at = x;
    }
    EXPECT_LT(most, row.limit) << row.name << " of " << at;
  }
}

TEST(Math, PowerWithinOneUlp) {
  Random random(3);
  double most = 0;
  for (int i = 0; i < 400000; ++i) {
    const float x = __builtin_bit_cast(float, std::uint32_t(random.below(0x7f800000)));
    const float y = float(random.uniform(-150, 150) / std::log2(double(x)));  // any size of result
    const double expected = std::pow(double(x), double(y));
    if (std::isfinite(float(expected))) most = std::max(most, ulps<float>(portable::pow(x, y), expected));
    const float near = float(random.uniform(0.9, 1.1)), large = float(random.uniform(-500, 500));
    most = std::max(most, ulps<float>(portable::pow(near, large), std::pow(double(near), double(large))));
  }
  EXPECT_LT(most, 0.6);
}

TEST(Math, PowerOfSpecialValues) {
  const float inf = INFINITY, tiny = 1e-45f, huge = 3.4028235e38f;
  const float all[] = {0.0f, -0.0f, 1.0f,  -1.0f, 0.5f, -0.5f, 2.0f,        -2.0f,
                       3.0f, -3.0f, -2.5f, 1e-3f, 1e9f, -1e9f, 16777215.0f, 16777217.0f,
                       tiny, -tiny, huge,  -huge, inf,  -inf,  float(NAN)};
  for (const float x : all) {
    for (const float y : all) {
      const float expected = std::pow(x, y), actual = portable::pow(x, y);
      if (std::isnan(expected)) {
        EXPECT_TRUE(std::isnan(actual)) << x << " ^ " << y << " is " << actual;
      } else {
        EXPECT_FLOAT_EQ(actual, expected) << x << " ^ " << y;
        EXPECT_EQ(std::signbit(actual), std::signbit(expected)) << x << " ^ " << y;
      }
    }
  }
}

// Far below 0 too, where 1 + erf(x) and 1 + tanh(x) have lost their digits.
TEST(Math, GeluKeepsItsDigits) {
  const auto phi = [](double x) { return 0.5 * std::erfc(-x * 0.70710678118654752440); };
  const auto exact = [&](double x) { return x * phi(x); };
  const auto slope = [&](double x) { return phi(x) + x * 0.39894228040143267794 * std::exp(-0.5 * x * x); };
  const auto tanh_form = [](double x) {
    return x / (1 + std::exp(-1.59576912160573071176 * (x + 0.044715 * x * x * x)));
  };
  for (const float x : values<float>(100000, 5, -12, 12)) {
    ASSERT_NEAR(portable::gelu(x), exact(x), 1e-5 * std::abs(exact(x))) << x;
    ASSERT_NEAR(portable::gelu_tanh(x), tanh_form(x), 2e-5 * std::abs(tanh_form(x)) + 1e-37) << x;
    ASSERT_NEAR(portable::gelu_slope(x), slope(x), 1e-5 * std::abs(slope(x)) + 1e-7) << x;
  }
  EXPECT_EQ(portable::gelu(0.0f), 0.0f);
  EXPECT_EQ(portable::gelu(100.0f), 100.0f);
  EXPECT_EQ(portable::gelu(-100.0f), 0.0f);
  EXPECT_EQ(portable::gelu_slope(1e30f), 1.0f);
  EXPECT_EQ(portable::gelu_slope(-1e15f), 0.0f);
  EXPECT_EQ(portable::gelu_tanh(1e30f), 1e30f);
  EXPECT_EQ(portable::gelu_tanh(-1e30f), 0.0f);
  EXPECT_NEAR(portable::gelu_tanh_slope(-1e30f), 0.0f, 1e-30);
  EXPECT_TRUE(std::isnan(portable::gelu(float(NAN))));
  EXPECT_TRUE(std::isnan(portable::gelu_tanh_slope(float(NAN))));
}

TEST(Math, ExponentialOfNegativeNumbers) {
  EXPECT_EQ(portable::exp_down(0.0f), 1.0f);
  EXPECT_EQ(portable::exp_down(-INFINITY), 0.0f);
  EXPECT_EQ(portable::exp_down(-1e9f), 0.0f);
  EXPECT_TRUE(std::isnan(portable::exp_down(float(NAN))));
  for (const std::uint32_t payload : {0x7fc00001u, 0xffc00055u, 0x7fffffffu}) {
    EXPECT_TRUE(std::isnan(portable::exp_down(__builtin_bit_cast(float, payload))));
    EXPECT_TRUE(std::isnan(portable::exp(__builtin_bit_cast(float, payload))));
  }
  EXPECT_LT((worst<float>(
                -87.3, 0, [](float x) { return portable::exp_down(x); },
                [](long double x) { return std::exp(x); })),
            1.2);
}

TEST(Math, Float64NearOneUlp) {
  EXPECT_WORST(double, exp, -700, 700, 1.5);
  EXPECT_WORST(double, exp, -1, 1, 1.5);
  EXPECT_WORST(double, log, 1e-300, 1e300, 1.5);
  EXPECT_WORST(double, log, 0.5, 2, 1.5);
  EXPECT_WORST(double, tanh, -20, 20, 1.5);
  EXPECT_WORST(double, tanh, -0.7, 0.7, 1.5);
  EXPECT_WORST(double, erf, -6, 6, 1.5);
  EXPECT_WORST(double, erf, -1.1, 1.1, 1.5);
}

TEST(Math, Specials) {
  const float inf = INFINITY;
  EXPECT_EQ(portable::exp(-inf), 0.0f);
  EXPECT_EQ(portable::exp(inf), inf);
  EXPECT_EQ(portable::exp(0.0f), 1.0f);
  EXPECT_EQ(portable::log(0.0f), -inf);
  EXPECT_EQ(portable::log(inf), inf);
  EXPECT_TRUE(std::isnan(portable::log(-1.0f)));
  EXPECT_TRUE(std::isnan(portable::log(NAN)));
  EXPECT_EQ(portable::log(1.0f), 0.0f);
  EXPECT_FLOAT_EQ(portable::log(1e-44f), std::log(1e-44f));
  EXPECT_DOUBLE_EQ(portable::log(5e-324), std::log(5e-324));
  EXPECT_TRUE(std::isnan(portable::sin(inf)));
  EXPECT_TRUE(std::isnan(portable::cos(-inf)));
  EXPECT_TRUE(std::isnan(portable::tan(float(NAN))));
  EXPECT_EQ(portable::sin(0.0f), 0.0f);
  EXPECT_EQ(portable::sin(1e-44f), 1e-44f);
  EXPECT_EQ(portable::tan(1e-44f), 1e-44f);
  EXPECT_EQ(portable::sinh(1e-44f), 1e-44f);
  EXPECT_EQ(portable::cos(0.0f), 1.0f);
  EXPECT_EQ(portable::sin(3e38f), std::sin(3e38f));
  EXPECT_EQ(portable::softplus(inf), inf);
  EXPECT_EQ(portable::softplus(-inf), 0.0f);
  EXPECT_TRUE(std::isnan(portable::softplus(float(NAN))));
  EXPECT_EQ(portable::tanh(inf), 1.0f);
  EXPECT_EQ(portable::tanh(-inf), -1.0f);
  EXPECT_EQ(portable::erf(-inf), -1.0f);
  EXPECT_EQ(portable::erf(-double(inf)), -1.0);
  EXPECT_TRUE(std::isnan(portable::max(1.0f, float(NAN))));
  EXPECT_TRUE(std::isnan(portable::min(float(NAN), 1.0f)));
  EXPECT_EQ(portable::sinh(-inf), -inf);
  EXPECT_EQ(portable::cosh(-inf), inf);
  EXPECT_EQ(portable::asinh(-inf), -inf);
  EXPECT_EQ(portable::acosh(inf), inf);
  EXPECT_TRUE(std::isnan(portable::acosh(0.5f)));
  EXPECT_TRUE(std::isnan(portable::acosh(-3.0)));
  EXPECT_EQ(portable::atanh(-1.0), -INFINITY);
  EXPECT_TRUE(std::isnan(portable::atanh(1.5f)));
  EXPECT_TRUE(std::isnan(portable::asin(-1.5f)));
  EXPECT_TRUE(std::isnan(portable::acos(1.5)));
  EXPECT_EQ(portable::acos(1.0f), 0.0f);
  EXPECT_FLOAT_EQ(portable::acos(-1.0f), 3.14159265f);
  EXPECT_FLOAT_EQ(portable::atan(inf), 1.57079633f);
  EXPECT_TRUE(std::signbit(portable::asin(-0.0f)));
  EXPECT_EQ(portable::trunc_mod(-7, 3), -1);
  EXPECT_EQ(portable::floor_mod(-7, 3), 2);
  EXPECT_EQ(portable::floor_mod(7, -3), -2);
  EXPECT_EQ(portable::trunc_mod(std::numeric_limits<int>::min(), -1), 0);
  EXPECT_EQ(portable::div(7, 0), 0);
  EXPECT_EQ(portable::div(std::uint8_t(200), std::uint8_t(255)), 0);
}

}  // namespace
}  // namespace gradloom::kernels::test
