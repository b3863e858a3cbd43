// A part of math.h: softplus, GELU in both forms, and slopes. On the host f32 has forms of its own.
#pragma once

namespace gradloom::kernels::GRADLOOM_MATH_NAMESPACE {

// log(1 + exp(x)).
template <class T>
GRADLOOM_HD T softplus(T x) {
  return max(x, T(0)) + log1p(exp(-abs(x)));
}

// x Phi(x), Phi the distribution function of the normal distribution, and its slope Phi(x) + x Phi'(x).
template <class T>
GRADLOOM_HD T gelu(T x) {
  return T(0.5) * x * (T(1) + erf(x * T(0.70710678118654752440)));
}
template <class T>
GRADLOOM_HD T gelu_slope(T x) {
  return T(0.5) * (T(1) + erf(x * T(0.70710678118654752440))) +
         x * T(0.39894228040143267794) * exp(T(-0.5) * x * x);
}

#if !defined(__CUDA_ARCH__) && !defined(__HIP_DEVICE_COMPILE__)

GRADLOOM_HD float softplus(float x) {
  const float e = exp_down(-abs(x)), e2 = e * e, e4 = e2 * e2;
  const float low = (1.91536486e-1f * e - 2.48571619e-1f) * e2 + (3.33213210e-1f * e - 4.99996483e-1f);
  const float high = (5.36479801e-3f * e - 3.00656874e-2f) * e2 + (7.92043656e-2f * e - 1.37537882e-1f);
  return max(x, 0.0f) + ((high * e4 + low) * e2 + e);  // log(1 + e)
}

// Phi(-|x|) = exp(-x^2 / 2) P(k), k = 1 / (1 + 0.3 |x|): keeps its digits where x is far below 0.
struct Normal {
  float distribution, bell;  // Phi(x), exp(-x^2 / 2)
};
GRADLOOM_HD Normal normal(float x) {
  const float bell = exp_down(-0.5f * x * x);
  const float k = 1.0f / (1.0f + 0.3f * abs(x)), k2 = k * k;
  const float low = (1.24125801e-1f * k + 1.01636671e-1f) * k2 + (1.20408759e-1f * k + 1.19656719e-1f);
  const float high = (3.53828073e-2f * k - 1.55204609e-1f) * k2 + (2.01322734e-1f * k - 4.73288745e-2f);
  const float tail = bell * ((high * (k2 * k2) + low) * k);
  return {x < 0.0f ? tail : 1.0f - tail, bell};
}
GRADLOOM_HD float gelu(float x) { return x * normal(x).distribution; }
GRADLOOM_HD float gelu_slope(float x) {
  const Normal n = normal(x);
  return n.distribution + x * 0.39894228040143267794f * n.bell;
}

#endif  // host

// x/2 (1 + tanh(u)) = x / (1 + exp(-2 u)), u = c (x + 0.044715 x^3), c = sqrt(2 / pi), and its slope. In
// terms of the logistic function s(2u), because 1 + tanh(u) and 1 - tanh(u)^2 lose their digits where tanh(u)
// is near -1 or 1:
//   slope = s + 2 x s (1 - s) u',  s (1 - s) = e / (1 + e)^2,  e = exp(-2 u)
template <class T>
GRADLOOM_HD T gelu_tanh(T x) {
  return x / (T(1) + exp(x * (T(-1.59576912160573071176) + T(-0.07135481627260025) * x * x)));
}
template <class T>
GRADLOOM_HD T gelu_tanh_slope(T x) {
  const T c = T(1.59576912160573071176), k = T(0.07135481627260025);  // 2 c, 2 c 0.044715
  x = x > T(10) ? T(10) : x;  // the slope is 1 and 0 out there, and e must not overflow
  x = x < T(-10) ? T(-10) : x;
  const T x2 = x * x, e = exp_down(-x * (c + k * x2)), s = T(1) / (T(1) + e);
  return s + x * (e * s * s) * (c + T(3) * k * x2);
}

}  // namespace gradloom::kernels::GRADLOOM_MATH_NAMESPACE
