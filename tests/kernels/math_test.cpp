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
