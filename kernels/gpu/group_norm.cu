// Normalization of groups of channels of [n, groups * channels,
// spatial] and its gradient (Wu, He 2018; ONNX-21).
//   xhat = (x - mean) * inv_std over one group of one image, y = xhat * scale + bias with one scale and bias per channel
//   g = dy * scale;  dx = inv_std * (g - mean(g) - xhat * mean(g * xhat));  dscale = sum(dy * xhat);  dbias = sum(dy)
// A block per group of an image; what it reads again comes from the cache. Gradient: a block per channel of
// an image leaves sum(dy) and sum(dy * xhat) in the workspace, [2, n * groups * channels]; then a block per
// group of an image writes dx, and a thread per channel adds over the images in order. y may be x, dx may be
// dy. T: of x, y and their gradients; P: of scale, bias and theirs; statistics are in Accum<T>.
#include "kernels/gpu/kernels.h"
#include "kernels/gpu/workspace.h"

namespace gradloom::kernels::gpu {
namespace {

using i64 = long long;

constexpr int kThreads = 256;

template <class T, class P>
__global__ void __launch_bounds__(kThreads) group_norm_groups(GroupNormArgs args) {
  using A = Accum<T>;
  const i64 row = blockIdx.x, cols = args.channels * args.spatial, first = row % args.groups * args.channels;
  const T* const x = static_cast<const T*>(args.x) + row * cols;
  A mean = 0, squares = 0;
  for (i64 i = threadIdx.x; i < cols; i += kThreads) mean += to_accum(x[i]);
  mean = block_reduce(mean, Sum(), A(0)) / A(cols);
  for (i64 i = threadIdx.x; i < cols; i += kThreads) {
    const A apart = to_accum(x[i]) - mean;
    squares += apart * apart;
  }
  squares = block_reduce(squares, Sum(), A(0));
  const A inv_std = A(1) / sqrt(squares / A(cols) + A(args.epsilon));
  for (i64 i = threadIdx.x; i < cols; i += kThreads) {
    const i64 channel = first + i / args.spatial;
    const A scale = to_accum(static_cast<const P*>(args.scale)[channel]),
            bias = to_accum(static_cast<const P*>(args.bias)[channel]);
    static_cast<T*>(args.y)[row * cols + i] = from_accum<T>((to_accum(x[i]) - mean) * inv_std * scale + bias);
  }
  if (threadIdx.x > 0) return;
  if (args.mean != nullptr) static_cast<A*>(args.mean)[row] = mean;
  if (args.inv_std != nullptr) static_cast<A*>(args.inv_std)[row] = inv_std;
}

// The statistics of one group of one image.
template <class T>
struct Moments {
  Accum<T> mean, inv_std;
  GRADLOOM_DEVICE Moments(const GroupNormGradArgs& args, i64 row)
      : mean(static_cast<const Accum<T>*>(args.mean)[row]),
        inv_std(static_cast<const Accum<T>*>(args.inv_std)[row]) {}
};

template <class T>
__global__ void __launch_bounds__(kThreads) group_norm_grad_channels(GroupNormGradArgs args) {
  using A = Accum<T>;
  const i64 line = blockIdx.x, lines = args.n * args.groups * args.channels;
  const Moments<T> m(args, line / args.channels);
  const T* const dy = static_cast<const T*>(args.dy) + line * args.spatial;
  const T* const x = static_cast<const T*>(args.x) + line * args.spatial;
  A sum_dy = 0, sum_dyx = 0;
  for (i64 i = threadIdx.x; i < args.spatial; i += kThreads) {
    const A d = to_accum(dy[i]);
    sum_dy += d;
    sum_dyx += d * ((to_accum(x[i]) - m.mean) * m.inv_std);
  }
  sum_dy = block_reduce(sum_dy, Sum(), A(0));
  sum_dyx = block_reduce(sum_dyx, Sum(), A(0));
  if (threadIdx.x > 0) return;
  static_cast<A*>(args.workspace)[line] = sum_dy;
  static_cast<A*>(args.workspace)[lines + line] = sum_dyx;
}

template <class T, class P>
__global__ void __launch_bounds__(kThreads) group_norm_grad_groups(GroupNormGradArgs args) {
  using A = Accum<T>;
  const i64 row = blockIdx.x, cols = args.channels * args.spatial, first = row % args.groups * args.channels;
  const i64 lines = args.n * args.groups * args.channels;
  const A* const sums = static_cast<const A*>(args.workspace) + row * args.channels;
  const Moments<T> m(args, row);
  A sum_g = 0, sum_gx = 0;
  for (i64 c = threadIdx.x; c < args.channels; c += kThreads) {
    const A scale = to_accum(static_cast<const P*>(args.scale)[first + c]);
    sum_g += scale * sums[c];
    sum_gx += scale * sums[lines + c];
  }
  const A mean_g = block_reduce(sum_g, Sum(), A(0)) / A(cols),
          mean_gx = block_reduce(sum_gx, Sum(), A(0)) / A(cols);
  for (i64 i = threadIdx.x; i < cols; i += kThreads) {
    const i64 at = row * cols + i;
    const A scale = to_accum(static_cast<const P*>(args.scale)[first + i / args.spatial]);
    const A xhat = (to_accum(static_cast<const T*>(args.x)[at]) - m.mean) * m.inv_std;
    const A g = to_accum(static_cast<const T*>(args.dy)[at]) * scale;
    static_cast<T*>(args.dx)[at] = from_accum<T>(m.inv_std * (g - mean_g - xhat * mean_gx));
  }
}

template <class T, class P>
__global__ void __launch_bounds__(kThreads) group_norm_grad_totals(GroupNormGradArgs args) {
  using A = Accum<T>;
  const i64 channels = args.groups * args.channels, c = i64(blockIdx.x) * kThreads + threadIdx.x;
  if (c >= channels) return;
  const A* const sums = static_cast<const A*>(args.workspace);
  A dbias = 0, dscale = 0;
  for (i64 image = 0; image < args.n; ++image) {
    dbias += sums[image * channels + c];
    dscale += sums[(args.n + image) * channels + c];
  }
  if (args.dscale != nullptr) static_cast<P*>(args.dscale)[c] = from_accum<P>(dscale);
  if (args.dbias != nullptr) static_cast<P*>(args.dbias)[c] = from_accum<P>(dbias);
}

template <class T, class P>
void group_norm_typed(const GroupNormArgs& args, Stream stream) {
  const i64 rows = args.n * args.groups;
  if (rows * args.channels * args.spatial == 0) return;
  launch(stream, group_norm_groups<T, P>, unsigned(rows), kThreads, 0, args);
}

template <class T, class P>
void group_norm_grad_typed(const GroupNormGradArgs& args, Stream stream) {
  const i64 channels = args.groups * args.channels, lines = args.n * channels;
  if (channels == 0) return;
  if (lines > 0) launch(stream, group_norm_grad_channels<T>, unsigned(lines), kThreads, 0, args);
  if (args.dscale != nullptr || args.dbias != nullptr) {
    launch(stream, group_norm_grad_totals<T, P>, unsigned(ceil_div(channels, kThreads)), kThreads, 0, args);
  }
  if (args.dx != nullptr && lines > 0)
    launch(stream, group_norm_grad_groups<T, P>, unsigned(args.n * args.groups), kThreads, 0, args);
}

}  // namespace

void group_norm(const GroupNormArgs& args, Stream stream) {
  GRADLOOM_GPU_MIXED(args.dtype, args.parameters, group_norm_typed, args, stream);
}
void group_norm_grad(const GroupNormGradArgs& args, Stream stream) {
  GRADLOOM_GPU_MIXED(args.dtype, args.parameters, group_norm_grad_typed, args, stream);
}

}  // namespace gradloom::kernels::gpu
