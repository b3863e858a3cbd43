// Average pooling (sum / divisor, PoolDivisor) and its gradient the other way round: a register of inputs
// gathers from the outputs whose windows it lies in, in their order.
#include "kernels/cpu/pool_windows.h"

namespace gradloom::kernels::GRADLOOM_ISA {
namespace {

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

void average_pool(const AveragePoolArgs& args) { GRADLOOM_FLOAT_DISPATCH(args.dtype, average, args); }
void average_pool_grad(const AveragePoolGradArgs& args) {
  GRADLOOM_FLOAT_DISPATCH(args.dtype, average_grad, args);
}

}  // namespace gradloom::kernels::GRADLOOM_ISA
