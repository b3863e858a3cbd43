// Negative log-likelihood and softmax cross-entropy over classes n of [outer, n, inner], and their gradients
// (ONNX NegativeLogLikelihoodLoss-13, SoftmaxCrossEntropyLoss-13).
//   loss_i = -w[label_i] * log_prob[label_i];  mean: sum(loss) / sum(w[label]);  ignored rows add nothing
//   cross-entropy: log_prob = x - lse, lse = max + log(sum(exp(x - max)));  dx = (exp(x - lse) - onehot) * w
//   * dloss / total
// Totals are added in double in the order of the rows, those of neighbouring columns first. A label outside
// [0, n) counts as ignored. Logits and their gradient may be bf16, all else is f32 then.
#include "kernels/cpu/column_sums.h"

namespace gradloom::kernels::GRADLOOM_ISA {
namespace {

// The label of a row, or -1 when the row adds nothing.
template <class Args>
GRADLOOM_INLINE i64 label_of(const Args& args, i64 row) {
  const i64 label = read_index(args.label_dtype, args.labels, row);
  if (args.has_ignore && label == args.ignore_index) return -1;
  return label >= 0 && label < args.n ? label : -1;
}

template <class T, class Args>
GRADLOOM_INLINE double weight_of(const Args& args, i64 label) {
  return args.weight != nullptr ? double(static_cast<const T*>(args.weight)[label]) : 1.0;
}

template <class T, class Args>
void finish_loss(const Args& args, double loss, double weight) {
  if (args.reduction == LossReduction::mean) *static_cast<T*>(args.loss) = T(loss / weight);
  if (args.reduction == LossReduction::sum) *static_cast<T*>(args.loss) = T(loss);
  if (args.total_weight != nullptr) *static_cast<T*>(args.total_weight) = T(weight);
}

// What a row's gradient is multiplied with, apart from its weight.
template <class T, class Args>
GRADLOOM_INLINE double upstream(const Args& args, i64 row) {
  const T* const dloss = static_cast<const T*>(args.dloss);
  if (args.reduction == LossReduction::none) return double(dloss[row]);
  if (args.reduction == LossReduction::sum) return double(dloss[0]);
  return double(dloss[0]) / double(*static_cast<const T*>(args.total_weight));
}

template <class T>
void nll(const NllLossArgs& args) {
  const T* const log_prob = static_cast<const T*>(args.log_prob);
  T* const losses = static_cast<T*>(args.loss);
  double loss = 0, weight = 0;
  for (i64 row = 0; row < args.outer * args.inner; ++row) {
    const i64 label = label_of(args, row);
    double value = 0;
    if (label >= 0) {
      const i64 o = row / args.inner;
      const double w = weight_of<T>(args, label);
      value = -w * double(log_prob[(o * args.n + label) * args.inner + row - o * args.inner]);
      weight += w;
    }
    loss += value;
    if (args.reduction == LossReduction::none) losses[row] = T(value);
  }
  finish_loss<T>(args, loss, weight);
}

template <class T>
void nll_grad(const NllLossGradArgs& args) {
  T* const out = static_cast<T*>(args.dlog_prob);
  const i64 inner = args.inner, n = args.n, rows = args.outer * inner, work = rows * n * i64(sizeof(T));
  parallel_pieces(args.outer, larger(1, 16384 / larger(1, n * inner)), work, [&](i64 begin, i64 end) {
    for (i64 i = begin * n * inner; i < end * n * inner; ++i) out[i] = T(0);
    for (i64 row = begin * inner; row < end * inner; ++row) {
      const i64 label = label_of(args, row);
      if (label < 0) continue;
      const i64 o = row / inner;
      out[(o * n + label) * inner + row - o * inner] = T(-weight_of<T>(args, label) * upstream<T>(args, row));
    }
  });
}

// log(sum(exp(x))) of a row.
template <class Stored>
double row_log_sum_exp(const Stored* x, i64 n) {
  using T = Computed<Stored>;
  if constexpr (!kWidened<Stored>) {
    const T peak = peak_of(x, n);
    return double(peak) + log(exp_sum(x, n, peak, x + n));
  } else {
    T part[kSumBlock];
    const auto row = peak_and_total(x, n, part);
    return double(row.peak) + log(row.total);
  }
}

// Labels of a strip of columns, as wide as T; the largest word is no label.
template <class T>
using Labels = Word<T>[kColumnStrip];
template <class T>
constexpr Word<T> kNoLabel = ~Word<T>(0);

// log(sum(exp(x))) of `columns` columns of [n, inner], and what each has at its label.
template <class Stored, class T>
void column_log_sum_exp(const Stored* x, i64 n, i64 inner, i64 columns, const Labels<T>& labels,
                        double* value, T* target) {
  ColumnSums<T> sums;
  for (i64 c = 0; c < columns; ++c) target[c] = T(0);
  column_sums(x, n, inner, columns, sums, [&](i64 first, i64 rows, const T(*part)[kColumnStrip]) {
    for (i64 c = 0; c < columns; ++c) {
      const Word<T> k = labels[c] - Word<T>(first);
      if (k < Word<T>(rows)) target[c] = part[k][c];
    }
  });
  // An infinite peak makes NaN, as in a row.
  const T* const peak = sums.peak;
#pragma GCC ivdep
  for (i64 c = 0; c < columns; ++c)
    value[c] = double(peak[c]) + double(log(T(sums.total[c])) + (peak[c] - peak[c]));
}

// dx = (exp(x - lse) - onehot) * factor of a row; without a label zeros.
template <class Stored, class T>
GRADLOOM_INLINE void row_gradient(const Stored* x, i64 n, Word<T> label, T lse, T factor, Stored* dx) {
  if (label == kNoLabel<T>) return void(__builtin_memset(dx, 0, std::size_t(n) * sizeof(Stored)));
  const T target = widen(x[label]);  // dx may be x
  for_computed(x, n, [&](i64 k, const auto& v) { put_computed(dx + k, exp_down(v - lse) * factor); });
  dx[label] = narrow<Stored>((exp_down(target - lse) - T(1)) * factor);
}

// body(strip, row, columns, at) for every strip of neighbouring rows of [outer, n, inner], the first element
// of its first row at `at`.
template <class Args, class Body>
void for_strips(const Args& args, const Body& body) {
  const i64 outer = args.outer, n = args.n, inner = args.inner, pitch = args.pitch > 0 ? args.pitch : n;
  const i64 width = loss_strip(inner), strips = ceil_div(inner, width);
  parallel_pieces(
      outer * strips, larger(1, 4096 / larger(1, n * width)), outer * n * inner * 6, [&](i64 begin, i64 end) {
        for (i64 strip = begin; strip < end; ++strip) {
          const i64 o = strip / strips, column = strip % strips * width;
          body(strip, o * inner + column, smaller(width, inner - column), o * pitch * inner + column);
        }
      });
}

template <class Stored>
void cross_entropy(const SoftmaxCrossEntropyArgs& args) {
  using T = Computed<Stored>;
  const Stored* const logits = static_cast<const Stored*>(args.logits);
  T* const lse = static_cast<T*>(args.log_sum_exp);
  T* const targets = static_cast<T*>(args.targets);
  T* const losses = static_cast<T*>(args.loss);
  const i64 inner = args.inner, n = args.n, strips = loss_strips(args.outer, inner);
  double* const strip_loss = static_cast<double*>(args.workspace);
  double* const strip_weight = strip_loss + strips;
  const bool each = args.reduction == LossReduction::none && losses != nullptr;
  for_strips(args, [&](i64 strip, i64 first, i64 columns, i64 at) {
    double value[kColumnStrip], lost[kColumnStrip], weight[kColumnStrip];
    T target[kColumnStrip];
    Labels<T> labels;
    for (i64 c = 0; c < columns; ++c) labels[c] = Word<T>(label_of(args, first + c));
    if (inner > 1) {
      column_log_sum_exp<Stored, T>(logits + at, n, inner, columns, labels, value, target);
    } else {
      value[0] = row_log_sum_exp(logits + at, n);
      target[0] = labels[0] == kNoLabel<T> ? T(0) : widen(logits[at + i64(labels[0])]);
    }
    for (i64 c = 0; c < columns && lse != nullptr; ++c) lse[first + c] = T(value[c]);
    for (i64 c = 0; c < columns && targets != nullptr; ++c) targets[first + c] = target[c];
    for (i64 c = 0; c < columns; ++c) weight[c] = labels[c] == kNoLabel<T> ? 0.0 : 1.0;
    for (i64 c = 0; c < columns && args.weight != nullptr; ++c)
      if (labels[c] != kNoLabel<T>) weight[c] = weight_of<T>(args, i64(labels[c]));
    for (i64 c = 0; c < columns; ++c)
      lost[c] = labels[c] == kNoLabel<T> ? 0.0 : weight[c] * (value[c] - double(target[c]));
    for (i64 c = 0; c < columns && each; ++c) losses[first + c] = T(lost[c]);
    strip_loss[strip] = sum(lost, columns);
    strip_weight[strip] = sum(weight, columns);
    if (args.dlogits == nullptr) return;
    const T factor = T(weight[0] * double(static_cast<const T*>(args.dloss)[0]));
    row_gradient(logits + at, n, labels[0], T(value[0]), factor, static_cast<Stored*>(args.dlogits) + at);
  });
  double loss = 0, weight = 0;
  for (i64 strip = 0; strip < strips; ++strip) {
    loss += strip_loss[strip];
    weight += strip_weight[strip];
  }
  finish_loss<T>(args, loss, weight);
}

// Row k of a strip that is read kRowsSoon rows from now, in the next strip if need be.
constexpr i64 kRowsSoon = 6;
template <class Stored>
GRADLOOM_INLINE Stored* row_soon(Stored* x, i64 k, i64 n, i64 inner) {
  const i64 later = k + kRowsSoon;
  return x + (later < n ? later * inner : later % n * inner + kColumnStrip);
}

// The same of columns; 0 where there is no label.
template <class Stored, class T>
GRADLOOM_INLINE void column_gradients(const Stored* x, i64 n, i64 inner, i64 columns, const Labels<T>& labels,
                                      const T* lse, const T* factor, Stored* dx) {
  for (i64 k = 0; k < n; ++k) {
    const Stored* const next = row_soon(x, k, n, inner);
    Stored* const written = row_soon(dx, k, n, inner);
    for_computed(x + k * inner, columns, [&](i64 c, auto v) {
      fetch(next + c);
      fetch_to_write(written + c);
      const auto label = get(labels + c, Word<decltype(v)>{});
      const auto e = exp_down(v - get(lse + c, v));
      const auto slope = (label == Word<T>(k) ? e - T(1) : e) * get(factor + c, v);
      put_computed(dx + k * inner + c, label == kNoLabel<T> ? decltype(v){} : slope);
    });
  }
}

// dx = exp(x - lse) * factor + onehot * hot of columns of [n, inner], of which each may be without a label.
template <class Stored, class T>
GRADLOOM_INLINE void part_gradients(const Stored* x, i64 n, i64 inner, i64 columns, const Labels<T>& labels,
                                    const T* lse, const T* factor, const T* hot, Stored* dx) {
  if (inner == 1) {
    const bool here = labels[0] != kNoLabel<T>;
    const i64 label = here ? i64(labels[0]) : 0;
    const T target = widen(x[label]);  // dx may be x
    for_computed(x, n, [&](i64 k, const auto& v) { put_computed(dx + k, exp_down(v - lse[0]) * factor[0]); });
    if (here) dx[label] = narrow<Stored>(exp_down(target - lse[0]) * factor[0] + hot[0]);
    return;
  }
  for (i64 k = 0; k < n; ++k) {
    for_computed(x + k * inner, columns, [&](i64 c, auto v) {
      const auto label = get(labels + c, Word<decltype(v)>{});
      const auto slope = exp_down(v - get(lse + c, v)) * get(factor + c, v);
      put_computed(dx + k * inner + c, label == Word<T>(k) ? slope + get(hot + c, v) : slope);
    });
  }
}

// The same of all columns.
template <class Stored>
void cross_entropy_part_grad(const SoftmaxCrossEntropyGradArgs& args) {
  using T = Computed<Stored>;
  const Stored* const logits = static_cast<const Stored*>(args.logits);
  const T* const lse = static_cast<const T*>(args.log_sum_exp);
  const T* const factor = static_cast<const T*>(args.dloss);
  const T* const hot = static_cast<const T*>(args.dtargets);
  for_strips(args, [&](i64, i64 first, i64 columns, i64 at) {
    Labels<T> labels;
    for (i64 c = 0; c < columns; ++c) labels[c] = Word<T>(label_of(args, first + c));
    part_gradients<Stored, T>(logits + at, args.n, args.inner, columns, labels, lse + first, factor + first,
                              hot + first, static_cast<Stored*>(args.dlogits) + at);
  });
}

template <class Stored>
void cross_entropy_grad(const SoftmaxCrossEntropyGradArgs& args) {
  if (args.dtargets != nullptr) return cross_entropy_part_grad<Stored>(args);
  using T = Computed<Stored>;
  const Stored* const logits = static_cast<const Stored*>(args.logits);
  const T* const lse = static_cast<const T*>(args.log_sum_exp);
  Stored* const out = static_cast<Stored*>(args.dlogits);
  const i64 inner = args.inner, n = args.n;
  const bool each = args.reduction == LossReduction::none;
  const double common = each || args.outer * inner == 0 ? 0 : upstream<T>(args, 0);
  for_strips(args, [&](i64, i64 first, i64 columns, i64 at) {
    Labels<T> labels;
    T factor[kColumnStrip];
    for (i64 c = 0; c < columns; ++c) {
      const i64 label = label_of(args, first + c);
      labels[c] = Word<T>(label);
      factor[c] =
          label < 0 ? T(0) : T(weight_of<T>(args, label) * (each ? upstream<T>(args, first + c) : common));
    }
    if (inner > 1) {
      column_gradients<Stored, T>(logits + at, n, inner, columns, labels, lse + first, factor, out + at);
    } else {
      row_gradient(logits + at, n, labels[0], lse[first], factor[0], out + at);
    }
  });
}

}  // namespace

void nll_loss(const NllLossArgs& args) { GRADLOOM_FLOAT_DISPATCH(args.dtype, nll, args); }
void nll_loss_grad(const NllLossGradArgs& args) { GRADLOOM_FLOAT_DISPATCH(args.dtype, nll_grad, args); }
void softmax_cross_entropy(const SoftmaxCrossEntropyArgs& args) {
  if (args.dtype == DType::bf16) return cross_entropy<Brain>(args);
  GRADLOOM_FLOAT_DISPATCH(args.dtype, cross_entropy, args);
}
void softmax_cross_entropy_grad(const SoftmaxCrossEntropyGradArgs& args) {
  if (args.dtype == DType::bf16) return cross_entropy_grad<Brain>(args);
  GRADLOOM_FLOAT_DISPATCH(args.dtype, cross_entropy_grad, args);
}

}  // namespace gradloom::kernels::GRADLOOM_ISA
