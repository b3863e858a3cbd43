// Element types of at most eight bits that nothing is computed in: integers of two and four bits, floats of
// four and eight. In memory an element takes one byte: the number itself of integers, the code of floats in
// the lowest bits. Conversions are those of ONNX Cast-25: to floats rounded to the nearest code, the even one
// of two; float8e8m0, a power of two without a sign, by its round mode. Source: Micikevicius et al. 2022
// (E4M3FN, E5M2), Noune et al. 2022 (FNUZ), OCP Microscaling Formats 1.0 (E2M1, E8M0); where
// these leave something open, as in ml_dtypes.
#pragma once

#include "kernels/math.h"

namespace gradloom::kernels::GRADLOOM_MATH_NAMESPACE {

// ---- integers ---------------------------------------------------------------------------------------------

template <int bits, bool is_signed>
struct SmallInt {
  signed char value;
};
template <int bits>
struct SmallInt<bits, false> {
  unsigned char value;
};
using I4 = SmallInt<4, true>;
using U4 = SmallInt<4, false>;
using I2 = SmallInt<2, true>;
using U2 = SmallInt<2, false>;

// Integers keep their lowest bits.
template <int bits, bool is_signed, class From>
GRADLOOM_HD void narrow(From x, SmallInt<bits, is_signed>& to) {
  const unsigned low = unsigned(x) & ((1u << bits) - 1), sign = 1u << (bits - 1);
  to.value = decltype(to.value)(is_signed ? int(low ^ sign) - int(sign) : int(low));
}
// Floats are truncated first; 0 for what no 32 bits hold.
template <int bits, bool is_signed>
GRADLOOM_HD void narrow(double x, SmallInt<bits, is_signed>& to) {
  const bool inside = (x > -2147483649.0) & (x < 2147483648.0);
  narrow(int(inside ? x : 0.0), to);
}
template <int bits, bool is_signed>
GRADLOOM_HD void narrow(float x, SmallInt<bits, is_signed>& to) {
  narrow(double(x), to);
}

// ---- floats -----------------------------------------------------------------------------------------------

enum class SmallSpecials {
  none,           // every code is a finite number; NaN becomes -0
  nan,            // all ones: NaN
  infinities,     // as IEEE 754
  unsigned_zero,  // the code of -0 is NaN
};

// Sign, exponent, fraction; value: +-2^(exponent - bias) * 1.fraction, with subnormal numbers.
template <int exponent_bits, int fraction_bits, int bias, SmallSpecials specials>
struct SmallFloat {
  unsigned char bits;

  static constexpr unsigned kSign = 1u << (exponent_bits + fraction_bits);
  static constexpr unsigned kInfinity = kSign - (1u << fraction_bits);  // infinities alone
  static constexpr unsigned kLargest = specials == SmallSpecials::infinities ? kInfinity - 1
                                       : specials == SmallSpecials::nan      ? kSign - 2
                                                                             : kSign - 1;
  static constexpr unsigned kNan = specials == SmallSpecials::infinities
                                       ? kInfinity | (1u << (fraction_bits - 1))
                                   : specials == SmallSpecials::nan ? kSign - 1
                                                                    : kSign;
  static constexpr unsigned kOverflow =  // without saturation
      specials == SmallSpecials::infinities ? kInfinity
      : specials == SmallSpecials::none     ? kLargest
                                            : kNan;
};
using F8e4m3fn = SmallFloat<4, 3, 7, SmallSpecials::nan>;
using F8e4m3fnuz = SmallFloat<4, 3, 8, SmallSpecials::unsigned_zero>;
using F8e5m2 = SmallFloat<5, 2, 15, SmallSpecials::infinities>;
using F8e5m2fnuz = SmallFloat<5, 2, 16, SmallSpecials::unsigned_zero>;
using F4e2m1 = SmallFloat<2, 1, 1, SmallSpecials::none>;

struct F8e8m0 {
  unsigned char bits;  // 2^(bits - 127); 255 is NaN
};

// How a number becomes a small float: the bits of EwInstruction::key. Saturated, away from zero by default.
constexpr unsigned kCastUnsaturated = 1;
constexpr unsigned kCastDown = 2, kCastNearest = 4;  // float8e8m0: towards zero; nearest, the larger of two

GRADLOOM_HD float power_of_two(int exponent) {  // of a normal number
  return __builtin_bit_cast(float, unsigned(exponent + 127) << 23);
}

template <int exponent_bits, int fraction_bits, int bias, SmallSpecials specials>
GRADLOOM_HD float widen(SmallFloat<exponent_bits, fraction_bits, bias, specials> x) {
  using Small = SmallFloat<exponent_bits, fraction_bits, bias, specials>;
  constexpr unsigned kNormal = 1u << fraction_bits;
  const unsigned size = x.bits & (Small::kSign - 1), sign = (x.bits & Small::kSign) != 0 ? 0x80000000u : 0u;
  const unsigned normal = (size << (23 - fraction_bits)) + (unsigned(127 - bias) << 23);
  const float below = float(int(size)) * power_of_two(1 - bias - fraction_bits);
  unsigned result = size < kNormal ? __builtin_bit_cast(unsigned, below) : normal;
  if (specials == SmallSpecials::infinities) result = size == Small::kInfinity ? 0x7f800000u : result;
  const bool nan = specials == SmallSpecials::unsigned_zero ? x.bits == Small::kNan
                   : specials == SmallSpecials::none
                       ? false
                       : size > (specials == SmallSpecials::infinities ? Small::kInfinity : Small::kLargest);
  return __builtin_bit_cast(float, nan ? 0x7fc00000u | sign : result | sign);
}
GRADLOOM_HD float widen(F8e8m0 x) {
  const unsigned normal = unsigned(x.bits) << 23;
  const unsigned number = x.bits == 0 ? 0x400000u : normal;
  return __builtin_bit_cast(float, x.bits == 255 ? 0x7fc00000u : number);
}

template <class T>
struct FloatBits;
template <>
struct FloatBits<float> {
  using type = unsigned;
  static constexpr int kFraction = 23, kBias = 127;
};
template <>
struct FloatBits<double> {
  using type = unsigned long long;
  static constexpr int kFraction = 52, kBias = 1023;
};

// From is float or double.
template <int exponent_bits, int fraction_bits, int bias, SmallSpecials specials, class From>
GRADLOOM_HD void narrow(From x, SmallFloat<exponent_bits, fraction_bits, bias, specials>& to, unsigned mode) {
  using Small = SmallFloat<exponent_bits, fraction_bits, bias, specials>;
  using Bits = typename FloatBits<From>::type;
  constexpr int kFraction = FloatBits<From>::kFraction, kBias = FloatBits<From>::kBias;
  constexpr int kShift = kFraction - fraction_bits, kTop = 8 * int(sizeof(From)) - 1;
  const Bits all = __builtin_bit_cast(Bits, x), size = all & ~(Bits(1) << kTop);
  const Bits rounded = (size + (Bits(1) << (kShift - 1)) - 1 + ((size >> kShift) & 1)) >> kShift;
  const Bits normal = rounded - (Bits(kBias - bias) << fraction_bits);
  // A number whose last bit counts the smallest of the type: the sum is rounded to that.
  constexpr Bits kRounder = Bits(kFraction + 1 - bias - fraction_bits + kBias) << kFraction;
  const From sum = __builtin_bit_cast(From, size) + __builtin_bit_cast(From, kRounder);
  const Bits subnormal = __builtin_bit_cast(Bits, sum) - kRounder;
  const Bits code = size >= Bits(1 - bias + kBias) << kFraction ? normal : subnormal;
  const unsigned most = (mode & kCastUnsaturated) != 0 ? Small::kOverflow : Small::kLargest;
  const unsigned number = code > Small::kLargest ? most : unsigned(code);
  const unsigned found = size > Bits(2 * kBias + 1) << kFraction ? Small::kNan : number;
  const bool no_sign = (specials == SmallSpecials::unsigned_zero) & ((found == 0) | (found == Small::kNan));
  to.bits = static_cast<unsigned char>(found | ((all >> kTop) != 0 && !no_sign ? Small::kSign : 0u));
}

// The sign is left out, as in ONNX's reference. Saturated: the nearer end of what is outside of
// 2^-127..2^127, else NaN.
GRADLOOM_HD void narrow(double x, F8e8m0& to, unsigned mode) {
  const unsigned long long size = __builtin_bit_cast(unsigned long long, x) & ~(1ull << 63);
  const unsigned long long fraction = size & ((1ull << 52) - 1);
  const bool down = (mode & kCastDown) != 0, nearest = (mode & kCastNearest) != 0;
  const bool up = nearest ? fraction >= 1ull << 51 : !down && fraction != 0;
  const int code = int(size >> 52) - (1023 - 127) + (up ? 1 : 0);
  const bool low = size<896ull << 52, high = size> 1150ull << 52;
  const int inside = low ? 0 : (high | (code > 254) ? 254 : code);
  const bool nan = size > 2047ull << 52 || ((mode & kCastUnsaturated) != 0 && (low | high));
  to.bits = static_cast<unsigned char>(nan ? 255 : inside);
}

// What a number is taken through on its way to a small float: a float where that is exact.
template <class From>
GRADLOOM_HD auto to_real(From x) {
  if constexpr (From(0.5) != From(0)) {
    return x;
  } else if constexpr (sizeof(From) <= 2) {
    return float(x);
  } else {
    return double(x);
  }
}

}  // namespace gradloom::kernels::GRADLOOM_MATH_NAMESPACE
