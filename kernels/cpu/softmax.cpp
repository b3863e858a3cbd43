// Softmax and log-softmax along the middle axis of [outer, n, inner], and their gradients (ONNX-13 Softmax).
//   y = exp(x - max) / sum(exp(x - max));  log: y = x - max - log(sum(exp(x - max)))
//   dx = y * (dy - sum(dy * y));           log: dx = dy - exp(y) * sum(dy)
// and the softmax of rows whose log-sum-exp is known: y = exp(x - log_sum_exp).
// inner = 1 (the usual case) goes row by row, of bf16 too; otherwise strips of columns advance together.
#include "kernels/cpu/column_sums.h"
#include "kernels/cpu/softmax_rows.h"

namespace gradloom::kernels::GRADLOOM_ISA {
namespace {

// Short rows step by step together, so that no step waits for what another one has just summed up. No more of
// them than that takes: the more, the longer the memory idles in the other steps.
GRADLOOM_INLINE i64 rows_together(i64 n) { return larger(1, smaller(kSoftmaxRows, 512 / n)); }

// The same where memory holds another type: through rows in L1, or through parts of a row that is longer.
template <class Stored>
void softmax_widened_rows(const SoftmaxArgs& args, i64 rows, const Stored* x, Stored* y) {
  using T = Computed<Stored>;
  const i64 n = args.n;
  T part[kSumBlock];
  if (n <= kSumBlock) {
    read_row(x, rows * n, part);
    softmax_rows<T>(args, 0, rows, part, part);
    return write_row(part, rows * n, y);
  }
  const auto row = peak_and_total(x, n, part);
  const bool empty = args.safe && row.peak == T(-__builtin_inf());
  const T peak = based(args, row.peak), factor = share<T>(args, empty ? 0 : row.total);
  for_row_parts(n, [&](i64 begin, i64 count) {
    read_row(x + begin, count, part);
    if (!args.log) exp_sum(part, count, peak, part, part);
    for (i64 i = 0; i < count; ++i) part[i] = args.log ? (part[i] - peak) - factor : part[i] * factor;
    write_row(part, count, y + begin);
  });
}

template <class T>
void softmax_columns(const SoftmaxArgs& args, const T* x, T* y, i64 columns) {
  ColumnSums<T> sums;
  T factor[kColumnStrip];
  const i64 n = args.n, inner = args.inner;
  column_sums(x, n, inner, columns, sums);
  for (i64 c = 0; c < columns; ++c) factor[c] = share<T>(args, sums.total[c]);
  for (i64 k = 0; k < n; ++k) {
    T* const to = y + k * inner;
    for_computed(x + k * inner, columns, [&](i64 c, const auto& v) {
      const auto down = v - get(sums.peak + c, v), by = get(factor + c, v);
      put(to + c, args.log ? down - by : exp_down(down) * by);
    });
  }
}

template <class Stored>
void softmax_of_rows(const SoftmaxArgs& args) {
  const Stored* const x = static_cast<const Stored*>(args.x);
  Stored* const y = static_cast<Stored*>(args.y);
  const i64 n = args.n, rows = n > 0 ? rows_together(n) : 1;
  parallel_pieces(args.outer, larger(1, 4096 / larger(1, n)), args.outer * n * 8, [&](i64 begin, i64 end) {
    for (i64 row = begin; row < end && n > 0; row += rows) {
      const i64 count = smaller(rows, end - row);
      if constexpr (kWidened<Stored>) {
        softmax_widened_rows(args, count, x + row * n, y + row * n);
      } else {
        softmax_rows(args, row, count, x + row * n, y + row * n);
      }
    }
  });
}

template <class T>
void softmax_typed(const SoftmaxArgs& args) {
  const T* const x = static_cast<const T*>(args.x);
  T* const y = static_cast<T*>(args.y);
  const i64 work = args.outer * args.n * args.inner * 8;
  if (work == 0) return;
  if (args.inner == 1) return softmax_of_rows<T>(args);
  const i64 strips = ceil_div(args.inner, kColumnStrip);
  parallel_for(args.outer * strips, work, [&](i64 part) {
    const i64 column = part % strips * kColumnStrip;
    const i64 offset = part / strips * args.n * args.inner + column;
    softmax_columns(args, x + offset, y + offset, smaller(kColumnStrip, args.inner - column));
  });
}

template <class T>
void softmax_again_typed(const SoftmaxAgainArgs& args) {
  const T *const x = static_cast<const T*>(args.x), *const sums = static_cast<const T*>(args.log_sum_exp);
  T* const y = static_cast<T*>(args.y);
  const i64 n = args.n;
  parallel_pieces(args.rows, larger(1, 4096 / larger(1, n)), args.rows * n * 5, [&](i64 begin, i64 end) {
    for (i64 row = begin; row < end && n > 0; ++row)
      softmax_again_row(args, sums[row], x + row * n, y + row * n);
  });
}

// dx = dy - exp(y) * total, the log form; dx may be dy.
template <class T>
GRADLOOM_INLINE void log_softmax_slopes(const T* dy, const T* y, i64 n, T total, T* dx) {
  for_computed(y, n, [&](i64 i, const auto& v) { put(dx + i, get(dy + i, v) - exp_down(v) * total); });
}

template <class T>
void softmax_grad_row(const SoftmaxGradArgs& args, i64 row, const T* dy, const T* y, T* dx) {
  const i64 n = args.n;
  if (args.log) {
    return log_softmax_slopes(dy, y, n, T(sum(dy, n)), dx);
  }
  const T total = args.known_sums != nullptr
                      ? static_cast<const T*>(args.known_sums)[row]
                      : T(sum_of(dy, y, n, [](const auto& a, const auto& b) { return a * b; }));
#pragma GCC ivdep
  for (i64 i = 0; i < n; ++i) dx[i] = y[i] * (dy[i] - total);
}

template <class Stored>
void softmax_grad_widened_row(bool log_form, i64 n, const Stored* dy, const Stored* y, Stored* dx) {
  using T = Computed<Stored>;
  T slope[kSumBlock], value[kSumBlock];
  const auto read = [&](i64 begin, i64 count) {
    read_row(dy + begin, count, slope);
    read_row(y + begin, count, value);
  };
  double sums = 0;
  for_row_parts(n, [&](i64 begin, i64 count) {
    read(begin, count);
    sums += log_form ? sum(slope, count)
                     : sum_of(slope, value, count, [](const auto& a, const auto& b) { return a * b; });
  });
  const T total = T(sums);
  for_row_parts(n, [&](i64 begin, i64 count) {
    if (n > kSumBlock) read(begin, count);  // else they are there
    if (log_form) {
      log_softmax_slopes(slope, value, count, total, slope);
    } else {
      for (i64 i = 0; i < count; ++i) slope[i] = value[i] * (slope[i] - total);
    }
    write_row(slope, count, dx + begin);
  });
}

template <class T>
void softmax_grad_columns(const SoftmaxGradArgs& args, const T* dy, const T* y, T* dx, i64 columns) {
  double total[kColumnStrip];
  const i64 n = args.n, inner = args.inner;
  for (i64 c = 0; c < columns; ++c) total[c] = 0;
  for (i64 k = 0; k < n; ++k) {
    for (i64 c = 0; c < columns; ++c) {
      const double g = double(dy[k * inner + c]);
      total[c] += args.log ? g : g * double(y[k * inner + c]);
    }
  }
  T sums[kColumnStrip];
  for (i64 c = 0; c < columns; ++c) sums[c] = T(total[c]);
  for (i64 k = 0; k < n; ++k) {
    for_computed(y + k * inner, columns, [&](i64 c, const auto& v) {
      const auto slope = get(dy + k * inner + c, v), by = get(sums + c, v);
      put(dx + k * inner + c, args.log ? slope - exp_down(v) * by : v * (slope - by));
    });
  }
}

template <class Stored>
void softmax_grad_of_rows(const SoftmaxGradArgs& args) {
  const Stored *const dy = static_cast<const Stored*>(args.dy), *const y = static_cast<const Stored*>(args.y);
  Stored* const dx = static_cast<Stored*>(args.dx);
  const i64 n = args.n;
  parallel_pieces(args.outer, larger(1, 4096 / larger(1, n)), args.outer * n * (args.log ? 8 : 3),
                  [&](i64 begin, i64 end) {
                    for (i64 row = begin; row < end; ++row) {
                      if constexpr (kWidened<Stored>) {
                        softmax_grad_widened_row(args.log, n, dy + row * n, y + row * n, dx + row * n);
                      } else {
                        softmax_grad_row(args, row, dy + row * n, y + row * n, dx + row * n);
                      }
                    }
                  });
}

template <class T>
void softmax_grad_typed(const SoftmaxGradArgs& args) {
  const T* const dy = static_cast<const T*>(args.dy);
  const T* const y = static_cast<const T*>(args.y);
  T* const dx = static_cast<T*>(args.dx);
  const i64 work = args.outer * args.n * args.inner * (args.log ? 8 : 3);
  if (work == 0) return;
  if (args.inner == 1) return softmax_grad_of_rows<T>(args);
  const i64 strips = ceil_div(args.inner, kColumnStrip);
  parallel_for(args.outer * strips, work, [&](i64 part) {
    const i64 column = part % strips * kColumnStrip;
    const i64 offset = part / strips * args.n * args.inner + column;
    softmax_grad_columns(args, dy + offset, y + offset, dx + offset,
                         smaller(kColumnStrip, args.inner - column));
  });
}

}  // namespace

void softmax(const SoftmaxArgs& args) {
  if (args.dtype == DType::bf16) return softmax_of_rows<Brain>(args);
  GRADLOOM_FLOAT_DISPATCH(args.dtype, softmax_typed, args);
}
void softmax_again(const SoftmaxAgainArgs& args) {
  GRADLOOM_FLOAT_DISPATCH(args.dtype, softmax_again_typed, args);
}
void softmax_grad(const SoftmaxGradArgs& args) {
  if (args.dtype == DType::bf16) return softmax_grad_of_rows<Brain>(args);
  GRADLOOM_FLOAT_DISPATCH(args.dtype, softmax_grad_typed, args);
}

}  // namespace gradloom::kernels::GRADLOOM_ISA
