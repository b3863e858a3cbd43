// GridSample and its gradients: y[n, c, o] = sum over the pixels that point o of the grid reads of weight *
// x[n, c, pixel].
//   dgrid[n, o, a] = sum over c and pixels of dy[n, c, o] * x[n, c, pixel] * d weight / d grid[n, o, a]
//   dx[n, c, pixel] += weight * dy[n, c, o], in order of o: images and groups of channels run in parallel
// Pixels and weights of a point are found once for all channels.
#include "kernels/cpu/kernel.h"
#include "kernels/grid.h"

namespace gradloom::kernels::GRADLOOM_ISA {
namespace {

constexpr int kMostTaps = kGridTaps * kGridTaps * kGridTaps;

template <class T>
struct Axes {
  GridTaps<T> taps[kGridRank];
};

template <class T>
Axes<T> axes_of(const GridSampleArgs& args, i64 n, i64 o) {
  const T* const point = static_cast<const T*>(args.grid) + (n * grid_area(args.out) + o) * args.rank;
  Axes<T> axes;
  for (int a = 0; a < kGridRank; ++a) {
    axes.taps[a] = a < kGridRank - args.rank ? grid_no_axis<T>()
                                             : grid_taps(point[kGridRank - 1 - a], args.in[a], args.mode,
                                                         args.padding, args.align_corners);
  }
  return axes;
}

// visit(pixel, i, j, k) for every pixel inside, with the taps' numbers per axis.
template <class T, class Visit>
GRADLOOM_INLINE void for_pixels(const GridSampleArgs& args, const Axes<T>& axes, const Visit& visit) {
  const GridTaps<T>&z = axes.taps[0], &y = axes.taps[1], &x = axes.taps[2];
  for (int i = 0; i < z.count; ++i)
    for (int j = 0; j < y.count; ++j)
      for (int k = 0; k < x.count; ++k)
        if (z.index[i] >= 0 && y.index[j] >= 0 && x.index[k] >= 0)
          visit((z.index[i] * args.in[1] + y.index[j]) * args.in[2] + x.index[k], i, j, k);
}

// The pixels of one point with their weights.
template <class T>
struct Pixels {
  int count = 0;
  i64 at[kMostTaps];
  T weight[kMostTaps];

  void find(const GridSampleArgs& args, i64 n, i64 o) {
    const Axes<T> axes = axes_of<T>(args, n, o);
    count = 0;
    for_pixels(args, axes, [&](i64 pixel, int i, int j, int k) {
      at[count] = pixel;
      weight[count++] = axes.taps[0].weight[i] * axes.taps[1].weight[j] * axes.taps[2].weight[k];
    });
  }
};

constexpr i64 kPoints = 16;  // whose pixels are kept while the channels go by

template <class T>
void sample(const GridSampleArgs& args) {
  const T* const x = static_cast<const T*>(args.x);
  T* const y = static_cast<T*>(args.y);
  const i64 from = grid_area(args.in), to = grid_area(args.out), chunks = ceil_div(to, kPoints);
  const i64 work = args.n * args.c * to * grid_point_taps(args.mode, args.rank) * 4;
  parallel_for(args.n * chunks, work, [&](i64 part) {
    const i64 n = part / chunks, first = part % chunks * kPoints, count = smaller(kPoints, to - first);
    Pixels<T> points[kPoints];
    for (i64 p = 0; p < count; ++p) points[p].find(args, n, first + p);
    for (i64 c = 0; c < args.c; ++c) {
      const T* const plane = x + (n * args.c + c) * from;
      for (i64 p = 0; p < count; ++p) {
        T sum = T(0);
        for (int t = 0; t < points[p].count; ++t) sum += points[p].weight[t] * plane[points[p].at[t]];
        y[(n * args.c + c) * to + first + p] = sum;
      }
    }
  });
}

template <class T>
void grid_gradient(const GridSampleGradArgs& args) {
  const GridSampleArgs& s = args.shape;
  const T *const x = static_cast<const T*>(s.x), *const dy = static_cast<const T*>(args.dy);
  T* const dgrid = static_cast<T*>(args.dgrid);
  const i64 from = grid_area(s.in), to = grid_area(s.out);
  const i64 work = s.n * s.c * to * grid_point_taps(s.mode, s.rank) * 8;
  parallel_pieces(s.n * to, kPoints, work, [&](i64 begin, i64 end) {
    for (i64 point = begin; point < end; ++point) {
      const i64 n = point / to, o = point % to;
      const Axes<T> axes = axes_of<T>(s, n, o);
      T sums[kGridRank] = {};
      for_pixels(s, axes, [&](i64 pixel, int i, int j, int k) {
        T product = T(0);
        for (i64 c = 0; c < s.c; ++c) product += dy[(n * s.c + c) * to + o] * x[(n * s.c + c) * from + pixel];
        const T z = axes.taps[0].weight[i], y = axes.taps[1].weight[j], w = axes.taps[2].weight[k];
        sums[0] += product * axes.taps[0].slope[i] * y * w;
        sums[1] += product * z * axes.taps[1].slope[j] * w;
        sums[2] += product * z * y * axes.taps[2].slope[k];
      });
      for (int a = 0; a < s.rank; ++a) dgrid[point * s.rank + a] = sums[kGridRank - 1 - a];
    }
  });
}

constexpr i64 kChannels = 8;

template <class T>
void data_gradient(const GridSampleGradArgs& args) {
  const GridSampleArgs& s = args.shape;
  const T* const dy = static_cast<const T*>(args.dy);
  T* const dx = static_cast<T*>(args.dx);
  const i64 from = grid_area(s.in), to = grid_area(s.out), groups = ceil_div(s.c, kChannels);
  const i64 work = s.n * s.c * to * grid_point_taps(s.mode, s.rank) * 4;
  parallel_for(s.n * groups, work, [&](i64 part) {
    const i64 n = part / groups, first = part % groups * kChannels, last = smaller(s.c, first + kChannels);
    for (i64 i = (n * s.c + first) * from; i < (n * s.c + last) * from; ++i) dx[i] = T(0);
    Pixels<T> pixels;
    for (i64 o = 0; o < to; ++o) {
      pixels.find(s, n, o);
      for (i64 c = first; c < last; ++c) {
        T* const plane = dx + (n * s.c + c) * from;
        const T g = dy[(n * s.c + c) * to + o];
        for (int t = 0; t < pixels.count; ++t) plane[pixels.at[t]] += pixels.weight[t] * g;
      }
    }
  });
}

template <class T>
void gradients(const GridSampleGradArgs& args) {
  if (args.dgrid != nullptr) grid_gradient<T>(args);
  if (args.dx != nullptr) data_gradient<T>(args);
}

}  // namespace

void grid_sample(const GridSampleArgs& args) { GRADLOOM_FLOAT_DISPATCH(args.dtype, sample, args); }
void grid_sample_grad(const GridSampleGradArgs& args) {
  GRADLOOM_FLOAT_DISPATCH(args.shape.dtype, gradients, args);
}

}  // namespace gradloom::kernels::GRADLOOM_ISA
