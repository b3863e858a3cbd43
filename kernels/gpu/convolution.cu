// Convolution of two or three spatial dims and its gradients, NCHW or NCDHW, groups, any stride, padding and
// dilation (ONNX Conv), as implicit matrix products: the patches of the image are never written, their
// elements are found where they are loaded (Chetlur et al. 2014). One product per group, q a pixel:
//   forward            y[k, q]  = sum over (c, t, r, s) of w[k, (c, t, r, s)] x[n(q), c, .., oy stride - pad + r dilation, ..]  (+ bias[k])
//   backward_data      dx[c, q] = sum over (k, t, r, s) of w[k, (c, t, r, s)] dy[n(q), k, .., (y + pad - r dilation) / stride, ..] where that divides
//   backward_weights   dw[k, (c, t, r, s)] = sum over q of dy[n(q), k, q] x[n(q), c, ..]
// Tiles in shared memory (tile_product.h). Products with few tiles and a long sum (gradients of weights) are
// cut into slices of a length that the shape decides; their sums go to the workspace [slices, groups, rows,
// cols] and a second kernel adds them in order. Depthwise convolutions, one channel of x per group, would
// fill one row or a few of a tile: there a thread sums one result, or a block one weight's gradient.
#include "kernels/gpu/divider.h"
#include "kernels/gpu/kernels.h"
#include "kernels/gpu/tile_product.h"
#include "kernels/gpu/workspace.h"

namespace gradloom::kernels::gpu {
namespace {

constexpr int kThreads = kTileThreads;

// A convolution as the kernels see it; c and k are those of one group.
struct Shape3d {
  long long groups, c, k, d, h, w, od, oh, ow, stride_d, stride_h, stride_w, pad_front, pad_top, pad_left;
  long long dilation_d, dilation_h, dilation_w;
  long long window, rows, cols, depth;  // t * r * s; the product
  // Volumes: t * r * s, od * oh * ow, d * h * w; their planes: r * s, oh * ow, h * w; their lines: s, ow, w.
  Divider by_window, by_window_plane, by_s, by_output, by_output_plane, by_ow, by_input, by_input_plane, by_w;
  Divider by_stride_d, by_stride_h, by_stride_w;
  bool deep;  // d, t or od is not 1

  GRADLOOM_DEVICE long long in_volume() const { return by_input.divisor; }
  GRADLOOM_DEVICE long long out_volume() const { return by_output.divisor; }
};

// A tap (channel, z, y, x) of a filter or a pixel (image, z, y, x) of a tensor.
struct Place {
  long long first, z, y, x;
};
GRADLOOM_DEVICE Place place_of(bool deep, const Divider& by_volume, const Divider& by_plane,
                               const Divider& by_line, long long index) {
  const long long first = by_volume(index);
  long long rest = index - first * by_volume.divisor, z = 0;
  if (deep) {
    z = by_plane(rest);
    rest -= z * by_plane.divisor;
  }
  const long long y = by_line(rest);
  return {first, z, y, rest - y * by_line.divisor};
}
GRADLOOM_DEVICE Place tap_of(const Shape3d& d, long long tap) {
  return place_of(d.deep, d.by_window, d.by_window_plane, d.by_s, tap);
}
GRADLOOM_DEVICE Place output_of(const Shape3d& d, long long pixel) {
  return place_of(d.deep, d.by_output, d.by_output_plane, d.by_ow, pixel);
}
GRADLOOM_DEVICE Place input_of(const Shape3d& d, long long pixel) {
  return place_of(d.deep, d.by_input, d.by_input_plane, d.by_w, pixel);
}

GRADLOOM_DEVICE bool inside(const Shape3d& d, long long z, long long y, long long x) {
  return z >= 0 && z < d.d && y >= 0 && y < d.h && x >= 0 && x < d.w;
}

// ---- operands (tile_product.h) ----------------------------------------------------------------------------------------------------

// Forward, B: line an output pixel, depth a tap (c, t, r, s).
template <class T>
struct ImagePatches {
  using Element = T;
  static constexpr bool kDepthFirst = false;
  struct Line {
    const T* image;     // of the group; null past the end
    long long z, y, x;  // of the first tap
  };
  const Shape3d& d;
  const T* x;  // of the group, in image 0

  GRADLOOM_DEVICE Line line(long long index) const {
    if (index >= d.cols) return {nullptr, 0, 0, 0};
    const Place p = output_of(d, index);
    return {x + p.first * d.groups * d.c * d.in_volume(), p.z * d.stride_d - d.pad_front,
            p.y * d.stride_h - d.pad_top, p.x * d.stride_w - d.pad_left};
  }
  GRADLOOM_DEVICE T load(const Line& line, long long depth) const {
    const Place tap = tap_of(d, depth);
    const long long z = line.z + tap.z * d.dilation_d, y = line.y + tap.y * d.dilation_h,
                    column = line.x + tap.x * d.dilation_w;
    if (line.image == nullptr || !inside(d, z, y, column)) return T{};
    return line.image[((tap.first * d.d + z) * d.h + y) * d.w + column];
  }
};

// Gradient of the data, A: line a channel c, depth (k, t, r, s).
template <class T>
struct TurnedWeights {
  using Element = T;
  static constexpr bool kDepthFirst = true;
  struct Line {
    const T* at;
  };
  const Shape3d& d;
  const T* w;  // of the group

  GRADLOOM_DEVICE Line line(long long index) const {
    return {index < d.rows ? w + index * d.window : nullptr};
  }
  GRADLOOM_DEVICE T load(const Line& line, long long depth) const {
    if (line.at == nullptr) return T{};
    const long long k = d.by_window(depth);
    return line.at[k * d.c * d.window + (depth - k * d.window)];
  }
};

// Gradient of the data, B: line an input pixel, depth (k, t, r, s): the output pixels that saw it.
template <class T>
struct OutputPatches {
  using Element = T;
  static constexpr bool kDepthFirst = false;
  struct Line {
    const T* image;     // of dy and the group; null past the end
    long long z, y, x;  // in the padded input
  };
  const Shape3d& d;
  const T* dy;

  GRADLOOM_DEVICE Line line(long long index) const {
    if (index >= d.cols) return {nullptr, 0, 0, 0};
    const Place p = input_of(d, index);
    return {dy + p.first * d.groups * d.k * d.out_volume(), p.z + d.pad_front, p.y + d.pad_top,
            p.x + d.pad_left};
  }
  GRADLOOM_DEVICE T load(const Line& line, long long depth) const {
    const Place tap = tap_of(d, depth);
    const long long z = line.z - tap.z * d.dilation_d, y = line.y - tap.y * d.dilation_h,
                    x = line.x - tap.x * d.dilation_w;
    if (line.image == nullptr || z < 0 || y < 0 || x < 0) return T{};
    const long long oz = d.by_stride_d(z), oy = d.by_stride_h(y), ox = d.by_stride_w(x);
    const bool divides = oz * d.stride_d == z && oy * d.stride_h == y && ox * d.stride_w == x;
    if (!divides || oz >= d.od || oy >= d.oh || ox >= d.ow) return T{};
    return line.image[((tap.first * d.od + oz) * d.oh + oy) * d.ow + ox];
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
  const Shape3d& d;
  const T* dy;  // of the group

  GRADLOOM_DEVICE Line line(long long index) const {
    return {index < d.rows ? dy + index * d.by_output.divisor : nullptr};
  }
  GRADLOOM_DEVICE T load(const Line& line, long long depth) const {
    if (line.at == nullptr) return T{};
    const long long image = d.by_output(depth);
    return line.at[image * d.groups * d.k * d.by_output.divisor + (depth - image * d.by_output.divisor)];
  }
};

// Gradient of the weights, B: line a tap (c, t, r, s), depth an output pixel.
template <class T>
struct TapPlanes {
  using Element = T;
  static constexpr bool kDepthFirst = true;
  struct Line {
    const T* volume;    // null past the end
    long long z, y, x;  // of the first output pixel
  };
  const Shape3d& d;
  const T* x;  // of the group

  GRADLOOM_DEVICE Line line(long long index) const {
    if (index >= d.cols) return {nullptr, 0, 0, 0};
    const Place tap = tap_of(d, index);
    return {x + tap.first * d.in_volume(), tap.z * d.dilation_d - d.pad_front,
            tap.y * d.dilation_h - d.pad_top, tap.x * d.dilation_w - d.pad_left};
  }
  GRADLOOM_DEVICE T load(const Line& line, long long depth) const {
    const Place p = output_of(d, depth);
    const long long z = line.z + p.z * d.stride_d, y = line.y + p.y * d.stride_h,
                    column = line.x + p.x * d.stride_w;
    if (line.volume == nullptr || !inside(d, z, y, column)) return T{};
    return line.volume[p.first * d.groups * d.c * d.in_volume() + (z * d.h + y) * d.w + column];
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
GRADLOOM_DEVICE void put(const Shape3d& d, const Tensors<T>& t, long long group, long long row, long long col,
                         Accum<T> sum) {
  const long long channel = group * d.rows + row, channels = d.groups * d.rows;
  if constexpr (kind == ConvolutionKind::backward_weights) {
    t.out[channel * d.cols + col] = from_accum<T>(sum);
  } else {
    const Divider& by_plane = kind == ConvolutionKind::forward ? d.by_output : d.by_input;
    const long long image = by_plane(col);
    if (t.bias != nullptr) sum += to_accum(t.bias[channel]);
    t.out[(image * channels + channel) * by_plane.divisor + (col - image * by_plane.divisor)] =
        from_accum<T>(sum);
  }
}

template <class T, ConvolutionKind kind, class Shape>
GRADLOOM_DEVICE void multiply(const Shape3d& d, const Tensors<T>& t, const TilePlace& at, long long begin,
                              long long end, Accum<T> (&sums)[Shape::kRows][Shape::kCols]) {
  const long long x = at.product * d.c * d.in_volume(), y = at.product * d.k * d.out_volume(),
                  w = at.product * d.k * d.c * d.window;
  if constexpr (kind == ConvolutionKind::forward) {
    const StridedOperand<T, true> weights{t.b + w, d.rows, d.depth, 1};
    tile_product<Shape>(weights, ImagePatches<T>{d, t.a + x}, at.row, at.col, begin, end, sums);
  } else if constexpr (kind == ConvolutionKind::backward_data) {
    tile_product<Shape>(TurnedWeights<T>{d, t.b + w}, OutputPatches<T>{d, t.a + y}, at.row, at.col, begin,
                        end, sums);
  } else {
    tile_product<Shape>(OutputPlanes<T>{d, t.a + y}, TapPlanes<T>{d, t.b + x}, at.row, at.col, begin, end,
                        sums);
  }
}

template <class T, ConvolutionKind kind, class Shape>
__global__ void __launch_bounds__(kThreads) convolution_kernel(Shape3d d, Tensors<T> t, TileGrid grid) {
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
__global__ void join_kernel(Shape3d d, Tensors<T> t, long long slices) {
  const long long i = static_cast<long long>(blockIdx.x) * kThreads + threadIdx.x,
                  results = d.groups * d.rows * d.cols;
  if (i >= results) return;
  Accum<T> sum = t.partial[i];
  for (long long slice = 1; slice < slices; ++slice) sum += t.partial[slice * results + i];
  const long long line = i / d.cols, group = line / d.rows;
  put<T, kind>(d, t, group, line - group * d.rows, i - line * d.cols, sum);
}

// ---- depthwise: the operands without tiles ---------------------------------------------------------------------------------------

// Terms begin, begin + step, .. of one result.
template <class T, ConvolutionKind kind>
GRADLOOM_DEVICE Accum<T> sum_of_terms(const Shape3d& d, const Tensors<T>& t, long long group, long long row,
                                      long long col, long long begin, long long step) {
  Accum<T> sum = 0;
  const auto add = [&](const auto& a, const auto& b) {
    const auto left = a.line(row);
    const auto right = b.line(col);
    for (long long i = begin; i < d.depth; i += step)
      sum += to_accum(a.load(left, i)) * to_accum(b.load(right, i));
  };
  const long long x = group * d.c * d.in_volume(), y = group * d.k * d.out_volume(),
                  w = group * d.k * d.c * d.window;
  if constexpr (kind == ConvolutionKind::forward) {
    const T* const weights = t.b + w + row * d.depth;
    const ImagePatches<T> patches{d, t.a + x};
    const auto line = patches.line(col);
    for (long long i = begin; i < d.depth; i += step)
      sum += to_accum(weights[i]) * to_accum(patches.load(line, i));
  } else if constexpr (kind == ConvolutionKind::backward_data) {
    add(TurnedWeights<T>{d, t.b + w}, OutputPatches<T>{d, t.a + y});
  } else {
    add(OutputPlanes<T>{d, t.a + y}, TapPlanes<T>{d, t.b + x});
  }
  return sum;
}

template <class T, ConvolutionKind kind>
__global__ void __launch_bounds__(kThreads) depthwise_kernel(Shape3d d, Tensors<T> t) {
  constexpr bool kBlockPerResult = kind == ConvolutionKind::backward_weights;
  const long long index =
      kBlockPerResult ? blockIdx.x : static_cast<long long>(blockIdx.x) * kThreads + threadIdx.x;
  if (index >= d.groups * d.rows * d.cols) return;
  const long long line = index / d.cols, group = line / d.rows, row = line - group * d.rows,
                  col = index - line * d.cols;
  if constexpr (kBlockPerResult) {
    const Accum<T> own = sum_of_terms<T, kind>(d, t, group, row, col, threadIdx.x, kThreads);
    const Accum<T> sum = block_reduce(own, Sum(), Accum<T>(0));
    if (threadIdx.x == 0) put<T, kind>(d, t, group, row, col, sum);
  } else {
    put<T, kind>(d, t, group, row, col, sum_of_terms<T, kind>(d, t, group, row, col, 0, 1));
  }
}

// ---- launchers ------------------------------------------------------------------------------------------------------------------

Shape3d shape_of(const ConvolutionArgs& args) {
  const ConvolutionDesc& s = args.shape;
  const ConvolutionProduct p = convolution_product(args);
  Shape3d d{};
  d.groups = s.groups;
  d.c = s.c / s.groups;
  d.k = s.k / s.groups;
  d.d = s.d;
  d.h = s.h;
  d.w = s.w;
  d.od = s.od;
  d.oh = s.oh;
  d.ow = s.ow;
  d.stride_d = s.stride_d;
  d.stride_h = s.stride_h;
  d.stride_w = s.stride_w;
  d.pad_front = s.pad_front;
  d.pad_top = s.pad_top;
  d.pad_left = s.pad_left;
  d.dilation_d = s.dilation_d;
  d.dilation_h = s.dilation_h;
  d.dilation_w = s.dilation_w;
  d.deep = s.d != 1 || s.t != 1 || s.od != 1;
  d.window = s.t * s.r * s.s;
  d.rows = p.rows;
  d.cols = p.cols;
  d.depth = p.depth;
  const long long out = s.od * s.oh * s.ow, in = s.d * s.h * s.w;
  const long long taps = (d.c > d.k ? d.c : d.k) * d.window, outputs = s.n * out, inputs = s.n * in;
  d.by_window = Divider(d.window, taps);
  d.by_window_plane = Divider(s.r * s.s, taps);
  d.by_s = Divider(s.s, taps);
  d.by_output = Divider(out, outputs);
  d.by_output_plane = Divider(s.oh * s.ow, outputs);
  d.by_ow = Divider(s.ow, outputs);
  d.by_input = Divider(in, inputs);
  d.by_input_plane = Divider(s.h * s.w, inputs);
  d.by_w = Divider(s.w, inputs);
  d.by_stride_d = Divider(s.stride_d, s.d + s.pad_front);
  d.by_stride_h = Divider(s.stride_h, s.h + s.pad_top);
  d.by_stride_w = Divider(s.stride_w, s.w + s.pad_left);
  return d;
}

template <class T, ConvolutionKind kind, class Shape>
void run_tiles(const Shape3d& d, const Tensors<T>& t, const ProductCut& cut, Stream stream) {
  const TileGrid grid{ceil_div(d.rows, Shape::kM), ceil_div(d.cols, Shape::kN), cut.slices, cut.length};
  launch(stream, convolution_kernel<T, kind, Shape>, dim3(unsigned(grid.blocks(d.groups))), dim3(kThreads), 0,
         d, t, grid);
}

template <class T, ConvolutionKind kind>
void run(const ConvolutionArgs& args, Stream stream) {
  const Shape3d d = shape_of(args);
  const long long results = d.groups * d.rows * d.cols;
  if (results == 0) return;
  const ProductCut cut = product_cut(d.groups, d.rows, d.cols, d.depth, args.shape.dtype);
  const bool bias = kind == ConvolutionKind::forward && args.shape.bias;
  const Tensors<T> t{static_cast<const T*>(args.a), static_cast<const T*>(args.b),
                     bias ? static_cast<const T*>(args.bias) : nullptr, static_cast<T*>(args.out),
                     cut.slices > 1 ? static_cast<Accum<T>*>(args.workspace) : nullptr};
  if (is_depthwise(args)) {
    const long long blocks =
        kind == ConvolutionKind::backward_weights ? results : ceil_div(results, kThreads);
    return launch(stream, depthwise_kernel<T, kind>, dim3(unsigned(blocks)), dim3(kThreads), 0, d, t);
  }
  if constexpr (sizeof(T) == sizeof(double)) {
    run_tiles<T, kind, TileShape<double, 64, 64, 8>>(d, t, cut, stream);
  } else if (cut.large_tiles) {
    run_tiles<T, kind, TileShape<float, 128, 128, 8>>(d, t, cut, stream);
  } else {
    run_tiles<T, kind, TileShape<float, 64, 64, 16>>(d, t, cut, stream);
  }
  if (cut.slices > 1) {
    launch(stream, join_kernel<T, kind>, dim3(unsigned(ceil_div(results, kThreads))), dim3(kThreads), 0, d, t,
           cut.slices);
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

namespace {

// One result per thread.
template <class T>
__global__ void bias_kernel(const T* bias, T* y, long long channels, long long spatial, long long results) {
  const long long i = static_cast<long long>(blockIdx.x) * kThreads + threadIdx.x;
  if (i >= results) return;
  y[i] = from_accum<T>(to_accum(y[i]) + to_accum(bias[i / spatial % channels]));
}

template <class T>
void add_bias(const ConvolutionArgs& args, Stream stream) {
  const ConvolutionDesc& s = args.shape;
  const long long spatial = s.od * s.oh * s.ow, results = s.n * s.k * spatial;
  if (results == 0 || args.bias == nullptr || args.kind != ConvolutionKind::forward) return;
  launch(stream, bias_kernel<T>, dim3(unsigned(ceil_div(results, kThreads))), dim3(kThreads), 0,
         static_cast<const T*>(args.bias), static_cast<T*>(args.out), static_cast<long long>(s.k), spatial,
         results);
}

}  // namespace

void convolution_bias(const ConvolutionArgs& args, Stream stream) {
  GRADLOOM_GPU_FLOATS(args.shape.dtype, add_bias, args, stream);
}

void convolution(const ConvolutionArgs& args, Stream stream) {
  GRADLOOM_GPU_FLOATS(args.shape.dtype, convolve, args, stream);
}

}  // namespace gradloom::kernels::gpu
