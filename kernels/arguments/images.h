// Arguments of kernels over spatial dims: interpolation and pooling (conventions: kernels/arguments.h).
#pragma once

#include "kernels/types.h"

namespace gradloom::kernels {

// y[o, j, i] = sum over e in [begin[j], begin[j + 1]) of weight[e] * x[o, index[e], i], in order of e. x:
// [outer, in, inner], y: [outer, out, inner]. A sparse matrix times an axis: interpolation, padding, and the
// gradients of both.
struct ResampleArgs {
  DType dtype;
  std::int64_t outer, in, out, inner;
  const std::int32_t *begin, *index;
  const double* weight;
  const void* x;
  void* y;
};

// Two neighbouring axes at once, x: [outer, rows.in, cols.in, inner], y: [outer, rows.out, cols.out, inner];
// inner at most 64. The CPU's: for GPUs it is one resample after the other.
struct ResampleTable {
  std::int64_t in, out;
  const std::int32_t *begin, *index;
  const double* weight;
};
struct ResamplePlanesArgs {
  DType dtype;
  std::int64_t outer, inner;
  ResampleTable rows, cols;
  const void* x;
  void* y;
};

// x: [n, c, in], grid: [n, out, rank] with the last spatial dim first, in [-1, 1]; y: [n, c, out]. Sizes
// begin at kGridRank - rank. Source: ONNX GridSample-20 and its reference implementation.
enum class GridMode : std::uint8_t { linear, nearest, cubic };
enum class GridPadding : std::uint8_t { zeros, border, reflection };
constexpr int kGridRank = 3;
constexpr std::int64_t kMostGridPixels = std::int64_t{1} << 30;  // of an image
struct GridSampleArgs {
  DType dtype;
  GridMode mode;
  GridPadding padding;
  bool align_corners;
  int rank;
  std::int64_t n, c, in[kGridRank], out[kGridRank];  // unused leading sizes are 1
  const void *x, *grid;
  void *y, *workspace;  // workspace: the CPU's
};
// shape: of the forward, its pointers x and grid set. dx, dgrid: each may be null.
struct GridSampleGradArgs {
  GridSampleArgs shape;
  const void* dy;
  void *dx, *dgrid, *workspace;
};

// Windows of a pooling over planes of n * c; spatial dims are depth, height, width, missing ones in front
// are 1. Channels in blocks: planes of n * c / block, each of `block` neighbours per position: x: [planes,
// in, block], y: [planes, out, block], and so for positions.
struct PoolShape {
  std::int64_t planes, in[3], out[3], kernel[3], stride[3], pad_begin[3], pad_end[3], dilation[3];
  std::int64_t block = 1;
};

// x: [planes, in], y: [planes, out]. Padding never wins a max. argmax: i64 row-major index into the plane;
// indices: ONNX's, into the whole of x, row-major or (column_major) with the first spatial dim fastest. Each
// may be null.
struct MaxPoolArgs {
  DType dtype;
  PoolShape shape;
  const void* x;
  void* y;
  std::int64_t* argmax;
  bool column_major = false;
  std::int64_t* indices = nullptr;
};
// Depth and height of a 3-d plane count as one dim here: h = depth * height.
struct MaxPoolGradArgs {
  DType dtype;
  std::int64_t planes, h, w, oh, ow;
  const void* dy;
  const std::int64_t* argmax;
  void* dx;
  std::int64_t block = 1;
};

// What the sum over a window is divided by: its taps inside x, those inside x and its pads (the last window
// of ceil_mode may reach beyond), or nothing.
enum class PoolDivisor : std::uint8_t { inside, padded, one };
struct AveragePoolArgs {
  DType dtype;
  PoolShape shape;
  PoolDivisor divisor;
  const void* x;
  void* y;
};
struct AveragePoolGradArgs {
  DType dtype;
  PoolShape shape;
  PoolDivisor divisor;
  const void* dy;
  void* dx;
};

}  // namespace gradloom::kernels

// clang-format off
// Its kernels: K(name, arguments).
#define GRADLOOM_IMAGE_KERNELS(K) \
  K(resample, ResampleArgs) K(grid_sample, GridSampleArgs) K(grid_sample_grad, GridSampleGradArgs) \
  K(max_pool, MaxPoolArgs) K(max_pool_grad, MaxPoolGradArgs) K(average_pool, AveragePoolArgs) \
  K(average_pool_grad, AveragePoolGradArgs)
// clang-format on
