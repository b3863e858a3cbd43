// The momenta of NAdam, the same text for every device, in f64:
//   mu(t) = beta1 (1 - 0.96^(t decay) / 2)    and the product mu(1) .. mu(t)
// Without a loop over the steps: with q = 0.96^decay the product is beta1^t exp(L), L = sum over s in 1..t of log(1 - q^s / 2). As
// log(1 - x) = - sum over k of x^k / k, and sums of powers over s are geometric,
//   L = - sum over k of q^k (1 - q^(k t)) / (1 - q^k) / (k 2^k)
// of which each term is less than half of the one before: kMomentumTerms are what f64 holds.
// Source: Dozat 2016, Incorporating Nesterov Momentum into Adam, with the schedule and names of torch.optim.NAdam.
#pragma once

#include "kernels/math.h"

namespace gradloom::kernels::GRADLOOM_MATH_NAMESPACE {

constexpr int kMomentumTerms = 52;
constexpr double kLogOfBase = -0.040821994520255166;  // log(0.96)

GRADLOOM_HD double nadam_momentum(double beta1, double decay, double t) {
  return beta1 * (1 - exp(kLogOfBase * decay * t) / 2);
}

// Term k of L, k in 1..kMomentumTerms. Of expm1(x t) / expm1(x), as expm1(x) = 2 tanh(x / 2) / (1 - tanh(x / 2)).
GRADLOOM_HD double momentum_term(int k, double decay, double t) {
  const double x = kLogOfBase * decay * k, a = tanh(x * t / 2), b = tanh(x / 2);
  const double powers = b == 0 ? t : a / (1 - a) * ((1 - b) / b);
  return -exp(x) * powers / (k * double(1ull << k));
}

// L, from its smallest term on.
GRADLOOM_HD double momentum_logarithms(double decay, double t) {
  double sum = 0;
  for (int k = kMomentumTerms; k > 0; --k) sum += momentum_term(k, decay, t);
  return sum;
}

}  // namespace gradloom::kernels::GRADLOOM_MATH_NAMESPACE
