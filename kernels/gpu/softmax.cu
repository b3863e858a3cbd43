// Softmax and log-softmax along the middle axis of [outer, n, inner], and their gradients (ONNX-13 Softmax).
//   y = exp(x - max) / sum(exp(x - max));  log: y = x - max - log(sum(exp(x - max)))
//   dx = y * (dy - sum(dy * y));           log: dx = dy - exp(y) * sum(dy)
// and the softmax of rows whose log-sum-exp is known: y = exp(x - log_sum_exp).
// inner = 1: rows (rows.h), in registers up to 8192 elements; longer ones find maximum and sum in one pass
// (Milakov, Gimelshein 2018, "Online normalizer calculation for softmax") and are read twice. inner > 1:
// columns, read twice. y may be x, dx may be dy.
#include "kernels/gpu/kernels.h"
#include "kernels/gpu/rows.h"

namespace gradloom::kernels::gpu {
namespace {

// What makes y of x.
template <class A>
struct Normalizer {
  bool log_form;
  A peak, shift, factor, log_sum_exp;

  GRADLOOM_DEVICE Normalizer(const SoftmaxArgs& args, const LogSumExp<A>& sum) : log_form(args.log) {
    const bool empty = args.safe && sum.peak == -infinity<A>();
    peak = empty ? A(0) : sum.peak;
    shift = log(sum.total);
    factor = empty ? A(0) : A(1) / sum.total;
    log_sum_exp = empty ? sum.peak : sum.peak + shift;
  }
  template <int V>
  GRADLOOM_DEVICE void apply(A* v) const {
#pragma unroll
    for (int e = 0; e < V; ++e) v[e] = log_form ? (v[e] - peak) - shift : exp(v[e] - peak) * factor;
  }
};

// dx of V elements from dy in `g`.
template <int V, class A>
GRADLOOM_DEVICE void slopes(bool log_form, A total, const A* y, A* g) {
#pragma unroll
  for (int e = 0; e < V; ++e) g[e] = log_form ? g[e] - exp(y[e]) * total : y[e] * (g[e] - total);
}
template <int V, class A>
GRADLOOM_DEVICE A slope_sum(bool log_form, const A* y, const A* g) {
  A sum = 0;
#pragma unroll
  for (int e = 0; e < V; ++e) sum += log_form ? g[e] : g[e] * y[e];
  return sum;
}

// By one thread of a row; `sums`: null where nobody wants it.
template <class A>
GRADLOOM_DEVICE void write_log_sum(void* sums, const RowGroup& group, i64 row, i64 rows, A log_sum_exp) {
  if (sums != nullptr && group.lane == 0 && row < rows) static_cast<A*>(sums)[row] = log_sum_exp;
}

template <class T, int V, bool held>
__global__ void __launch_bounds__(kRowThreads) softmax_rows(SoftmaxArgs args, int lanes) {
  using A = Accum<T>;
  const RowGroup group(lanes);
  for (i64 first = group.first(); first < args.outer; first += group.step()) {
    const i64 row = first + group.row, cols = row < args.outer ? args.n : 0;
    const T* const x = static_cast<const T*>(args.x) + row * args.n;
    T* const y = static_cast<T*>(args.y) + row * args.n;
    if constexpr (held) {
      A v[kRowValues];
      const Normalizer<A> normalizer(args, held_log_sum_exp<V>(group, x, cols, v));
      write_log_sum(args.log_sum_exp, group, row, args.outer, normalizer.log_sum_exp);
      group.each_held<V>(cols, [&](int i, int c) {
        normalizer.template apply<V>(v + i);
        store_values<V>(y + c, v + i);
      });
    } else {
      const Normalizer<A> normalizer(args, streamed_log_sum_exp<V>(group, x, cols));
      write_log_sum(args.log_sum_exp, group, row, args.outer, normalizer.log_sum_exp);
      group.each<V>(cols, [&](i64 c) {
        A v[V];
        load_values<V>(x + c, v);
        normalizer.template apply<V>(v);
        store_values<V>(y + c, v);
      });
    }
  }
}

template <class T>
__global__ void __launch_bounds__(kColumnThreads) softmax_columns(SoftmaxArgs args, int slices) {
  using A = Accum<T>;
  const ColumnGroup group(slices);
  const i64 columns = args.outer * args.inner;
  for (i64 first = group.first(); first < columns; first += group.step()) {
    const i64 column = first + group.column;
    const bool exists = column < columns;
    const i64 at = exists ? column_offset(column, args.n, args.inner) : 0;
    const T* const x = static_cast<const T*>(args.x) + at;
    T* const y = static_cast<T*>(args.y) + at;
    const Normalizer<A> normalizer(args, column_log_sum_exp(group, x, exists, args.n, args.inner));
    group.each(exists, args.n, args.inner, [&](i64 k) {
      A v = to_accum(x[k]);
      normalizer.template apply<1>(&v);
      y[k] = from_accum<T>(v);
    });
  }
}

// Rows that their log-sum-exp does not tell are summed as softmax_rows sums them; the others of a warp take part in it.
template <class T, int V>
__global__ void __launch_bounds__(kRowThreads) softmax_again_rows(SoftmaxAgainArgs args, int lanes) {
  using A = Accum<T>;
  const RowGroup group(lanes);
  const SoftmaxArgs whole{args.dtype, false, args.rows, args.n, 1, args.x, args.y, args.safe};
  for (i64 first = group.first(); first < args.rows; first += group.step()) {
    const i64 row = first + group.row, cols = row < args.rows ? args.n : 0;
    const T* const x = static_cast<const T*>(args.x) + row * args.n;
    T* const y = static_cast<T*>(args.y) + row * args.n;
    const A known = cols > 0 ? A(static_cast<const T*>(args.log_sum_exp)[row]) : A(0);
    const bool tells = known >= -A(kTellingLogSumExp) && known <= A(kTellingLogSumExp);
    LogSumExp<A> sum;
    const bool asked = block_reduce(tells ? 0 : 1, Largest(), 0) != 0;
    if (asked) sum = streamed_log_sum_exp<V>(group, x, cols);
    const Normalizer<A> normalizer(whole, sum);
    group.each<V>(cols, [&](i64 c) {
      A v[V];
      load_values<V>(x + c, v);
      if (!tells) normalizer.template apply<V>(v);
      for (int e = 0; tells && e < V; ++e) v[e] = exp(v[e] - known);
      store_values<V>(y + c, v);
    });
  }
}

template <class T, int V, bool held>
__global__ void __launch_bounds__(kRowThreads) softmax_grad_rows(SoftmaxGradArgs args, int lanes) {
  using A = Accum<T>;
  const RowGroup group(lanes);
  for (i64 first = group.first(); first < args.outer; first += group.step()) {
    const i64 row = first + group.row, cols = row < args.outer ? args.n : 0;
    const T* const dy = static_cast<const T*>(args.dy) + row * args.n;
    const T* const y = static_cast<const T*>(args.y) + row * args.n;
    T* const dx = static_cast<T*>(args.dx) + row * args.n;
    const A* const known = static_cast<const A*>(args.known_sums);
    A total = known != nullptr && cols > 0 ? known[row] : A(0);
    if constexpr (held) {
      A g[kRowValues], v[kRowValues];
      group.each_held<V>(cols, [&](int i, int c) {
        load_values<V>(dy + c, g + i);
        load_values<V>(y + c, v + i);
      });
      if (known == nullptr) {
        group.each_held<V>(cols, [&](int i, int) { total += slope_sum<V>(args.log, v + i, g + i); });
        total = group.reduce(total, Sum(), A(0));
      }
      group.each_held<V>(cols, [&](int i, int c) {
        slopes<V>(args.log, total, v + i, g + i);
        store_values<V>(dx + c, g + i);
      });
    } else {
      A g[V], v[V];
      if (known == nullptr) {
        group.each<V>(cols, [&](i64 c) {
          load_values<V>(dy + c, g);
          load_values<V>(y + c, v);
          total += slope_sum<V>(args.log, v, g);
        });
        total = group.reduce(total, Sum(), A(0));
      }
      group.each<V>(cols, [&](i64 c) {
        load_values<V>(dy + c, g);
        load_values<V>(y + c, v);
        slopes<V>(args.log, total, v, g);
        store_values<V>(dx + c, g);
      });
    }
  }
}

template <class T>
__global__ void __launch_bounds__(kColumnThreads) softmax_grad_columns(SoftmaxGradArgs args, int slices) {
  using A = Accum<T>;
  const ColumnGroup group(slices);
  const i64 columns = args.outer * args.inner;
  for (i64 first = group.first(); first < columns; first += group.step()) {
    const i64 column = first + group.column;
    const bool exists = column < columns;
    const i64 at = exists ? column_offset(column, args.n, args.inner) : 0;
    const T* const dy = static_cast<const T*>(args.dy) + at;
    const T* const y = static_cast<const T*>(args.y) + at;
    T* const dx = static_cast<T*>(args.dx) + at;
    A total = 0;
    group.each(exists, args.n, args.inner, [&](i64 k) {
      const A g = to_accum(dy[k]), v = to_accum(y[k]);
      total += slope_sum<1>(args.log, &v, &g);
    });
    total = group.reduce(total, Sum(), A(0));
    group.each(exists, args.n, args.inner, [&](i64 k) {
      A g = to_accum(dy[k]);
      const A v = to_accum(y[k]);
      slopes<1>(args.log, total, &v, &g);
      dx[k] = from_accum<T>(g);
    });
  }
}

template <class T>
void softmax_typed(const SoftmaxArgs& args, Stream stream) {
  if (args.outer * args.n * args.inner == 0) return;
  if (args.inner > 1) {
    const ColumnPlan plan = plan_columns(args.outer, args.n, args.inner);
    return launch(stream, softmax_columns<T>, plan.blocks, kColumnThreads, 0, args, plan.slices);
  }
  constexpr int V = Pack<T>::kCount;
  const RowPlan plan = plan_rows(args.outer, args.n);
  const bool packs = packable<T>(args.n, args.x, args.y);
  const auto kernel = plan.held ? (packs ? softmax_rows<T, V, true> : softmax_rows<T, 1, true>)
                                : (packs ? softmax_rows<T, V, false> : softmax_rows<T, 1, false>);
  launch(stream, kernel, plan.blocks, plan.threads, 0, args, plan.lanes);
}

template <class T>
void softmax_again_typed(const SoftmaxAgainArgs& args, Stream stream) {
  if (args.rows * args.n == 0) return;
  constexpr int V = Pack<T>::kCount;
  const RowPlan plan = plan_rows(args.rows, args.n);
  const auto kernel =
      packable<T>(args.n, args.x, args.y) ? softmax_again_rows<T, V> : softmax_again_rows<T, 1>;
  launch(stream, kernel, plan.blocks, plan.threads, 0, args, plan.lanes);
}

template <class T>
void softmax_grad_typed(const SoftmaxGradArgs& args, Stream stream) {
  if (args.outer * args.n * args.inner == 0) return;
  if (args.inner > 1) {
    const ColumnPlan plan = plan_columns(args.outer, args.n, args.inner);
    return launch(stream, softmax_grad_columns<T>, plan.blocks, kColumnThreads, 0, args, plan.slices);
  }
  constexpr int V = Pack<T>::kCount;
  const RowPlan plan = plan_rows(args.outer, args.n);
  const bool packs = packable<T>(args.n, args.dy, args.y, args.dx);
  const auto kernel = plan.held ? (packs ? softmax_grad_rows<T, V, true> : softmax_grad_rows<T, 1, true>)
                                : (packs ? softmax_grad_rows<T, V, false> : softmax_grad_rows<T, 1, false>);
  launch(stream, kernel, plan.blocks, plan.threads, 0, args, plan.lanes);
}

}  // namespace

void softmax(const SoftmaxArgs& args, Stream stream) {
  GRADLOOM_GPU_FLOATS(args.dtype, softmax_typed, args, stream);
}
void softmax_again(const SoftmaxAgainArgs& args, Stream stream) {
  if (args.dtype == DType::f32) softmax_again_typed<float>(args, stream);
  if (args.dtype == DType::f64) softmax_again_typed<double>(args, stream);
}
void softmax_grad(const SoftmaxGradArgs& args, Stream stream) {
  GRADLOOM_GPU_FLOATS(args.dtype, softmax_grad_typed, args, stream);
}

}  // namespace gradloom::kernels::gpu
