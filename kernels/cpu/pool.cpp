// Max and average pooling of planes of one to three spatial dims and their gradients. One plane is one part.
//   window of output o: positions o * stride - pad_begin + tap * dilation in every dim, those inside the plane
//   max: first largest element, NaN wins; average: sum / divisor (PoolDivisor)
// A register of neighbouring outputs of a row goes through its windows at once; a tap of all of them is one
// load (stride 1) or the even elements of two (stride 2). Gradients the other way round: a register of inputs
// gathers from the outputs whose windows it lies in, in their order.
// Channels in blocks: a position holds neighbours, which are taken together. One row of outputs is one part,
// or one plane of inputs.
#include "kernels/cpu/kernel.h"
#include "kernels/cpu/lanes.h"

namespace gradloom::kernels::GRADLOOM_ISA {
namespace {

// Taps k in [begin, end) of a window that starts at `start` fall inside [0, size).
struct Taps {
  i64 begin, end;
};
GRADLOOM_INLINE Taps taps_inside(i64 start, i64 taps, i64 dilation, i64 size) {
  const i64 begin = start < 0 ? ceil_div(-start, dilation) : 0;
  const i64 end = start < size ? smaller(taps, ceil_div(size - start, dilation)) : 0;
  return {smaller(begin, taps), larger(end, smaller(begin, taps))};
}

GRADLOOM_INLINE i64 product(const i64 (&dims)[3]) { return dims[0] * dims[1] * dims[2]; }

template <class T>
struct PositionOf {
  using type = int;
};
template <>
struct PositionOf<double> {
  using type = i64;
};
// A position in a plane, as wide as the values so that both take equal lanes.
template <class T>
using Position = typename PositionOf<T>::type;

// The taps of one output's window along dim `d` that are inside, and what belongs to them.
struct Reach {
  i64 start;  // position of tap 0
  Taps taps;
  i64 padded;  // taps inside the dim and its pads
};
GRADLOOM_INLINE Reach reach_of(const PoolShape& s, int d, i64 out) {
  const i64 start = out * s.stride[d] - s.pad_begin[d];
  if (start >= 0 && start + (s.kernel[d] - 1) * s.dilation[d] < s.in[d])
    return {start, {0, s.kernel[d]}, s.kernel[d]};
  return {start, taps_inside(start, s.kernel[d], s.dilation[d], s.in[d]),
          taps_inside(start, s.kernel[d], s.dilation[d], s.in[d] + s.pad_end[d]).end};
}
GRADLOOM_INLINE i64 taps_of(const Taps& taps) { return taps.end - taps.begin; }

// Outputs of a row all of whose taps along it are inside.
GRADLOOM_INLINE Taps whole_windows(const PoolShape& s) {
  const i64 begin = ceil_div(s.pad_begin[2], s.stride[2]);
  const i64 room = s.in[2] - 1 - (s.kernel[2] - 1) * s.dilation[2] + s.pad_begin[2];
  return {begin, room < 0 ? 0 : smaller(s.out[2], room / s.stride[2] + 1)};
}

// row(offset of tap row's column 0 in the plane) for every row of taps inside a window, in order.
template <class Row>
GRADLOOM_INLINE void for_tap_rows(const PoolShape& s, const Reach& deep, const Reach& rows, const Row& row) {
  for (i64 kz = deep.taps.begin; kz < deep.taps.end; ++kz) {
    const i64 plane = (deep.start + kz * s.dilation[0]) * s.in[1];
    for (i64 ky = rows.taps.begin; ky < rows.taps.end; ++ky)
      row((plane + rows.start + ky * s.dilation[1]) * s.in[2]);
  }
}

// What a window's sum is divided by; 0: the window has nothing inside.
GRADLOOM_INLINE i64 rows_divisor(const Reach& deep, const Reach& rows, PoolDivisor divisor) {
  if (divisor == PoolDivisor::inside) return taps_of(deep.taps) * taps_of(rows.taps);
  return divisor == PoolDivisor::padded ? deep.padded * rows.padded : 1;
}
GRADLOOM_INLINE i64 cols_divisor(const Reach& cols, PoolDivisor divisor) {
  if (divisor == PoolDivisor::inside) return taps_of(cols.taps);
  return divisor == PoolDivisor::padded ? cols.padded : 1;
}

// ---- registers of neighbours of a row -------------------------------------------------------------------------

// Whether all lanes of a run are inside; or some are not, but may be read; or must not be read.
enum class Edge { none, masked, guarded };

template <class T>
using LaneNumbers = Vec<Position<T>>;
template <class T>
GRADLOOM_INLINE LaneNumbers<T> lane_numbers() {
  LaneNumbers<T> n;
  for (int i = 0; i < int(kLanes<T>); ++i) n[i] = Position<T>(i);
  return n;
}

// Elements at, at + step, .. of a row of `size`; 0 in lanes outside.
template <class T, int stride, Edge edge>
GRADLOOM_INLINE Vec<T> spaced(const T* row, i64 at, i64 step, i64 size, LaneNumbers<T>* valid) {
  constexpr int n = int(kLanes<T>);
  if constexpr (edge == Edge::guarded || stride == 0) {
    Vec<T> v;
    LaneNumbers<T> inside;
    for (int i = 0; i < n; ++i) {
      const i64 here = at + i * step;
      const bool in = edge == Edge::none || (here >= 0 && here < size);
      v[i] = in ? row[here] : T(0);
      inside[i] = in ? Position<T>(-1) : Position<T>(0);
    }
    *valid = inside;
    return v;
  } else {
    Vec<T> v = load(row + at);
    if constexpr (stride == 2) v = evens<n>(v, load(row + at + n));
    if constexpr (edge == Edge::masked) {
      const LaneNumbers<T> here = lane_numbers<T>() * Position<T>(stride) + Position<T>(at);
      *valid = (here >= 0) & (here < Position<T>(size));
      v = *valid ? v : Vec<T>{};
    }
    return v;
  }
}

// Stores what belongs to the first n lanes; `room`: elements that may be written, those after n come later.
template <class T, class V>
GRADLOOM_INLINE void store_some(T* to, const V& v, i64 n, i64 room) {
  constexpr i64 lanes = i64(sizeof(V) / sizeof(v[0]));
  T all[lanes];
  T* const whole = room >= lanes ? to : all;
  __builtin_memcpy(whole, &v, sizeof v);
  for (i64 i = 0; i < n && whole == all; ++i) to[i] = all[i];
}

// body(first, n, edge) for the runs of a row of `size` registers' lanes: the last one overlaps where it can.
template <i64 lanes, class Body>
GRADLOOM_INLINE void for_runs(i64 size, const Body& body) {
  for (i64 first = 0; first < size; first += lanes) {
    if (first + lanes > size && size >= lanes) first = size - lanes;
    body(first, smaller(lanes, size - first));
  }
}

// body(Lanes<stride>): 1, 2, or 0 for others.
template <class Body>
GRADLOOM_INLINE void with_stride(i64 stride, const Body& body) {
  if (stride == 1) {
    body(Lanes<1>());
  } else if (stride == 2) {
    body(Lanes<2>());
  } else {
    body(Lanes<0>());
  }
}

// Elements ahead that are fetched while a window is read: the hardware does not foresee the order of its
// taps.
constexpr i64 kAhead = 4096;
template <class T>
constexpr i64 kLine = 64 / i64(sizeof(T));  // elements of a cache line

// Runs of outputs of the lines of one plane.
template <class T, int stride>
struct Line {
  const PoolShape& s;
  i64 plane;
  Taps whole;
  Reach deep{}, rows{};
  i64 low = 0, high = -1;  // offsets of the first and the last row of taps in the plane
  bool all_readable = false;

  GRADLOOM_INLINE void enter(i64 oz, i64 oy) {
    deep = reach_of(s, 0, oz);
    rows = reach_of(s, 1, oy);
    bool first = true;
    for_tap_rows(s, deep, rows, [&](i64 row) {
      if (first) low = row;
      high = row;
      first = false;
    });
    if (first) low = high = 0;
    all_readable = readable(0, s.out[2]);
  }
  GRADLOOM_INLINE i64 step() const { return stride > 0 ? stride : s.stride[2]; }

  // Whether all loads of the taps of outputs [first, last) and whole registers are within the tensor.
  GRADLOOM_INLINE bool readable(i64 first, i64 last) const {
    const i64 base = plane * product(s.in) - s.pad_begin[2], whole_step = larger(step(), 1);
    return base + low + first * step() >= 0 &&
           base + high + last * step() + (s.kernel[2] - 1) * s.dilation[2] + whole_step * kLanes<T> <=
               s.planes * product(s.in);
  }
  // How the run at `first` may be read.
  GRADLOOM_INLINE Edge edge(i64 first) const {
    if (!all_readable && !readable(first, first)) return Edge::guarded;
    return first >= whole.begin && first + kLanes<T> <= whole.end ? Edge::none
           : stride == 0                                          ? Edge::guarded
                                                                  : Edge::masked;
  }

  // Taps along the row that the divisor counts.
  GRADLOOM_INLINE LaneNumbers<T> divisors(i64 first, PoolDivisor divisor) const {
    if (divisor == PoolDivisor::one) return LaneNumbers<T>{} + Position<T>(1);
    const i64 end = divisor == PoolDivisor::inside ? s.in[2] : s.in[2] + s.pad_end[2];
    LaneNumbers<T> here =
        lane_numbers<T>() * Position<T>(step()) + Position<T>(first * step() - s.pad_begin[2]);
    LaneNumbers<T> count = {};
    for (i64 kx = 0; kx < s.kernel[2]; ++kx, here += Position<T>(s.dilation[2])) {
      count -= here < Position<T>(end);
      if (divisor == PoolDivisor::inside) count += (here < Position<T>(end)) & (here < Position<T>(0));
    }
    return count;
  }

  // tap(values, lanes that are inside, position of lane 0) for every tap of the run's windows, in order.
  template <Edge edge, class Tap>
  GRADLOOM_INLINE void for_taps(const T* x, i64 first, const Tap& tap) const {
    const i64 start = first * step() - s.pad_begin[2];
    for_tap_rows(s, deep, rows, [&](i64 row) {
      for (i64 kx = 0; kx < s.kernel[2]; ++kx) {
        const i64 at = start + kx * s.dilation[2];
        LaneNumbers<T> valid;
        const Vec<T> v = spaced<T, stride, edge>(x + row, at, step(), s.in[2], &valid);
        if (kx == 0 && first % kLine<T> == 0) {
          for (i64 i = 0; i < larger(stride, 1); ++i)
            __builtin_prefetch(x + row + at + kAhead + i * kLine<T>);
        }
        tap(v, valid, row + at);
      }
    });
  }
};

// f(Edges<edge>) for an edge known when running.
template <Edge e>
struct Edges {
  static constexpr Edge value = e;
};
template <class Body>
GRADLOOM_INLINE void with_edge(Edge edge, const Body& body) {
  if (edge == Edge::none) {
    body(Edges<Edge::none>());
  } else if (edge == Edge::masked) {
    body(Edges<Edge::masked>());
  } else {
    body(Edges<Edge::guarded>());
  }
}

// ---- channels in blocks: [planes, spatial, block] -------------------------------------------------------------

// tap(position) for every tap inside the window, in order.
template <class Tap>
GRADLOOM_INLINE void for_positions(const PoolShape& s, const Reach& deep, const Reach& rows,
                                   const Reach& cols, const Tap& tap) {
  for_tap_rows(s, deep, rows, [&](i64 row) {
    for (i64 kx = cols.taps.begin; kx < cols.taps.end; ++kx) tap(row + cols.start + kx * s.dilation[2]);
  });
}

// output(Lanes<how many>, first output, first of L neighbours, taps inside along the row) for the outputs of
// a line; several at a time have whole windows.
template <class T, int L, class Output>
GRADLOOM_INLINE void for_outputs(const PoolShape& s, const Taps& whole, const Output& output) {
  constexpr int most = kVecBytes == 64 ? 4 : 2;  // so that registers hold what they gather
  for (i64 j = 0; j < s.block; j += L) {
    for (i64 ox = 0; ox < s.out[2];) {
      if (ox >= whole.begin && ox + most <= whole.end) {
        output(Lanes<most>(), ox, j, Taps{0, s.kernel[2]});
        ox += most;
      } else {
        output(Lanes<1>(), ox, j, reach_of(s, 2, ox).taps);
        ++ox;
      }
    }
  }
}

// ---- max ------------------------------------------------------------------------------------------------------

// ONNX's number of a position in plane `plane`.
GRADLOOM_INLINE i64 index_of(const MaxPoolArgs& args, i64 plane, i64 position) {
  const i64 *const in = args.shape.in, base = plane * in[0] * in[1] * in[2];
  if (!args.column_major || position < 0) return base + position;
  const i64 x = position % in[2], y = position / in[2] % in[1], z = position / in[2] / in[1];
  return base + z + in[0] * (y + in[1] * x);
}

// One output of L neighbours.
template <class T, int L>
GRADLOOM_INLINE void store_max(const MaxPoolArgs& args, i64 part, i64 ox, i64 j, const Pack<T, L>& best,
                               const Pack<Position<T>, L>& where) {
  const PoolShape& s = args.shape;
  const i64 to = (part * s.out[2] + ox) * s.block + j, plane = part / (s.out[0] * s.out[1]) * s.block + j;
  store_pack<T, L>(static_cast<T*>(args.y) + to, best);
  if (args.argmax != nullptr)
    store_pack<i64, L>(args.argmax + to, __builtin_convertvector(where, Pack<i64, L>));
  for (int i = 0; i < L && args.indices != nullptr; ++i)
    args.indices[to + i] = index_of(args, plane + i, where[i]);
}

// A plane of finite values; false: there are others, or there may be.
template <class T, int stride>
GRADLOOM_INLINE bool max_plane(const MaxPoolArgs& args, i64 plane) {
  using Where = LaneNumbers<T>;
  constexpr i64 n = kLanes<T>;
  const PoolShape& s = args.shape;
  const i64 area = product(s.out);
  const T* const x = static_cast<const T*>(args.x) + plane * product(s.in);
  const Vec<T> lowest = Vec<T>{} - T(__builtin_inf());
  Line<T, stride> line{s, plane, whole_windows(s)};
  const Where numbers = lane_numbers<T>() * Position<T>(line.step());
  Vec<T> odd = {};
  for (i64 oz = 0, l = 0; oz < s.out[0]; ++oz) {
    for (i64 oy = 0; oy < s.out[1]; ++oy, ++l) {
      line.enter(oz, oy);
      for_runs<n>(s.out[2], [&](i64 first, i64 count) {
        Vec<T> best = lowest;
        Where where = Where{} - Position<T>(1);
        with_edge(line.edge(first), [&](auto edge) {
          constexpr Edge e = decltype(edge)::value;
          line.template for_taps<e>(x, first, [&](Vec<T> v, const Where& valid, i64 at) {
            odd += v - v;  // lanes outside have 0
            if constexpr (e != Edge::none) v = valid ? v : lowest;
            where = v > best ? numbers + Position<T>(at) : where;
            best = v > best ? v : best;
          });
        });
        const i64 at = l * s.out[2] + first, to = plane * area + at;
        store_some(static_cast<T*>(args.y) + to, best, count, area - at);
        if (args.argmax != nullptr)
          store_some(args.argmax + to, __builtin_convertvector(where, Pack<i64, int(n)>), count, area - at);
        for (i64 i = 0; i < count && args.indices != nullptr; ++i)
          args.indices[to + i] = index_of(args, plane, where[int(i)]);
      });
    }
  }
  return all_zero(odd);
}

// One line in a way that is right for infinities and NaN: L neighbours at a time.
template <class T, int L>
void max_line_of_any(const MaxPoolArgs& args, i64 part) {
  using Positions = Pack<Position<T>, L>;
  const PoolShape& s = args.shape;
  const i64 lines = s.out[0] * s.out[1], plane = part / lines, line = part % lines;
  const Reach deep = reach_of(s, 0, line / s.out[1]), rows = reach_of(s, 1, line % s.out[1]);
  for (i64 ox = 0; ox < s.out[2]; ++ox) {
    const Reach cols = reach_of(s, 2, ox);
    for (i64 j = 0; j < s.block; j += L) {
      const T* const x = static_cast<const T*>(args.x) + plane * product(s.in) * s.block + j;
      Pack<T, L> best = Pack<T, L>{} - T(__builtin_inf());
      Positions where = Positions{} - Position<T>(1);
      for_positions(s, deep, rows, cols, [&](i64 at) {
        const auto v = load_pack<T, L>(x + at * s.block);
        const Positions wins = (Positions(~(v <= best)) & Positions(best == best)) | (where < 0);
        best = wins ? v : best;
        where = wins ? Positions{} + Position<T>(at) : where;
      });
      store_max<T, L>(args, part, ox, j, best, where);
    }
  }
}

template <class T>
void max_planes(const MaxPoolArgs& args) {
  const PoolShape& s = args.shape;
  const i64 lines = s.out[0] * s.out[1];
  with_stride(s.stride[2], [&](auto stride) {
    parallel_for(s.planes, s.planes * product(s.out) * product(s.kernel) * 2, [&](i64 p) {
      if (max_plane<T, decltype(stride)::value>(args, p)) return;
      for (i64 line = 0; line < lines; ++line) max_line_of_any<T, 1>(args, p * lines + line);
    });
  });
}

// `count` neighbouring outputs at a time, whose windows are whole along the row, from `ox` on; `odd` gets NaN
// in lanes that have infinities or NaN.
template <class T, int L, int count>
GRADLOOM_INLINE void max_outputs(const MaxPoolArgs& args, i64 part, const Reach& deep, const Reach& rows,
                                 const Taps& cols, i64 ox, i64 j, Pack<T, L>& odd) {
  using Positions = Pack<Position<T>, L>;
  const PoolShape& s = args.shape;
  const i64 plane = part / (s.out[0] * s.out[1]), apart = s.stride[2] * s.block;
  const T* const x = static_cast<const T*>(args.x) + plane * product(s.in) * s.block + j;
  Pack<T, L> best[count];
  Positions where[count];
  for (int u = 0; u < count; ++u) {
    best[u] = Pack<T, L>{} - T(__builtin_inf());
    where[u] = Positions{} - Position<T>(1);
  }
  for_tap_rows(s, deep, rows, [&](i64 row) {
    for (i64 kx = cols.begin; kx < cols.end; ++kx) {
      const i64 at = row + ox * s.stride[2] - s.pad_begin[2] + kx * s.dilation[2];
      for (int u = 0; u < count; ++u) {
        const auto v = load_pack<T, L>(x + at * s.block + u * apart);
        __builtin_prefetch(x + at * s.block + u * apart + kAhead);
        odd += v - v;
        where[u] = v > best[u] ? Positions{} + Position<T>(at + u * s.stride[2]) : where[u];
        best[u] = v > best[u] ? v : best[u];
      }
    }
  });
  for (int u = 0; u < count; ++u) store_max<T, L>(args, part, ox + u, j, best[u], where[u]);
}

template <class T, int L>
void max_blocks(const MaxPoolArgs& args) {
  const PoolShape& s = args.shape;
  const i64 lines = s.out[0] * s.out[1];
  const Taps whole = whole_windows(s);
  parallel_for(s.planes * lines, s.planes * s.block * product(s.out) * product(s.kernel), [&](i64 part) {
    const i64 line = part % lines;
    const Reach deep = reach_of(s, 0, line / s.out[1]), rows = reach_of(s, 1, line % s.out[1]);
    Pack<T, L> odd = {};
    for_outputs<T, L>(s, whole, [&](auto count, i64 ox, i64 j, const Taps& cols) {
      max_outputs<T, L, decltype(count)::value>(args, part, deep, rows, cols, ox, j, odd);
    });
    if (!all_zero(odd)) max_line_of_any<T, L>(args, part);
  });
}

// ---- gradient of max ------------------------------------------------------------------------------------------

// Every output adds to where its argmax is.
template <class T>
GRADLOOM_INLINE void scatter_plane(const MaxPoolGradArgs& args, i64 p) {
  const i64 in = args.h * args.w, out = args.oh * args.ow, b = args.block;
  const T* const dy = static_cast<const T*>(args.dy) + p * out * b;
  const i64* const argmax = args.argmax + p * out * b;
  T* const dx = static_cast<T*>(args.dx) + p * in * b;
  for (i64 i = 0; i < in * b; ++i) dx[i] = T(0);
  for (i64 i = 0; i < out; ++i) {
    for (i64 j = 0; j < b; ++j) {
      const i64 at = argmax[i * b + j];
      if (at >= 0 && at < in) dx[at * b + j] += dy[i * b + j];
    }
  }
}

template <class T>
void max_planes_grad(const MaxPoolGradArgs& args) {
  const i64 in = args.h * args.w, out = args.oh * args.ow;
  parallel_for(args.planes, args.planes * args.block * (in + out * 2),
               [&](i64 p) { scatter_plane<T>(args, p); });
}

// ---- average --------------------------------------------------------------------------------------------------

// What a window is summed in: few elements in T.
constexpr i64 kFewTaps = 64;

template <class T, class Sum, int stride>
void average_plane(const AveragePoolArgs& args, i64 plane) {
  constexpr int n = int(kLanes<T>);
  using Sums = Pack<Sum, n>;
  const PoolShape& s = args.shape;
  const i64 area = product(s.out);
  const T* const x = static_cast<const T*>(args.x) + plane * product(s.in);
  const i64 cols = cols_divisor({0, {0, s.kernel[2]}, s.kernel[2]}, args.divisor);
  Line<T, stride> line{s, plane, whole_windows(s)};
  for (i64 oz = 0, l = 0; oz < s.out[0]; ++oz) {
    for (i64 oy = 0; oy < s.out[1]; ++oy, ++l) {
      line.enter(oz, oy);
      const i64 rows = rows_divisor(line.deep, line.rows, args.divisor);
      for_runs<n>(s.out[2], [&](i64 first, i64 count) {
        Sums total = {}, divisor = Sums{} + Sum(rows * cols);
        with_edge(line.edge(first), [&](auto edge) {
          constexpr Edge e = decltype(edge)::value;
          line.template for_taps<e>(x, first, [&](const Vec<T>& v, const LaneNumbers<T>&, i64) {
            total += __builtin_convertvector(v, Sums);
          });
          if constexpr (e != Edge::none)
            divisor = __builtin_convertvector(line.divisors(first, args.divisor), Sums) * Sum(rows);
        });
        const auto means = divisor > Sum(0) ? total / divisor : Sums{};
        const i64 at = l * s.out[2] + first;
        store_some(static_cast<T*>(args.y) + plane * area + at, __builtin_convertvector(means, Vec<T>), count,
                   area - at);
      });
    }
  }
}

template <class T>
void average_planes(const AveragePoolArgs& args) {
  const PoolShape& s = args.shape;
  const bool few = product(s.kernel) <= kFewTaps;
  with_stride(s.stride[2], [&](auto stride) {
    parallel_for(s.planes, s.planes * product(s.out) * product(s.kernel), [&](i64 p) {
      if (few) {
        average_plane<T, T, decltype(stride)::value>(args, p);
      } else {
        average_plane<T, double, decltype(stride)::value>(args, p);
      }
    });
  });
}

template <class T, class Sum, int L, int count>
GRADLOOM_INLINE void average_outputs(const AveragePoolArgs& args, i64 part, const Reach& deep,
                                     const Reach& rows, const Taps& cols, i64 divisor, i64 ox, i64 j) {
  using Sums = Pack<Sum, L>;
  const PoolShape& s = args.shape;
  const i64 plane = part / (s.out[0] * s.out[1]), apart = s.stride[2] * s.block;
  const T* const x = static_cast<const T*>(args.x) + plane * product(s.in) * s.block + j;
  Sums total[count] = {};
  for_tap_rows(s, deep, rows, [&](i64 row) {
    for (i64 kx = cols.begin; kx < cols.end; ++kx) {
      const i64 at = row + ox * s.stride[2] - s.pad_begin[2] + kx * s.dilation[2];
      for (int u = 0; u < count; ++u) {
        total[u] += __builtin_convertvector((load_pack<T, L>(x + at * s.block + u * apart)), Sums);
        __builtin_prefetch(x + at * s.block + u * apart + kAhead);
      }
    }
  });
  T* const y = static_cast<T*>(args.y) + (part * s.out[2] + ox) * s.block + j;
  for (int u = 0; u < count; ++u) {
    if (divisor > 0) total[u] /= Sum(divisor);  // else the window has nothing inside
    store_pack<T, L>(y + u * s.block, __builtin_convertvector(total[u], Pack<T, L>));
  }
}

template <class T, class Sum, int L>
void average_blocks(const AveragePoolArgs& args) {
  const PoolShape& s = args.shape;
  const i64 lines = s.out[0] * s.out[1];
  const Taps whole = whole_windows(s);
  parallel_for(s.planes * lines, s.planes * s.block * product(s.out) * product(s.kernel), [&](i64 part) {
    const i64 line = part % lines;
    const Reach deep = reach_of(s, 0, line / s.out[1]), rows = reach_of(s, 1, line % s.out[1]);
    const i64 by_rows = rows_divisor(deep, rows, args.divisor);
    for_outputs<T, L>(s, whole, [&](auto count, i64 ox, i64 j, const Taps& cols) {
      const i64 divisor = by_rows * cols_divisor(reach_of(s, 2, ox), args.divisor);
      average_outputs<T, Sum, L, decltype(count)::value>(args, part, deep, rows, cols, divisor, ox, j);
    });
  });
}

// ---- gradient of average --------------------------------------------------------------------------------------

// Every output adds its share to its window.
template <class T, int L>
GRADLOOM_INLINE void spread_plane(const AveragePoolGradArgs& args, i64 plane) {
  const PoolShape& s = args.shape;
  const i64 in = product(s.in) * s.block;
  T* const dx = static_cast<T*>(args.dx) + plane * in;
  const T* dy = static_cast<const T*>(args.dy) + plane * product(s.out) * s.block;
  for (i64 i = 0; i < in; ++i) dx[i] = T(0);
  for (i64 line = 0; line < s.out[0] * s.out[1]; ++line) {
    const Reach deep = reach_of(s, 0, line / s.out[1]), rows = reach_of(s, 1, line % s.out[1]);
    for (i64 ox = 0; ox < s.out[2]; ++ox) {
      const Reach cols = reach_of(s, 2, ox);
      const i64 count = rows_divisor(deep, rows, args.divisor) * cols_divisor(cols, args.divisor);
      for (i64 j = 0; j < s.block; j += L, dy += L) {
        const auto share = count > 0 ? load_pack<T, L>(dy) / T(count) : Pack<T, L>{};
        if (L == 1 && s.block == 1 && s.dilation[2] == 1) {
          for_tap_rows(s, deep, rows, [&](i64 row) {
            T* const to = dx + row + cols.start;
            for (i64 kx = cols.taps.begin; kx < cols.taps.end; ++kx) to[kx] += share[0];
          });
          continue;
        }
        for_positions(s, deep, rows, cols, [&](i64 at) {
          T* const to = dx + at * s.block + j;
          store_pack<T, L>(to, load_pack<T, L>(to) + share);
        });
      }
    }
  }
}

// Outputs along dim `d` whose windows have input `at` inside; dilation 1.
GRADLOOM_INLINE Taps outputs_over(const PoolShape& s, int d, i64 at) {
  const i64 last = at + s.pad_begin[d], first = last - s.kernel[d] + 1;
  return {first > 0 ? ceil_div(first, s.stride[d]) : 0, smaller(s.out[d], last / s.stride[d] + 1)};
}

// Registers of inputs of a row, as many as the stride: those of each have their windows' taps in common.
template <class T, int stride>
struct Inputs {
  const PoolShape& s;
  i64 plane;
  Taps deep, rows;

  // The inputs from `first` on: term(edge, oz, oy, offset of the line, ox, total[q]) for the outputs whose
  // windows they are in, in order; lane i of total[q] is input first + q + stride * i, its output ox + i.
  template <Edge edge, class Term>
  GRADLOOM_INLINE void gather(i64 first, Vec<T> (&total)[stride], const Term& term) const {
    for (int q = 0; q < stride; ++q) total[q] = Vec<T>{};
    for (i64 oz = deep.begin; oz < deep.end; ++oz) {
      for (i64 oy = rows.begin; oy < rows.end; ++oy) {
        const i64 line = (oz * s.out[1] + oy) * s.out[2];
        for (int q = 0; q < stride; ++q) {
          const i64 at = first + q + s.pad_begin[2], last = at / stride, tap = at % stride;
          if (tap >= s.kernel[2]) continue;
          for (i64 ox = last - (s.kernel[2] - 1 - tap) / stride; ox <= last; ++ox)
            term(Edges<edge>(), oz, oy, line, ox, total[q]);
        }
      }
    }
  }

  // How the outputs over the inputs from `first` on may be read; none: all exist and have whole windows.
  GRADLOOM_INLINE Edge edge(i64 first, const Taps& whole) const {
    i64 low = s.out[2], high = 0;
    for (int q = 0; q < stride; ++q) {
      const i64 at = first + q + s.pad_begin[2], last = at / stride;
      low = smaller(low, last - larger(s.kernel[2] - 1 - at % stride, 0) / stride);
      high = larger(high, last + kLanes<T>);
    }
    if (low >= whole.begin && high <= whole.end) return Edge::none;
    const i64 area = product(s.out), from = plane * area;
    const i64 bottom = ((deep.end - 1) * s.out[1] + rows.end - 1) * s.out[2];
    const i64 top = (deep.begin * s.out[1] + rows.begin) * s.out[2];
    return from + top + low < 0 || from + bottom + high > s.planes * area ? Edge::guarded : Edge::masked;
  }
};

// dx of a plane, rows in order; term as in Inputs.
template <class T, int stride, class Term>
GRADLOOM_INLINE void gather_plane(const PoolShape& s, i64 plane, T* dx, const Term& term) {
  constexpr i64 n = kLanes<T>;
  const Taps whole = whole_windows(s);
  const i64 area = product(s.in);
  for (i64 iz = 0, row = 0; iz < s.in[0]; ++iz) {
    for (i64 iy = 0; iy < s.in[1]; ++iy, row += s.in[2]) {
      const Inputs<T, stride> inputs{s, plane, outputs_over(s, 0, iz), outputs_over(s, 1, iy)};
      for_runs<stride * n>(s.in[2], [&](i64 first, i64 count) {
        Vec<T> total[stride];
        with_edge(inputs.edge(first, whole),
                  [&](auto edge) { inputs.template gather<decltype(edge)::value>(first, total, term); });
        const i64 at = row + first, room = area - at;
        T* const to = dx + plane * area + at;
        if constexpr (stride == 1) {
          store_some(to, total[0], count, room);
        } else {
          store_some(to, mixed_low<int(n)>(total[0], total[1]), smaller(n, count), room);
          if (count > n) store_some(to + n, mixed_high<int(n)>(total[0], total[1]), count - n, room - n);
        }
      });
    }
  }
}

// Neighbouring elements from `at` on of a line of `size`; 0 in lanes outside.
template <class T, Edge edge>
GRADLOOM_INLINE Vec<T> neighbours(const T* line, i64 at, i64 size, LaneNumbers<T>* valid) {
  if constexpr (edge == Edge::none) return load(line + at);
  return spaced<T, 1, edge>(line, at, 1, size, valid);
}

// What the windows of a line are divided by, with 1 on either side of them.
constexpr i64 kMostColumns = 1024, kMostTaps = 64, kMargin = kMostTaps + 16;
template <class T>
struct Divisors {
  const PoolShape& s;
  PoolDivisor divisor;
  Taps whole;
  i64 rows = -1;
  T all[kMargin + kMostColumns + kMargin];

  Divisors(const AveragePoolGradArgs& args)
      : s(args.shape), divisor(args.divisor), whole(whole_windows(args.shape)) {
    for (T& d : all) d = T(1);
  }
  // Of output 0.
  GRADLOOM_INLINE const T* of(i64 oz, i64 oy) {
    const i64 now = rows_divisor(reach_of(s, 0, oz), reach_of(s, 1, oy), divisor);
    T* const line = all + kMargin;
    if (now == rows) return line;
    rows = now;
    const i64 cols = cols_divisor({0, {0, s.kernel[2]}, s.kernel[2]}, divisor);
    for (i64 ox = 0; ox < s.out[2]; ++ox) {
      const bool inside = ox >= whole.begin && ox < whole.end;
      line[ox] = T(larger(1, rows * (inside ? cols : cols_divisor(reach_of(s, 2, ox), divisor))));
    }
    return line;
  }
};

// Whether inputs can gather from outputs: those whose windows they are in are neighbours, and not too few for
// registers.
constexpr i64 kFewColumns = 8;
inline bool can_gather(const PoolShape& s) {
  return kVecBytes > 16 && s.out[2] >= kFewColumns && s.dilation[0] == 1 && s.dilation[1] == 1 &&
         s.dilation[2] == 1 && s.stride[2] <= 2 && s.kernel[2] <= kMostTaps && s.out[2] <= kMostColumns;
}

template <class T, int stride>
void gather_planes(const AveragePoolGradArgs& args) {
  const PoolShape& s = args.shape;
  const i64 out = product(s.out);
  const i64 grain = larger(1, 8192 / larger(1, product(s.in)));
  parallel_pieces(
      s.planes, grain, s.planes * (product(s.in) + out * product(s.kernel)), [&](i64 begin, i64 end) {
        Divisors<T> divisors(args);
        for (i64 p = begin; p < end; ++p) {
          const T* const dy = static_cast<const T*>(args.dy) + p * out;
          gather_plane<T, stride>(s, p, static_cast<T*>(args.dx),
                                  [&](auto edge, i64 oz, i64 oy, i64 line, i64 ox, Vec<T>& total) {
                                    constexpr Edge e = decltype(edge)::value;
                                    LaneNumbers<T> valid = {};
                                    Vec<T> d = neighbours<T, e>(dy + line, ox, s.out[2], &valid);
                                    if constexpr (e != Edge::none) d = valid ? d : Vec<T>{};
                                    total += d / load(divisors.of(oz, oy) + ox);
                                  });
        }
      });
}

template <class T, int L>
void spread_planes(const AveragePoolGradArgs& args) {
  const PoolShape& s = args.shape;
  parallel_for(s.planes, s.planes * s.block * (product(s.in) + product(s.out) * product(s.kernel)),
               [&](i64 p) { spread_plane<T, L>(args, p); });
}

template <class T>
void average_planes_grad(const AveragePoolGradArgs& args) {
  if (!can_gather(args.shape)) return spread_planes<T, 1>(args);
  if (args.shape.stride[2] == 1) return gather_planes<T, 1>(args);
  gather_planes<T, 2>(args);
}

// ---- one or the other -----------------------------------------------------------------------------------------

// body(Lanes<L>) with the most lanes of one register that divide the block: comparisons of more are made lane
// by lane.
template <class T, class Body>
GRADLOOM_INLINE void with_registers(i64 block, const Body& body) {
  constexpr int most = int(kLanes<T>);
  if (block % most == 0) {
    body(Lanes<most>());
  } else if (most > 8 && block % 8 == 0) {
    body(Lanes<most / 2>());
  } else if (most > 4 && block % 4 == 0) {
    body(Lanes < most >= 16 ? most / 4 : most / 2 > ());
  } else {
    body(Lanes<1>());
  }
}

template <class T>
void max(const MaxPoolArgs& args) {
  if (args.shape.block == 1) return max_planes<T>(args);
  with_registers<T>(args.shape.block, [&](auto lanes) { max_blocks<T, decltype(lanes)::value>(args); });
}
template <class T>
void average(const AveragePoolArgs& args) {
  if (args.shape.block == 1) return average_planes<T>(args);
  const bool few = product(args.shape.kernel) <= kFewTaps;
  with_registers<T>(args.shape.block, [&](auto lanes) {
    if (few) {
      average_blocks<T, T, decltype(lanes)::value>(args);
    } else {
      average_blocks<T, double, decltype(lanes)::value>(args);
    }
  });
}
template <class T>
void average_grad(const AveragePoolGradArgs& args) {
  if (args.shape.block == 1) return average_planes_grad<T>(args);
  with_lanes(args.shape.block, [&](auto lanes) { spread_planes<T, decltype(lanes)::value>(args); });
}

}  // namespace

void max_pool(const MaxPoolArgs& args) { GRADLOOM_FLOAT_DISPATCH(args.dtype, max, args); }
void max_pool_grad(const MaxPoolGradArgs& args) {
  GRADLOOM_FLOAT_DISPATCH(args.dtype, max_planes_grad, args);
}
void average_pool(const AveragePoolArgs& args) { GRADLOOM_FLOAT_DISPATCH(args.dtype, average, args); }
void average_pool_grad(const AveragePoolGradArgs& args) {
  GRADLOOM_FLOAT_DISPATCH(args.dtype, average_grad, args);
}

}  // namespace gradloom::kernels::GRADLOOM_ISA
