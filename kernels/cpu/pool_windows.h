// Windows of pooling in planes of one to three spatial dims, for maxima (max_pool.cpp), averages
// (average_pool.cpp) and their gradient (average_pool_grad.cpp).
//   window of output o: positions o * stride - pad_begin + tap * dilation in every dim, those inside the plane
// A register of neighbouring outputs of a row goes through its windows at once; a tap of all of them is one
// load (stride 1) or the even elements of two (stride 2).
// Channels in blocks: a position holds neighbours, which are taken together. One row of outputs is one part,
// or one plane of inputs.
#pragma once

#include "kernels/cpu/kernel.h"
#include "kernels/cpu/lanes.h"

namespace gradloom::kernels::GRADLOOM_ISA {

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

// Outputs along dim `d` all of whose taps along it are inside.
GRADLOOM_INLINE Taps whole_windows(const PoolShape& s, int d = 2) {
  const i64 begin = ceil_div(s.pad_begin[d], s.stride[d]);
  const i64 room = s.in[d] - 1 - (s.kernel[d] - 1) * s.dilation[d] + s.pad_begin[d];
  return {begin, room < 0 ? 0 : smaller(s.out[d], room / s.stride[d] + 1)};
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

// Whether the only window is all of the plane.
inline bool is_plane(const PoolShape& s) {
  for (int d = 0; d < 3; ++d) {
    const bool all = s.kernel[d] == s.in[d] && (s.dilation[d] == 1 || s.in[d] == 1);
    if (!all || s.out[d] != 1 || s.pad_begin[d] != 0) return false;
  }
  return true;
}

// Rows of a part, which read and write `elements` each.
inline i64 rows_together(i64 elements, i64 rows) {
  return larger(ceil_div(16384, elements), smaller(rows / 64, ceil_div(65536, elements)));
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
  T* const whole = n >= lanes || room >= lanes ? to : all;
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

// body(Lanes<value>) where it is `one` or one of the others, which its loops are unrolled
// for; else body(Lanes<0>).
template <int one, int... others, class Body>
GRADLOOM_INLINE void with_known(i64 value, const Body& body) {
  if (value == one) return body(Lanes<one>());
  if constexpr (sizeof...(others) > 0) {
    with_known<others...>(value, body);
  } else {
    body(Lanes<0>());
  }
}

// Elements ahead that are fetched while a window is read: the hardware does not
// foresee the order of its taps.
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
  // Taps of one row alone, of a plane that is one image.
  GRADLOOM_INLINE void enter_row(i64 y) {
    low = high = y * s.in[2];
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

// body(line of outputs, what lies under it of planes and rows, outputs with whole windows) for the lines of
// all planes, channels in blocks.
template <class Body>
GRADLOOM_INLINE void for_block_lines(const PoolShape& s, const Body& body) {
  const i64 lines = s.out[0] * s.out[1];
  const Taps whole = whole_windows(s);
  parallel_for(s.planes * lines, s.planes * s.block * product(s.out) * product(s.kernel), [&](i64 part) {
    const i64 line = part % lines;
    body(part, reach_of(s, 0, line / s.out[1]), reach_of(s, 1, line % s.out[1]), whole);
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

// body(Lanes<L>) with the most lanes of one register that divide the block:
// comparisons of more are made lane by lane.
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

}  // namespace gradloom::kernels::GRADLOOM_ISA
