// 2-d convolution and its gradients, NCHW, groups, any stride, padding and dilation (ONNX Conv), as implicit matrix products: the patches
// of the image are never written, their elements are found where they are loaded (Chetlur et al. 2014). One product per group, q a pixel:
//   forward            y[k, q]  = sum over (c, r, s) of w[k, (c, r, s)] x[n(q), c, oy stride - pad + r dilation, ..]  (+ bias[k])
//   backward_data      dx[c, q] = sum over (k, r, s) of w[k, (c, r, s)] dy[n(q), k, (y + pad - r dilation) / stride, ..] where that divides
//   backward_weights   dw[k, (c, r, s)] = sum over q of dy[n(q), k, q] x[n(q), c, ..]
// Tiles in shared memory (tile_product.h). Products with few tiles and a long sum (gradients of weights) are cut into slices of a length
// that the shape decides; their sums go to the workspace [slices, groups, rows, cols] and a second kernel adds them in order.
#include "kernels/gpu/divider.h"
#include "kernels/gpu/kernels.h"
#include "kernels/gpu/tile_product.h"
#include "kernels/gpu/workspace.h"

namespace gradloom::kernels::gpu {
namespace {

constexpr int kThreads = kTileThreads;

// A convolution as the kernels see it; c and k are those of one group.
struct Shape2d {
  long long groups, c, k, h, w, oh, ow, stride_h, stride_w, pad_top, pad_left, dilation_h, dilation_w;
  long long window, rows, cols, depth;   // r * s; the product
  Divider by_window, by_s, by_output, by_ow, by_input, by_w, by_stride_h, by_stride_w;   // output: oh * ow; input: h * w
};

struct Tap {
  long long channel, r, s;
};
GRADLOOM_DEVICE Tap tap_of(const Shape2d& d, long long tap) {
  const long long channel = d.by_window(tap), rest = tap - channel * d.window, r = d.by_s(rest);
  return {channel, r, rest - r * d.by_s.divisor};
}
struct Pixel {
  long long image, y, x;
};
GRADLOOM_DEVICE Pixel pixel_of(const Divider& by_plane, const Divider& by_width, long long pixel) {
  const long long image = by_plane(pixel), rest = pixel - image * by_plane.divisor, y = by_width(rest);
  return {image, y, rest - y * by_width.divisor};
}

// ---- operands (tile_product.h) ----------------------------------------------------------------------------------------------------

// Forward, B: line an output pixel, depth a tap (c, r, s).
template <class T>
struct ImagePatches {
  using Element = T;
  static constexpr bool kDepthFirst = false;
  struct Line {
    const T* image;   // of the group; null past the end
    long long y, x;   // of tap (0, 0)
  };
  const Shape2d& d;
  const T* x;   // of the group, in image 0

  GRADLOOM_DEVICE Line line(long long index) const {
    if (index >= d.cols) return {nullptr, 0, 0};
    const Pixel p = pixel_of(d.by_output, d.by_ow, index);
    return {x + p.image * d.groups * d.c * d.h * d.w, p.y * d.stride_h - d.pad_top, p.x * d.stride_w - d.pad_left};
  }
  GRADLOOM_DEVICE T load(const Line& line, long long depth) const {
    const Tap tap = tap_of(d, depth);
    const long long y = line.y + tap.r * d.dilation_h, column = line.x + tap.s * d.dilation_w;
    const bool inside = line.image != nullptr && y >= 0 && y < d.h && column >= 0 && column < d.w;
    return inside ? line.image[(tap.channel * d.h + y) * d.w + column] : T{};
  }
};

// Gradient of the data, A: line a channel c, depth (k, r, s).
template <class T>
struct TurnedWeights {
  using Element = T;
  static constexpr bool kDepthFirst = true;
  struct Line {
    const T* at;
  };
  const Shape2d& d;
  const T* w;   // of the group

  GRADLOOM_DEVICE Line line(long long index) const { return {index < d.rows ? w + index * d.window : nullptr}; }
  GRADLOOM_DEVICE T load(const Line& line, long long depth) const {
    if (line.at == nullptr) return T{};
    const long long k = d.by_window(depth);
    return line.at[k * d.c * d.window + (depth - k * d.window)];
  }
};

// Gradient of the data, B: line an input pixel, depth (k, r, s): the output pixels that saw it.
template <class T>
struct OutputPatches {
  using Element = T;
  static constexpr bool kDepthFirst = false;
  struct Line {
    const T* image;   // of dy and the group; null past the end
    long long y, x;   // in the padded input
  };
  const Shape2d& d;
  const T* dy;

  GRADLOOM_DEVICE Line line(long long index) const {
    if (index >= d.cols) return {nullptr, 0, 0};
    const Pixel p = pixel_of(d.by_input, d.by_w, index);
    return {dy + p.image * d.groups * d.k * d.oh * d.ow, p.y + d.pad_top, p.x + d.pad_left};
  }
  GRADLOOM_DEVICE T load(const Line& line, long long depth) const {
    const Tap tap = tap_of(d, depth);
    const long long y = line.y - tap.r * d.dilation_h, x = line.x - tap.s * d.dilation_w;
    if (line.image == nullptr || y < 0 || x < 0) return T{};
    const long long oy = d.by_stride_h(y), ox = d.by_stride_w(x);
    const bool seen = oy * d.stride_h == y && ox * d.stride_w == x && oy < d.oh && ox < d.ow;
    return seen ? line.image[(tap.channel * d.oh + oy) * d.ow + ox] : T{};
  }
};

// Gradient of the weights, A: line an output channel, depth an output pixel.
template <class T>
struct OutputPlanes {
  using Element = T;
  static constexpr bool kDepthFirst = true;
  struct Line {
    const T* at;
  };
  const Shape2d& d;
  const T* dy;   // of the group

  GRADLOOM_DEVICE Line line(long long index) const { return {index < d.rows ? dy + index * d.by_output.divisor : nullptr}; }
  GRADLOOM_DEVICE T load(const Line& line, long long depth) const {
    if (line.at == nullptr) return T{};
    const long long image = d.by_output(depth);
    return line.at[image * d.groups * d.k * d.by_output.divisor + (depth - image * d.by_output.divisor)];
  }
};

// Gradient of the weights, B: line a tap (c, r, s), depth an output pixel.
template <class T>
struct TapPlanes {
  using Element = T;
  static constexpr bool kDepthFirst = true;
  struct Line {
    const T* plane;   // null past the end
    long long y, x;   // of output pixel (0, 0)
  };
  const Shape2d& d;
  const T* x;   // of the group

  GRADLOOM_DEVICE Line line(long long index) const {
    if (index >= d.cols) return {nullptr, 0, 0};
    const Tap tap = tap_of(d, index);
    return {x + tap.channel * d.h * d.w, tap.r * d.dilation_h - d.pad_top, tap.s * d.dilation_w - d.pad_left};
  }
  GRADLOOM_DEVICE T load(const Line& line, long long depth) const {
    const Pixel p = pixel_of(d.by_output, d.by_ow, depth);
    const long long y = line.y + p.y * d.stride_h, column = line.x + p.x * d.stride_w;
    const bool inside = line.plane != nullptr && y >= 0 && y < d.h && column >= 0 && column < d.w;
    return inside ? line.plane[p.image * d.groups * d.c * d.h * d.w + y * d.w + column] : T{};
  }
};

// ---- kernels --------------------------------------------------------------------------------------------------------------------

// a, b, bias, out: as in ConvolutionArgs. partial: null when there is one slice.
template <class T>
struct Tensors {
  const T *a, *b, *bias;
  T* out;
  Accum<T>* partial;
};

template <class T, ConvolutionKind kind>
GRADLOOM_DEVICE void put(const Shape2d& d, const Tensors<T>& t, long long group, long long row, long long col, Accum<T> sum) {
  const long long channel = group * d.rows + row, channels = d.groups * d.rows;
  if constexpr (kind == ConvolutionKind::backward_weights) {
    t.out[channel * d.cols + col] = from_accum<T>(sum);
  } else {
    const Divider& by_plane = kind == ConvolutionKind::forward ? d.by_output : d.by_input;
    const long long image = by_plane(col);
    if (t.bias != nullptr) sum += to_accum(t.bias[channel]);
    t.out[(image * channels + channel) * by_plane.divisor + (col - image * by_plane.divisor)] = from_accum<T>(sum);
  }
}

template <class T, ConvolutionKind kind, class Shape>
GRADLOOM_DEVICE void multiply(const Shape2d& d, const Tensors<T>& t, const TilePlace& at, long long begin, long long end,
                              Accum<T> (&sums)[Shape::kRows][Shape::kCols]) {
  const long long x = at.product * d.c * d.h * d.w, y = at.product * d.k * d.oh * d.ow, w = at.product * d.k * d.c * d.window;
  if constexpr (kind == ConvolutionKind::forward) {
    const StridedOperand<T, true> weights{t.b + w, d.rows, d.depth, 1};
    tile_product<Shape>(weights, ImagePatches<T>{d, t.a + x}, at.row, at.col, begin, end, sums);
  } else if constexpr (kind == ConvolutionKind::backward_data) {
    tile_product<Shape>(TurnedWeights<T>{d, t.b + w}, OutputPatches<T>{d, t.a + y}, at.row, at.col, begin, end, sums);
  } else {
    tile_product<Shape>(OutputPlanes<T>{d, t.a + y}, TapPlanes<T>{d, t.b + x}, at.row, at.col, begin, end, sums);
  }
}

template <class T, ConvolutionKind kind, class Shape>
__global__ void __launch_bounds__(kThreads) convolution_kernel(Shape2d d, Tensors<T> t, TileGrid grid) {
  const TilePlace at = tile_place<Shape>(grid);
  const long long begin = at.slice * grid.length, end = min(begin + grid.length, d.depth);
  Accum<T> sums[Shape::kRows][Shape::kCols];
  multiply<T, kind, Shape>(d, t, at, begin, end, sums);
  for_results<Shape>(sums, at.row, at.col, d.rows, d.cols, [&](long long row, long long col, Accum<T> sum) {
    if (t.partial == nullptr) return put<T, kind>(d, t, at.product, row, col, sum);
    t.partial[((at.slice * d.groups + at.product) * d.rows + row) * d.cols + col] = sum;
  });
}

// Adds the slices of one result per thread.
template <class T, ConvolutionKind kind>
__global__ void join_kernel(Shape2d d, Tensors<T> t, long long slices) {
  const long long i = static_cast<long long>(blockIdx.x) * kThreads + threadIdx.x, results = d.groups * d.rows * d.cols;
  if (i >= results) return;
  Accum<T> sum = t.partial[i];
  for (long long slice = 1; slice < slices; ++slice) sum += t.partial[slice * results + i];
  const long long line = i / d.cols, group = line / d.rows;
  put<T, kind>(d, t, group, line - group * d.rows, i - line * d.cols, sum);
}

// ---- launchers ------------------------------------------------------------------------------------------------------------------

Shape2d shape_of(const ConvolutionArgs& args) {
  const ConvolutionDesc& s = args.shape;
  const ConvolutionProduct p = convolution_product(args);
  Shape2d d{};
  d.groups = s.groups;
  d.c = s.c / s.groups;
  d.k = s.k / s.groups;
  d.h = s.h;
  d.w = s.w;
  d.oh = s.oh;
  d.ow = s.ow;
  d.stride_h = s.stride_h;
  d.stride_w = s.stride_w;
  d.pad_top = s.pad_top;
  d.pad_left = s.pad_left;
  d.dilation_h = s.dilation_h;
  d.dilation_w = s.dilation_w;
  d.window = s.r * s.s;
  d.rows = p.rows;
  d.cols = p.cols;
  d.depth = p.depth;
  const long long taps = (d.c > d.k ? d.c : d.k) * d.window, outputs = s.n * s.oh * s.ow, inputs = s.n * s.h * s.w;
  d.by_window = Divider(d.window, taps);
  d.by_s = Divider(s.s, taps);
  d.by_output = Divider(s.oh * s.ow, outputs);
  d.by_ow = Divider(s.ow, outputs);
  d.by_input = Divider(s.h * s.w, inputs);
  d.by_w = Divider(s.w, inputs);
  d.by_stride_h = Divider(s.stride_h, s.h + s.pad_top);
  d.by_stride_w = Divider(s.stride_w, s.w + s.pad_left);
  return d;
}

template <class T, ConvolutionKind kind, class Shape>
void run_tiles(const Shape2d& d, const Tensors<T>& t, const ProductCut& cut, Stream stream) {
  const TileGrid grid{ceil_div(d.rows, Shape::kM), ceil_div(d.cols, Shape::kN), cut.slices, cut.length};
  launch(stream, convolution_kernel<T, kind, Shape>, dim3(unsigned(grid.blocks(d.groups))), dim3(kThreads), 0, d, t, grid);
}

template <class T, ConvolutionKind kind>
void run(const ConvolutionArgs& args, Stream stream) {
  const Shape2d d = shape_of(args);
  const long long results = d.groups * d.rows * d.cols;
  if (results == 0) return;
  const ProductCut cut = product_cut(d.groups, d.rows, d.cols, d.depth, args.shape.dtype);
  const bool bias = kind == ConvolutionKind::forward && args.shape.bias;
  const Tensors<T> t{static_cast<const T*>(args.a), static_cast<const T*>(args.b), bias ? static_cast<const T*>(args.bias) : nullptr,
                     static_cast<T*>(args.out), cut.slices > 1 ? static_cast<Accum<T>*>(args.workspace) : nullptr};
  if constexpr (sizeof(T) == sizeof(double)) {
    run_tiles<T, kind, TileShape<double, 64, 64, 8>>(d, t, cut, stream);
  } else if (cut.large_tiles) {
    run_tiles<T, kind, TileShape<float, 128, 128, 8>>(d, t, cut, stream);
  } else {
    run_tiles<T, kind, TileShape<float, 64, 64, 16>>(d, t, cut, stream);
  }
  if (cut.slices > 1) {
    launch(stream, join_kernel<T, kind>, dim3(unsigned(ceil_div(results, kThreads))), dim3(kThreads), 0, d, t, cut.slices);
  }
}

template <class T>
void convolve(const ConvolutionArgs& args, Stream stream) {
  switch (args.kind) {
    case ConvolutionKind::forward: return run<T, ConvolutionKind::forward>(args, stream);
    case ConvolutionKind::backward_data: return run<T, ConvolutionKind::backward_data>(args, stream);
    case ConvolutionKind::backward_weights: return run<T, ConvolutionKind::backward_weights>(args, stream);
  }
}

}  // namespace

void convolution(const ConvolutionArgs& args, Stream stream) { GRADLOOM_GPU_FLOATS(args.shape.dtype, convolve, args, stream); }

}  // namespace gradloom::kernels::gpu
