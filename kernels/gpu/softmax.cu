// Softmax and log-softmax along the middle axis of [outer, n, inner], and their gradients (ONNX-13 Softmax).
//   y = exp(x - max) / sum(exp(x - max));  log: y = x - max - log(sum(exp(x - max)))
//   dx = y * (dy - sum(dy * y));           log: dx = dy - exp(y) * sum(dy)
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
  A peak, shift, factor;

  GRADLOOM_DEVICE Normalizer(const SoftmaxArgs& args, const LogSumExp<A>& sum) : log_form(args.log) {
    const bool empty = args.safe && sum.peak == -infinity<A>();
    peak = empty ? A(0) : sum.peak;
    shift = log(sum.total);
    factor = empty ? A(0) : A(1) / sum.total;
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
      group.each_held<V>(cols, [&](int i, int c) {
        normalizer.template apply<V>(v + i);
        store_values<V>(y + c, v + i);
      });
    } else {
      const Normalizer<A> normalizer(args, streamed_log_sum_exp<V>(group, x, cols));
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

template <class T, int V, bool held>
__global__ void __launch_bounds__(kRowThreads) softmax_grad_rows(SoftmaxGradArgs args, int lanes) {
  using A = Accum<T>;
  const RowGroup group(lanes);
  for (i64 first = group.first(); first < args.outer; first += group.step()) {
    const i64 row = first + group.row, cols = row < args.outer ? args.n : 0;
    const T* const dy = static_cast<const T*>(args.dy) + row * args.n;
    const T* const y = static_cast<const T*>(args.y) + row * args.n;
    T* const dx = static_cast<T*>(args.dx) + row * args.n;
    A total = 0;
    if constexpr (held) {
      A g[kRowValues], v[kRowValues];
      group.each_held<V>(cols, [&](int i, int c) {
        load_values<V>(dy + c, g + i);
        load_values<V>(y + c, v + i);
      });
      group.each_held<V>(cols, [&](int i, int) { total += slope_sum<V>(args.log, v + i, g + i); });
      total = group.reduce(total, Sum(), A(0));
      group.each_held<V>(cols, [&](int i, int c) {
        slopes<V>(args.log, total, v + i, g + i);
        store_values<V>(dx + c, g + i);
      });
    } else {
      A g[V], v[V];
      group.each<V>(cols, [&](i64 c) {
        load_values<V>(dy + c, g);
        load_values<V>(y + c, v);
        total += slope_sum<V>(args.log, v, g);
      });
      total = group.reduce(total, Sum(), A(0));
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
void softmax_grad(const SoftmaxGradArgs& args, Stream stream) {
  GRADLOOM_GPU_FLOATS(args.dtype, softmax_grad_typed, args, stream);
}

}  // namespace gradloom::kernels::gpu
