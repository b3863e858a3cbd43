// Max and average pooling of planes [h, w] -> [oh, ow] and their gradients.
//   window of (oy, ox): rows oy * stride_h - pad_top + ky * dilation_h, columns likewise, those inside the plane
//   max: first largest element, NaN wins; average: sum / (kh * kw) with count_include_pad, else / elements inside
// One thread per result, neighbours write neighbours; the overlap of windows comes from the cache. Gradients gather: an input element adds
// what its windows give it in the order of the outputs, so no atomics and the same bits as the CPU.
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

template <class T>
__global__ void __launch_bounds__(kThreads) max_pool_outputs(MaxPoolArgs args) {
  using A = Accum<T>;
  const Element at(int(args.oh * args.ow));
  if (at.plane >= args.planes) return;
  const int oy = at.position / int(args.ow), ox = at.position % int(args.ow), w = int(args.w);
  const int top = oy * int(args.stride_h) - int(args.pad_top), left = ox * int(args.stride_w) - int(args.pad_left);
  const Taps rows = taps_inside(top, int(args.kh), int(args.dilation_h), int(args.h));
  const Taps cols = taps_inside(left, int(args.kw), int(args.dilation_w), w);
  const T* const x = static_cast<const T*>(args.x) + at.plane * args.h * args.w;
  A best = A(-__builtin_inf());
  int where = -1;
  for (int ky = rows.begin; ky < rows.end; ++ky) {
    const int row = (top + ky * int(args.dilation_h)) * w + left;
#pragma unroll 4
    for (int kx = cols.begin; kx < cols.end; ++kx) {
      const int from = row + kx * int(args.dilation_w);
      const A v = to_accum(x[from]);
      if (where < 0 || v > best || (v != v && best == best)) {
        best = v;
        where = from;
      }
    }
  }
  static_cast<T*>(args.y)[at.index] = from_accum<T>(best);
  if (args.argmax != nullptr) args.argmax[at.index] = where;
}

// What an average divides by.
template <class Args>
GRADLOOM_DEVICE int divisor(const Args& args, Taps rows, Taps cols) {
  return args.count_include_pad ? int(args.kh * args.kw) : (rows.end - rows.begin) * (cols.end - cols.begin);
}

template <class T>
__global__ void __launch_bounds__(kThreads) average_pool_outputs(AveragePoolArgs args) {
  using A = Accum<T>;
  const Element at(int(args.oh * args.ow));
  if (at.plane >= args.planes) return;
  const int oy = at.position / int(args.ow), ox = at.position % int(args.ow), w = int(args.w);
  const int top = oy * int(args.stride_h) - int(args.pad_top), left = ox * int(args.stride_w) - int(args.pad_left);
  const Taps rows = taps_inside(top, int(args.kh), 1, int(args.h)), cols = taps_inside(left, int(args.kw), 1, w);
  const T* const x = static_cast<const T*>(args.x) + at.plane * args.h * args.w;
  A total = 0;
  for (int ky = rows.begin; ky < rows.end; ++ky) {
    A row = 0;
#pragma unroll 4
    for (int kx = cols.begin; kx < cols.end; ++kx) row += to_accum(x[(top + ky) * w + left + kx]);
    total += row;
  }
  const int count = divisor(args, rows, cols);
  static_cast<T*>(args.y)[at.index] = from_accum<T>(count > 0 ? total / A(count) : A(0));
}

// Windows [begin, end) of `outs`, `stride` apart and `taps` wide, that cover position `at`.
GRADLOOM_DEVICE Taps windows_over(int at, int pad, int taps, int stride, int outs) {
  const int behind = at + pad - taps + 1;
  return {behind > 0 ? (behind + stride - 1) / stride : 0, smaller(outs, (at + pad) / stride + 1)};
}

template <class T>
__global__ void __launch_bounds__(kThreads) average_pool_grad_inputs(AveragePoolGradArgs args) {
  using A = Accum<T>;
  const Element at(int(args.h * args.w));
  if (at.plane >= args.planes) return;
  const int y = at.position / int(args.w), x = at.position % int(args.w), ow = int(args.ow);
  const int kh = int(args.kh), kw = int(args.kw), stride_h = int(args.stride_h), stride_w = int(args.stride_w);
  const Taps down = windows_over(y, int(args.pad_top), kh, stride_h, int(args.oh));
  const Taps across = windows_over(x, int(args.pad_left), kw, stride_w, ow);
  const T* const dy = static_cast<const T*>(args.dy) + at.plane * args.oh * args.ow;
  A total = 0;
  for (int oy = down.begin; oy < down.end; ++oy) {
    const Taps rows = taps_inside(oy * stride_h - int(args.pad_top), kh, 1, int(args.h));
    for (int ox = across.begin; ox < across.end; ++ox) {
      const Taps cols = taps_inside(ox * stride_w - int(args.pad_left), kw, 1, int(args.w));
      total += to_accum(dy[oy * ow + ox]) / A(divisor(args, rows, cols));
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
      : size(int(size_)), each(int(ceil_div(size_, kMostBuckets))), count(each > 0 ? int(ceil_div(size_, each)) : 0) {}
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

// Which input rows and columns the maxima of each bucket of output rows (columns) came from. All threads of the block.
struct MaxSources {
  const std::int64_t* argmax;
  int w, area;   // of the input

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

// The other way round: the outputs [low, high] that may have taken their maximum from each bucket of inputs [first, last).
GRADLOOM_DEVICE void invert(const Axis& in, int first, int last, const Axis& out, const Range* sources, Range* ranges) {
  for (int bucket = first + int(threadIdx.x); bucket < last; bucket += kThreads) {
    const int begin = bucket * in.each, end = begin + in.each;
    Range range{kFar, -1};
    for (int o = 0; o < out.count; ++o) {
      if (sources[o].low < end && sources[o].high >= begin) range.add({o * out.each, smaller(out.size, (o + 1) * out.each) - 1});
    }
    ranges[bucket - first] = range;
  }
}

// A plane in `stripes` of buckets of its rows; a block per stripe.
template <class T>
__global__ void __launch_bounds__(kThreads) max_pool_grad_inputs(MaxPoolGradArgs args, Axis in_rows, Axis in_cols, Axis out_rows,
                                                                 Axis out_cols, int stripes) {
  using A = Accum<T>;
  const i64 plane = blockIdx.x / stripes;
  const int stripe = int(blockIdx.x % stripes), w = in_cols.size, ow = out_cols.size;
  const int per_stripe = int(ceil_div(in_rows.count, stripes));
  const int first = smaller(in_rows.count, stripe * per_stripe), last = smaller(in_rows.count, first + per_stripe);
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
void launch_elements(Stream stream, void (*kernel)(Args), const Args& args, i64 count) {
  if (count > 0) launch(stream, kernel, unsigned(ceil_div(count, kThreads)), kThreads, 0, args);
}

template <class T>
void max_pool_typed(const MaxPoolArgs& args, Stream stream) {
  launch_elements(stream, max_pool_outputs<T>, args, args.planes * args.oh * args.ow);
}
template <class T>
void average_pool_typed(const AveragePoolArgs& args, Stream stream) {
  launch_elements(stream, average_pool_outputs<T>, args, args.planes * args.oh * args.ow);
}
template <class T>
void average_pool_grad_typed(const AveragePoolGradArgs& args, Stream stream) {
  launch_elements(stream, average_pool_grad_inputs<T>, args, args.planes * args.h * args.w);
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
  launch(stream, max_pool_grad_inputs<T>, unsigned(args.planes * stripes), kThreads, std::size_t(ranges) * sizeof(Range), args,
         in_rows, in_cols, out_rows, out_cols, int(stripes));
}

}  // namespace

void max_pool(const MaxPoolArgs& args, Stream stream) { GRADLOOM_GPU_FLOATS(args.dtype, max_pool_typed, args, stream); }
void max_pool_grad(const MaxPoolGradArgs& args, Stream stream) { GRADLOOM_GPU_FLOATS(args.dtype, max_pool_grad_typed, args, stream); }
void average_pool(const AveragePoolArgs& args, Stream stream) { GRADLOOM_GPU_FLOATS(args.dtype, average_pool_typed, args, stream); }
void average_pool_grad(const AveragePoolGradArgs& args, Stream stream) {
  GRADLOOM_GPU_FLOATS(args.dtype, average_pool_grad_typed, args, stream);
}

}  // namespace gradloom::kernels::gpu
