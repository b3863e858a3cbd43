// Softmax of rows that lie dense, and of those whose log-sum-exp is known (softmax.cpp has the formulas).
#pragma once

#include "kernels/cpu/kernel.h"

namespace gradloom::kernels::GRADLOOM_ISA {

constexpr i64 kSoftmaxRows = 32;  // at most, at a time

// What exponentials are multiplied with, or, of the logarithm, what is subtracted besides the peak. With a
// finite base in place of the peak (`based`), exponentials of -inf alone are zeros, whose sum is 0.
template <class T>
GRADLOOM_INLINE T share(const SoftmaxArgs& args, double total) {
  return args.log ? log(T(total)) : args.safe && total == 0 ? T(0) : T(1.0 / total);
}
template <class T>
GRADLOOM_INLINE T based(const SoftmaxArgs& args, T peak) {
  return args.safe && peak == T(-__builtin_inf()) ? T(0) : peak;
}

// first: the number of the first of these rows.
template <class T>
void softmax_rows(const SoftmaxArgs& args, i64 first, i64 rows, const T* x, T* y) {
  const bool log_form = args.log;
  const i64 n = args.n;
  T peak[kSoftmaxRows], factor[kSoftmaxRows];
  double total[kSoftmaxRows];
  for (i64 r = 0; r < rows; ++r) peak[r] = based(args, peak_of(x + r * n, n));
  for (i64 r = 0; r < rows; ++r) {
    const T *const from = x + r * n, *const next = from + rows * n;
    T* const to = y + r * n;
    total[r] = log_form ? exp_sum<T>(from, n, peak[r], next, nullptr, to)
                        : exp_sum<T>(from, n, peak[r], next, to, to + rows * n);
  }
  for (i64 r = 0; r < rows; ++r) factor[r] = share<T>(args, total[r]);
  if (args.log_sum_exp != nullptr) {
    T* const sums = static_cast<T*>(args.log_sum_exp) + first;
    for (i64 r = 0; r < rows; ++r)
      sums[r] = total[r] == 0 ? T(-__builtin_inf()) : T(double(peak[r]) + log(total[r]));
  }
  for (i64 r = 0; r < rows; ++r, x += n, y += n) {
    if (log_form) {
#pragma GCC ivdep
      for (i64 i = 0; i < n; ++i) y[i] = (x[i] - peak[r]) - factor[r];
    } else {
      for (i64 i = 0; i < n; ++i) y[i] *= factor[r];
    }
  }
}

template <class T>
void softmax_again_row(const SoftmaxAgainArgs& args, T log_sum_exp, const T* x, T* y) {
  if (!(log_sum_exp >= -T(kTellingLogSumExp) && log_sum_exp <= T(kTellingLogSumExp)))
    return softmax_rows<T>({args.dtype, false, 1, args.n, 1, nullptr, nullptr, args.safe}, 0, 1, x, y);
  for_computed(x, args.n, [&](i64 i, const auto& v) { put(y + i, exp_down(v - log_sum_exp)); });
}

}  // namespace gradloom::kernels::GRADLOOM_ISA
