// Negative log-likelihood and softmax cross-entropy over classes n of [outer, n, inner], and their gradients
// (ONNX NegativeLogLikelihoodLoss-13, SoftmaxCrossEntropyLoss-13).
//   loss_i = -w[label_i] * log_prob[label_i];  mean: sum(loss) / sum(w[label]);  ignored rows add nothing
//   cross-entropy: log_prob = x - lse, lse = max + log(sum(exp(x - max)));  dx = (exp(x - lse) - onehot) * w
//   * dloss / total
// Totals are added in double in the order of the rows. A label outside [0, n) counts as ignored. Logits and
// their gradient may be bf16, all else is f32 then.
#include "kernels/cpu/halves.h"
#include "kernels/cpu/kernel.h"

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
  const i64 inner = args.inner, n = args.n, rows = args.outer * inner;
  parallel_pieces(args.outer, larger(1, 16384 / larger(1, n * inner)), rows * n, [&](i64 begin, i64 end) {
    for (i64 i = begin * n * inner; i < end * n * inner; ++i) out[i] = T(0);
    for (i64 row = begin * inner; row < end * inner; ++row) {
      const i64 label = label_of(args, row);
      if (label < 0) continue;
      const i64 o = row / inner;
      out[(o * n + label) * inner + row - o * inner] = T(-weight_of<T>(args, label) * upstream<T>(args, row));
    }
  });
}

// log(sum(exp(x))) of a row whose elements are `stride` apart.
template <class Stored>
double row_log_sum_exp(const Stored* x, i64 n, i64 stride) {
  using T = Computed<Stored>;
  if constexpr (!kWidened<Stored>) {
    if (stride == 1) {
      const T peak = peak_of(x, n);
      return double(peak) + log(exp_sum(x, n, peak, x + n));
    }
  }
  T part[kSumBlock];
  const auto row = peak_and_total(x, n, stride, part);
  return double(row.peak) + log(row.total);
}

template <class Stored>
void cross_entropy(const SoftmaxCrossEntropyArgs& args) {
  using T = Computed<Stored>;
  const Stored* const logits = static_cast<const Stored*>(args.logits);
  T* const lse = static_cast<T*>(args.log_sum_exp);
  T* const losses = static_cast<T*>(args.loss);
  const i64 inner = args.inner, n = args.n, rows = args.outer * inner;
  double* const row_loss = static_cast<double*>(args.workspace);
  double* const row_weight = row_loss + rows;
  parallel_pieces(rows, larger(1, 4096 / larger(1, n)), rows * n * 6, [&](i64 begin, i64 end) {
    for (i64 row = begin; row < end; ++row) {
      const i64 o = row / inner;
      const Stored* const x = logits + o * n * inner + row - o * inner;
      const double value = row_log_sum_exp(x, n, inner);
      if (lse != nullptr) lse[row] = T(value);
      const i64 label = label_of(args, row);
      row_weight[row] = label >= 0 ? weight_of<T>(args, label) : 0.0;
      row_loss[row] = label >= 0 ? row_weight[row] * (value - double(widen(x[label * inner]))) : 0.0;
    }
  });
  double loss = 0, weight = 0;
  for (i64 row = 0; row < rows; ++row) {
    loss += row_loss[row];
    weight += row_weight[row];
  }
  if (args.reduction == LossReduction::none) {
    for (i64 row = 0; row < rows; ++row) losses[row] = T(row_loss[row]);
  }
  finish_loss<T>(args, loss, weight);
}

// dx = exp(x - shift) * factor for n elements that are `stride` apart.
template <class Stored, class T>
GRADLOOM_INLINE void scaled_exp(const Stored* x, i64 n, i64 stride, T shift, T factor, Stored* dx) {
  constexpr int lanes = int(kLanes<T>);
  i64 k = 0;
  for (; stride == 1 && k + lanes <= n; k += lanes)
    store_computed<Stored, lanes>(dx + k, exp_down(load_computed<Stored, lanes>(x + k) - shift) * factor);
  for (; k < n; ++k) dx[k * stride] = narrow<Stored>(exp_down(widen(x[k * stride]) - shift) * factor);
}

template <class Stored>
void cross_entropy_grad(const SoftmaxCrossEntropyGradArgs& args) {
  using T = Computed<Stored>;
  const Stored* const logits = static_cast<const Stored*>(args.logits);
  const T* const lse = static_cast<const T*>(args.log_sum_exp);
  Stored* const out = static_cast<Stored*>(args.dlogits);
  const i64 inner = args.inner, n = args.n, rows = args.outer * inner;
  parallel_pieces(rows, larger(1, 4096 / larger(1, n)), rows * n * 6, [&](i64 begin, i64 end) {
    for (i64 row = begin; row < end; ++row) {
      const i64 o = row / inner;
      const i64 at = o * n * inner + row - o * inner;
      const i64 label = label_of(args, row);
      if (label < 0) {
        for (i64 k = 0; k < n; ++k) out[at + k * inner] = narrow<Stored>(T(0));
        continue;
      }
      const T factor = T(weight_of<T>(args, label) * upstream<T>(args, row)), shift = lse[row];
      const T target = widen(logits[at + label * inner]);
      scaled_exp(logits + at, n, inner, shift, factor, out + at);
      out[at + label * inner] = narrow<Stored>((exp_down(target - shift) - T(1)) * factor);
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
