// GridSample and its gradients; the sum of y is over the pixels that point o of the grid reads:
//   y[n, c, o] = sum over pixels of weight * x[n, c, pixel]
//   dgrid[n, o, a] = sum over c and pixels of dy[n, c, o] * x[n, c, pixel] * d weight / d grid[n, o, a]
//   dx[n, c, pixel] += weight * dy[n, c, o], in order of o
// A group of channels of an image, at most 64 bytes of each pixel, is one part. Its planes become pixels
// [from + 1, channels] in the workspace, so that what a point does with a pixel is one operation on all of
// them; the pixel behind the last stands for those outside. dgrid is summed per group, then over the groups.
// Where points read few of the pixels, and for a single channel, the planes are taken as they are.
#include "kernels/cpu/kernel.h"
#include "kernels/cpu/lanes.h"
#include "kernels/cpu/workspace.h"
#include "kernels/grid.h"

namespace gradloom::kernels::GRADLOOM_ISA {
namespace {

// ---- what points read -----------------------------------------------------------------------------------------

constexpr i64 kPoints = 16;  // found together

template <class T>
struct AxisTaps {
  int count = 1;
  alignas(64) int index[kGridTaps][kPoints];
  alignas(64) T weight[kGridTaps][kPoints], slope[kGridTaps][kPoints];
};

template <GridMode mode, GridPadding padding, class T>
void find_along(const T* numbers, i64 size, bool align, AxisTaps<T>& taps) {
  constexpr int count = mode == GridMode::nearest ? 1 : mode == GridMode::linear ? 2 : kGridTaps;
  taps.count = count;
#pragma GCC ivdep
  for (i64 p = 0; p < kPoints; ++p) {
    const GridTaps<T> at = grid_taps(numbers[p], size, mode, padding, align);
    for (int i = 0; i < count; ++i) {
      taps.index[i][p] = at.index[i];
      taps.weight[i][p] = at.weight[i];
      taps.slope[i][p] = at.slope[i];
    }
  }
}
template <GridMode mode, class T>
GRADLOOM_INLINE void find_along(const GridSampleArgs& args, const T* numbers, i64 size, AxisTaps<T>& taps) {
  switch (args.padding) {
    case GridPadding::zeros:
      return find_along<mode, GridPadding::zeros>(numbers, size, args.align_corners, taps);
    case GridPadding::border:
      return find_along<mode, GridPadding::border>(numbers, size, args.align_corners, taps);
    case GridPadding::reflection:
      return find_along<mode, GridPadding::reflection>(numbers, size, args.align_corners, taps);
  }
}
template <class T>
void find_along(const GridSampleArgs& args, const T* numbers, i64 size, AxisTaps<T>& taps) {
  switch (args.mode) {
    case GridMode::linear: return find_along<GridMode::linear>(args, numbers, size, taps);
    case GridMode::nearest: return find_along<GridMode::nearest>(args, numbers, size, taps);
    case GridMode::cubic: return find_along<GridMode::cubic>(args, numbers, size, taps);
  }
}

// kPoints neighbours, those behind the last as if their numbers were 0.
template <int rank, class T>
struct Points {
  static constexpr int most = rank == 2 ? kGridTaps * kGridTaps : kGridTaps * kGridTaps * kGridTaps;

  int taps;
  alignas(64) int pixel[most][kPoints];  // outside: the one behind the last
  alignas(64) T weight[most][kPoints];
  alignas(64) T slope[most][rank][kPoints];  // d weight / d number

  // From point `first` of image n.
  void find(const GridSampleArgs& args, i64 n, i64 first, bool slopes) {
    const i64 to = grid_area(args.out), count = smaller(kPoints, to - first);
    const T* const grid = static_cast<const T*>(args.grid) + (n * to + first) * rank;
    __builtin_prefetch(grid + 8 * kPoints * rank);
    alignas(64) T numbers[rank][kPoints] = {};
    const auto read = [&](i64 points) {
      for (i64 p = 0; p < points; ++p)
        for (int a = 0; a < rank; ++a) numbers[a][p] = grid[p * rank + a];
    };
    count == kPoints ? read(kPoints) : read(count);
    AxisTaps<T> axes[rank];
    for (int a = 0; a < rank; ++a) find_along(args, numbers[a], args.in[kGridRank - 1 - a], axes[a]);
    taps = 0;
    for (int i = 0; i < (rank == 3 ? axes[rank - 1].count : 1); ++i)
      for (int j = 0; j < axes[1].count; ++j)
        for (int k = 0; k < axes[0].count; ++k) join(args, axes, i, j, k, slopes);
  }

 private:
  // A tap of each axis.
  GRADLOOM_INLINE void join(const GridSampleArgs& args, const AxisTaps<T> (&axes)[rank], int i, int j, int k,
                            bool slopes) {
    const AxisTaps<T>&along = axes[0], &down = axes[1], &deep = axes[rank - 1];
    const int height = int(args.in[1]), width = int(args.in[2]), outside = int(grid_area(args.in)),
              t = taps++;
    for (i64 p = 0; p < kPoints; ++p) {
      const int x = along.index[k][p], y = down.index[j][p], z = rank == 3 ? deep.index[i][p] : 0;
      const bool inside = (x | y | z) >= 0;
      const T u = along.weight[k][p], v = down.weight[j][p], w = rank == 3 ? deep.weight[i][p] : T(1);
      pixel[t][p] = inside ? (z * height + y) * width + x : outside;
      weight[t][p] = inside ? u * v * w : T(0);
    }
    if (!slopes) return;
    for (i64 p = 0; p < kPoints; ++p) {
      const bool inside = pixel[t][p] != outside;
      const T u = along.weight[k][p], v = down.weight[j][p], w = rank == 3 ? deep.weight[i][p] : T(1);
      slope[t][0][p] = inside ? along.slope[k][p] * v * w : T(0);
      slope[t][1][p] = inside ? u * down.slope[j][p] * w : T(0);
      if constexpr (rank == 3) slope[t][2][p] = inside ? u * v * deep.slope[i][p] : T(0);
    }
  }
};

// ---- planes and pixels ----------------------------------------------------------------------------------------

// Rows of lanes to columns of rows, one after the other; and back.
template <class T, int rows, int step = 1>
GRADLOOM_INLINE void interleave(Vec<T> (&v)[rows]) {
  if constexpr (step < rows) {
    Vec<T> next[rows];
    for (int i = 0; i < rows / 2; ++i) {
      next[2 * i] = mixed_low<int(kLanes<T>)>(v[i], v[i + rows / 2]);
      next[2 * i + 1] = mixed_high<int(kLanes<T>)>(v[i], v[i + rows / 2]);
    }
    for (int i = 0; i < rows; ++i) v[i] = next[i];
    interleave<T, rows, 2 * step>(v);
  }
}
template <class T, int rows, int step = 1>
GRADLOOM_INLINE void separate(Vec<T> (&v)[rows]) {
  if constexpr (step < rows) {
    Vec<T> next[rows];
    for (int i = 0; i < rows / 2; ++i) {
      next[i] = evens<int(kLanes<T>)>(v[2 * i], v[2 * i + 1]);
      next[i + rows / 2] = odds<int(kLanes<T>)>(v[2 * i], v[2 * i + 1]);
    }
    for (int i = 0; i < rows; ++i) v[i] = next[i];
    separate<T, rows, 2 * step>(v);
  }
}

constexpr i64 kAhead = 128;  // elements of a plane between what is read and what is fetched

// n elements of `channels` planes to n pixels of L channels, those without a plane 0; `all`: none is.
template <int L, bool all, class T>
void to_pixels(const T* planes, i64 pitch, i64 channels, i64 n, T* pixels) {
  using Words = Word<Vec<T>>;
  Words keep[L];
  i64 row[L];
  for (i64 c = 0; !all && c < L; ++c) {
    keep[c] = c < channels ? ~Words{} : Words{};
    row[c] = smaller(c, channels - 1) * pitch;
  }
  i64 i = 0;
  for (; i + kLanes<T> <= n; i += kLanes<T>, pixels += L * kLanes<T>) {
    Vec<T> v[L];
    for (i64 c = 0; c < L; ++c) {
      const T* const from = planes + (all ? c * pitch : row[c]) + i;
      fetch(from + kAhead);
      v[c] = load(from);
      if constexpr (!all) v[c] = __builtin_bit_cast(Vec<T>, __builtin_bit_cast(Words, v[c]) & keep[c]);
    }
    interleave<T>(v);
    for (i64 c = 0; c < L; ++c) store(pixels + c * kLanes<T>, v[c]);
  }
  for (; i < n; ++i, pixels += L)
    for (i64 c = 0; c < L; ++c) pixels[c] = c < channels ? planes[c * pitch + i] : T(0);
}
template <int L, class T>
GRADLOOM_INLINE void to_pixels(const T* planes, i64 pitch, i64 channels, i64 n, T* pixels) {
  if (channels == L) return to_pixels<L, true>(planes, pitch, channels, n, pixels);
  to_pixels<L, false>(planes, pitch, channels, n, pixels);
}
template <int L, class T>
void to_planes(const T* pixels, T* planes, i64 pitch, i64 channels, i64 n) {
  i64 i = 0;
  for (; i + kLanes<T> <= n; i += kLanes<T>, pixels += L * kLanes<T>) {
    Vec<T> v[L];
    for (i64 c = 0; c < L; ++c) v[c] = load(pixels + c * kLanes<T>);
    separate<T>(v);
    for (i64 c = 0; c < smaller(channels, L); ++c) store(planes + c * pitch + i, v[c]);
  }
  for (; i < n; ++i, pixels += L)
    for (i64 c = 0; c < channels; ++c) planes[c * pitch + i] = pixels[c];
}

// The channels of a pixel.
template <class T, int L>
struct PixelOf {
  using type = Pack<T, L>;
};
template <class T>
struct PixelOf<T, 1> {
  using type = T;
};
template <int L, class T>
GRADLOOM_INLINE typename PixelOf<T, L>::type pixel_at(const T* p) {
  return get(p, typename PixelOf<T, L>::type());
}

// ---- groups of channels ---------------------------------------------------------------------------------------

// Channels [first, first + channels) of image n.
struct Group {
  i64 n, first, channels;

  i64 plane(const GridSampleArgs& args) const { return n * args.c + first; }
};

// Elements of the pixels of a group and of the one behind them.
template <class T>
i64 grid_image(const GridSampleArgs& args) {
  return grid_image_bytes(args) / i64(sizeof(T));
}

constexpr i64 kFewReads = 32;  // so many times fewer than pixels: making pixels of all is not worth it

// body(group, Lanes<L>, room) for every part; L channels make a pixel, 1: the planes are taken as they are.
// Each thread has a room of `images` in the workspace.
template <class T, class Body>
GRADLOOM_INLINE void for_groups(const GridSampleArgs& args, void* workspace, i64 images, i64 work,
                                const Body& body) {
  constexpr i64 most = kGridGroupBytes / i64(sizeof(T));
  const i64 groups = grid_groups(args), parts = args.n * groups, slots = grid_slots(args);
  const i64 reads = grid_area(args.out) * grid_point_taps(args.mode, args.rank);
  const bool few = reads * kFewReads < grid_area(args.in);
  parallel_for(slots, work, [&](i64 slot) {
    T* const room = static_cast<T*>(workspace) + worker_number() % slots * images * grid_image<T>(args);
    for (i64 part = slot * parts / slots; part < (slot + 1) * parts / slots; ++part) {
      const i64 first = part % groups * most;
      const Group group{part / groups, first, smaller(most, args.c - first)};
      if (few || group.channels == 1) {
        body(group, Lanes<1>(), room);
      } else if (group.channels > 8) {
        if constexpr (most > 8) body(group, Lanes<16>(), room);
      } else if (group.channels > 4) {
        body(group, Lanes<8>(), room);
      } else {
        body(group, Lanes<4>(), room);
      }
    }
  });
}

// ---- forward --------------------------------------------------------------------------------------------------

// Points [begin, end); image, y: of all points of the group.
template <int L, int rank, class T>
void sample_points(const GridSampleArgs& args, const Group& group, i64 begin, i64 end, const T* image, T* y) {
  const i64 from = grid_area(args.in), to = grid_area(args.out);
  Points<rank, T> points;
  alignas(64) T sums[kPoints * L];
  for (i64 o = begin; o < end; o += kPoints) {
    const i64 count = smaller(kPoints, end - o);
    points.find(args, group.n, o, false);
    for (i64 c = 0; c < group.channels; c += L) {
      for (i64 p = 0; p < count; ++p) {
        typename PixelOf<T, L>::type sum = {};
        for (int t = 0; t < points.taps; ++t) {
          const i64 pixel = points.pixel[t][p];
          if (L == 1 && pixel == from) continue;
          sum += points.weight[t][p] * pixel_at<L>(image + c * from + pixel * L);
        }
        put(sums + p * L, sum);
      }
      to_planes<L>(sums, y + c * to + o, to, smaller(L, group.channels), count);
    }
  }
}

constexpr i64 kManyParts = 8;  // of fewer, each is shared by all threads

template <int rank, class T>
void sample(const GridSampleArgs& args) {
  const i64 from = grid_area(args.in), to = grid_area(args.out);
  const i64 work = args.n * args.c * (from + to * grid_point_taps(args.mode, rank)) * 2;
  const bool many = args.n * grid_groups(args) >= kManyParts;
  for_groups<T>(args, args.workspace, 1, many ? work : 0, [&](const Group& group, auto lanes, T* room) {
    constexpr int L = decltype(lanes)::value;
    const i64 plane = group.plane(args), shared = many ? 0 : work;
    const T *const x = static_cast<const T*>(args.x) + plane * from, *image = x;
    if constexpr (L > 1) {
      parallel_pieces(from, 1024, shared, [&](i64 begin, i64 end) {
        to_pixels<L>(x + begin, from, group.channels, end - begin, room + begin * L);
      });
      for (i64 c = 0; c < L; ++c) room[from * L + c] = T(0);
      image = room;
    }
    parallel_pieces(to, 1024, shared, [&](i64 begin, i64 end) {
      sample_points<L, rank>(args, group, begin, end, image, static_cast<T*>(args.y) + plane * to);
    });
  });
}

// ---- gradients ------------------------------------------------------------------------------------------------

// Sums of L neighbours, kPoints of them.
template <int L, class T>
GRADLOOM_INLINE void add_lanes(T* values) {
  for (i64 left = kPoints * L; left > kPoints; left /= 2)
    for (i64 i = 0; i < left / 2; i += kLanes<T>) {
      const Vec<T> a = load(values + 2 * i), b = load(values + 2 * i + kLanes<T>);
      store(values + i, evens<int(kLanes<T>)>(a, b) + odds<int(kLanes<T>)>(a, b));
    }
}

// dgrid: of the group; only with `slopes`.
template <int L, int rank, bool slopes, class T>
void group_gradient(const GridSampleGradArgs& args, const Group& group, T* room, T* dgrid) {
  const GridSampleArgs& s = args.shape;
  const i64 from = grid_area(s.in), to = grid_area(s.out), plane = group.plane(s);
  const i64 channels = smaller(L, group.channels);
  const T *const x = static_cast<const T*>(s.x) + plane * from, *image = x;
  const T* const dy = static_cast<const T*>(args.dy) + plane * to;
  T *const dx = args.dx == nullptr ? nullptr : static_cast<T*>(args.dx) + plane * from, *dimage = dx;
  if constexpr (L > 1) {
    if (slopes) to_pixels<L>(x, from, channels, from, room);
    for (i64 c = 0; c < L; ++c) room[from * L + c] = T(0);
    image = room;
    dimage = room + grid_image<T>(s);
  }
  if (dx != nullptr) {
    const i64 elements = L > 1 ? (from + 1) * L : group.channels * from;
    for (i64 i = 0; i < elements; ++i) dimage[i] = T(0);
  }
  Points<rank, T> points;
  alignas(64) T gradients[kPoints * L], products[rank][kPoints * L] = {};
  for (i64 o = 0; o < to; o += kPoints) {
    const i64 count = smaller(kPoints, to - o);
    points.find(s, group.n, o, slopes);
    for (i64 c = 0; c < group.channels; c += L) {
      to_pixels<L>(dy + c * to + o, to, channels, count, gradients);
      for (i64 p = 0; p < count; ++p) {
        const auto g = pixel_at<L>(gradients + p * L);
        typename PixelOf<T, L>::type along[rank] = {};
        for (int t = 0; t < points.taps; ++t) {
          const i64 pixel = points.pixel[t][p], at = c * from + pixel * L;
          if (L == 1 && pixel == from) continue;
          if constexpr (slopes) {
            const auto value = pixel_at<L>(image + at);
            for (int a = 0; a < rank; ++a) along[a] += points.slope[t][a][p] * value;
          }
          if (dx != nullptr) put(dimage + at, pixel_at<L>(dimage + at) + points.weight[t][p] * g);
        }
        for (int a = 0; slopes && a < rank; ++a) put(products[a] + p * L, g * along[a]);
      }
      for (int a = 0; slopes && a < rank; ++a) {
        add_lanes<L>(products[a]);
        for (i64 p = 0; p < count; ++p) {
          T& sum = dgrid[(o + p) * rank + a];
          sum = c == 0 ? products[a][p] : sum + products[a][p];
        }
      }
    }
  }
  if (L > 1 && dx != nullptr) to_planes<L>(dimage, dx, from, channels, from);
}

template <int rank, class T>
void gradients(const GridSampleGradArgs& args) {
  const GridSampleArgs& s = args.shape;
  const i64 from = grid_area(s.in), to = grid_area(s.out), groups = grid_groups(s), numbers = s.n * to * rank;
  const i64 work = s.n * s.c * (from + to * grid_point_taps(s.mode, rank)) * 4;
  T* const dgrid = static_cast<T*>(args.dgrid);
  T* const partial =
      groups > 1 ? static_cast<T*>(args.workspace) + 2 * grid_slots(s) * grid_image<T>(s) : dgrid;
  for_groups<T>(s, args.workspace, 2, work, [&](const Group& group, auto lanes, T* room) {
    constexpr int L = decltype(lanes)::value;
    if (dgrid == nullptr) return group_gradient<L, rank, false, T>(args, group, room, nullptr);
    const i64 number = group.first * i64(sizeof(T)) / kGridGroupBytes;
    group_gradient<L, rank, true>(args, group, room, partial + number * numbers + group.n * to * rank);
  });
  if (dgrid == nullptr || groups == 1) return;
  parallel_pieces(numbers, 4096, numbers * groups, [&](i64 begin, i64 end) {
    for (i64 i = begin; i < end; ++i) dgrid[i] = T(0);
    for (i64 group = 0; group < groups; ++group)
      for (i64 i = begin; i < end; ++i) dgrid[i] += partial[group * numbers + i];
  });
}

template <class T>
void sample(const GridSampleArgs& args) {
  args.rank == 2 ? sample<2, T>(args) : sample<3, T>(args);
}
template <class T>
void gradients(const GridSampleGradArgs& args) {
  args.shape.rank == 2 ? gradients<2, T>(args) : gradients<3, T>(args);
}

}  // namespace

void grid_sample(const GridSampleArgs& args) { GRADLOOM_FLOAT_DISPATCH(args.dtype, sample, args); }
void grid_sample_grad(const GridSampleGradArgs& args) {
  GRADLOOM_FLOAT_DISPATCH(args.shape.dtype, gradients, args);
}

}  // namespace gradloom::kernels::GRADLOOM_ISA
