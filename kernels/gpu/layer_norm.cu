// Layer normalization over the last axis of [rows, cols] and its gradient (Ba, Kiros, Hinton 2016; ONNX-17).
//   xhat = (x - mean) * inv_std, inv_std = 1 / sqrt(var + epsilon), y = xhat * scale + bias
//   g = dy * scale;  dx = inv_std * (g - mean(g) - xhat * mean(g * xhat)) (+ added);  dscale = sum(dy * xhat);  dbias = sum(dy)
// Not centered (RMSNormalization): mean and mean(g) are 0. Rows as in rows.h. The variance is that of the
// differences from the mean (two passes over registers or cache). Gradient: the threads of a row keep it and
// their columns' sums of dscale and dbias in registers while they go through a part of the rows, so that dy
// and x are read once; a second kernel adds the parts (as llm.c and apex do, but without atomics). Longer
// rows than registers hold take two kernels. y may be x, dx may be dy. T: of x, y and their gradients; P: of
// scale, bias and theirs; statistics are in Accum<T>.
#include "kernels/gpu/kernels.h"
#include "kernels/gpu/rows.h"
#include "kernels/gpu/workspace.h"

namespace gradloom::kernels::gpu {
namespace {

// ---- forward --------------------------------------------------------------------------------------------------------------------

template <class T>
GRADLOOM_DEVICE void put(void* to, i64 at, Accum<T> v) {
  if (to != nullptr) static_cast<T*>(to)[at] = from_accum<T>(v);
}

// V parameters from column c on; a pack of P may have fewer.
template <int V, class P>
GRADLOOM_DEVICE void load_parameters(const void* from, i64 c, Accum<P>* to) {
  constexpr int kStep = V < Pack<P>::kCount ? V : Pack<P>::kCount;
#pragma unroll
  for (int e = 0; e < V; e += kStep) load_values<kStep>(static_cast<const P*>(from) + c + e, to + e);
}

// y of V elements from column c on.
template <int V, class T, class P>
GRADLOOM_DEVICE void scale_and_shift(const LayerNormArgs& args, Accum<T> mean, Accum<T> inv_std, i64 c,
                                     Accum<T>* v) {
  Accum<T> scale[V], bias[V] = {};
  load_parameters<V, P>(args.scale, c, scale);
  if (args.bias != nullptr) load_parameters<V, P>(args.bias, c, bias);
#pragma unroll
  for (int e = 0; e < V; ++e) v[e] = (v[e] - mean) * inv_std * scale[e] + bias[e];
}

template <class T, class P, int V, bool held>
__global__ void __launch_bounds__(kRowThreads) layer_norm_rows(LayerNormArgs args, int lanes) {
  using A = Accum<T>;
  const RowGroup group(lanes);
  for (i64 first = group.first(); first < args.rows; first += group.step()) {
    const i64 row = first + group.row, cols = row < args.rows ? args.cols : 0;
    const T* const x = static_cast<const T*>(args.x) + row * args.cols;
    T* const y = static_cast<T*>(args.y) + row * args.cols;
    A v[held ? kRowValues : V];
    A mean = 0, squares = 0;
    const auto add = [&](const A* from) {
#pragma unroll
      for (int e = 0; e < V; ++e) mean += from[e];
    };
    const auto add_squares = [&](const A* from) {
#pragma unroll
      for (int e = 0; e < V; ++e) squares += (from[e] - mean) * (from[e] - mean);
    };
    if constexpr (held) {
      group.each_held<V>(cols, [&](int i, int c) { load_values<V>(x + c, v + i); });
      group.each_held<V>(cols, [&](int i, int) { add(v + i); });
    } else {
      group.each<V>(cols, [&](i64 c) {
        load_values<V>(x + c, v);
        add(v);
      });
    }
    mean = args.centered ? group.reduce(mean, Sum(), A(0)) / A(args.cols) : A(0);
    if constexpr (held) {
      group.each_held<V>(cols, [&](int i, int) { add_squares(v + i); });
    } else {
      group.each<V>(cols, [&](i64 c) {
        load_values<V>(x + c, v);
        add_squares(v);
      });
    }
    squares = group.reduce(squares, Sum(), A(0));
    const A inv_std = A(1) / sqrt(squares / A(args.cols) + A(args.epsilon));
    if constexpr (held) {
      group.each_held<V>(cols, [&](int i, int c) {
        scale_and_shift<V, T, P>(args, mean, inv_std, c, v + i);
        store_values<V>(y + c, v + i);
      });
    } else {
      group.each<V>(cols, [&](i64 c) {
        load_values<V>(x + c, v);
        scale_and_shift<V, T, P>(args, mean, inv_std, c, v);
        store_values<V>(y + c, v);
      });
    }
    if (group.lane == 0 && row < args.rows) {
      if (args.centered && args.mean != nullptr) put<A>(args.mean, row, mean);
      if (args.inv_std != nullptr) put<A>(args.inv_std, row, inv_std);
    }
  }
}

// ---- gradient -------------------------------------------------------------------------------------------------------------------

template <int V, class T>
GRADLOOM_DEVICE void add_values(const void* added, i64 at, Accum<T>* to) {
  if (added == nullptr) return;
  Accum<T> more[V];
  load_values<V>(static_cast<const T*>(added) + at, more);
#pragma unroll
  for (int e = 0; e < V; ++e) to[e] += more[e];
}

// The statistics of a row.
template <class A>
struct Moments {
  A mean, inv_std;
};
template <class T>
GRADLOOM_DEVICE Moments<Accum<T>> moments(const LayerNormGradArgs& args, i64 row) {
  using A = Accum<T>;
  return {args.centered ? static_cast<const A*>(args.mean)[row] : A(0),
          static_cast<const A*>(args.inv_std)[row]};
}

// Part p of the rows: dx of its rows, and its sums of dscale and dbias to partial[p]: [2, cols].
template <class T, class P, int V>
__global__ void __launch_bounds__(kRowThreads)
    layer_norm_grad_parts(LayerNormGradArgs args, int lanes, i64 rows_per_part) {
  using A = Accum<T>;
  const RowGroup group(lanes);
  const i64 part = group.first() + group.row, begin = part * rows_per_part;
  const bool exists = begin < args.rows;
  A scale[kRowValues] = {}, dscale[kRowValues] = {}, dbias[kRowValues] = {};
  group.each_held<V>(args.cols, [&](int i, int c) { load_parameters<V, P>(args.scale, c, scale + i); });
  for (i64 r = 0; r < rows_per_part; ++r) {  // as often for every group of the block
    const i64 row = begin + r, cols = row < args.rows ? args.cols : 0, at = row * args.cols;
    const Moments<A> m = cols > 0 ? moments<T>(args, row) : Moments<A>{0, 0};
    A g[kRowValues], xhat[kRowValues];
    group.each_held<V>(cols, [&](int i, int c) {
      load_values<V>(static_cast<const T*>(args.dy) + at + c, g + i);
      load_values<V>(static_cast<const T*>(args.x) + at + c, xhat + i);
    });
    A sum_g = 0, sum_gx = 0;
    group.each_held<V>(cols, [&](int i, int) {
#pragma unroll
      for (int e = i; e < i + V; ++e) {
        xhat[e] = (xhat[e] - m.mean) * m.inv_std;
        dscale[e] += g[e] * xhat[e];
        dbias[e] += g[e];
        g[e] *= scale[e];
        sum_g += g[e];
        sum_gx += g[e] * xhat[e];
      }
    });
    if (args.dx == nullptr) continue;
    const A mean_g = args.centered ? group.reduce(sum_g, Sum(), A(0)) / A(args.cols) : A(0);
    const A mean_gx = group.reduce(sum_gx, Sum(), A(0)) / A(args.cols);
    group.each_held<V>(cols, [&](int i, int c) {
#pragma unroll
      for (int e = i; e < i + V; ++e) g[e] = m.inv_std * (g[e] - mean_g - xhat[e] * mean_gx);
      add_values<V, T>(args.added, at + c, g + i);
      store_values<V>(static_cast<T*>(args.dx) + at + c, g + i);
    });
  }
  A* const partial = static_cast<A*>(args.workspace) + part * 2 * args.cols;
  group.each_held<V>(exists ? args.cols : 0, [&](int i, int c) {
#pragma unroll
    for (int e = 0; e < V; ++e) {
      partial[c + e] = dscale[i + e];
      partial[args.cols + c + e] = dbias[i + e];
    }
  });
}

// The same sums for rows that registers do not hold: a thread per column.
template <class T>
__global__ void __launch_bounds__(kColumnThreads)
    layer_norm_grad_columns(LayerNormGradArgs args, i64 rows_per_part) {
  using A = Accum<T>;
  const i64 strips = ceil_div(args.cols, kColumnThreads);
  const i64 part = blockIdx.x / strips, c = blockIdx.x % strips * kColumnThreads + threadIdx.x;
  if (c >= args.cols) return;
  const i64 begin = part * rows_per_part;
  const i64 end = begin + rows_per_part < args.rows ? begin + rows_per_part : args.rows;
  A dscale = 0, dbias = 0;
#pragma unroll 4
  for (i64 row = begin; row < end; ++row) {
    const Moments<A> m = moments<T>(args, row);
    const A d = to_accum(static_cast<const T*>(args.dy)[row * args.cols + c]);
    dscale += d * ((to_accum(static_cast<const T*>(args.x)[row * args.cols + c]) - m.mean) * m.inv_std);
    dbias += d;
  }
  A* const partial = static_cast<A*>(args.workspace) + part * 2 * args.cols;
  partial[c] = dscale;
  partial[args.cols + c] = dbias;
}

// dx of rows that registers do not hold.
template <class T, class P, int V>
__global__ void __launch_bounds__(kRowThreads) layer_norm_grad_rows(LayerNormGradArgs args) {
  using A = Accum<T>;
  const RowGroup group(int(blockDim.x));
  for (i64 row = group.first(); row < args.rows; row += group.step()) {
    const i64 at = row * args.cols;
    const Moments<A> m = moments<T>(args, row);
    A g[V], xhat[V];
    const auto load = [&](i64 c) {
      A scale[V];
      load_values<V>(static_cast<const T*>(args.dy) + at + c, g);
      load_values<V>(static_cast<const T*>(args.x) + at + c, xhat);
      load_parameters<V, P>(args.scale, c, scale);
#pragma unroll
      for (int e = 0; e < V; ++e) {
        g[e] *= scale[e];
        xhat[e] = (xhat[e] - m.mean) * m.inv_std;
      }
    };
    A sum_g = 0, sum_gx = 0;
    group.each<V>(args.cols, [&](i64 c) {
      load(c);
#pragma unroll
      for (int e = 0; e < V; ++e) {
        sum_g += g[e];
        sum_gx += g[e] * xhat[e];
      }
    });
    const A mean_g = args.centered ? group.reduce(sum_g, Sum(), A(0)) / A(args.cols) : A(0);
    const A mean_gx = group.reduce(sum_gx, Sum(), A(0)) / A(args.cols);
    group.each<V>(args.cols, [&](i64 c) {
      load(c);
#pragma unroll
      for (int e = 0; e < V; ++e) g[e] = m.inv_std * (g[e] - mean_g - xhat[e] * mean_gx);
      add_values<V, T>(args.added, at + c, g);
      store_values<V>(static_cast<T*>(args.dx) + at + c, g);
    });
  }
}

// dscale and dbias: the parts' sums, [parts, 2 * cols], added in slices and then over the slices.
template <class T, class P>
__global__ void __launch_bounds__(kColumnThreads)
    layer_norm_grad_totals(LayerNormGradArgs args, i64 parts, int slices) {
  using A = Accum<T>;
  const ColumnGroup group(slices);
  for (i64 first = group.first(); first < 2 * args.cols; first += group.step()) {
    const i64 column = first + group.column;
    A total = 0;
    group.each(column < 2 * args.cols, parts, 2 * args.cols,
               [&](i64 k) { total += static_cast<const A*>(args.workspace)[column + k]; });
    total = group.reduce(total, Sum(), A(0));
    if (group.slice > 0 || column >= 2 * args.cols) continue;
    if (column < args.cols) {
      put<P>(args.dscale, column, total);
    } else {
      put<P>(args.dbias, column - args.cols, total);
    }
  }
}

// ---- launchers ------------------------------------------------------------------------------------------------------------------

template <class T, class P>
void layer_norm_typed(const LayerNormArgs& args, Stream stream) {
  if (args.rows * args.cols == 0) return;
  constexpr int V = Pack<T>::kCount;
  const RowPlan plan = plan_rows(args.rows, args.cols);
  const bool packs = packable<T>(args.cols, args.x, args.y) && packable<P>(args.cols, args.scale, args.bias);
  const auto kernel = plan.held ? (packs ? layer_norm_rows<T, P, V, true> : layer_norm_rows<T, P, 1, true>)
                                : (packs ? layer_norm_rows<T, P, V, false> : layer_norm_rows<T, P, 1, false>);
  launch(stream, kernel, plan.blocks, plan.threads, 0, args, plan.lanes);
}

template <class T, class P>
void layer_norm_grad_typed(const LayerNormGradArgs& args, Stream stream) {
  if (args.cols == 0) return;
  constexpr int V = Pack<T>::kCount;
  const RowPlan plan = plan_rows(args.rows, args.cols);
  const bool packs = packable<T>(args.cols, args.dy, args.x, args.dx) && packable<T>(args.cols, args.added) &&
                     packable<P>(args.cols, args.scale);
  const Cut cut = layer_norm_grad_cut(args.rows, args.cols);
  const bool sums = args.dscale != nullptr || args.dbias != nullptr;
  if (plan.held && cut.parts > 0) {
    const unsigned blocks = unsigned(ceil_div(cut.parts, plan.threads / plan.lanes));
    launch(stream, packs ? layer_norm_grad_parts<T, P, V> : layer_norm_grad_parts<T, P, 1>, blocks,
           plan.threads, 0, args, plan.lanes, cut.length);
  } else if (cut.parts > 0) {  // the sums first: dx may be dy
    if (sums) {
      const unsigned blocks = unsigned(cut.parts * ceil_div(args.cols, kColumnThreads));
      launch(stream, layer_norm_grad_columns<T>, blocks, kColumnThreads, 0, args, cut.length);
    }
    if (args.dx != nullptr) {
      launch(stream, packs ? layer_norm_grad_rows<T, P, V> : layer_norm_grad_rows<T, P, 1>, plan.blocks,
             plan.threads, 0, args);
    }
  }
  if (sums) {
    const ColumnPlan columns = plan_columns(1, cut.parts, 2 * args.cols);
    launch(stream, layer_norm_grad_totals<T, P>, columns.blocks, kColumnThreads, 0, args, cut.parts,
           columns.slices);
  }
}

}  // namespace

void layer_norm(const LayerNormArgs& args, Stream stream) {
  GRADLOOM_GPU_MIXED(args.dtype, args.parameters, layer_norm_typed, args, stream);
}
void layer_norm_grad(const LayerNormGradArgs& args, Stream stream) {
  GRADLOOM_GPU_MIXED(args.dtype, args.parameters, layer_norm_grad_typed, args, stream);
}

}  // namespace gradloom::kernels::gpu
