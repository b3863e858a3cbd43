// GridSample and its gradients (grid.h); the sum of y is over the pixels that point o of the grid reads:
//   y[n, c, o] = sum over pixels of weight * x[n, c, pixel]
//   forward   one thread per point and group of channels
//   dgrid     one thread per point; sum over the channels and the pixels of dy * x * d weight / d grid
//   dx        what all points read is sorted by pixel, stable (sort.h); one thread per pixel and channel adds weight * dy in order of the points,
//             so no atomics and the same bits on every device
#include "kernels/gpu/divider.h"
#include "kernels/gpu/kernels.h"
#include "kernels/gpu/sort.h"
#include "kernels/grid.h"

namespace gradloom::kernels::gpu {
namespace {

using i64 = std::int64_t;

constexpr int kThreads = 256;
constexpr i64 kChannels = 4;

GRADLOOM_DEVICE i64 thread_number() { return i64(blockIdx.x) * kThreads + i64(threadIdx.x); }
dim3 grid_of(i64 threads) { return dim3(unsigned(ceil_div(threads, kThreads))); }

template <class A>
struct Axes {
  GridTaps<A> z, y, x;
};

template <class T>
GRADLOOM_DEVICE Axes<Accum<T>> axes_of(const GridSampleArgs& s, i64 point) {
  using A = Accum<T>;
  const T* const g = static_cast<const T*>(s.grid) + point * s.rank;
  const auto taps = [&](int axis, int number) {
    return number < s.rank ? grid_taps(to_accum(g[number]), s.in[axis], s.mode, s.padding, s.align_corners)
                           : grid_no_axis<A>();
  };
  return {taps(0, 2), taps(1, 1), taps(2, 0)};
}

// visit(pixel, i, j, k) for every pixel inside, with the taps' numbers per axis.
template <class A, class Visit>
GRADLOOM_DEVICE void for_pixels(const GridSampleArgs& s, const Axes<A>& a, const Visit& visit) {
  for (int i = 0; i < a.z.count; ++i) {
    for (int j = 0; j < a.y.count; ++j) {
      for (int k = 0; k < a.x.count; ++k) {
        if (a.z.index[i] >= 0 && a.y.index[j] >= 0 && a.x.index[k] >= 0) {
          visit((a.z.index[i] * s.in[1] + a.y.index[j]) * s.in[2] + a.x.index[k], i, j, k);
        }
      }
    }
  }
}

template <class T>
__global__ void __launch_bounds__(kThreads)
    sample_points(GridSampleArgs s, i64 count, i64 from, Divider to, Divider groups) {
  using A = Accum<T>;
  const i64 number = thread_number();
  if (number >= count) return;
  const i64 rest = to(number), o = number - rest * to.divisor, n = groups(rest);
  const i64 first = (rest - n * groups.divisor) * kChannels, last = min(s.c, first + kChannels);
  const Axes<A> axes = axes_of<T>(s, n * to.divisor + o);
  const T* const x = static_cast<const T*>(s.x) + n * s.c * from;
  A sums[kChannels] = {};
  for_pixels(s, axes, [&](i64 pixel, int i, int j, int k) {
    const A weight = axes.z.weight[i] * axes.y.weight[j] * axes.x.weight[k];
    for (i64 c = first; c < last; ++c) sums[c - first] += weight * to_accum(x[c * from + pixel]);
  });
  for (i64 c = first; c < last; ++c)
    static_cast<T*>(s.y)[(n * s.c + c) * to.divisor + o] = from_accum<T>(sums[c - first]);
}

template <class T>
void sample(const GridSampleArgs& s, Stream stream) {
  const i64 to = grid_area(s.out), groups = ceil_div(s.c, kChannels), count = s.n * groups * to;
  if (count == 0) return;
  launch(stream, sample_points<T>, grid_of(count), dim3(kThreads), 0, s, count, grid_area(s.in),
         Divider(to, count), Divider(groups, count));
}

// ---- gradients --------------------------------------------------------------------------------------------------------------------

template <class T>
__global__ void __launch_bounds__(kThreads) grid_gradient(GridSampleGradArgs args, i64 from, Divider to) {
  using A = Accum<T>;
  const GridSampleArgs& s = args.shape;
  const i64 point = thread_number();
  if (point >= s.n * to.divisor) return;
  const i64 n = to(point), o = point - n * to.divisor;
  const Axes<A> axes = axes_of<T>(s, point);
  const T* const x = static_cast<const T*>(s.x) + n * s.c * from;
  const T* const dy = static_cast<const T*>(args.dy) + n * s.c * to.divisor + o;
  A down = 0, along = 0, across = 0;
  for_pixels(s, axes, [&](i64 pixel, int i, int j, int k) {
    A product = 0;
    for (i64 c = 0; c < s.c; ++c) product += to_accum(dy[c * to.divisor]) * to_accum(x[c * from + pixel]);
    const A z = axes.z.weight[i], y = axes.y.weight[j], w = axes.x.weight[k];
    down += product * axes.z.slope[i] * y * w;
    along += product * z * axes.y.slope[j] * w;
    across += product * z * y * axes.x.slope[k];
  });
  T* const dgrid = static_cast<T*>(args.dgrid) + point * s.rank;
  dgrid[0] = from_accum<T>(across);
  dgrid[1] = from_accum<T>(along);
  if (s.rank == 3) dgrid[2] = from_accum<T>(down);
}

// Item e: tap e % taps of point e / taps, the last axis fastest.
template <class T>
struct FromGrid {
  GridSampleArgs s;
  i64 from, to, rows;
  int taps, each;

  // The pixel in all images, or `rows`; weight of the tap.
  GRADLOOM_DEVICE i64 row(i64 e, Accum<T>* weight) const {
    const i64 point = e / taps;
    int t = int(e - point * taps);
    const Axes<Accum<T>> axes = axes_of<T>(s, point);
    const int k = t % each;
    t /= each;
    const int j = t % each, i = t / each;
    *weight = axes.z.weight[i] * axes.y.weight[j] * axes.x.weight[k];
    if (axes.z.index[i] < 0 || axes.y.index[j] < 0 || axes.x.index[k] < 0) return rows;
    return point / to * from + (axes.z.index[i] * s.in[1] + axes.y.index[j]) * s.in[2] + axes.x.index[k];
  }
  GRADLOOM_DEVICE Entry operator()(i64 e) const {
    Accum<T> unused;
    return {row(e, &unused), e};
  }
};

template <class T>
__global__ void __launch_bounds__(kThreads)
    data_gradient(FromGrid<T> source, const Entry* sorted, i64 entries, i64 count, Divider area,
                  Divider channels, const T* dy, T* dx) {
  const i64 number = thread_number();
  if (number >= count) return;
  const i64 plane = area(number), n = channels(plane),
            row = n * source.from + (number - plane * area.divisor);
  i64 low = 0, high = entries;  // the first entry of the row
  while (low < high) {
    const i64 middle = low + (high - low) / 2;
    if (sorted[middle].row < row) {
      low = middle + 1;
    } else {
      high = middle;
    }
  }
  Accum<T> sum = 0;
  for (; low < entries && sorted[low].row == row; ++low) {
    Accum<T> weight;
    source.row(sorted[low].k, &weight);
    sum += weight * to_accum(dy[plane * source.to + sorted[low].k / source.taps - n * source.to]);
  }
  dx[number] = from_accum<T>(sum);
}

template <class T>
void gradients(const GridSampleGradArgs& args, Stream stream) {
  const GridSampleArgs& s = args.shape;
  const i64 from = grid_area(s.in), to = grid_area(s.out), points = s.n * to;
  if (args.dgrid != nullptr && points > 0) {
    launch(stream, grid_gradient<T>, grid_of(points), dim3(kThreads), 0, args, from, Divider(to, points));
  }
  const i64 count = s.n * s.c * from;
  if (args.dx == nullptr || count == 0) return;
  const int taps = grid_point_taps(s.mode, s.rank), each = s.mode == GridMode::nearest  ? 1
                                                           : s.mode == GridMode::linear ? 2
                                                                                        : kGridTaps;
  const FromGrid<T> source{s, from, to, s.n * from, taps, each};
  const i64 entries = points * taps;
  const Entry* const sorted =
      entries > 0 ? sort_entries(source, entries, source.rows, args.workspace, stream) : nullptr;
  launch(stream, data_gradient<T>, grid_of(count), dim3(kThreads), 0, source, sorted, entries, count,
         Divider(from, count), Divider(s.c, count), static_cast<const T*>(args.dy), static_cast<T*>(args.dx));
}

}  // namespace

void grid_sample(const GridSampleArgs& args, Stream stream) {
  GRADLOOM_GPU_FLOATS(args.dtype, sample, args, stream);
}
void grid_sample_grad(const GridSampleGradArgs& args, Stream stream) {
  GRADLOOM_GPU_FLOATS(args.shape.dtype, gradients, args, stream);
}

}  // namespace gradloom::kernels::gpu
