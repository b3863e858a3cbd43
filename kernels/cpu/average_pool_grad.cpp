// Gradient of average pooling: every input gathers from the outputs whose windows it is
// in, axis by axis. What a row of outputs gives along the row is a line in L1, and a
// row of inputs is the sum of few lines; channels in blocks are gathered at once.
// Nothing is fetched ahead: rows are written in order, which the hardware foresees.
#include "kernels/cpu/pool_windows.h"

namespace gradloom::kernels::GRADLOOM_ISA {
namespace {

// Every output adds its share to its window.
template <class T>
void spread_plane(const AveragePoolGradArgs& args, i64 plane) {
  const PoolShape& s = args.shape;
  const i64 in = product(s.in) * s.block;
  T* const dx = static_cast<T*>(args.dx) + plane * in;
  const T* dy = static_cast<const T*>(args.dy) + plane * product(s.out) * s.block;
  for (i64 i = 0; i < in; ++i) dx[i] = T(0);
  for (i64 line = 0; line < s.out[0] * s.out[1]; ++line) {
    const Reach deep = reach_of(s, 0, line / s.out[1]), rows = reach_of(s, 1, line % s.out[1]);
    for (i64 ox = 0; ox < s.out[2]; ++ox, dy += s.block) {
      const Reach cols = reach_of(s, 2, ox);
      const i64 count = rows_divisor(deep, rows, args.divisor) * cols_divisor(cols, args.divisor);
      for_positions(s, deep, rows, cols, [&](i64 at) {
        for (i64 j = 0; j < s.block; ++j) dx[at * s.block + j] += dy[j] / T(larger(1, count));
      });
    }
  }
}

// Outputs [begin(), end()) along dim `d` whose windows have input `at` inside, dilation 1, and the inputs
// that follow: counted on, because divisions would take longer than a narrow row.
struct OutputsOver {
  i64 stride, outs, first, last;
  i64 left, tap;  // inputs after this one that `first` is over; this one's tap in `last`

  OutputsOver(const PoolShape& s, int d, i64 at)
      : stride(s.stride[d]), outs(s.out[d]), last((at + s.pad_begin[d]) / stride) {
    const i64 padded = at + s.pad_begin[d], start = padded - s.kernel[d] + 1;
    first = start > 0 ? ceil_div(start, stride) : -(-start / stride);
    left = first * stride + s.kernel[d] - 1 - padded;
    tap = padded % stride;
  }
  GRADLOOM_INLINE i64 begin() const { return larger(first, 0); }
  GRADLOOM_INLINE i64 end() const { return smaller(last + 1, outs); }
  GRADLOOM_INLINE void next() {
    if (++tap == stride) {
      tap = 0;
      ++last;
    }
    if (--left < 0) {
      left = stride - 1;
      ++first;
    }
  }
};

constexpr i64 kMostRows = 64;      // of a piece of the inputs, and of outputs over it
constexpr i64 kFewRows = 8;        // of a piece at least
constexpr i64 kPiece = 1536;       // elements, of which there are lines in L1
constexpr i64 kMostColumns = 512;  // of inputs
constexpr i64 kMostTaps = 1024;    // along a row
constexpr i64 kMostStride = 16;
template <class T>
constexpr i64 kPitch = kMostColumns + kMostStride* kLanes<T>;  // of lines

// Most outputs along dim `d` whose windows have one of n neighbouring inputs inside.
inline i64 most_over(const PoolShape& s, int d, i64 n) { return (n + s.kernel[d] - 2) / s.stride[d] + 1; }

// Whether inputs can gather from outputs: those whose windows they are in are few neighbours.
inline bool can_gather(const PoolShape& s) {
  return s.dilation[0] == 1 && s.dilation[1] == 1 && s.dilation[2] == 1 &&
         most_over(s, 0, 1) * most_over(s, 1, 1) <= kMostRows && s.kernel[2] <= kMostTaps &&
         s.stride[2] <= kMostStride;
}

// 0 in all lanes, which the compiler does not know: sums of products that begin with it are fused
// multiply-adds in one way only, the same for planes and for blocks.
template <class V, class T>
GRADLOOM_INLINE V zero_of(T zero = 0) {
  __asm__("" : "+x"(zero));
  return V{} + zero;
}

// Some inputs, and the outputs over them: what each is multiplied with, by its row and by its column.
template <class T>
struct GatheredPart {
  i64 z = 0;
  Taps rows{}, columns{};
  Taps deep{}, high{};   // outputs over any of the rows
  Taps over[kMostRows];  // over each row, counted from high.begin
  i64 first_column = 0;  // of by_column
  T usual_row = 0;
  T by_row[kMostRows], by_column[kMostColumns + kMostTaps + 2 * kLanes<T>];

  void set_columns(const PoolShape& s, PoolDivisor divisor, Taps inputs) {
    columns = inputs;
    const OutputsOver first(s, 2, columns.begin), last(s, 2, columns.end - 1);
    first_column = first.first;
    const Taps whole = whole_windows(s);
    const auto taps = [&](int d) { return Reach{0, {0, s.kernel[d]}, s.kernel[d]}; };
    const T usual = T(1) / T(cols_divisor(taps(2), divisor));
    usual_row = T(1) / T(rows_divisor(taps(0), taps(1), divisor));
    for (i64 ox = first.first; ox <= last.last + kLanes<T>; ++ox) {
      const bool inside = ox >= whole.begin && ox < whole.end;
      by_column[ox - first_column] =
          inside ? usual : T(1) / T(larger(1, cols_divisor(reach_of(s, 2, ox), divisor)));
    }
  }
  void set_rows(const PoolShape& s, PoolDivisor divisor, i64 depth_of_inputs, Taps inputs) {
    z = depth_of_inputs;
    rows = inputs;
    const OutputsOver depth(s, 0, z);
    deep = {depth.begin(), depth.end()};
    OutputsOver row(s, 1, rows.begin);
    high.begin = row.begin();
    for (i64 y = 0; y < taps_of(rows); ++y, row.next()) {
      over[y] = {row.begin() - high.begin, row.end() - high.begin};
      high.end = row.end();
    }
    const Taps whole_deep = whole_windows(s, 0), whole = whole_windows(s, 1);
    for (i64 oz = deep.begin, to = 0; oz < deep.end; ++oz) {
      for (i64 oy = high.begin; oy < high.end; ++oy, ++to) {
        const bool inside =
            oz >= whole_deep.begin && oz < whole_deep.end && oy >= whole.begin && oy < whole.end;
        by_row[to] = inside
                         ? usual_row
                         : T(1) / T(larger(1, rows_divisor(reach_of(s, 0, oz), reach_of(s, 1, oy), divisor)));
      }
    }
  }
};

// The outputs over inputs at, at + stride, .. of a row, padding counted: last - before .. last over the first
// of them, and so on. `known`: how many, 0 when they are counted while running.
template <class T, int known>
struct ColumnsOver {
  i64 last, before, after = 0, outs;
  const T* by_column;
  Vec<T> by[known > 0 ? known : 1];

  GRADLOOM_INLINE ColumnsOver(const PoolShape& s, const GatheredPart<T>& part, i64 at, i64 stride)
      : last(at / stride), outs(s.out[2]), by_column(part.by_column - part.first_column) {
    const i64 tap = at % stride;
    before = known > 0 ? known - 1 : tap < s.kernel[2] ? (s.kernel[2] - 1 - tap) / stride : -1;
    for (int k = 0; k < known; ++k) by[k] = load(by_column + last - k);
    if (known > 0) return;
    before = smaller(before, last + kLanes<T> - 1);  // few windows of a large kernel exist
    after = larger(0, last - outs + 1);
  }
  template <Edge edge>
  GRADLOOM_INLINE Vec<T> sum(const T* row) const {
    auto total = zero_of<Vec<T>, T>();
    LaneNumbers<T> inside;
    if constexpr (known > 0) {
      for (int k = known - 1; k >= 0; --k)
        total += spaced<T, 1, edge>(row, last - k, 1, outs, &inside) * by[k];
    } else {
      for (i64 k = before; k >= after; --k)
        total += spaced<T, 1, edge>(row, last - k, 1, outs, &inside) * load(by_column + last - k);
    }
    return total;
  }
};

// give(edge, row of outputs, line) for every row of outputs and its line. Outputs [lowest, end) of each are
// read, if they exist.
template <class T, class Give>
GRADLOOM_INLINE void for_given_rows(const PoolShape& s, const GatheredPart<T>& part, i64 plane, i64 lowest,
                                    i64 end, T* lines, i64 pitch, const Give& give) {
  const i64 rows = taps_of(part.high), width = s.out[2], all = s.planes * product(s.out);
  for (i64 oz = part.deep.begin; oz < part.deep.end; ++oz) {
    i64 row = ((plane * s.out[0] + oz) * s.out[1] + part.high.begin) * width;
    for (const i64 behind = row + rows * width; row < behind; row += width, lines += pitch) {
      if (row + lowest < 0 || row + end > all) {
        give(Edges<Edge::guarded>(), row, lines);
      } else if (lowest >= 0 && end <= width) {
        give(Edges<Edge::none>(), row, lines);
      } else {
        give(Edges<Edge::masked>(), row, lines);
      }
    }
  }
}

// What every row of outputs gives a register of inputs (stride 2: two, whose lanes take turns), `first` being
// the first of them. `lines`: the rows' lines there.
template <class T, int stride, int even, int odd>
__attribute__((noinline)) void give_strip(const AveragePoolGradArgs& args, const GatheredPart<T>& part,
                                          i64 plane, i64 first, T* lines, i64 pitch) {
  constexpr int n = int(kLanes<T>);
  const PoolShape& s = args.shape;
  const T* const dy = static_cast<const T*>(args.dy);
  const ColumnsOver<T, even> evens(s, part, first + s.pad_begin[2], stride);
  const ColumnsOver<T, odd> odds(s, part, first + s.pad_begin[2] + stride - 1, stride);
  for_given_rows<T>(
      s, part, plane, evens.last - evens.before, odds.last + n, lines,
      pitch, [&](auto edge, i64 row, T* line) __attribute__((always_inline)) {
        constexpr Edge e = decltype(edge)::value;
        const Vec<T> a = evens.template sum<e>(dy + row);
        if constexpr (stride == 1) {
          store(line, a);
        } else {
          const Vec<T> b = odds.template sum<e>(dy + row);
          store(line, mixed_low<n>(a, b));
          store(line + n, mixed_high<n>(a, b));
        }
      });
}
// The same for any stride: lane by lane.
template <class T>
__attribute__((noinline)) void give_strided(const AveragePoolGradArgs& args, const GatheredPart<T>& part,
                                            i64 plane, i64 first, T* lines, i64 pitch) {
  const PoolShape& s = args.shape;
  const i64 stride = s.stride[2];
  const T* const dy = static_cast<const T*>(args.dy);
  for (i64 phase = 0; phase < stride; ++phase) {
    const ColumnsOver<T, 0> over(s, part, first + s.pad_begin[2] + phase, stride);
    for_given_rows<T>(
        s, part, plane, over.last - over.before, over.last + kLanes<T>, lines,
        pitch, [&](auto edge, i64 row, T* line) __attribute__((always_inline)) {
          const Vec<T> v = over.template sum<decltype(edge)::value>(dy + row);
          for (int i = 0; i < int(kLanes<T>); ++i) line[phase + i * stride] = v[i];
        });
  }
}
template <class T>
GRADLOOM_INLINE void give_strips(const AveragePoolGradArgs& args, const GatheredPart<T>& part, i64 plane,
                                 T* lines, i64 pitch) {
  const PoolShape& s = args.shape;
  const i64 stride = s.stride[2], taps = s.kernel[2], tap = (part.columns.begin + s.pad_begin[2]) % stride;
  const auto strips = [&](const auto& give) {
    for (i64 x = 0; x < pitch; x += stride * kLanes<T>)
      give(args, part, plane, part.columns.begin + x, lines + x, pitch);
  };
  if (stride == 1 && taps == 2) return strips(give_strip<T, 1, 2, 2>);
  if (stride == 1 && taps == 3) return strips(give_strip<T, 1, 3, 3>);
  if (stride == 1) return strips(give_strip<T, 1, 0, 0>);
  if (stride == 2 && taps == 2 && tap == 0) return strips(give_strip<T, 2, 1, 1>);
  if (stride == 2 && taps == 3 && tap == 0) return strips(give_strip<T, 2, 2, 1>);
  if (stride == 2 && taps == 3) return strips(give_strip<T, 2, 1, 2>);
  if (stride == 2) return strips(give_strip<T, 2, 0, 0>);
  strips(give_strided<T>);
}

// dx = sum of lines [over.begin, over.end) of every depth, each times its divisor's reciprocal. `room`
// elements may be written. `known`: so many lines, of one depth.
template <class T, int known>
__attribute__((noinline)) void add_lines(const GatheredPart<T>& part, const T* lines, i64 pitch, Taps over,
                                         T* dx, i64 size, i64 room) {
  constexpr i64 n = kLanes<T>;
  const i64 count = taps_of(over), rows = taps_of(part.high), depth = taps_of(part.deep);
  const T* const factors = part.by_row + over.begin;
  const T* from = lines + over.begin * pitch;
  Vec<T> by[known > 0 ? known : 1];
  for (int k = 0; k < known; ++k) by[k] = Vec<T>{} + factors[k];
  const auto zero = zero_of<Vec<T>, T>();
  const auto total = [&](const T* line) __attribute__((always_inline)) {
    auto sum = zero;
    for (int k = 0; k < known; ++k) sum += load(line + k * pitch) * by[k];
    for (i64 d = 0; known == 0 && d < depth * rows; d += rows)
      for (i64 k = d; k < d + count; ++k) sum += load(line + k * pitch) * (Vec<T>{} + factors[k]);
    return sum;
  };
  const i64 whole = room >= ceil_div(size, n) * n ? size : size / n * n;
  i64 x = 0;
  for (; x < whole; x += n) store(dx + x, total(from + x));
  if (x < size) store_some(dx + x, total(from + x), size - x, 0);
}

// The hardware does not foresee strips of rows that are further apart: those are fetched first.
template <class T>
constexpr i64 kFarApart = 3 * kLine<T>;

// Lines first: what rows of outputs give. Then every row of inputs is the sum of some of them.
template <class T>
GRADLOOM_INLINE void gather_rows(const AveragePoolGradArgs& args, const GatheredPart<T>& part, i64 plane,
                                 T* lines) {
  const PoolShape& s = args.shape;
  const i64 size = taps_of(part.columns), run = s.stride[2] * kLanes<T>, pitch = ceil_div(size, run) * run;
  if (s.out[2] > kFarApart<T> && size == s.in[2]) {
    const T* const dy = static_cast<const T*>(args.dy) +
                        ((plane * s.out[0] + part.deep.begin) * s.out[1] + part.high.begin) * s.out[2];
    for (i64 i = 0; i < taps_of(part.high) * s.out[2]; i += kLine<T>) __builtin_prefetch(dy + i);
  }
  give_strips(args, part, plane, lines, pitch);
  T* dx = static_cast<T*>(args.dx) + ((plane * s.in[0] + part.z) * s.in[1] + part.rows.begin) * s.in[2] +
          part.columns.begin;
  // What is written behind a row is written again, where rows are whole.
  i64 room = size < s.in[2] ? 0 : taps_of(part.rows) * size;
  for (i64 y = 0; y < taps_of(part.rows); ++y, dx += s.in[2], room -= s.in[2]) {
    const Taps over = part.over[y];
    const i64 count = taps_of(part.deep) == 1 ? taps_of(over) : 0;
    with_known<1, 2, 3>(count, [&](auto known) {
      add_lines<T, decltype(known)::value>(part, lines, pitch, over, dx, size, room);
    });
  }
}

// What `count` inputs get that are a stride apart: the first of them from `columns` outputs (known: that
// many) of each row, from dy on, the next one from those that follow.
template <class T>
struct InputRun {
  const T *dy, *by_row, *by_column;
  i64 depth, apart_in_depth, rows, all_rows, apart_in_rows, columns, count, block, apart;
  T* dx;

  template <int L, int known>
  __attribute__((noinline)) void gather() const {
    const i64 most = known > 0 ? known : columns, b = block, width = apart_in_rows, n = rows;
    const T *from = dy, *by = by_column;
    const auto zero = zero_of<Pack<T, L>, T>();
    T* to = dx;
    for (i64 left = count; left > 0; --left, ++by, from += b, to += apart) {
      for (i64 j = 0; j < b; j += L) {
        Pack<T, L> total = zero;
        for (i64 d = 0; d < depth; ++d) {
          const T *row = from + d * apart_in_depth + j, *const times = by_row + d * all_rows;
          for (i64 k = 0; k < n; ++k, row += width) {
            Pack<T, L> given = zero;
            for (i64 i = 0; i < most; ++i) given += load_pack<T, L>(row + i * b) * by[i];
            total += given * times[k];
          }
        }
        store_pack<T, L>(to + j, total);
      }
    }
  }
};

// Channels in blocks, L neighbours at a time: of every row the inputs that are a stride apart.
template <class T, int L>
void gather_neighbours(const AveragePoolGradArgs& args, const GatheredPart<T>& part, i64 plane) {
  const PoolShape& s = args.shape;
  const i64 b = s.block, stride = s.stride[2], width = s.out[2] * b;
  const T* const dy = static_cast<const T*>(args.dy) +
                      ((plane * s.out[0] + part.deep.begin) * s.out[1] + part.high.begin) * width;
  T* dx = static_cast<T*>(args.dx) + ((plane * s.in[0] + part.z) * s.in[1] + part.rows.begin) * s.in[2] * b;
  const OutputsOver leftmost(s, 2, part.columns.begin);
  InputRun<T> run{};
  run.depth = taps_of(part.deep);
  run.apart_in_depth = s.out[1] * width;
  run.all_rows = taps_of(part.high);
  run.apart_in_rows = width;
  run.block = b;
  run.apart = stride * b;
  for (i64 y = 0; y < taps_of(part.rows); ++y, dx += s.in[2] * b) {
    const Taps over_row = part.over[y];
    run.rows = taps_of(over_row);
    run.by_row = part.by_row + over_row.begin;
    OutputsOver over = leftmost;
    const i64 end = smaller(part.columns.begin + stride, part.columns.end);
    for (i64 phase = part.columns.begin; phase < end; ++phase, over.next()) {
      i64 first = over.first, last = over.last;
      for (i64 ix = phase; ix < part.columns.end; ix += run.count * stride) {
        const i64 begin = larger(first, 0), behind = smaller(last + 1, s.out[2]);
        const bool whole = begin == first && behind == last + 1;
        run.count = whole ? smaller(s.out[2] - last, ceil_div(part.columns.end - ix, stride)) : 1;
        run.columns = larger(0, behind - begin);
        run.dy = dy + over_row.begin * width + begin * b;
        run.by_column = part.by_column + begin - part.first_column;
        run.dx = dx + ix * b;
        with_known<1, 2, 3>(run.columns,
                            [&](auto known) { run.template gather<L, decltype(known)::value>(); });
        first += run.count;
        last += run.count;
      }
    }
  }
}

// Inputs in pieces: some rows of one depth of one plane.
template <class T>
void gather_inputs(const AveragePoolGradArgs& args) {
  const PoolShape& s = args.shape;
  const i64 fit = kMostRows / most_over(s, 0, 1);  // rows of outputs
  const i64 most =
      smaller(s.block == 1 ? larger(kFewRows, kPiece / smaller(s.in[2], kMostColumns)) : kMostRows,
              larger(1, smaller(kMostRows, (fit - 1) * s.stride[1] - s.kernel[1] + 2)));
  const i64 of_depth = ceil_div(s.in[1], most), rows = ceil_div(s.in[1], of_depth);
  const i64 of_plane = s.in[0] * of_depth, pieces = s.planes * of_plane, elements = rows * s.in[2] * s.block;
  parallel_pieces(pieces, rows_together(elements, pieces), pieces * elements * 4, [&](i64 begin, i64 end) {
    GatheredPart<T> part;
    T lines[kMostRows * kPitch<T>];
    for (i64 x = 0; x < s.in[2]; x += kMostColumns) {
      part.set_columns(s, args.divisor, {x, smaller(x + kMostColumns, s.in[2])});
      for (i64 piece = begin; piece < end; ++piece) {
        const i64 plane = piece / of_plane, z = piece % of_plane / of_depth, y = piece % of_depth * rows;
        if (y >= s.in[1]) continue;
        if (piece == begin || of_plane > 1)
          part.set_rows(s, args.divisor, z, {y, smaller(y + rows, s.in[1])});
        if (s.block == 1) {
          gather_rows<T>(args, part, plane, lines);
        } else {
          with_registers<T>(
              s.block, [&](auto lanes) { gather_neighbours<T, decltype(lanes)::value>(args, part, plane); });
        }
      }
    }
  });
}

// Windows that are whole planes: one share for all of a plane.
constexpr i64 kSpread = 16384;  // elements of a part
template <class T>
void spread_shares(const AveragePoolGradArgs& args) {
  const i64 b = args.shape.block, in = product(args.shape.in), planes = args.shape.planes;
  const T divisor = T(args.divisor == PoolDivisor::one ? 1 : in);
  parallel_pieces(planes, larger(1, kSpread / (in * b)), planes * in * b, [&](i64 begin, i64 end) {
    const T* dy = static_cast<const T*>(args.dy) + begin * b;
    T* dx = static_cast<T*>(args.dx) + begin * in * b;
    for (i64 plane = begin; plane < end; ++plane, dy += b, dx += in * b) {
      if (b == 1) {
        const T share = *dy / divisor;
        for_registers<T>(in, [&](i64 i, const auto& zero) { put(dx + i, zero + share); });
        continue;
      }
      with_registers<T>(b, [&](auto lanes) {
        constexpr int L = decltype(lanes)::value;
        for (i64 j = 0; j < b; j += L) {
          const Pack<T, L> share = load_pack<T, L>(dy + j) / divisor;
          for (i64 i = 0; i < in; ++i) store_pack<T, L>(dx + i * b + j, share);
        }
      });
    }
  });
}

template <class T>
void average_grad(const AveragePoolGradArgs& args) {
  const PoolShape& s = args.shape;
  if (s.planes * s.block * product(s.in) == 0) return;
  if (is_plane(s)) return spread_shares<T>(args);
  if (can_gather(s)) return gather_inputs<T>(args);
  parallel_for(s.planes, s.planes * s.block * (product(s.in) + product(s.out) * product(s.kernel)),
               [&](i64 p) { spread_plane<T>(args, p); });
}

}  // namespace

void average_pool_grad(const AveragePoolGradArgs& args) {
  GRADLOOM_FLOAT_DISPATCH(args.dtype, average_grad, args);
}

}  // namespace gradloom::kernels::GRADLOOM_ISA
