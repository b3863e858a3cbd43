// Every code against the value that its bits stand for, and every conversion against a search over all codes.
#include "kernels/small_types.h"

#include <functional>

#include "tests/kernels/support.h"

namespace gradloom::kernels::test {
namespace {

using namespace portable;

constexpr double kInf = std::numeric_limits<double>::infinity();
const double kNan = std::nan("");

// A format as its description has it: which of its codes are numbers is said by a function.
struct Format {
  const char* name;
  int codes, exponent_bits, fraction_bits, bias;
  std::function<double(unsigned)> special;  // of codes that are no finite numbers; 0 for the others
  unsigned nan, overflow;                   // what NaN and, without saturation, too large a number become
  std::function<float(unsigned)> widened;
  std::function<unsigned(double, unsigned)> from_f64;
  std::function<unsigned(float, unsigned)> from_f32;
};

template <class Small>
Format format(const char* name, int codes, int exponent_bits, int fraction_bits, int bias,
              std::function<double(unsigned)> special, unsigned nan, unsigned overflow) {
  const auto code = [](auto x, unsigned mode) {
    Small y;
    narrow(x, y, mode);
    return unsigned(y.bits);
  };
  return {name,
          codes,
          exponent_bits,
          fraction_bits,
          bias,
          std::move(special),
          nan,
          overflow,
          [](unsigned c) { return widen(Small{static_cast<unsigned char>(c)}); },
          [code](double x, unsigned mode) { return code(x, mode); },
          [code](float x, unsigned mode) { return code(x, mode); }};
}

// The table of special values in the specification of ONNX's types.
std::vector<Format> formats() {
  const auto e4m3fn = [](unsigned c) { return (c & 0x7f) == 0x7f ? kNan : 0; };
  const auto fnuz = [](unsigned c) { return c == 0x80 ? kNan : 0; };
  const auto e5m2 = [](unsigned c) {
    return (c & 0x7f) == 0x7c ? (c > 0x7f ? -kInf : kInf) : (c & 0x7f) > 0x7c ? kNan : 0;
  };
  const auto none = [](unsigned) { return 0.0; };
  return {format<F8e4m3fn>("e4m3fn", 256, 4, 3, 7, e4m3fn, 0x7f, 0x7f),
          format<F8e4m3fnuz>("e4m3fnuz", 256, 4, 3, 8, fnuz, 0x80, 0x80),
          format<F8e5m2>("e5m2", 256, 5, 2, 15, e5m2, 0x7e, 0x7c),
          format<F8e5m2fnuz>("e5m2fnuz", 256, 5, 2, 16, fnuz, 0x80, 0x80),
          format<F4e2m1>("e2m1", 16, 2, 1, 1, none, 0x8, 0x7)};
}

double value_of(const Format& f, unsigned code) {
  if (const double special = f.special(code); special != 0) return special;
  const unsigned sign = unsigned(f.codes) / 2, exponent = (code & (sign - 1)) >> f.fraction_bits,
                 fraction = code & ((1u << f.fraction_bits) - 1);
  const double scaled = fraction + (exponent != 0 ? 1u << f.fraction_bits : 0u);
  const double size = std::ldexp(scaled, int(std::max(exponent, 1u)) - f.bias - f.fraction_bits);
  return code >= sign ? -size : size;
}

// The code of the number: the nearest, the even one of two; beyond the largest by what it would be rounded to
// if exponents went on.
unsigned expected_code(const Format& f, double x, bool saturate) {
  const unsigned sign = unsigned(f.codes) / 2;
  const bool no_minus_zero = std::isnan(f.special(sign)), negative = std::signbit(x);
  if (std::isnan(x)) return f.nan | (negative && !no_minus_zero ? sign : 0);
  unsigned largest = sign - 1;
  while (f.special(largest) != 0) --largest;
  unsigned best = 0;
  const double size = std::fabs(x);
  for (unsigned c = 1; c <= largest; ++c) {
    const double here = std::fabs(size - value_of(f, c)), there = std::fabs(size - value_of(f, best));
    if (here < there || (here == there && c % 2 == 0)) best = c;
  }
  const double step = value_of(f, largest) - value_of(f, largest - 1);
  const double limit = value_of(f, largest) + step / 2;
  if (size > limit || (size == limit && largest % 2 != 0)) best = saturate ? largest : f.overflow;
  const bool plain = no_minus_zero && (best == 0 || best == f.nan);
  return best | (negative && !plain ? sign : 0);
}

// Numbers of all sizes, all codes, the middle between two codes and its neighbours.
template <class T>
std::vector<T> numbers(const Format& f) {
  std::vector<T> list = {0, T(-0.0), T(kInf), T(-kInf), T(kNan), T(1e30), T(-1e30), T(1e-30), T(-1e-30)};
  for (unsigned c = 0; c < unsigned(f.codes); ++c) {
    const double v = value_of(f, c), next = value_of(f, (c + 1) % unsigned(f.codes));
    if (!std::isfinite(v) || !std::isfinite(next)) continue;
    const T middle = T((v + next) / 2);
    for (const T x : {T(v), middle, std::nextafter(middle, T(0)), std::nextafter(middle, T(1e9))})
      list.push_back(x);
  }
  for (const double top :
       {240.0, 248.0, 256.0, 448.0, 464.0, 480.0, 57344.0, 61440.0, 65536.0, 6.0, 7.0, 8.0})
    for (const T x : {T(top), T(-top), std::nextafter(T(top), T(0)), std::nextafter(T(top), T(1e9))})
      list.push_back(x);
  for (const T x : values<T>(2000, 5, -20, 12)) list.push_back(std::exp2(x));
  for (const T x : values<T>(2000, 6, -700, 700)) list.push_back(x);
  return list;
}

TEST(SmallTypes, CodesAreWhatTheirBitsSay) {
  for (const Format& f : formats()) {
    for (unsigned c = 0; c < unsigned(f.codes); ++c) {
      const double got = double(f.widened(c)), want = value_of(f, c);
      EXPECT_TRUE(got == want || (std::isnan(got) && std::isnan(want))) << f.name << " " << c << ": " << got;
    }
  }
}

TEST(SmallTypes, FloatsAreRoundedToTheNearestCode) {
  for (const Format& f : formats()) {
    for (const unsigned mode : {0u, kCastUnsaturated}) {
      for (const float x : numbers<float>(f)) {
        EXPECT_EQ(f.from_f32(x, mode), expected_code(f, double(x), mode == 0)) << f.name << " " << x;
      }
      for (const double x : numbers<double>(f)) {
        EXPECT_EQ(f.from_f64(x, mode), expected_code(f, x, mode == 0)) << f.name << " " << x;
      }
    }
  }
}

unsigned power_code(double x, unsigned mode) {
  F8e8m0 y;
  narrow(x, y, mode);
  return y.bits;
}

TEST(SmallTypes, PowersOfTwo) {
  for (unsigned c = 0; c < 255; ++c) {
    const double power = std::ldexp(1.0, int(c) - 127);
    EXPECT_EQ(double(widen(F8e8m0{static_cast<unsigned char>(c)})), power);
    for (const unsigned mode : {0u, kCastDown, kCastNearest, kCastUnsaturated}) {
      EXPECT_EQ(power_code(power, mode), c);
      EXPECT_EQ(power_code(-power, mode), c);  // the sign is left out
    }
    if (c == 254) continue;
    EXPECT_EQ(power_code(power * 1.001, 0), c + 1);
    EXPECT_EQ(power_code(power * 1.999, kCastDown), c);
    EXPECT_EQ(power_code(power * 1.499, kCastNearest), c);
    EXPECT_EQ(power_code(power * 1.5, kCastNearest), c + 1);
  }
  EXPECT_TRUE(std::isnan(widen(F8e8m0{255})));
}

TEST(SmallTypes, PowersOfTwoEnd) {
  const double above = std::ldexp(1.0, 128), below = std::ldexp(1.0, -130);
  for (const double x : {kInf, above, std::ldexp(1.5, 127)}) {
    EXPECT_EQ(power_code(x, 0), 254u);
    EXPECT_EQ(power_code(x, kCastUnsaturated | kCastNearest), 255u);
  }
  for (const double x : {0.0, below, 5e-324}) {
    EXPECT_EQ(power_code(x, 0), 0u);
    EXPECT_EQ(power_code(x, kCastUnsaturated | kCastNearest), 255u);
  }
  EXPECT_EQ(power_code(kNan, 0), 255u);
}

template <class Small, class T>
int narrowed(T x) {
  Small y;
  narrow(x, y);
  return y.value;
}

TEST(SmallTypes, IntegersKeepTheirLowestBits) {
  EXPECT_EQ(narrowed<I4>(-9), 7);
  EXPECT_EQ(narrowed<I4>(8), -8);
  EXPECT_EQ(narrowed<I4>(std::int64_t{1} << 40), 0);
  EXPECT_EQ(narrowed<U4>(-1), 15);
  EXPECT_EQ(narrowed<U4>(std::uint8_t{16}), 0);
  EXPECT_EQ(narrowed<I2>(3), -1);
  EXPECT_EQ(narrowed<I2>(-3), 1);
  EXPECT_EQ(narrowed<U2>(6), 2);
}

TEST(SmallTypes, FloatsToIntegersAreTruncatedFirst) {
  EXPECT_EQ(narrowed<I4>(-3.9f), -3);
  EXPECT_EQ(narrowed<I4>(-9.0f), 7);
  EXPECT_EQ(narrowed<U4>(15.9), 15);
  EXPECT_EQ(narrowed<U4>(17.2), 1);
  EXPECT_EQ(narrowed<I2>(-2.5f), -2);
  for (const double x : {kNan, kInf, -kInf, 1e30}) EXPECT_EQ(narrowed<U2>(x), 0);
}

}  // namespace
}  // namespace gradloom::kernels::test
