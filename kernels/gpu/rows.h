// What the kernels over rows share (softmax, layer normalization, cross-entropy): which threads work on which
// row, rows held in registers, log-sum-exp in one pass, and columns of [outer, n, inner] for rows whose
// elements are `inner` apart.
//
//   up to 512 elements     a group of 1 to 32 threads of one warp per row, several rows per block; shuffles only
//   up to 8192             one block of 64 to 512 threads per row; both hold the row in registers: memory is read once
//   longer                 one block of 512 threads per row that reads it again from the cache
//   inner > 1              neighbouring threads take neighbouring columns; n is cut in slices when there are few columns
// The choice depends on the shape alone, and so does the order of every sum.
#pragma once

#include "kernels/gpu/gpu.h"
#include "kernels/gpu/workspace.h"

namespace gradloom::kernels::gpu {

using i64 = long long;

// ---- elements -------------------------------------------------------------------------------------------------------------------

// V elements as numbers to compute with, 16 bytes at once when V > 1.
template <int V, class T>
GRADLOOM_DEVICE void load_values(const T* from, Accum<T>* to) {
  if constexpr (V == 1) {
    to[0] = to_accum(from[0]);
  } else {
    const Pack<T> pack = load_pack(from);
#pragma unroll
    for (int e = 0; e < V; ++e) to[e] = to_accum(pack.v[e]);
  }
}
template <int V, class T>
GRADLOOM_DEVICE void store_values(T* to, const Accum<T>* from) {
  if constexpr (V == 1) {
    to[0] = from_accum<T>(from[0]);
  } else {
    Pack<T> pack;
#pragma unroll
    for (int e = 0; e < V; ++e) pack.v[e] = from_accum<T>(from[e]);
    store_pack(to, pack);
  }
}

template <class A>
GRADLOOM_DEVICE A infinity() {
  return A(__builtin_inf());
}

// Leaves NaN out: what is subtracted before exp; a NaN reaches the sum of exponentials anyway.
struct Largest {
  template <class A>
  GRADLOOM_DEVICE A operator()(A a, A b) const {
    return a > b ? a : b;
  }
};

// log(sum(exp(x))) of numbers that come one pack after the other: the largest so far
// and the sum relative to it.
template <class A>
struct LogSumExp {
  A peak = -infinity<A>(), total = 0;

  // Where nothing but -inf has come, exp(x - 0) is the 0 that exp(x - peak) would not give.
  static GRADLOOM_DEVICE A base(A peak) { return peak == -infinity<A>() ? A(0) : peak; }

  template <int V>
  GRADLOOM_DEVICE void add(const A* x) {
    A top = peak;
#pragma unroll
    for (int e = 0; e < V; ++e) top = Largest()(x[e], top);
    if (top > peak) total *= exp(peak - top);
    peak = top;
    top = base(top);
#pragma unroll
    for (int e = 0; e < V; ++e) total += exp(x[e] - top);
  }
  // The sum relative to `top`, the largest of all parts.
  GRADLOOM_DEVICE A relative_to(A top) const { return total * exp(peak - base(top)); }
};

// The parts of a group of threads joined; a row of nothing but -inf has total NaN, as exp(x - peak) has.
template <class Group, class A>
GRADLOOM_DEVICE LogSumExp<A> join(const Group& group, const LogSumExp<A>& part) {
  LogSumExp<A> all;
  all.peak = group.reduce(part.peak, Largest(), -infinity<A>());
  all.total = group.reduce(part.relative_to(all.peak), Sum(), A(0)) + (all.peak - all.peak);
  return all;
}

// ---- rows of consecutive elements -----------------------------------------------------------------------------------------------

constexpr i64 kMostBlocks = 1 << 20;

struct RowPlan {
  int lanes;    // threads per row: a power of two; more than 32: the whole block
  int threads;  // per block
  bool held;    // rows fit into registers
  unsigned blocks;
};
inline RowPlan plan_rows(i64 rows, i64 cols) {
  RowPlan plan{1, 256, cols <= kHeldColumns, 0};
  if (cols <= 32 * kRowValues) {
    while (plan.lanes < 32 && plan.lanes * 4 < cols) plan.lanes *= 2;
  } else {
    plan.lanes = 64;
    while (plan.lanes < kRowThreads && plan.lanes * kRowValues < cols) plan.lanes *= 2;
    plan.threads = plan.lanes;
  }
  const i64 blocks = ceil_div(rows, plan.threads / plan.lanes);
  plan.blocks = unsigned(blocks < kMostBlocks ? blocks : kMostBlocks);
  return plan;
}

// This thread's place in a block that works on `rows` rows at a time with `lanes` threads each.
struct RowGroup {
  int lanes, lane, row, rows;

  GRADLOOM_DEVICE explicit RowGroup(int lanes_)
      : lanes(lanes_),
        lane(int(threadIdx.x) % lanes_),
        row(int(threadIdx.x) / lanes_),
        rows(int(blockDim.x) / lanes_) {}

  GRADLOOM_DEVICE i64 first() const { return i64(blockIdx.x) * rows; }
  GRADLOOM_DEVICE i64 step() const { return i64(gridDim.x) * rows; }

  // Over the threads of a row. All threads of the block must take part.
  template <class A, class Op>
  GRADLOOM_DEVICE A reduce(A v, Op op, A identity) const {
    if (lanes > 32) return block_reduce(v, op, identity);
    for (int apart = lanes / 2; apart > 0; apart /= 2) v = op(v, shuffle_xor(v, apart));
    return v;
  }

  // f(i, c) for every pack of a held row that is this thread's: i of its first element among the kRowValues,
  // c its column.
  template <int V, class F>
  GRADLOOM_DEVICE void each_held(i64 cols, const F& f) const {
#pragma unroll
    for (int i = 0; i < kRowValues; i += V) {
      const int c = i * lanes + lane * V;
      if (c < cols) f(i, c);
    }
  }
  // f(c) for every pack of a row of any length.
  template <int V, class F>
  GRADLOOM_DEVICE void each(i64 cols, const F& f) const {
    for (i64 c = i64(lane) * V; c < cols; c += i64(lanes) * V) f(c);
  }
};

// log-sum-exp of row x of `cols` elements by the threads of a group: held in `v`, or read once.
template <int V, class T>
GRADLOOM_DEVICE LogSumExp<Accum<T>> held_log_sum_exp(const RowGroup& group, const T* x, i64 cols,
                                                     Accum<T>* v) {
  using A = Accum<T>;
  LogSumExp<A> all;
  A peak = -infinity<A>();
  group.each_held<V>(cols, [&](int i, int c) {
    load_values<V>(x + c, v + i);
    for (int e = 0; e < V; ++e) peak = Largest()(v[i + e], peak);
  });
  all.peak = peak = group.reduce(peak, Largest(), -infinity<A>());
  A total = 0;
  group.each_held<V>(cols, [&](int i, int) {
    for (int e = 0; e < V; ++e) total += exp(v[i + e] - peak);
  });
  all.total = group.reduce(total, Sum(), A(0));
  return all;
}
template <int V, class T>
GRADLOOM_DEVICE LogSumExp<Accum<T>> streamed_log_sum_exp(const RowGroup& group, const T* x, i64 cols) {
  constexpr int kAtOnce = 4;  // packs whose loads overlap
  LogSumExp<Accum<T>> part;
  const i64 step = i64(group.lanes) * V, packed = cols - cols % V;
  i64 c = i64(group.lane) * V;
  Accum<T> v[kAtOnce * V];
  for (; c + (kAtOnce - 1) * step < packed; c += kAtOnce * step) {
#pragma unroll
    for (int p = 0; p < kAtOnce; ++p) load_values<V>(x + c + p * step, v + p * V);
    part.template add<kAtOnce * V>(v);
  }
  for (; c < packed; c += step) {
    load_values<V>(x + c, v);
    part.template add<V>(v);
  }
  for (c = packed + group.lane; c < cols; c += group.lanes) {
    load_values<1>(x + c, v);
    part.template add<1>(v);
  }
  return join(group, part);
}

// ---- columns of [outer, n, inner] -----------------------------------------------------------------------------------------------

constexpr int kColumnThreads = 256;

struct ColumnPlan {
  int slices;  // threads per column, a power of two
  unsigned blocks;
};
// As few slices as fill a device, 8 elements per thread or more; more slices where blocks
// would be wider than `inner`.
inline ColumnPlan plan_columns(i64 outer, i64 n, i64 inner) {
  const i64 columns = outer * inner;
  ColumnPlan plan{1, 0};
  for (int width = kColumnThreads; width > 1 && plan.slices * 8 <= n; width /= 2, plan.slices *= 2) {
    if (width < 2 * inner && (width <= 16 || columns * plan.slices >= 131072)) break;
  }
  const i64 blocks = ceil_div(columns, kColumnThreads / plan.slices);
  plan.blocks = unsigned(blocks < kMostBlocks ? blocks : kMostBlocks);
  return plan;
}

// This thread's place in a block that works on `width` columns at a time with `slices` threads each.
struct ColumnGroup {
  int slices, width, slice, column;

  GRADLOOM_DEVICE explicit ColumnGroup(int slices_)
      : slices(slices_),
        width(kColumnThreads / slices_),
        slice(int(threadIdx.x) / width),
        column(int(threadIdx.x) % width) {}

  GRADLOOM_DEVICE i64 first() const { return i64(blockIdx.x) * width; }
  GRADLOOM_DEVICE i64 step() const { return i64(gridDim.x) * width; }

  // Over the slices of a column. All threads of the block must take part.
  template <class A, class Op>
  GRADLOOM_DEVICE A reduce(A v, Op op, A) const {
    if (slices == 1) return v;
    __shared__ A parts[kColumnThreads];
    const int at = int(threadIdx.x);
    parts[at] = v;
    __syncthreads();
    for (int apart = slices / 2; apart > 0; apart /= 2) {
      if (slice < apart) parts[at] = op(parts[at], parts[at + apart * width]);
      __syncthreads();
    }
    v = parts[column];
    __syncthreads();  // parts may be written again
    return v;
  }

  // f(offset) for the elements k * inner of a column that are this thread's;
  // none where the column does not exist.
  template <class F>
  GRADLOOM_DEVICE void each(bool exists, i64 n, i64 inner, const F& f) const {
    for (i64 k = exists ? slice : n; k < n; k += slices) f(k * inner);
  }
};

// Offset of the first element of column `column` of outer * inner.
GRADLOOM_DEVICE i64 column_offset(i64 column, i64 n, i64 inner) {
  const i64 outer = column / inner;
  return outer * n * inner + (column - outer * inner);
}

// log-sum-exp of a column, four elements at a time so that their loads overlap.
template <class T>
GRADLOOM_DEVICE LogSumExp<Accum<T>> column_log_sum_exp(const ColumnGroup& group, const T* x, bool exists,
                                                       i64 n, i64 inner) {
  LogSumExp<Accum<T>> part;
  const i64 step = group.slices;
  i64 k = exists ? group.slice : n;
  for (; k + 3 * step < n; k += 4 * step) {
    Accum<T> v[4];
#pragma unroll
    for (int e = 0; e < 4; ++e) v[e] = to_accum(x[(k + e * step) * inner]);
    part.template add<4>(v);
  }
  for (; k < n; k += step) {
    const Accum<T> v = to_accum(x[k * inner]);
    part.template add<1>(&v);
  }
  return join(group, part);
}

}  // namespace gradloom::kernels::gpu
