// A part of math.h: functions of f32 on the host that go through double precision: sin, cos, tan and pow.
#pragma once

#if !defined(__CUDA_ARCH__) && !defined(__HIP_DEVICE_COMPILE__)

namespace gradloom::kernels::GRADLOOM_MATH_NAMESPACE {

// sin, cos and tan of |x| <= kNearTurns by double precision: x = n pi + r, |r| <= pi / 2 (tan: n pi / 2),
// with multiples of pi exact in their upper part.
constexpr float kNearTurns = 1e6f;
constexpr double kRound = 6755399441055744.0;  // adding it rounds to an integer: 1.5 * 2^52

GRADLOOM_HD double sin_within_pi_2(double r) {
  const double z = r * r, z2 = z * z;
  const double p = ((-2.3888626953845287e-08 * z + 2.752536877037324e-06) * z2 +
                    (-0.00019840867912635852 * z + 0.008333331106394832)) *
                       z +
                   -0.16666666626099075;
  return r * z * p + r;
}
GRADLOOM_HD double pi_times_less(double x, double n) {
  return (x - n * 3.1415926534682512) - n * 1.2154201013012384e-10;
}
GRADLOOM_HD float with_parity_as_sign(double y, double shifted) {
  return float(__builtin_bit_cast(
      double, __builtin_bit_cast(Word<double>, y) ^ __builtin_bit_cast(Word<double>, shifted) << 63));
}
GRADLOOM_HD float sin_near(float x) {
  const double shifted = double(x) * 0.31830988618379067 + kRound;
  return with_parity_as_sign(sin_within_pi_2(pi_times_less(x, shifted - kRound)), shifted);
}
GRADLOOM_HD float cos_near(float x) {
  const double shifted = (double(x) * 0.31830988618379067 + 0.5) + kRound;
  return with_parity_as_sign(sin_within_pi_2(pi_times_less(x, (shifted - kRound) - 0.5)), shifted);
}
GRADLOOM_HD float tan_near(float x) {
  const double shifted = double(x) * 0.63661977236758134 + kRound;
  const double r = pi_times_less(x, 0.5 * (shifted - kRound)), z = r * r;
  const double sine =
      ((-0.00019515098636568282 * z + 0.00833215942867439) * z + -0.1666665458891364) * z * r + r;
  const double cosine = ((2.4383327720428953e-05 * z + -0.0013886679104246331) * (z * z) +
                         (0.04166662027668785 * z + -0.4999999969376443)) *
                            z +
                        1.0;
  const bool odd = (__builtin_bit_cast(Word<double>, shifted) & 1) != 0;
  return float((odd ? -cosine : sine) / (odd ? sine : cosine));
}
// One call of the library per element where it is further out, infinite or NaN.
GRADLOOM_HD float sin(float x) { return abs(x) <= kNearTurns ? sin_near(x) : __builtin_sinf(x); }
GRADLOOM_HD float cos(float x) { return abs(x) <= kNearTurns ? cos_near(x) : __builtin_cosf(x); }
GRADLOOM_HD float tan(float x) { return abs(x) <= kNearTurns ? tan_near(x) : __builtin_tanf(x); }

// pow: |x|^y = 2^(y log2 |x|) in double precision, with log2(m) from the series of atanh((m - 1) / (m + 1));
// IEEE 754's values where x or y is 0, 1, infinite or NaN, and the sign of x if y is odd.
GRADLOOM_HD double log2_of_size(float x) {
  const float a = __builtin_fabsf(x);
  const Word<double> bits = __builtin_bit_cast(Word<double>, double(a)) - 0x3fe6a09e667f3bcdull;  // sqrt(1/2)
  const Word<double> exponent = (bits + (2048ull << 52)) >> 52;
  const double e =
      __builtin_bit_cast(double, __builtin_bit_cast(Word<double>, kRound) + exponent) - (kRound + 2048.0);
  const double m = __builtin_bit_cast(double, (bits & 0xfffffffffffffull) + 0x3fe6a09e667f3bcdull);
  const double s = (m - 1.0) / (m + 1.0), z = s * s, z2 = z * z;
  const double p = (0.3407489932639617 * z2 + (0.4116717453247166 * z + 0.5770836003322961)) * z2 +
                   (0.9617966732663349 * z + 2.885390081790142);
  return p * s + e;
}
// 2^t, whatever where that is no finite float.
GRADLOOM_HD float exp2_near(double t) {
  const double shifted = t + (kRound + 1023.0);
  const double f = t - (shifted - (kRound + 1023.0)), f2 = f * f;
  const double q = ((0.00015345804192248 * f2 + (0.0013399931049639334 * f + 0.0096184889852802358)) * f2 +
                    (0.055503287775097858 * f + 0.24022646890405355)) *
                       f2 +
                   (0.69314720573710887 * f + 1.0000000005542222);
  return float(q * __builtin_bit_cast(double, __builtin_bit_cast(Word<double>, shifted) << 52));
}
// From t = y log2 |x|.
GRADLOOM_HD float pow_of(double t, float x, float y) {
  const float a = __builtin_fabsf(x), size = float(t), inf = __builtin_inff();
  float r = exp2_near(t);
  r = size > 128.5f ? inf : (size < -151.0f ? 0.0f : r);
  r = (a == 0.0f) | (a == inf) ? ((a > 1.0f) == (y > 0.0f) ? inf : 0.0f) : r;
  r = (a != a) | (y != y) ? __builtin_nanf("") : r;
  r = (a == 1.0f) | (y == 0.0f) ? 1.0f : r;
  const bool whole = __builtin_rintf(y) == y, odd = whole & (__builtin_rintf(0.5f * y) != 0.5f * y);
  r = odd ? __builtin_copysignf(r, x) : r;
  return (x < 0.0f) & (a < inf) & !whole ? __builtin_nanf("") : r;
}
GRADLOOM_HD float pow(float x, float y) { return pow_of(double(y) * log2_of_size(x), x, y); }

}  // namespace gradloom::kernels::GRADLOOM_MATH_NAMESPACE

#endif
