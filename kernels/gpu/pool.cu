// Max and average pooling of planes of one to three spatial dims and their gradients.
//   window of output o: positions o * stride - pad_begin + tap * dilation in every dim, those inside the plane
//   max: first largest element, NaN wins; average: sum / divisor (PoolDivisor)
// One thread per result, neighbours write neighbours; the overlap of windows comes from the cache. Gradients
// gather: an input element adds what its windows give it in the order of the outputs, so no atomics and the
// same bits as the CPU.
//   average   the windows over an element follow from their shape
//   max       argmax alone is known, so a block first finds, for every output row and column, the range of input rows and columns that
//             its maxima came from, then for every input row and column the range of outputs that reach it, and looks for itself there.
//             Axes longer than kMostBuckets are looked at in buckets of neighbours.
// Positions inside a plane are 32 bits.
#include "kernels/gpu/kernels.h"

namespace gradloom::kernels::gpu {
namespace {

using i64 = long long;

constexpr int kThreads = 256;

GRADLOOM_HD int smaller(int a, int b) { return a < b ? a : b; }
GRADLOOM_HD int larger(int a, int b) { return a > b ? a : b; }

// ---- one thread per element of [planes, area] -------------------------------------------------------------------------------------

// Element number blockIdx * blockDim + threadIdx as plane and position; one 64-bit division per block.
struct Element {
  i64 index, plane;
  int position;
  GRADLOOM_DEVICE explicit Element(int area) {
    const i64 begin = i64(blockIdx.x) * kThreads;
    const unsigned offset = unsigned(begin % area) + threadIdx.x;
    index = begin + threadIdx.x;
    plane = begin / area + offset / unsigned(area);
    position = int(offset % unsigned(area));
  }
};

// Taps [begin, end) of a window of `taps` that starts at `start` fall inside [0, size).
struct Taps {
  int begin, end;
};
GRADLOOM_DEVICE Taps taps_inside(int start, int taps, int dilation, int size) {
  const int begin = start < 0 ? (-start + dilation - 1) / dilation : 0;
  const int end = start < size ? smaller(taps, (size - start + dilation - 1) / dilation) : 0;
  return {smaller(begin, taps), larger(end, smaller(begin, taps))};
}

// PoolShape in 32 bits.
struct Shape {
  i64 planes;
  int in[3], out[3], kernel[3], stride[3], pad_begin[3], pad_end[3], dilation[3];
  explicit Shape(const PoolShape& s) : planes(s.planes) {
    for (int d = 0; d < 3; ++d) {
      in[d] = int(s.in[d]);
      out[d] = int(s.out[d]);
      kernel[d] = int(s.kernel[d]);
      stride[d] = int(s.stride[d]);
      pad_begin[d] = int(s.pad_begin[d]);
      pad_end[d] = int(s.pad_end[d]);
      dilation[d] = int(s.dilation[d]);
    }
  }
  GRADLOOM_HD int in_area() const { return in[0] * in[1] * in[2]; }
  GRADLOOM_HD int out_area() const { return out[0] * out[1] * out[2]; }
};

// A window along one dim: where tap 0 is, the taps inside, and how many are inside dim and pads.
struct Reach {
  int start;
  Taps taps;
  int padded;
};
GRADLOOM_DEVICE Reach reach_of(const Shape& s, int d, int out) {
  const int start = out * s.stride[d] - s.pad_begin[d];
  return {start, taps_inside(start, s.kernel[d], s.dilation[d], s.in[d]),
          taps_inside(start, s.kernel[d], s.dilation[d], s.in[d] + s.pad_end[d]).end};
}
struct Window {
  Reach deep, rows, cols;
  GRADLOOM_DEVICE Window(const Shape& s, int output)
      : deep(reach_of(s, 0, output / s.out[2] / s.out[1])),
        rows(reach_of(s, 1, output / s.out[2] % s.out[1])),
        cols(reach_of(s, 2, output % s.out[2])) {}
  GRADLOOM_DEVICE int divisor(PoolDivisor divisor) const {
    if (divisor == PoolDivisor::one) return 1;
    if (divisor == PoolDivisor::padded) return deep.padded * rows.padded * cols.padded;
    return (deep.taps.end - deep.taps.begin) * (rows.taps.end - rows.taps.begin) *
           (cols.taps.end - cols.taps.begin);
  }
  // row(offset in the plane of tap 0) for every row of taps inside.
  template <class Row>
  GRADLOOM_DEVICE void for_rows(const Shape& s, const Row& row) const {
    for (int kz = deep.taps.begin; kz < deep.taps.end; ++kz) {
      const int plane = (deep.start + kz * s.dilation[0]) * s.in[1];
      for (int ky = rows.taps.begin; ky < rows.taps.end; ++ky)
        row((plane + rows.start + ky * s.dilation[1]) * s.in[2] + cols.start);
    }
  }
};

// ONNX's number of a position in plane `plane`.
GRADLOOM_DEVICE i64 index_of(const Shape& s, bool column_major, i64 plane, int position) {
  const i64 base = plane * s.in_area();
  if (!column_major || position < 0) return base + position;
  const int x = position % s.in[2], y = position / s.in[2] % s.in[1], z = position / s.in[2] / s.in[1];
  return base + z + s.in[0] * (y + s.in[1] * x);
}

template <class T>
__global__ void __launch_bounds__(kThreads) max_pool_outputs(MaxPoolArgs args, Shape s) {
  using A = Accum<T>;
  const Element at(s.out_area());
  if (at.plane >= s.planes) return;
  const Window window(s, at.position);
  const T* const x = static_cast<const T*>(args.x) + at.plane * s.in_area();
  A best = A(-__builtin_inf());
  int where = -1;
  window.for_rows(s, [&](int row) {
#pragma unroll 4
    for (int kx = window.cols.taps.begin; kx < window.cols.taps.end; ++kx) {
      const int from = row + kx * s.dilation[2];
      const A v = to_accum(x[from]);
      if (where < 0 || v > best || (v != v && best == best)) {
        best = v;
        where = from;
      }
    }
  });
  static_cast<T*>(args.y)[at.index] = from_accum<T>(best);
  if (args.argmax != nullptr) args.argmax[at.index] = where;
  if (args.indices != nullptr) args.indices[at.index] = index_of(s, args.column_major, at.plane, where);
}

template <class T>
__global__ void __launch_bounds__(kThreads) average_pool_outputs(AveragePoolArgs args, Shape s) {
  using A = Accum<T>;
  const Element at(s.out_area());
  if (at.plane >= s.planes) return;
  const Window window(s, at.position);
  const T* const x = static_cast<const T*>(args.x) + at.plane * s.in_area();
  A total = 0;
  window.for_rows(s, [&](int from) {
    A row = 0;
#pragma unroll 4
    for (int kx = window.cols.taps.begin; kx < window.cols.taps.end; ++kx)
      row += to_accum(x[from + kx * s.dilation[2]]);
    total += row;
  });
  const int count = window.divisor(args.divisor);
  static_cast<T*>(args.y)[at.index] = from_accum<T>(count > 0 ? total / A(count) : A(0));
}

// Windows [begin, end) along dim `d` whose extent covers position `at`;
// with dilation not all of them have a tap there.
GRADLOOM_DEVICE Taps windows_over(const Shape& s, int d, int at) {
  const int behind = at + s.pad_begin[d] - (s.kernel[d] - 1) * s.dilation[d];
  return {behind > 0 ? (behind + s.stride[d] - 1) / s.stride[d] : 0,
          smaller(s.out[d], (at + s.pad_begin[d]) / s.stride[d] + 1)};
}
GRADLOOM_DEVICE bool has_tap(const Shape& s, int d, int out, int at) {
  return s.dilation[d] == 1 || (at + s.pad_begin[d] - out * s.stride[d]) % s.dilation[d] == 0;
}

template <class T>
__global__ void __launch_bounds__(kThreads) average_pool_grad_inputs(AveragePoolGradArgs args, Shape s) {
  using A = Accum<T>;
  const Element at(s.in_area());
  if (at.plane >= s.planes) return;
  const int x = at.position % s.in[2], y = at.position / s.in[2] % s.in[1],
            z = at.position / s.in[2] / s.in[1];
  const Taps deep = windows_over(s, 0, z), down = windows_over(s, 1, y), across = windows_over(s, 2, x);
  const T* const dy = static_cast<const T*>(args.dy) + at.plane * s.out_area();
  A total = 0;
  for (int oz = deep.begin; oz < deep.end; ++oz) {
    if (!has_tap(s, 0, oz, z)) continue;
    for (int oy = down.begin; oy < down.end; ++oy) {
      if (!has_tap(s, 1, oy, y)) continue;
      for (int ox = across.begin; ox < across.end; ++ox) {
        if (!has_tap(s, 2, ox, x)) continue;
        const int output = (oz * s.out[1] + oy) * s.out[2] + ox;
        total += to_accum(dy[output]) / A(Window(s, output).divisor(args.divisor));
      }
    }
  }
  static_cast<T*>(args.dx)[at.index] = from_accum<T>(total);
}

// ---- max gradient -----------------------------------------------------------------------------------------------------------------

constexpr int kMostBuckets = 1024;

// One axis of a plane: `size` positions in `count` buckets of `each`.
struct Axis {
  int size, each, count;
  explicit Axis(i64 size_)
      : size(int(size_)),
        each(int(ceil_div(size_, kMostBuckets))),
        count(each > 0 ? int(ceil_div(size_, each)) : 0) {}
};

// A range of positions or buckets, empty until something is added.
struct Range {
  int low, high;
  GRADLOOM_DEVICE void add(Range other) {
    low = smaller(low, other.low);
    high = larger(high, other.high);
  }
};
constexpr int kFar = 0x7fffffff;
struct Least {
  GRADLOOM_DEVICE int operator()(int a, int b) const { return smaller(a, b); }
};
struct Most {
  GRADLOOM_DEVICE int operator()(int a, int b) const { return larger(a, b); }
};

// Which input rows and columns the maxima of each bucket of output rows (columns) came from.
// All threads of the block.
struct MaxSources {
  const std::int64_t* argmax;
  int w, area;  // of the input

  GRADLOOM_DEVICE bool inside(std::int64_t p) const { return p >= 0 && p < area; }

  // A warp per bucket of output rows.
  GRADLOOM_DEVICE void rows(const Axis& down, int ow, Range* ranges) const {
    const int lane = int(threadIdx.x) % kWarp, warps = kThreads / kWarp;
    for (int bucket = int(threadIdx.x) / kWarp; bucket < down.count; bucket += warps) {
      const int end = smaller(down.size, (bucket + 1) * down.each) * ow;
      Range range{kFar, -1};
      for (int i = bucket * down.each * ow + lane; i < end; i += kWarp) {
        if (inside(argmax[i])) range.add({int(argmax[i]) / w, int(argmax[i]) / w});
      }
      range = {warp_reduce(range.low, Least()), warp_reduce(range.high, Most())};
      if (lane == 0) ranges[bucket] = range;
    }
  }
  // A thread per bucket of output columns, or several that share the rows and leave their ranges in `parts`.
  GRADLOOM_DEVICE void cols(const Axis& across, int oh, Range* parts, Range* ranges) const {
    const int slices = larger(1, kThreads / larger(1, across.count)), threads = slices * across.count;
    for (int at = int(threadIdx.x); at < threads; at += kThreads) {
      const int bucket = at % across.count;
      Range range{kFar, -1};
      for (int oy = at / across.count; oy < oh; oy += slices) {
        for (int ox = bucket * across.each; ox < smaller(across.size, (bucket + 1) * across.each); ++ox) {
          const std::int64_t p = argmax[oy * across.size + ox];
          if (inside(p)) range.add({int(p) % w, int(p) % w});
        }
      }
      (slices > 1 ? parts : ranges)[at] = range;
    }
    if (slices == 1) return;
    __syncthreads();
    const int bucket = int(threadIdx.x);
    if (bucket >= across.count) return;
    for (int slice = 1; slice < slices; ++slice) parts[bucket].add(parts[slice * across.count + bucket]);
    ranges[bucket] = parts[bucket];
  }
};

// The other way round: the outputs [low, high] that may have taken their maximum from each
// bucket of inputs [first, last).
GRADLOOM_DEVICE void invert(const Axis& in, int first, int last, const Axis& out, const Range* sources,
                            Range* ranges) {
  for (int bucket = first + int(threadIdx.x); bucket < last; bucket += kThreads) {
    const int begin = bucket * in.each, end = begin + in.each;
    Range range{kFar, -1};
    for (int o = 0; o < out.count; ++o) {
      if (sources[o].low < end && sources[o].high >= begin)
        range.add({o * out.each, smaller(out.size, (o + 1) * out.each) - 1});
    }
    ranges[bucket - first] = range;
  }
}

// A plane in `stripes` of buckets of its rows; a block per stripe.
template <class T>
__global__ void __launch_bounds__(kThreads)
    max_pool_grad_inputs(MaxPoolGradArgs args, Axis in_rows, Axis in_cols, Axis out_rows, Axis out_cols,
                         int stripes) {
  using A = Accum<T>;
  const i64 plane = blockIdx.x / stripes;
  const int stripe = int(blockIdx.x % stripes), w = in_cols.size, ow = out_cols.size;
  const int per_stripe = int(ceil_div(in_rows.count, stripes));
  const int first = smaller(in_rows.count, stripe * per_stripe),
            last = smaller(in_rows.count, first + per_stripe);
  __shared__ Range parts[kThreads];
  Range* const row_sources = dynamic_shared<Range>();
  Range* const col_sources = row_sources + out_rows.count;
  Range* const row_outputs = col_sources + out_cols.count;
  Range* const col_outputs = row_outputs + per_stripe;
  const std::int64_t* const argmax = args.argmax + plane * args.oh * args.ow;
  const MaxSources sources{argmax, w, int(args.h * args.w)};
  sources.rows(out_rows, ow, row_sources);
  sources.cols(out_cols, out_rows.size, parts, col_sources);
  __syncthreads();
  invert(in_rows, first, last, out_rows, row_sources, row_outputs);
  invert(in_cols, 0, in_cols.count, out_cols, col_sources, col_outputs);
  __syncthreads();
  const T* const dy = static_cast<const T*>(args.dy) + plane * args.oh * args.ow;
  T* const dx = static_cast<T*>(args.dx) + plane * args.h * args.w;
  const int end = smaller(in_rows.size, last * in_rows.each) * w;
  for (int i = first * in_rows.each * w + int(threadIdx.x); i < end; i += kThreads) {
    const Range down = row_outputs[i / w / in_rows.each - first], across = col_outputs[i % w / in_cols.each];
    A total = 0;
    for (int oy = down.low; oy <= down.high; ++oy) {
      for (int ox = across.low; ox <= across.high; ++ox) {
        if (argmax[oy * ow + ox] == i) total += to_accum(dy[oy * ow + ox]);
      }
    }
    dx[i] = from_accum<T>(total);
  }
}

// ---- launchers --------------------------------------------------------------------------------------------------------------------

template <class Args>
void launch_elements(Stream stream, void (*kernel)(Args, Shape), const Args& args, i64 area) {
  const i64 count = args.shape.planes * area;
  if (count > 0)
    launch(stream, kernel, unsigned(ceil_div(count, kThreads)), kThreads, 0, args, Shape(args.shape));
}
i64 area(const std::int64_t (&dims)[3]) { return dims[0] * dims[1] * dims[2]; }

template <class T>
void max_pool_typed(const MaxPoolArgs& args, Stream stream) {
  launch_elements(stream, max_pool_outputs<T>, args, area(args.shape.out));
}
template <class T>
void average_pool_typed(const AveragePoolArgs& args, Stream stream) {
  launch_elements(stream, average_pool_outputs<T>, args, area(args.shape.out));
}
template <class T>
void average_pool_grad_typed(const AveragePoolGradArgs& args, Stream stream) {
  launch_elements(stream, average_pool_grad_inputs<T>, args, area(args.shape.in));
}

template <class T>
void max_pool_grad_typed(const MaxPoolGradArgs& args, Stream stream) {
  if (args.planes * args.h * args.w == 0) return;
  const Axis in_rows(args.h), in_cols(args.w), out_rows(args.oh), out_cols(args.ow);
  // Every stripe reads all of argmax: only as many as few planes need, of 4096 elements or more.
  i64 stripes = ceil_div(1024, args.planes);
  if (stripes > args.h * args.w / 4096) stripes = args.h * args.w / 4096;
  stripes = stripes < 1 ? 1 : stripes < in_rows.count ? stripes : in_rows.count;
  const i64 ranges = out_rows.count + out_cols.count + ceil_div(in_rows.count, stripes) + in_cols.count;
  launch(stream, max_pool_grad_inputs<T>, unsigned(args.planes * stripes), kThreads,
         std::size_t(ranges) * sizeof(Range), args, in_rows, in_cols, out_rows, out_cols, int(stripes));
}

}  // namespace

void max_pool(const MaxPoolArgs& args, Stream stream) {
  GRADLOOM_GPU_FLOATS(args.dtype, max_pool_typed, args, stream);
}
void max_pool_grad(const MaxPoolGradArgs& args, Stream stream) {
  GRADLOOM_GPU_FLOATS(args.dtype, max_pool_grad_typed, args, stream);
}
void average_pool(const AveragePoolArgs& args, Stream stream) {
  GRADLOOM_GPU_FLOATS(args.dtype, average_pool_typed, args, stream);
}
void average_pool_grad(const AveragePoolGradArgs& args, Stream stream) {
  GRADLOOM_GPU_FLOATS(args.dtype, average_pool_grad_typed, args, stream);
}

}  // namespace gradloom::kernels::gpu
