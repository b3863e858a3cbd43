// Batch normalization of [n, c, spatial] per channel (Ioffe, Szegedy 2015; ONNX-15) and its gradient.
//   xhat = (x - mean) * inv_std;  y = xhat * scale + bias;  N = n * spatial
//   training: dx = scale * inv_std * (dy - sum(dy) / N - xhat * sum(dy * xhat) / N);  inference: dx = dy *
//   scale * inv_std
// One channel is one part: its sums go over the images in order.
#include "kernels/cpu/kernel.h"

namespace gradloom::kernels::GRADLOOM_ISA {
namespace {

constexpr i64 kShortPlane = 16;  // below this, sums go element by element in double

// Sum of f(x[i], y[i]) over one channel.
template <class T, class F>
GRADLOOM_INLINE double channel_sum(const T* x, const T* y, i64 n, i64 stride, i64 spatial, const F& f) {
  double total = 0;
  for (i64 i = 0; i < n; ++i) {
    const T* const a = x + i * stride;
    const T* const b = y + i * stride;
    if (spatial >= kShortPlane) {
      total += sum_of(a, b, spatial, f);
    } else {
      for (i64 s = 0; s < spatial; ++s) total += double(f(a[s], b[s]));
    }
  }
  return total;
}

template <class T>
void normalize_channels(const BatchNormArgs& args) {
  const i64 stride = args.c * args.spatial, per_channel = args.n * args.spatial;
  const auto at = [](const void* p, i64 c) { return double(static_cast<const T*>(p)[c]); };
  const auto put = [](void* p, i64 c, double v) {
    if (p != nullptr) static_cast<T*>(p)[c] = T(v);
  };
  parallel_for(args.c, per_channel * args.c * 3, [&](i64 c) {
    const T* const x = static_cast<const T*>(args.x) + c * args.spatial;
    T* const y = static_cast<T*>(args.y) + c * args.spatial;
    double mean = at(args.running_mean, c), var = at(args.running_var, c);
    if (args.training && per_channel > 0) {
      const double batch_mean =
          channel_sum(x, x, args.n, stride, args.spatial, [](const auto& a, const auto&) { return a; }) /
          double(per_channel);
      const T center = T(batch_mean);
      const double squares = channel_sum(x, x, args.n, stride, args.spatial, [&](const auto& a, const auto&) {
        return (a - center) * (a - center);
      });
      const double off = batch_mean - double(center);  // the rounding of the centre, corrected
      const double batch_var = squares / double(per_channel) - off * off;
      put(args.running_mean_out, c, mean * args.momentum + batch_mean * (1.0 - args.momentum));
      put(args.running_var_out, c, var * args.momentum + batch_var * (1.0 - args.momentum));
      mean = batch_mean;
      var = batch_var;
    } else {
      put(args.running_mean_out, c, mean);
      put(args.running_var_out, c, var);
    }
    const double inv_std = 1.0 / sqrt(var + args.epsilon);
    put(args.saved_mean, c, mean);
    put(args.saved_inv_std, c, inv_std);
    const T center = T(mean), factor = T(inv_std * at(args.scale, c)), shift = T(at(args.bias, c));
    for (i64 i = 0; i < args.n; ++i) {
      const T* const in = x + i * stride;
      T* const out = y + i * stride;
#pragma GCC ivdep
      for (i64 s = 0; s < args.spatial; ++s) out[s] = (in[s] - center) * factor + shift;
    }
  });
}

template <class T>
void grad_channels(const BatchNormGradArgs& args) {
  const i64 stride = args.c * args.spatial, per_channel = args.n * args.spatial;
  parallel_for(args.c, per_channel * args.c * 4, [&](i64 c) {
    const T* const dy = static_cast<const T*>(args.dy) + c * args.spatial;
    const T* const x = static_cast<const T*>(args.x) + c * args.spatial;
    const T mean = static_cast<const T*>(args.saved_mean)[c],
            inv_std = static_cast<const T*>(args.saved_inv_std)[c];
    const double sum_dy =
        channel_sum(dy, dy, args.n, stride, args.spatial, [](const auto& a, const auto&) { return a; });
    const double sum_dy_xhat =
        channel_sum(dy, x, args.n, stride, args.spatial,
                    [&](const auto& a, const auto& b) { return a * ((b - mean) * inv_std); });
    if (args.dscale != nullptr) static_cast<T*>(args.dscale)[c] = T(sum_dy_xhat);
    if (args.dbias != nullptr) static_cast<T*>(args.dbias)[c] = T(sum_dy);
    if (args.dx == nullptr) return;
    T* const dx = static_cast<T*>(args.dx) + c * args.spatial;
    const T factor = static_cast<const T*>(args.scale)[c] * inv_std;
    const double count = double(larger(1, per_channel));
    const T mean_dy = args.training ? T(sum_dy / count) : T(0);
    const T mean_dy_xhat = args.training ? T(sum_dy_xhat / count) : T(0);
    for (i64 i = 0; i < args.n; ++i) {
      const T* const g = dy + i * stride;
      const T* const in = x + i * stride;
      T* const out = dx + i * stride;
#pragma GCC ivdep
      for (i64 s = 0; s < args.spatial; ++s) {
        out[s] = factor * (g[s] - mean_dy - (in[s] - mean) * inv_std * mean_dy_xhat);
      }
    }
  });
}

}  // namespace

void batch_norm(const BatchNormArgs& args) { GRADLOOM_FLOAT_DISPATCH(args.dtype, normalize_channels, args); }
void batch_norm_grad(const BatchNormGradArgs& args) {
  GRADLOOM_FLOAT_DISPATCH(args.dtype, grad_channels, args);
}

}  // namespace gradloom::kernels::GRADLOOM_ISA
