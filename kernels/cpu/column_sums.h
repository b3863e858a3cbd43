// Sums of exponentials of neighbouring columns of [n, inner], for softmax, log-sum-exp and cross-entropy
// along an axis that is not the last one. Columns go through memory once, some rows at a time through L1, as
// columns that are a power of two apart push each other out of the caches: peaks first, then the sums of
// exp(x - peak) for the peak so far (Milakov, Gimelshein: Online normalizer calculation for softmax, 2018).
#pragma once

#include "kernels/cpu/halves.h"
#include "kernels/cpu/workspace.h"

namespace gradloom::kernels::GRADLOOM_ISA {

constexpr i64 kColumnRows = 32;  // rows at a time; their sums are in T, all others in double

template <class T>
struct ColumnSums {
  T peak[kColumnStrip];        // the largest number, NaN left out; the lowest finite one where all are -inf
  double total[kColumnStrip];  // of exp(x - peak); NaN where a number is NaN or infinity
};

struct NotHeld {
  template <class... Rows>
  GRADLOOM_INLINE void operator()(const Rows&...) const {}
};

// held(first row, rows, [rows][kColumnStrip] of them as they are computed in) while rows are in L1.
template <class Stored, class Held = NotHeld>
GRADLOOM_INLINE void column_sums(const Stored* x, i64 n, i64 inner, i64 columns,
                                 ColumnSums<Computed<Stored>>& sums, const Held& held = {}) {
  using T = Computed<Stored>;
  T part[kColumnRows][kColumnStrip], before[kColumnStrip], sum[kColumnStrip];
  for (i64 c = 0; c < columns; ++c) {
    sums.peak[c] = sizeof(T) == 4 ? T(-__FLT_MAX__) : T(-__DBL_MAX__);
    sums.total[c] = 0;
  }
  for (i64 first = 0; first < n; first += kColumnRows) {
    const i64 rows = smaller(kColumnRows, n - first);
    const Stored* const next = first + rows < n ? x + (first + rows) * inner : x + kColumnStrip;
    for (i64 c = 0; c < columns; ++c) before[c] = sums.peak[c];
    for (i64 k = 0; k < rows; k += 2) {
      const Stored* const near = x + (first + k) * inner;
      const Stored* const far = near + (k + 1 < rows ? inner : 0);
      T *const low = part[k], *const high = part[k + 1 < rows ? k + 1 : k];
      for_computed(near, columns, [&](i64 c, auto v) {
        const auto w = get_computed(far + c, v);
        put(low + c, v);
        put(high + c, w);
        const auto peak = get(sums.peak + c, v), top = v > peak ? v : peak;
        put(sums.peak + c, w > top ? w : top);
      });
    }
    for_registers<T>(columns, [&](i64 c, auto total) {
      const auto peak = get(sums.peak + c, total);
      for (i64 k = 0; k < rows; ++k) {
        fetch(next + k * inner + c);
        total += exp_down(get(part[k] + c, total) - peak);
      }
      put(sum + c, total);
    });
    for (i64 c = 0; c < columns && first > 0; ++c)
      sums.total[c] *= double(exp_down(before[c] - sums.peak[c]));
    for (i64 c = 0; c < columns; ++c) sums.total[c] += double(sum[c]);
    held(first, rows, part);
  }
}

}  // namespace gradloom::kernels::GRADLOOM_ISA
