// Layer normalization over the last axis of [rows, cols] and its gradient (Ba, Kiros, Hinton 2016; ONNX-17).
//   xhat = (x - mean) * inv_std, inv_std = 1 / sqrt(var + epsilon), y = xhat * scale + bias
//   g = dy * scale, dx = inv_std * (g - mean(g) - xhat * mean(g * xhat))
//   dscale = sum(dy * xhat), dbias = sum(dy)
// Not centered (RMSNormalization): mean and mean(g) are 0.
// dscale and dbias: partial sums over fixed blocks of rows, then over the blocks in order.
#include "kernels/cpu/kernel.h"
#include "kernels/cpu/workspace.h"

namespace gradloom::kernels::GRADLOOM_ISA {
namespace {

template <class T>
void normalize_rows(const LayerNormArgs& args) {
  const i64 cols = args.cols;
  const T* const x = static_cast<const T*>(args.x);
  const T* const scale = static_cast<const T*>(args.scale);
  const T* const bias = static_cast<const T*>(args.bias);
  T* const y = static_cast<T*>(args.y);
  T* const means = static_cast<T*>(args.mean);
  T* const inv_stds = static_cast<T*>(args.inv_std);
  if (args.rows * cols == 0) return;
  parallel_pieces(args.rows, larger(1, 8192 / cols), args.rows * cols * 5, [&](i64 begin, i64 end) {
    for (i64 row = begin; row < end; ++row) {
      const T* const in = x + row * cols;
      T* const out = y + row * cols;
      const T mean = args.centered ? T(sum(in, cols) / double(cols)) : T(0);
      const double squares =
          sum_of(in, in, cols, [&](const auto& a, const auto&) { return (a - mean) * (a - mean); });
      const T inv_std = T(1.0 / sqrt(squares / double(cols) + args.epsilon));
      if (bias != nullptr) {
#pragma GCC ivdep
        for (i64 c = 0; c < cols; ++c) out[c] = (in[c] - mean) * inv_std * scale[c] + bias[c];
      } else {
#pragma GCC ivdep
        for (i64 c = 0; c < cols; ++c) out[c] = (in[c] - mean) * inv_std * scale[c];
      }
      if (means != nullptr && args.centered) means[row] = mean;
      if (inv_stds != nullptr) inv_stds[row] = inv_std;
    }
  });
}

template <class T>
struct GradRow {
  const T *dy, *x, *scale;
  T mean, inv_std;
  bool centered;
  const T* added;          // to dx, or null
  T *dx, *dscale, *dbias;  // dscale, dbias: this block's partial sums
};

// sum(g) and sum(g * xhat) in one pass; the same order as sum_of.
template <class T>
GRADLOOM_INLINE void grad_sums(const GradRow<T>& r, i64 cols, double* sum_g, double* sum_gx) {
  *sum_g = *sum_gx = 0;
  for (i64 begin = 0; begin < cols; begin += kSumBlock) {
    const i64 end = smaller(cols, begin + kSumBlock);
    Vec<T> a0 = {}, a1 = {}, b0 = {}, b1 = {};
    i64 c = begin;
    for (; c + 2 * kLanes<T> <= end; c += 2 * kLanes<T>) {
      const Vec<T> g0 = load(r.dy + c) * load(r.scale + c);
      const Vec<T> g1 = load(r.dy + c + kLanes<T>) * load(r.scale + c + kLanes<T>);
      a0 += g0;
      a1 += g1;
      b0 += g0 * ((load(r.x + c) - r.mean) * r.inv_std);
      b1 += g1 * ((load(r.x + c + kLanes<T>) - r.mean) * r.inv_std);
    }
    double tail_a = 0, tail_b = 0;
    for (; c < end; ++c) {
      const T g = r.dy[c] * r.scale[c];
      tail_a += double(g);
      tail_b += double(g * ((r.x[c] - r.mean) * r.inv_std));
    }
    a0 += a1;
    b0 += b1;
    *sum_g += lane_sum(a0) + tail_a;
    *sum_gx += lane_sum(b0) + tail_b;
  }
}

template <class T>
void grad_row(const GradRow<T>& r, i64 cols) {
  if (r.dx != nullptr) {
    double sum_g, sum_gx;
    grad_sums(r, cols, &sum_g, &sum_gx);
    const T mean_g = r.centered ? T(sum_g / double(cols)) : T(0), mean_gx = T(sum_gx / double(cols));
#pragma GCC ivdep
    for (i64 c = 0; c < cols; ++c) {
      const T xhat = (r.x[c] - r.mean) * r.inv_std;
      const T d = r.dy[c];
      r.dscale[c] += d * xhat;
      r.dbias[c] += d;
      r.dx[c] = r.inv_std * (d * r.scale[c] - mean_g - xhat * mean_gx);
    }
    for (i64 c = 0; r.added != nullptr && c < cols; ++c) r.dx[c] += r.added[c];
  } else {
#pragma GCC ivdep
    for (i64 c = 0; c < cols; ++c) {
      const T d = r.dy[c];
      r.dscale[c] += d * ((r.x[c] - r.mean) * r.inv_std);
      r.dbias[c] += d;
    }
  }
}

template <class T>
void grad_rows(const LayerNormGradArgs& args) {
  const i64 cols = args.cols, rows = args.rows;
  const T* const mean = static_cast<const T*>(args.mean);
  const T* const inv_std = static_cast<const T*>(args.inv_std);
  const T* const added = static_cast<const T*>(args.added);
  T* const dx = static_cast<T*>(args.dx);
  T* const partial = static_cast<T*>(args.workspace);  // [blocks, 2, cols]
  const i64 block = layer_norm_grad_block(rows), blocks = blocks_of(rows, block);
  parallel_for(blocks, rows * cols * 6, [&](i64 part) {
    T* const dscale = partial + part * 2 * cols;
    T* const dbias = dscale + cols;
    for (i64 c = 0; c < cols; ++c) dscale[c] = dbias[c] = T(0);
    for (i64 row = part * block; row < smaller(rows, (part + 1) * block); ++row) {
      const i64 at = row * cols;
      grad_row<T>(
          {static_cast<const T*>(args.dy) + at, static_cast<const T*>(args.x) + at,
           static_cast<const T*>(args.scale), args.centered ? mean[row] : T(0), inv_std[row], args.centered,
           added != nullptr ? added + at : nullptr, dx != nullptr ? dx + at : nullptr, dscale, dbias},
          cols);
    }
  });
  T* const dscale = static_cast<T*>(args.dscale);
  T* const dbias = static_cast<T*>(args.dbias);
  constexpr i64 kStrip = 64;
  parallel_for(ceil_div(cols, kStrip), 2 * blocks * cols, [&](i64 part) {
    const i64 begin = part * kStrip, width = smaller(kStrip, cols - begin);
    double totals[2][kStrip] = {};
    for (i64 b = 0; b < blocks; ++b) {
      const T* const from = partial + b * 2 * cols + begin;
      for (i64 c = 0; c < width; ++c) totals[0][c] += double(from[c]);
      for (i64 c = 0; c < width; ++c) totals[1][c] += double(from[cols + c]);
    }
    for (i64 c = 0; c < width && dscale != nullptr; ++c) dscale[begin + c] = T(totals[0][c]);
    for (i64 c = 0; c < width && dbias != nullptr; ++c) dbias[begin + c] = T(totals[1][c]);
  });
}

}  // namespace

void layer_norm(const LayerNormArgs& args) { GRADLOOM_FLOAT_DISPATCH(args.dtype, normalize_rows, args); }
void layer_norm_grad(const LayerNormGradArgs& args) { GRADLOOM_FLOAT_DISPATCH(args.dtype, grad_rows, args); }

}  // namespace gradloom::kernels::GRADLOOM_ISA
