// Normalization of groups of channels of [n, groups * channels, spatial] and its gradient (Wu, He 2018;
// ONNX-21).
//   xhat = (x - mean) * inv_std over one group of one image, y = xhat * scale + bias with one scale and bias per channel
//   g = dy * scale;  dx = inv_std * (g - mean(g) - xhat * mean(g * xhat));  dscale = sum(dy * xhat);  dbias = sum(dy)
// A group of an image is a part. The gradient keeps sum(dy) and sum(dy * xhat) of every channel of every
// image in the workspace, [n * groups * channels, 2], and adds those of a channel in the order of the images.
#include "kernels/cpu/kernel.h"

namespace gradloom::kernels::GRADLOOM_ISA {
namespace {

template <class T>
void normalize_groups(const GroupNormArgs& args) {
  const i64 cols = args.channels * args.spatial, rows = args.n * args.groups;
  if (rows * cols == 0) return;
  const T* const scale = static_cast<const T*>(args.scale);
  const T* const bias = static_cast<const T*>(args.bias);
  parallel_for(rows, rows * cols * 5, [&](i64 row) {
    const T* const x = static_cast<const T*>(args.x) + row * cols;
    T* const y = static_cast<T*>(args.y) + row * cols;
    const T mean = T(sum(x, cols) / double(cols));
    const double squares =
        sum_of(x, x, cols, [&](const auto& a, const auto&) { return (a - mean) * (a - mean); });
    const T inv_std = T(1.0 / sqrt(squares / double(cols) + args.epsilon));
    for (i64 c = 0; c < args.channels; ++c) {
      const i64 channel = row % args.groups * args.channels + c;
      const T factor = inv_std * scale[channel], shift = bias[channel];
      const T* const in = x + c * args.spatial;
      T* const out = y + c * args.spatial;
#pragma GCC ivdep
      for (i64 s = 0; s < args.spatial; ++s) out[s] = (in[s] - mean) * factor + shift;
    }
    if (args.mean != nullptr) static_cast<T*>(args.mean)[row] = mean;
    if (args.inv_std != nullptr) static_cast<T*>(args.inv_std)[row] = inv_std;
  });
}

template <class T>
void grad_groups(const GroupNormGradArgs& args) {
  const i64 cols = args.channels * args.spatial, rows = args.n * args.groups,
            channels = args.groups * args.channels;
  double* const sums = static_cast<double*>(args.workspace);
  const T* const scale = static_cast<const T*>(args.scale);
  parallel_for(rows, rows * cols * 6, [&](i64 row) {
    const T* const dy = static_cast<const T*>(args.dy) + row * cols;
    const T* const x = static_cast<const T*>(args.x) + row * cols;
    const T mean = static_cast<const T*>(args.mean)[row], inv_std = static_cast<const T*>(args.inv_std)[row];
    double sum_g = 0, sum_gx = 0;
    for (i64 c = 0; c < args.channels; ++c) {
      const i64 at = c * args.spatial;
      const double factor = double(scale[row % args.groups * args.channels + c]);
      double* const own = sums + (row * args.channels + c) * 2;
      own[0] = sum(dy + at, args.spatial);
      own[1] = sum_of(dy + at, x + at, args.spatial,
                      [&](const auto& a, const auto& b) { return a * ((b - mean) * inv_std); });
      sum_g += factor * own[0];
      sum_gx += factor * own[1];
    }
    if (args.dx == nullptr) return;
    const T mean_g = T(sum_g / double(cols)), mean_gx = T(sum_gx / double(cols));
    for (i64 c = 0; c < args.channels; ++c) {
      const T factor = scale[row % args.groups * args.channels + c];
      const T* const g = dy + c * args.spatial;
      const T* const in = x + c * args.spatial;
      T* const dx = static_cast<T*>(args.dx) + row * cols + c * args.spatial;
#pragma GCC ivdep
      for (i64 s = 0; s < args.spatial; ++s) {
        dx[s] = inv_std * (g[s] * factor - mean_g - (in[s] - mean) * inv_std * mean_gx);
      }
    }
  });
  for (i64 c = 0; c < channels; ++c) {
    double dbias = 0, dscale = 0;
    for (i64 image = 0; image < args.n; ++image) {
      dbias += sums[(image * channels + c) * 2];
      dscale += sums[(image * channels + c) * 2 + 1];
    }
    if (args.dscale != nullptr) static_cast<T*>(args.dscale)[c] = T(dscale);
    if (args.dbias != nullptr) static_cast<T*>(args.dbias)[c] = T(dbias);
  }
}

}  // namespace

void group_norm(const GroupNormArgs& args) { GRADLOOM_FLOAT_DISPATCH(args.dtype, normalize_groups, args); }
void group_norm_grad(const GroupNormGradArgs& args) {
  GRADLOOM_FLOAT_DISPATCH(args.dtype, grad_groups, args);
}

}  // namespace gradloom::kernels::GRADLOOM_ISA
