// Normalization of groups of channels of [n, groups * channels,
// spatial] and its gradient (Wu, He 2018; ONNX-21).
//   xhat = (x - mean) * inv_std over one group of one image, y = xhat * scale + bias with one scale and bias per channel
//   g = dy * scale;  dx = inv_std * (g - mean(g) - xhat * mean(g * xhat));  dscale = sum(dy * xhat);  dbias = sum(dy)
// A group of an image is a part. The gradient keeps sum(dy) and sum(dy * xhat) of every channel of every
// image in the workspace, [n * groups * channels, 2], and adds those of a channel in the order of the images.
#include "kernels/cpu/planes.h"

namespace gradloom::kernels::GRADLOOM_ISA {
namespace {

// What is fetched while another group is worked on: where both fit into L2.
constexpr i64 kFetched = 65536;  // elements
i64 ahead_of(i64 cols) { return cols <= kFetched ? Planes{1, 0, cols}.ahead() : 1024; }

template <class T>
void normalize_groups(const GroupNormArgs& args) {
  const i64 cols = args.channels * args.spatial, rows = args.n * args.groups;
  if (rows * cols == 0) return;
  const Planes group{1, 0, cols};
  const i64 ahead = ahead_of(cols);
  const T* const scale = static_cast<const T*>(args.scale);
  const T* const bias = static_cast<const T*>(args.bias);
  parallel_for(rows, rows * cols * 5, [&](i64 row) {
    const T* const x = static_cast<const T*>(args.x) + row * cols;
    T* const y = static_cast<T*>(args.y) + row * cols;
    const auto write_soon = [&](i64 i) {
      if (cols <= kFetched) fetch_to_write(y + i);
    };
    const auto sum = sums_of<1, T>(group, [&](i64 i, auto& s) {
      write_soon(i);
      s[0] += get(x + i, s[0]);
    });
    const T mean = T(sum.total[0] / double(cols));
    const auto squares = sums_of<1, T>(group, [&](i64 i, auto& s) {
      write_soon(i);  // again: what was asked for at a busy moment did not come
      const auto apart = get(x + i, s[0]) - mean;
      s[0] += apart * apart;
    });
    const T inv_std = T(1.0 / sqrt(squares.total[0] / double(cols) + args.epsilon));
    for (i64 c = 0; c < args.channels; ++c) {
      const i64 channel = row % args.groups * args.channels + c;
      const T factor = inv_std * scale[channel], shift = bias[channel];
      const T* const in = x + c * args.spatial;
      T* const out = y + c * args.spatial;
      for_registers<T>(args.spatial, [&](i64 i, const auto& zero) {
        fetch(in + ahead + i);
        put(out + i, (get(in + i, zero) - mean) * factor + shift);
      });
    }
    if (args.mean != nullptr) static_cast<T*>(args.mean)[row] = mean;
    if (args.inv_std != nullptr) static_cast<T*>(args.inv_std)[row] = inv_std;
  });
}

template <class T>
void grad_groups(const GroupNormGradArgs& args) {
  const i64 cols = args.channels * args.spatial, rows = args.n * args.groups,
            channels = args.groups * args.channels;
  const Planes plane{1, 0, args.spatial};
  const i64 ahead = ahead_of(cols);
  double* const sums = static_cast<double*>(args.workspace);
  const T* const scale = static_cast<const T*>(args.scale);
  parallel_for(rows, rows * cols * 6, [&](i64 row) {
    const T* const dy = static_cast<const T*>(args.dy) + row * cols;
    const T* const x = static_cast<const T*>(args.x) + row * cols;
    T* const dx = args.dx != nullptr ? static_cast<T*>(args.dx) + row * cols : nullptr;
    const bool write_soon = dx != nullptr && cols <= kFetched;
    const T mean = static_cast<const T*>(args.mean)[row], inv_std = static_cast<const T*>(args.inv_std)[row];
    double sum_g = 0, sum_gx = 0;
    for (i64 c = 0; c < args.channels; ++c) {
      const i64 at = c * args.spatial;
      const double factor = double(scale[row % args.groups * args.channels + c]);
      const auto own = sums_of<2, T>(plane, [&](i64 i, auto& s) {
        if (write_soon) fetch_to_write(dx + at + i);
        const auto g = get(dy + at + i, s[0]);
        s[0] += g;
        s[1] += g * ((get(x + at + i, s[0]) - mean) * inv_std);
      });
      for (int k = 0; k < 2; ++k) sums[(row * args.channels + c) * 2 + k] = own.total[k];
      sum_g += factor * own.total[0];
      sum_gx += factor * own.total[1];
    }
    if (dx == nullptr) return;
    const T mean_g = T(sum_g / double(cols)), mean_gx = T(sum_gx / double(cols));
    for (i64 c = 0; c < args.channels; ++c) {
      const T factor = scale[row % args.groups * args.channels + c];
      const T *const g = dy + c * args.spatial, *const in = x + c * args.spatial;
      T* const out = dx + c * args.spatial;
      for_registers<T>(args.spatial, [&](i64 i, const auto& zero) {
        fetch(g + ahead + i);
        fetch(in + ahead + i);
        put(out + i,
            inv_std * (get(g + i, zero) * factor - mean_g - (get(in + i, zero) - mean) * inv_std * mean_gx));
      });
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
