// Average pooling: sum / divisor (PoolDivisor). Averages of windows that have many taps in common with their
// neighbours add rows first, then along the row: what the rows of a window add up to is a line in L1 with
// zeros on either side, so that neighbours along the row need no edges. Lines are made for several rows
// before they are read, which stores need to settle. Other averages go through their windows tap by tap;
// those of whole planes are reductions.
#include "kernels/cpu/pool_windows.h"
#include "kernels/cpu/workspace.h"

namespace gradloom::kernels::GRADLOOM_ISA {
namespace {

// What a window is summed in: few elements in T.
constexpr i64 kFewTaps = 64;

constexpr i64 kMostElements = 2048;  // of a line
constexpr i64 kBehind = 64;          // that may be read behind a line
constexpr i64 kMostTogether = 32;    // lines
constexpr i64 kRoom = 4096;          // elements of all lines

// Columns [begin, end) of a plane's rows as lines: those of [from, to) exist, the others are 0.
struct Strip {
  i64 begin, end, from, to, pitch, together;

  Strip(i64 first, i64 last, i64 size, i64 block) : begin(first), end(last) {
    from = larger(0, smaller(first, size));
    to = larger(from, smaller(last, size));
    pitch = (last - first) * block + kBehind;
    together = smaller(larger(1, kRoom / pitch), kMostTogether);
  }
  template <class T>
  GRADLOOM_INLINE void clear(T* lines, i64 block) const {
    for (i64 l = 0; l < together; ++l, lines += pitch) {
      for (i64 i = 0; i < (from - begin) * block; ++i) lines[i] = T(0);
      for (i64 i = (to - begin) * block; i < pitch; ++i) lines[i] = T(0);
    }
  }
};

// Row `row` of all planes' rows, and those that follow.
struct RowNumber {
  i64 plane, z, y;
  RowNumber(const i64 (&dims)[3], i64 row)
      : plane(row / (dims[0] * dims[1])), z(row / dims[1] % dims[0]), y(row % dims[1]) {}
  GRADLOOM_INLINE void next(const i64 (&dims)[3]) {
    if (++y < dims[1]) return;
    y = 0;
    if (++z < dims[0]) return;
    z = 0;
    ++plane;
  }
};

// A register of elements, whole; or the first n and 0, where no more can be read than up to `end`.
template <class T>
struct ReadAll {
  GRADLOOM_INLINE Vec<T> operator()(const T* p) const {
    __builtin_prefetch(p + kAhead);
    return load(p);
  }
};
template <class T>
struct ReadSome {
  i64 n;
  const T* end;
  GRADLOOM_INLINE Vec<T> operator()(const T* p) const {
    __builtin_prefetch(p + kAhead);
    if (end - p >= kLanes<T>) return lane_numbers<T>() < Position<T>(n) ? load(p) : Vec<T>{};
    T all[kLanes<T>] = {};
    for (i64 i = 0; i < n; ++i) all[i] = p[i];
    return load(all);
  }
};

// line = (line +) the n elements from p + k * apart, k < count. `end`: of what may be read.
constexpr i64 kRows = 4;
template <class T, class Sum>
struct Rows {
  const T *p, *end;
  i64 apart, count;

  // A function of its own: its loop stays in registers.
  template <int rows, bool add>
  __attribute__((noinline)) void add_to(Sum* line, i64 n) const {
    constexpr int lanes = int(kLanes<T>);
    using Sums = Pack<Sum, lanes>;
    const T *const from = p, *const last = end;
    const i64 step = apart;
    const auto run = [&](i64 i, const auto& read) __attribute__((always_inline)) {
      Sums total = __builtin_convertvector(read(from + i), Sums);
      for (int k = 1; k < rows; ++k) total += __builtin_convertvector(read(from + k * step + i), Sums);
      if constexpr (add) total += load_pack<Sum, lanes>(line + i);
      store_pack<Sum, lanes>(line + i, total);
    };
    i64 i = 0;
    for (; i + lanes <= n; i += lanes) run(i, ReadAll<T>());
    if (i < n) run(i, ReadSome<T>{n - i, last});
  }
  template <bool add>
  GRADLOOM_INLINE void add_to(Sum* line, i64 n) const {
    if (count == 3) return add_to<3, add>(line, n);
    if (count == 2) return add_to<2, add>(line, n);
    if (count == 1) return add_to<1, add>(line, n);
    add_to<4, add>(line, n);
  }
  GRADLOOM_INLINE void add_to(Sum* line, i64 n, bool add) const {
    if (add) return add_to<true>(line, n);
    add_to<false>(line, n);
  }
};

template <class Sum>
GRADLOOM_INLINE void clear_line(Sum* line, i64 n) {
  for (i64 i = 0; i < n; ++i) line[i] = Sum(0);
}

// ---- average --------------------------------------------------------------------------------------------------

// Whether rows are summed first: windows with many taps that have most of them in
// common with their neighbours.
inline bool sums_rows(const PoolShape& s) {
  return s.stride[2] == 1 && s.stride[1] == 1 && s.kernel[1] > 1 && s.kernel[2] > 1 &&
         ((s.kernel[2] - 1) * s.dilation[2] + 1) * s.block <= kMostElements;
}

// Outputs of a line; more are made strip by strip.
inline i64 outputs_together(const PoolShape& s) {
  return smaller(s.out[2], kMostElements / s.block - (s.kernel[2] - 1) * s.dilation[2]);
}

// Outputs of a row from their line; what is summed is divided by rows * divisors[i], and `room` elements of y
// may be written.
template <class T, class Sum, int width>
GRADLOOM_INLINE void average_columns(const PoolShape& s, const Sum* line, i64 outs, Sum rows,
                                     const Sum* divisors, T* y, i64 room) {
  constexpr int n = int(kLanes<T>);
  using Sums = Pack<Sum, n>;
  const i64 taps = width > 0 ? width : s.kernel[2], apart = s.dilation[2];
  for (i64 first = 0; first < outs; first += n) {
    if (first + n > outs && outs >= n) first = outs - n;
    Sums total = load_pack<Sum, n>(line + first);
    for (i64 kx = 1; kx < taps; ++kx) total += load_pack<Sum, n>(line + first + kx * apart);
    total /= load_pack<Sum, n>(divisors + first) * rows;
    store_some(y + first, __builtin_convertvector(total, Vec<T>), smaller(n, outs - first), room - first);
  }
}
template <class T, class Sum, int L>
GRADLOOM_INLINE void average_neighbours(const PoolShape& s, const Sum* line, i64 outs, Sum rows,
                                        const Sum* divisors, T* y) {
  using Sums = Pack<Sum, L>;
  for (i64 o = 0; o < outs; ++o) {
    const Sum divisor = divisors[o] * rows;
    for (i64 j = 0; j < s.block; j += L, y += L) {
      const Sum* const from = line + o * s.block + j;
      Sums total = load_pack<Sum, L>(from);
      for (i64 kx = 1; kx < s.kernel[2]; ++kx)
        total += load_pack<Sum, L>(from + kx * s.dilation[2] * s.block);
      store_pack<T, L>(y, __builtin_convertvector(total / divisor, Pack<T, L>));
    }
  }
}

// columns(line, divisor of the row, offset in y) for outputs `outs` of rows
// [lines[0], lines[1]) of all planes.
template <class T, class Sum, class Columns>
GRADLOOM_INLINE void average_strip(const AveragePoolArgs& args, Taps outs, const i64 (&lines)[2], Sum* room,
                                   const Columns& columns) {
  const PoolShape& s = args.shape;
  const Strip strip(outs.begin - s.pad_begin[2],
                    outs.end - s.pad_begin[2] + (s.kernel[2] - 1) * s.dilation[2], s.in[2], s.block);
  strip.clear(room, s.block);
  const T* const x = static_cast<const T*>(args.x) + strip.from * s.block;
  const i64 n = (strip.to - strip.from) * s.block, plane = product(s.in) * s.block;
  Rows<T, Sum> sum{nullptr, static_cast<const T*>(args.x) + s.planes * plane,
                   s.dilation[1] * s.in[2] * s.block, 0};
  Sum divisor[kMostTogether];
  RowNumber row(s.out, lines[0]);
  for (i64 l = lines[0]; l < lines[1]; l += strip.together) {
    const i64 count = smaller(strip.together, lines[1] - l);
    for (i64 k = 0; k < count; ++k, row.next(s.out)) {
      const Reach deep = reach_of(s, 0, row.z), high = reach_of(s, 1, row.y);
      Sum* const line = room + k * strip.pitch + (strip.from - strip.begin) * s.block;
      bool add = false;
      for (i64 kz = deep.taps.begin; kz < deep.taps.end; ++kz) {
        const i64 from = (deep.start + kz * s.dilation[0]) * s.in[1] + high.start;
        for (i64 ky = high.taps.begin; ky < high.taps.end; ky += kRows) {
          sum.p = x + row.plane * plane + (from + ky * s.dilation[1]) * s.in[2] * s.block;
          sum.count = smaller(kRows, high.taps.end - ky);
          sum.add_to(line, n, add);
          add = true;
        }
      }
      if (!add) clear_line(line, n);
      divisor[k] = Sum(larger(1, rows_divisor(deep, high, args.divisor)));
    }
    for (i64 k = 0; k < count; ++k)
      columns(room + k * strip.pitch, divisor[k], ((l + k) * s.out[2] + outs.begin) * s.block);
  }
}

template <class T, class Sum>
void average_lines(const AveragePoolArgs& args, i64 begin, i64 end) {
  const PoolShape& s = args.shape;
  T* const y = static_cast<T*>(args.y);
  Sum room[kRoom], divisors[kMostElements + kBehind];
  const i64 width = outputs_together(s);
  for (i64 first = 0; first < s.out[2]; first += width) {
    const Taps outs{first, smaller(first + width, s.out[2])};
    for (i64 i = 0; i < taps_of(outs) + kLanes<T>; ++i)
      divisors[i] = Sum(larger(1, cols_divisor(reach_of(s, 2, first + i), args.divisor)));
    // What is written behind the row is written again, with one strip.
    const i64 last = end * s.out[2];
    if (s.block == 1) {
      with_known<2, 3>(s.kernel[2], [&](auto taps) {
        average_strip<T, Sum>(args, outs, {begin, end}, room, [&](const Sum* line, Sum rows, i64 at) {
          average_columns<T, Sum, decltype(taps)::value>(s, line, taps_of(outs), rows, divisors, y + at,
                                                         width < s.out[2] ? taps_of(outs) : last - at);
        });
      });
      continue;
    }
    with_registers<T>(s.block, [&](auto lanes) {
      average_strip<T, Sum>(args, outs, {begin, end}, room, [&](const Sum* line, Sum rows, i64 at) {
        average_neighbours<T, Sum, decltype(lanes)::value>(s, line, taps_of(outs), rows, divisors, y + at);
      });
    });
  }
}

template <class T, class Sum>
void average_rows(const AveragePoolArgs& args) {
  const PoolShape& s = args.shape;
  const i64 lines = s.out[0] * s.out[1], rows = s.planes * lines, elements = s.out[2] * s.block;
  if (rows * elements == 0) return;
  const i64 touched = elements + product(s.in) * s.block / lines;
  parallel_pieces(rows, rows_together(touched, rows), rows * elements * product(s.kernel),
                  [&](i64 begin, i64 end) { average_lines<T, Sum>(args, begin, end); });
}

// ---- average, window by window --------------------------------------------------------------------------------

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

template <class T, class Sum>
void average_planes(const AveragePoolArgs& args) {
  const PoolShape& s = args.shape;
  with_known<1, 2>(s.stride[2], [&](auto stride) {
    parallel_for(s.planes, s.planes * product(s.out) * product(s.kernel),
                 [&](i64 p) { average_plane<T, Sum, decltype(stride)::value>(args, p); });
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
        fetch(x + at * s.block + u * apart + kAhead);
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
  for_block_lines(s, [&](i64 part, const Reach& deep, const Reach& rows, const Taps& whole) {
    const i64 by_rows = rows_divisor(deep, rows, args.divisor);
    for_outputs<T, L>(s, whole, [&](auto count, i64 ox, i64 j, const Taps& cols) {
      const i64 divisor = by_rows * cols_divisor(reach_of(s, 2, ox), args.divisor);
      average_outputs<T, Sum, L, decltype(count)::value>(args, part, deep, rows, cols, divisor, ox, j);
    });
  });
}

template <class T, class Sum>
void average_in(const AveragePoolArgs& args) {
  if (sums_rows(args.shape)) return average_rows<T, Sum>(args);
  if (args.shape.block == 1) return average_planes<T, Sum>(args);
  with_registers<T>(args.shape.block,
                    [&](auto lanes) { average_blocks<T, Sum, decltype(lanes)::value>(args); });
}
template <class T>
void average(const AveragePoolArgs& args) {
  const PoolShape& s = args.shape;
  const i64 taps = product(s.kernel);
  if (is_plane(s) && taps <= reduce_block(taps, s.block)) {  // no workspace
    const Reduction op = args.divisor == PoolDivisor::one ? Reduction::sum : Reduction::mean;
    return reduce({args.dtype, op, s.planes, taps, s.block, args.x, args.y, nullptr});
  }
  if (taps <= kFewTaps) return average_in<T, T>(args);
  average_in<T, double>(args);
}

}  // namespace

void average_pool(const AveragePoolArgs& args) { GRADLOOM_FLOAT_DISPATCH(args.dtype, average, args); }

}  // namespace gradloom::kernels::GRADLOOM_ISA
