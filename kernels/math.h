// The functions that elementwise formulas use (kernels/elementwise.def), for every device.
// Host: branch-free polynomials that the compiler can vectorize, the same on every x86-64 level up to the
// rounding of fused multiply-adds; NaN and infinities pass through as IEEE 754 asks. Errors: exp, log, tanh,
// erf < 2 ulp in f32, about 1 ulp in f64. Range reductions and coefficients: Cephes (Moshier), fdlibm (Sun),
// erf f32: Juffa. Device: the vendor's library. No includes, so that run-time compilers can take it as it is.
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

// ---- numbers of any type
// -------------------------------------------------------------------------------------------

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

#if defined(__CUDA_ARCH__) || defined(__HIP_DEVICE_COMPILE__)

#define GRADLOOM_UNARY(name, f32_name, f64_name)            \
  GRADLOOM_HD float name(float x) { return ::f32_name(x); } \
  GRADLOOM_HD double name(double x) { return ::f64_name(x); }
GRADLOOM_UNARY(exp, expf, exp)
GRADLOOM_UNARY(log, logf, log)
GRADLOOM_UNARY(tanh, tanhf, tanh)
GRADLOOM_UNARY(erf, erff, erf)
GRADLOOM_UNARY(sqrt, sqrtf, sqrt)
GRADLOOM_UNARY(sin, sinf, sin)
GRADLOOM_UNARY(cos, cosf, cos)
GRADLOOM_UNARY(floor, floorf, floor)
GRADLOOM_UNARY(ceil, ceilf, ceil)
GRADLOOM_UNARY(round_even, rintf, rint)
GRADLOOM_UNARY(abs, fabsf, fabs)
#undef GRADLOOM_UNARY
GRADLOOM_HD float pow(float a, float b) { return ::powf(a, b); }
GRADLOOM_HD double pow(double a, double b) { return ::pow(a, b); }

#else  // host

#define GRADLOOM_UNARY(name, f32_name, f64_name)                      \
  GRADLOOM_HD float name(float x) { return __builtin_##f32_name(x); } \
  GRADLOOM_HD double name(double x) { return __builtin_##f64_name(x); }
GRADLOOM_UNARY(sqrt, sqrtf, sqrt)
GRADLOOM_UNARY(sin, sinf, sin)
GRADLOOM_UNARY(cos, cosf, cos)
GRADLOOM_UNARY(floor, floorf, floor)
GRADLOOM_UNARY(ceil, ceilf, ceil)
GRADLOOM_UNARY(round_even, rintf, rint)
GRADLOOM_UNARY(abs, fabsf, fabs)
#undef GRADLOOM_UNARY
GRADLOOM_HD float pow(float a, float b) { return __builtin_powf(a, b); }
GRADLOOM_HD double pow(double a, double b) { return __builtin_pow(a, b); }

// exp(x) = 2^n exp(r), n = round(x / ln 2), |r| <= ln 2 / 2. Adding 1.5 * 2^23 rounds to an integer whose
// bits are the low bits of the sum. 2^n is applied as two factors, so that results may be subnormal or
// overflow to infinity.
GRADLOOM_HD float exp(float x) {
  x = x > 89.0f ? 89.0f : x;
  x = x < -104.0f ? -104.0f : x;
  const float shifted = x * 1.44269504088896341f + 12582912.0f;
  const float n = shifted - 12582912.0f;
  float r = x - n * 0.693359375f;
  r = r - n * -2.12194440e-4f;
  float p = 1.9875691500e-4f;
  p = p * r + 1.3981999507e-3f;
  p = p * r + 8.3334519073e-3f;
  p = p * r + 4.1665795894e-2f;
  p = p * r + 1.6666665459e-1f;
  p = p * r + 5.0000001201e-1f;
  p = p * (r * r) + r + 1.0f;
  const int i = int(__builtin_bit_cast(unsigned, shifted) - __builtin_bit_cast(unsigned, 12582912.0f));
  const int half = i >> 1;
  const float s1 = __builtin_bit_cast(float, unsigned(half + 127) << 23);
  const float s2 = __builtin_bit_cast(float, unsigned(i - half + 127) << 23);
  return p * s1 * s2;
}

GRADLOOM_HD double exp(double x) {
  x = x > 710.0 ? 710.0 : x;
  x = x < -746.0 ? -746.0 : x;
  const double shifted = x * 1.44269504088896340736 + 6755399441055744.0;
  const double n = shifted - 6755399441055744.0;
  double r = x - n * 6.93147180369123816490e-01;
  r = r - n * 1.90821492927058770002e-10;
  double p = 1.0 / 6227020800.0;
  p = p * r + 1.0 / 479001600.0;
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
  using Bits = unsigned long long;
  const Bits i = __builtin_bit_cast(Bits, shifted) - __builtin_bit_cast(Bits, 6755399441055744.0);
  // Halving through an offset: 64-bit arithmetic shifts do not exist below AVX-512.
  const Bits half = ((i + 2048) >> 1) - 1024;
  const double s1 = __builtin_bit_cast(double, (half + 1023) << 52);
  const double s2 = __builtin_bit_cast(double, (i - half + 1023) << 52);
  return p * s1 * s2;
}

// log(x) = e ln 2 + log(m), m in [sqrt(1/2), sqrt 2).
GRADLOOM_HD float log(float x) {
  const bool tiny = x < 1.17549435e-38f;
  const float scaled = tiny ? x * 8388608.0f : x;
  const unsigned bits = __builtin_bit_cast(unsigned, scaled) - 0x3f3504f3u;  // sqrt(1/2)
  const int exponent = int(bits) >> 23;
  const float m = __builtin_bit_cast(float, (bits & 0x007fffffu) + 0x3f3504f3u) - 1.0f;
  const float e = float(exponent) - (tiny ? 23.0f : 0.0f);
  float p = 7.0376836292e-2f;
  p = p * m - 1.1514610310e-1f;
  p = p * m + 1.1676998740e-1f;
  p = p * m - 1.2420140846e-1f;
  p = p * m + 1.4249322787e-1f;
  p = p * m - 1.6668057665e-1f;
  p = p * m + 2.0000714765e-1f;
  p = p * m - 2.4999993993e-1f;
  p = p * m + 3.3333331174e-1f;
  const float z = m * m;
  float y = p * m * z;
  y = y + e * -2.12194440e-4f;
  y = y - 0.5f * z;
  float result = (m + y) + e * 0.693359375f;
  result = x == 0.0f ? -__builtin_inff() : result;
  result = x < 0.0f ? __builtin_nanf("") : result;
  return x < __builtin_inff() ? result : x;  // +inf and NaN
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
  float p = -5.70498872745e-3f;
  p = p * z + 2.06390887954e-2f;
  p = p * z - 5.37397155531e-2f;
  p = p * z + 1.33314422036e-1f;
  p = p * z - 3.33332819422e-1f;
  const float near = p * z * x + x;
  const float a = __builtin_fabsf(x);
  const float far = __builtin_copysignf(1.0f - 2.0f / (exp(2.0f * a) + 1.0f), x);
  return a < 0.625f ? near : far;
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

GRADLOOM_HD float erf(float x) {
  const float s = x * x;
  float t = __builtin_fabsf(x);
  const bool small = t < 0.927734375f;
  t = t > 4.0f ? 4.0f : t;
  const float t2 = t * t;
  float r = -1.72853470e-5f * t + 3.83197126e-4f;
  const float u = -3.88396438e-3f * t + 2.42546219e-2f;
  r = r * t2 + u;
  r = r * t - 1.06777877e-1f;
  r = r * t - 6.34846687e-1f;
  r = r * t - 1.28717512e-1f;
  r = r * t - t;
  const float far = __builtin_copysignf(1.0f - exp(r), x);
  float p = -5.96761703e-4f;
  p = p * s + 4.99119423e-3f;
  p = p * s - 2.67681349e-2f;
  p = p * s + 1.12819925e-1f;
  p = p * s - 3.76125336e-1f;
  p = p * s + 1.28379166e-1f;
  const float near = p * x + x;
  return small ? near : far;
}

// Below 0.95 an odd polynomial (Chebyshev interpolation of erf(x) / x - 1 in x^2), above it 1 - erfc(x)
// (Cephes).
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

#endif  // host

// d/dx of x/2 (1 + tanh(u)), u = c (x + 0.044715 x^3), c = sqrt(2 / pi). In terms of the logistic function
// s(2u), because 1 + tanh(u) and 1 - tanh(u)^2 lose their digits where tanh(u) is near -1 or 1:
//   slope = s + 2 x s (1 - s) u',  s (1 - s) = e / (1 + e)^2,  e = exp(-2 |u|)
template <class T>
GRADLOOM_HD T gelu_tanh_slope(T x) {
  const T c = T(0.79788456080286535588), k = T(0.044715);
  x = x > T(40) ? T(40) : x;  // the slope is 1 and 0 out there, and x^3 must not overflow
  x = x < T(-40) ? T(-40) : x;
  const T u = c * (x + k * x * x * x);
  const T e = exp(T(-2) * abs(u));
  const T d = T(1) / (T(1) + e);
  const T s = u < T(0) ? e * d : d;
  return s + T(2) * x * (e * d * d) * (c * (T(1) + T(3) * k * x * x));
}

}  // namespace gradloom::kernels::GRADLOOM_MATH_NAMESPACE
