// The functions that elementwise formulas use (kernels/elementwise.def), for every device.
// Host: branch-free polynomials that the compiler can vectorize, the same on every x86-64 level up to the
// rounding of fused multiply-adds (AVX-512 has forms of its own for some, cpu/intervals.h); NaN and
// infinities pass through as IEEE 754 asks. Errors in f32: sin, cos and pow < 0.6 ulp, tan < 1.5 ulp, exp,
// log, tanh and erf < 1.5 ulp, hyperbolic functions and their inverses < 2.2 ulp, asin, acos, atan < 3 ulp;
// in f64: about 1 ulp, inverse trigonometric < 3, hyperbolic < 4 ulp. Range reductions and coefficients:
// Cephes (Moshier), fdlibm (Sun), log and erf f32: Juffa; the others are minimax fits of our own. sin, cos,
// tan and pow in f64 and fmod are the C library's. Device: the vendor's library. No includes but its own
// parts, so that run-time compilers can take it as it is.
#pragma once

#if defined(__CUDACC__) || defined(__HIPCC__) || defined(__CUDACC_RTC__) || defined(__HIPCC_RTC__)
#define GRADLOOM_HD __host__ __device__ __forceinline__
#else
#define GRADLOOM_HD inline __attribute__((always_inline))
#endif

// Every x86-64 level has its own copy: one shared inline function could leave AVX-512 code in the baseline.
#ifdef GRADLOOM_ISA
#define GRADLOOM_MATH_NAMESPACE GRADLOOM_ISA
#else
#define GRADLOOM_MATH_NAMESPACE portable
#endif

namespace gradloom::kernels::GRADLOOM_MATH_NAMESPACE {

// ---- numbers of any type ----------------------------------------------------------------------------------

// Maximum and minimum that propagate NaN (numpy.maximum).
template <class T>
GRADLOOM_HD T max(T a, T b) {
  return (a > b) | (a != a) ? a : b;
}
template <class T>
GRADLOOM_HD T min(T a, T b) {
  return (a < b) | (a != a) ? a : b;
}

// -1, 0, 1; NaN for NaN.
template <class T>
GRADLOOM_HD T sign(T a) {
  return a > T(0) ? T(1) : (a < T(0) ? T(-1) : a);
}

// Integer quotient, truncated; x / 0 is 0 and MIN / -1 wraps, so that no input can stop the process.
template <class T>
GRADLOOM_HD T div(T a, T b) {
  if (b == T(0)) return T(0);
  if (T(-1) < T(0) && b == T(-1)) return T(T(0) - a);
  return T(a / b);
}
GRADLOOM_HD float div(float a, float b) { return a / b; }
GRADLOOM_HD double div(double a, double b) { return a / b; }

template <class T>
GRADLOOM_HD T abs(T a) {
  return a < T(0) ? T(-a) : a;
}

// Integer remainders, 0 for a divisor of 0: with the sign of a (C), or with the sign of b (Python).
template <class T>
GRADLOOM_HD T trunc_mod(T a, T b) {
  if (b == T(0) || (T(-1) < T(0) && b == T(-1))) return T(0);
  return T(a % b);
}
template <class T>
GRADLOOM_HD T floor_mod(T a, T b) {
  const T r = trunc_mod(a, b);
  return r != T(0) && (r < T(0)) != (b < T(0)) ? T(r + b) : r;
}

// Shifts by the width of the type or more, or by less than 0, leave what the sign fills in: -1 for negative
// numbers to the right, else 0.
template <class T>
GRADLOOM_HD T shift_left(T a, T b) {
  return b >= T(8 * sizeof(T)) || b < T(0) ? T(0) : T(a << b);
}
template <class T>
GRADLOOM_HD T shift_right(T a, T b) {
  if (b >= T(8 * sizeof(T)) || b < T(0)) return a < T(0) ? T(-1) : T(0);
  return T(a >> b);
}

#if defined(__CUDA_ARCH__) || defined(__HIP_DEVICE_COMPILE__)

#define GRADLOOM_UNARY(name, f32_name, f64_name)            \
  GRADLOOM_HD float name(float x) { return ::f32_name(x); } \
  GRADLOOM_HD double name(double x) { return ::f64_name(x); }
GRADLOOM_UNARY(exp, expf, exp)
GRADLOOM_UNARY(exp_down, expf, exp)
GRADLOOM_UNARY(log, logf, log)
GRADLOOM_UNARY(log1p, log1pf, log1p)
GRADLOOM_UNARY(tanh, tanhf, tanh)
GRADLOOM_UNARY(erf, erff, erf)
GRADLOOM_UNARY(sqrt, sqrtf, sqrt)
GRADLOOM_UNARY(sin, sinf, sin)
GRADLOOM_UNARY(cos, cosf, cos)
GRADLOOM_UNARY(tan, tanf, tan)
GRADLOOM_UNARY(asin, asinf, asin)
GRADLOOM_UNARY(acos, acosf, acos)
GRADLOOM_UNARY(atan, atanf, atan)
GRADLOOM_UNARY(sinh, sinhf, sinh)
GRADLOOM_UNARY(cosh, coshf, cosh)
GRADLOOM_UNARY(asinh, asinhf, asinh)
GRADLOOM_UNARY(acosh, acoshf, acosh)
GRADLOOM_UNARY(atanh, atanhf, atanh)
GRADLOOM_UNARY(floor, floorf, floor)
GRADLOOM_UNARY(ceil, ceilf, ceil)
GRADLOOM_UNARY(round_even, rintf, rint)
GRADLOOM_UNARY(abs, fabsf, fabs)
#undef GRADLOOM_UNARY
GRADLOOM_HD float pow(float a, float b) { return ::powf(a, b); }
GRADLOOM_HD double pow(double a, double b) { return ::pow(a, b); }
GRADLOOM_HD float trunc_mod(float a, float b) { return ::fmodf(a, b); }
GRADLOOM_HD double trunc_mod(double a, double b) { return ::fmod(a, b); }

#else  // host

#define GRADLOOM_UNARY(name, f32_name, f64_name)                      \
  GRADLOOM_HD float name(float x) { return __builtin_##f32_name(x); } \
  GRADLOOM_HD double name(double x) { return __builtin_##f64_name(x); }
GRADLOOM_UNARY(sqrt, sqrtf, sqrt)
GRADLOOM_UNARY(floor, floorf, floor)
GRADLOOM_UNARY(ceil, ceilf, ceil)
GRADLOOM_UNARY(round_even, rintf, rint)
GRADLOOM_UNARY(abs, fabsf, fabs)
#undef GRADLOOM_UNARY
GRADLOOM_HD double sin(double x) { return __builtin_sin(x); }
GRADLOOM_HD double cos(double x) { return __builtin_cos(x); }
GRADLOOM_HD double tan(double x) { return __builtin_tan(x); }
GRADLOOM_HD double pow(double a, double b) { return __builtin_pow(a, b); }
GRADLOOM_HD float trunc_mod(float a, float b) { return __builtin_fmodf(a, b); }
GRADLOOM_HD double trunc_mod(double a, double b) { return __builtin_fmod(a, b); }

// The unsigned integer of a number's size; kernels/cpu/kernel.h adds those of its vectors.
template <class F>
struct WordOf;
template <>
struct WordOf<float> {
  using type = unsigned;
  using Signed = int;
};
template <>
struct WordOf<double> {
  using type = unsigned long long;
  using Signed = long long;
};
template <class F>
using Word = typename WordOf<F>::type;

// (exp(r) - 1 - r) / r^2 for |r| <= ln 2 / 2, in pairs, so that chains of multiplications stay short. F is
// float or a vector of floats, here and below.
template <class F>
GRADLOOM_HD F exp_tail(F r) {
  const F r2 = r * r;
  return (1.3814467e-3f * r2 + (8.3687808e-3f * r + 4.1668393e-2f)) * r2 + (1.66665196e-1f * r + 0.49999994f);
}

// x = n ln 2 + r with |r| <= ln 2 / 2. Adding 1.5 * 2^23 rounds to an integer whose bits are the low bits of
// the sum; `bias` is added to it, so that the sum's bits, shifted to the left by 23, are those of
// 2^(n + bias - 127).
template <class F>
struct Reduced {
  F r;
  Word<F> bits;
};
template <class F>
GRADLOOM_HD Reduced<F> reduce_exp(F x, float bias) {
  const F shifted = x * 1.44269504088896341f + (12582912.0f + bias);
  const F n = shifted - (12582912.0f + bias);
  F r = x - n * 0.693359375f;
  r = r - n * -2.12194440e-4f;
  return {r, __builtin_bit_cast(Word<F>, shifted) << 23};
}

// x between -104 and 89, by integers: the smaller of two is one instruction,
// and what NaN becomes is no matter here.
template <class F>
GRADLOOM_HD F clamp_exp(F x) {
  using Signed = typename WordOf<F>::Signed;
  constexpr int top = __builtin_bit_cast(int, 89.0f);
  constexpr unsigned bottom = __builtin_bit_cast(unsigned, -104.0f);
  const Signed from_above = __builtin_bit_cast(Signed, x);
  const Word<F> from_below = __builtin_bit_cast(Word<F>, from_above < top ? from_above : Signed{} + top);
  return __builtin_bit_cast(F, from_below < bottom ? from_below : Word<F>{} + bottom);
}

// exp(x) = 2^n exp(r). 2^n is applied as two factors, so that results may be
// subnormal or overflow to infinity.
template <class F>
GRADLOOM_HD F exp_f32(F x) {
  const F inside = clamp_exp(x);
  const Reduced<F> reduced = reduce_exp(inside, 126.0f);  // 2^(n - 1)
  const F p = exp_tail(reduced.r) * (reduced.r * reduced.r) + reduced.r + 1.0f;
  const Word<F> up = inside < -80.0f ? Word<F>{} + (64u << 23) : Word<F>{};
  const F y = p * __builtin_bit_cast(F, reduced.bits + up) * __builtin_bit_cast(F, 0x40000000u - up);
  return x == x ? y : x;
}
GRADLOOM_HD float exp(float x) { return exp_f32(x); }

// exp(x) for x <= 0 (right up to 88); below 2^-126 it is 0.
template <class F>
GRADLOOM_HD F exp_down_f32(F x) {
  const Reduced<F> reduced = reduce_exp(x, 127.0f);
  const F p = exp_tail(reduced.r) * (reduced.r * reduced.r) + reduced.r + 1.0f;
  return x < -87.3365f ? F{} : p * __builtin_bit_cast(F, reduced.bits);
}
GRADLOOM_HD float exp_down(float x) { return exp_down_f32(x); }

template <class F>
GRADLOOM_HD F exp_f64(F x) {
  x = x > 710.0 ? F{} + 710.0 : x;
  x = x < -746.0 ? F{} - 746.0 : x;
  const F shifted = x * 1.44269504088896340736 + 6755399441055744.0;
  const F n = shifted - 6755399441055744.0;
  F r = x - n * 6.93147180369123816490e-01;
  r = r - n * 1.90821492927058770002e-10;
  F p = 1.0 / 6227020800.0 * r + 1.0 / 479001600.0;
  p = p * r + 1.0 / 39916800.0;
  p = p * r + 1.0 / 3628800.0;
  p = p * r + 1.0 / 362880.0;
  p = p * r + 1.0 / 40320.0;
  p = p * r + 1.0 / 5040.0;
  p = p * r + 1.0 / 720.0;
  p = p * r + 1.0 / 120.0;
  p = p * r + 1.0 / 24.0;
  p = p * r + 1.0 / 6.0;
  p = p * r + 0.5;
  p = p * (r * r) + r + 1.0;
  const Word<F> i =
      __builtin_bit_cast(Word<F>, shifted) - __builtin_bit_cast(Word<double>, 6755399441055744.0);
  // Halving through an offset: 64-bit arithmetic shifts do not exist below AVX-512.
  const Word<F> half = ((i + 2048) >> 1) - 1024;
  const F s1 = __builtin_bit_cast(F, (half + 1023) << 52);
  const F s2 = __builtin_bit_cast(F, (i - half + 1023) << 52);
  return p * s1 * s2;
}
GRADLOOM_HD double exp(double x) { return exp_f64(x); }
GRADLOOM_HD double exp_down(double x) { return exp_f64(x); }

// log(1 + f) for |f| <= 1/3 (Juffa).
GRADLOOM_HD float log1p_near(float f) {
  const float s = f * f;
  float p = -0.130310059f * s - 0.121483512f, q = 0.140869141f * s + 0.139814854f;
  p = p * s - 0.166846126f;
  q = q * s + 0.200120345f;
  p = p * s - 0.249996200f;
  p = q * f + p;
  p = p * f + 0.333331972f;
  p = p * f - 0.5f;
  return p * s + f;
}

// log(x) = e ln 2 + log(m), m in [2/3, 4/3); f64: [sqrt(1/2), sqrt 2). The bits of 2^e are those of 1 and e.
GRADLOOM_HD float log(float x) {
  const bool tiny = x < 1.17549435e-38f;
  const unsigned bits = __builtin_bit_cast(unsigned, tiny ? x * 8388608.0f : x);
  const unsigned e = (bits - 0x3f2aaaabu) & 0xff800000u;  // 2/3
  const float exponent = float(int(e)) * 1.1920929e-7f - (tiny ? 23.0f : 0.0f);
  const float m = log1p_near(__builtin_bit_cast(float, bits - e) - 1.0f);
  const float y = exponent * 0.693359375f + (exponent * -2.12194440e-4f + m);
  const float special = x == 0.0f ? -__builtin_inff() : (x < 0.0f ? __builtin_nanf("") : x);
  return (x > 0.0f) & (x < __builtin_inff()) ? y : special;
}

// log(1 + x) for x >= 0. 2^-e (1 + x) - 1 is exact but for one rounding, also where 1 + x rounds x away.
GRADLOOM_HD float log1p(float x) {
  const unsigned e = (__builtin_bit_cast(unsigned, 1.0f + x) - 0x3f2aaaabu) & 0xff800000u;
  const float scale = __builtin_bit_cast(float, 0x3f800000u - e);
  const float f =
      __builtin_bit_cast(float, __builtin_bit_cast(unsigned, x) - e) + ((scale > 0.0f ? scale : 0.0f) - 1.0f);
  const float exponent = float(int(e)) * 1.1920929e-7f;
  const float y = exponent * 0.693359375f + (exponent * -2.12194440e-4f + log1p_near(f));
  return x < __builtin_inff() ? y : x;
}

GRADLOOM_HD double log(double x) {
  using Bits = unsigned long long;
  const bool tiny = x < 2.2250738585072014e-308;
  const double scaled = tiny ? x * 4503599627370496.0 : x;
  const Bits bits = __builtin_bit_cast(Bits, scaled) - 0x3fe6a09e667f3bcdull;  // sqrt(1/2)
  // Exponent + 2048 (never negative), made a double by placing it in the low bits of 1.5 * 2^52.
  const Bits biased = (bits + (2048ull << 52)) >> 52;
  double e =
      __builtin_bit_cast(double, __builtin_bit_cast(Bits, 6755399441055744.0) + biased) - 6755399441055744.0;
  e = e - 2048.0;
  e = e - (tiny ? 52.0 : 0.0);
  const double f = __builtin_bit_cast(double, (bits & 0xfffffffffffffull) + 0x3fe6a09e667f3bcdull) - 1.0;
  const double s = f / (2.0 + f);
  const double z = s * s;
  double r = 1.479819860511658591e-01;
  r = r * z + 1.531383769920937332e-01;
  r = r * z + 1.818357216161805012e-01;
  r = r * z + 2.222219843214978396e-01;
  r = r * z + 2.857142874366239149e-01;
  r = r * z + 3.999999999940941908e-01;
  r = r * z + 6.666666666666735130e-01;
  r = r * z;
  const double hfsq = 0.5 * f * f;
  double result =
      e * 6.93147180369123816490e-01 - ((hfsq - (s * (hfsq + r) + e * 1.90821492927058770002e-10)) - f);
  result = x == 0.0 ? -__builtin_inf() : result;
  result = x < 0.0 ? __builtin_nan("") : result;
  return x < __builtin_inf() ? result : x;
}

// tanh: a polynomial below 0.625, 1 - 2 / (exp(2|x|) + 1) above.
GRADLOOM_HD float tanh(float x) {
  const float z = x * x;
  const float p =
      ((-5.704986863e-3f * z + 2.063908800e-2f) * (z * z) + (-5.373971537e-2f * z + 1.333144158e-1f)) * z -
      3.333328068e-1f;
  float a = __builtin_fabsf(x);
  const bool near = a < 0.625f;
  a = a > 9.5f ? 9.5f : a;
  const Reduced<float> reduced = reduce_exp(2.0f * a, 127.0f);
  const float e = exp_tail(reduced.r) * (reduced.r * reduced.r) + reduced.r + 1.0f;
  const float far = 1.0f - 2.0f / (e * __builtin_bit_cast(float, reduced.bits) + 1.0f);
  return near ? p * z * x + x : __builtin_copysignf(far, x);
}

GRADLOOM_HD double tanh(double x) {
  const double z = x * x;
  double p = -9.64399179425052238628e-1;
  p = p * z - 9.92877231001918586564e1;
  p = p * z - 1.61468768441708447952e3;
  double q = z + 1.12811678491632931402e2;
  q = q * z + 2.23548839060100448583e3;
  q = q * z + 4.84406305325125486048e3;
  const double near = x + x * z * (p / q);
  const double a = __builtin_fabs(x);
  const double far = __builtin_copysign(1.0 - 2.0 / (exp(2.0 * a) + 1.0), x);
  return a < 0.625 ? near : far;
}

// Below 0.93 an odd polynomial, above it 1 - erfc(x) with a polynomial for log2(erfc(x)).
GRADLOOM_HD float erf(float x) {
  const float z = x * x;
  const float near =
      ((-5.96761703e-4f * z + 4.99119423e-3f) * (z * z) + (-2.67681349e-2f * z + 1.12819925e-1f)) * (z * z) +
      (-3.76125336e-1f * z + 1.28379166e-1f);
  float t = __builtin_fabsf(x);
  const bool small = t < 0.927734375f;
  t = t > 3.93f ? 3.93f : t;
  const float t2 = t * t;
  const float u = (2.82677676e-4f * t - 4.39043483e-3f) * t2 + (3.20666693e-2f * t - 1.49941593e-1f);
  const float l = (u * t2 + (-9.19259667e-1f * t - 1.62689209f)) * t - 2.823002e-4f;
  const float shifted = l + (12582912.0f + 127.0f);
  const float f = l - (shifted - (12582912.0f + 127.0f)), f2 = f * f;
  const float p =
      ((1.326469937e-3f * f + 9.671533480e-3f) * f2 + (5.550733954e-2f * f + 2.402224243e-1f)) * f2 +
      (6.931470037e-1f * f + 1.0f);
  const float far = 1.0f - p * __builtin_bit_cast(float, __builtin_bit_cast(unsigned, shifted) << 23);
  return small ? near * x + x : __builtin_copysignf(far, x);
}

// Below 0.95 an odd polynomial (Chebyshev interpolation of erf(x) / x - 1 in x^2),
// above it 1 - erfc(x) (Cephes).
GRADLOOM_HD double erf(double x) {
  const double z = x * x;
  double t = -8.145937519985497e-10;
  t = t * z + 1.3894957479317155e-08;
  t = t * z - 1.624616796405091e-07;
  t = t * z + 1.6452006139397311e-06;
  t = t * z - 1.4925082129023107e-05;
  t = t * z + 0.00012055311579565552;
  t = t * z - 0.0008548326491338239;
  t = t * z + 0.005223977617039774;
  t = t * z - 0.02686617064434736;
  t = t * z + 0.11283791670951343;
  t = t * z - 0.3761263890318368;
  t = t * z + 0.12837916709551256;
  const double near = x + x * t;
  double a = __builtin_fabs(x);
  const bool small = a < 0.95;
  a = a > 6.5 ? 6.5 : a;  // erf(6.5) rounds to 1
  double p = 2.46196981473530512524e-10;
  p = p * a + 5.64189564831068821977e-1;
  p = p * a + 7.46321056442269912687e0;
  p = p * a + 4.86371970985681366614e1;
  p = p * a + 1.96520832956077098242e2;
  p = p * a + 5.26445194995477358631e2;
  p = p * a + 9.34528527171957607540e2;
  p = p * a + 1.02755188689515710272e3;
  p = p * a + 5.57535335369399327526e2;
  double q = a + 1.32281951154744992508e1;
  q = q * a + 8.67072140885989742329e1;
  q = q * a + 3.54937778887819891062e2;
  q = q * a + 9.75708501743205489753e2;
  q = q * a + 1.82390916687909736289e3;
  q = q * a + 2.24633760818710981792e3;
  q = q * a + 1.65666309194161350182e3;
  q = q * a + 5.57535340817727675546e2;
  return small ? near : __builtin_copysign(1.0 - exp(-a * a) * (p / q), x);
}

// atan: below tan(pi/8) (f64: 0.66) a polynomial; up to tan(3 pi/8) pi/4 + atan((x - 1) / (x + 1));
// above, pi/2 - atan(1 / x).
GRADLOOM_HD float atan(float x) {
  const float a = __builtin_fabsf(x);
  const bool far = a > 2.414213562373095f, middle = a > 0.4142135623730950f;
  const float base = far ? 1.57079632679489662f : (middle ? 0.785398163397448310f : 0.0f);
  const float t = far ? -1.0f / a : (middle ? (a - 1.0f) / (a + 1.0f) : a);
  const float z = t * t;
  float p = 8.05374449538e-2f;
  p = p * z - 1.38776856032e-1f;
  p = p * z + 1.99777106478e-1f;
  p = p * z - 3.33329491539e-1f;
  const float y = base + (p * z * t + t);
  return __builtin_copysignf(a == __builtin_inff() ? 1.57079632679489662f : y, x);
}

GRADLOOM_HD double atan(double x) {
  const double a = __builtin_fabs(x);
  const bool far = a > 2.41421356237309504880, middle = a > 0.66;
  const double base = far ? 1.57079632679489661923 : (middle ? 0.785398163397448309616 : 0.0);
  const double low = far ? 6.123233995736765886130e-17 : (middle ? 3.061616997868382943065e-17 : 0.0);
  const double t = far ? -1.0 / a : (middle ? (a - 1.0) / (a + 1.0) : a);
  const double z = t * t;
  double p = -8.750608600031904122785e-1;
  p = p * z - 1.615753718733365076637e1;
  p = p * z - 7.500855792314704667340e1;
  p = p * z - 1.228866684490136173410e2;
  p = p * z - 6.485021904942025371773e1;
  double q = z + 2.485846490142306297962e1;
  q = q * z + 1.650270098316988542046e2;
  q = q * z + 4.328810604912902668951e2;
  q = q * z + 4.853903996359136964868e2;
  q = q * z + 1.945506571482613964425e2;
  const double y = base + (t * (z * (p / q)) + t + low);
  return __builtin_copysign(a == __builtin_inf() ? 1.57079632679489661923 : y, x);
}

// (asin(x) - x) / x of z = x^2 in [0, 1/4].
GRADLOOM_HD float asin_tail(float z) {
  float p = -8.6563630030e-3f;
  p = p * z - 4.2743422091e-2f;
  p = p * z + 1.6666586697e-1f;
  return z * p / (1.0f - 7.0662963390e-1f * z);
}
GRADLOOM_HD double asin_tail(double z) {
  double p = 3.47933107596021167570e-05;
  p = p * z + 7.91534994289814532176e-04;
  p = p * z - 4.00555345006794114027e-02;
  p = p * z + 2.01212532134862925881e-01;
  p = p * z - 3.25565818622400915405e-01;
  p = p * z + 1.66666666666666657415e-01;
  double q = 7.70381505559019352791e-02;
  q = q * z - 6.88283971605453293030e-01;
  q = q * z + 2.02094576023350569471e+00;
  q = q * z - 2.40339491173441421878e+00;
  return z * p / (q * z + 1.0);
}

// Above 1/2: asin(x) = pi/2 - 2 asin(sqrt((1 - x) / 2)); the root of a negative number makes |x| > 1 NaN.
template <class T>
GRADLOOM_HD T asin(T x) {
  const T a = abs(x);
  const bool near = a < T(0.5);
  const T z = near ? a * a : T(0.5) * (T(1) - a);
  const T s = near ? a : sqrt(z);
  const T y = s + s * asin_tail(z);
  const T r = near
                  ? y
                  : T(1.57079632679489661923) -
                        (T(2) * y - T(sizeof(T) == 8 ? 6.12323399573676603587e-17 : -4.37113900018624283e-8));
  return x < T(0) ? -r : (x == T(0) ? x : r);
}
template <class T>
GRADLOOM_HD T acos(T x) {
  const T a = abs(x);
  const T half_pi = T(1.57079632679489661923),
          rest = T(sizeof(T) == 8 ? 6.12323399573676603587e-17 : -4.37113900018624283e-8);
  const bool near = a < T(0.5);
  const T z = near ? a * a : T(0.5) * (T(1) - a);
  const T s = near ? x : sqrt(z);
  const T y = s + s * asin_tail(z);
  const T far = x < T(0) ? T(2) * (half_pi - (y - rest)) : T(2) * y;
  return near ? half_pi - (y - rest) : far;
}

// log(1 + x) for x >= 0, also where 1 + x rounds x away: log(w) x / (w - 1), w = 1 + x (Kahan).
GRADLOOM_HD double log1p(double x) {
  const double w = 1.0 + x;
  return (w == 1.0) | (w == __builtin_inf()) ? x : log(w) * (x / (w - 1.0));
}

// With t = exp(|x|) - 1 = 2^n (exp(r) - 1) + (2^n - 1): sinh = (t + t / (t + 1)) / 2. Computed from t / 4,
// which does not overflow before sinh does. f64: its series below 1, (e - 1/e) / 2, e = exp(|x|), above it;
// where e overflows before sinh does: the square of exp(|x| / 2).
GRADLOOM_HD float sinh(float x) {
  float a = __builtin_fabsf(x);
  a = a > 89.6f ? 89.6f : a;
  const Reduced<float> reduced = reduce_exp(a, 125.0f);
  const float q = exp_tail(reduced.r) * (reduced.r * reduced.r) + reduced.r;
  const float scale = __builtin_bit_cast(float, reduced.bits);
  const float t = q * scale + (scale - 0.25f);
  const float y = 2.0f * (t + t / (4.0f * t + 1.0f));
  return a < 1e-4f ? x : __builtin_copysignf(y, x);
}
GRADLOOM_HD double sinh(double x) {
  const double z = x * x;
  double p = 1.0 / 355687428096000.0;  // 1 / 17!
  p = p * z + 1.0 / 1307674368000.0;
  p = p * z + 1.0 / 6227020800.0;
  p = p * z + 1.0 / 39916800.0;
  p = p * z + 1.0 / 362880.0;
  p = p * z + 1.0 / 5040.0;
  p = p * z + 1.0 / 120.0;
  p = p * z + 1.0 / 6.0;
  const double near = p * z * x + x;
  const double a = abs(x), e = exp(a), root = exp(0.5 * a);
  const double far = a > 88.0 ? 0.5 * root * root : 0.5 * e - 0.5 / e;
  return a < 1.0 ? near : (x < 0.0 ? -far : far);
}
GRADLOOM_HD float cosh(float x) {
  float a = __builtin_fabsf(x);
  a = a > 89.6f ? 89.6f : a;
  const Reduced<float> reduced = reduce_exp(a, 125.0f);
  const float p = exp_tail(reduced.r) * (reduced.r * reduced.r) + reduced.r + 1.0f;
  const float e = p * __builtin_bit_cast(float, reduced.bits);  // exp(|x|) / 4
  return 2.0f * e + 0.125f / e;
}
GRADLOOM_HD double cosh(double x) {
  const double a = abs(x), e = exp(a), root = exp(0.5 * a);
  return a > 88.0 ? 0.5 * root * root : 0.5 * e + 0.5 / e;
}

GRADLOOM_HD float with_sign(float size, float x) { return __builtin_copysignf(size, x); }
GRADLOOM_HD double with_sign(double size, double x) { return __builtin_copysign(size, x); }

// The inverse hyperbolic functions in two steps: the argument t of log(1 + t), which keeps the digits of
// small results, and the result from l = log(1 + t). Above 2^28 asinh and acosh are log(2 x).
template <class T>
constexpr T kLog2Above = T(268435456.0);
template <class T>
GRADLOOM_HD T asinh_argument(T x) {
  const T a = abs(x), t = a > kLog2Above<T> ? T(0) : a;
  return a > kLog2Above<T> ? a : t + t * t / (T(1) + sqrt(T(1) + t * t));
}
template <class T>
GRADLOOM_HD T asinh_of(T l, T x) {
  return with_sign(l + (abs(x) > kLog2Above<T> ? T(0.693147180559945309417) : T(0)), x);
}
template <class T>
GRADLOOM_HD T asinh(T x) {
  return asinh_of(log1p(asinh_argument(x)), x);
}
template <class T>
GRADLOOM_HD T acosh_argument(T x) {
  const T t = (x > kLog2Above<T> ? T(1) : x) - T(1), above = t + sqrt(t * (t + T(2)));
  return x > kLog2Above<T> ? x : (t < T(0) ? sqrt(t) : above);
}
template <class T>
GRADLOOM_HD T acosh_of(T l, T x) {
  return l + (x > kLog2Above<T> ? T(0.693147180559945309417) : T(0));
}
template <class T>
GRADLOOM_HD T acosh(T x) {
  return acosh_of(log1p(acosh_argument(x)), x);
}
template <class T>
GRADLOOM_HD T atanh_argument(T x) {
  return T(2) * abs(x) / (T(1) - abs(x));  // at 1 infinite
}
template <class T>
GRADLOOM_HD T atanh_of(T l, T x) {
  return abs(x) > T(1) ? T(__builtin_nanf("")) : with_sign(T(0.5) * l, x);
}
template <class T>
GRADLOOM_HD T atanh(T x) {
  return atanh_of(log1p(atanh_argument(x)), x);
}

#endif  // host

}  // namespace gradloom::kernels::GRADLOOM_MATH_NAMESPACE

#include "kernels/math_activations.h"
#include "kernels/math_by_double.h"
