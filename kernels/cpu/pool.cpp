// Max and average pooling of planes of one to three spatial dims and their gradients. One plane is one part.
//   window of output o: positions o * stride - pad_begin + tap * dilation in every dim, those inside the plane
//   max: first largest element, NaN wins; average: sum / divisor (PoolDivisor)
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

// Outputs ox in [begin, end) for which tap column `offset` (kx * dilation - pad) falls inside [0, w).
GRADLOOM_INLINE Taps outputs_inside(i64 offset, i64 stride, i64 w, i64 first, i64 last) {
  if (first * stride + offset >= 0 && (last - 1) * stride + offset < w) return {first, last};  // no division
  const i64 begin = offset < 0 ? ceil_div(-offset, stride) : 0;
  const i64 end = offset < w ? ceil_div(w - offset, stride) : 0;
  return {larger(begin, first), smaller(end, last)};
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

// One tap for a run of outputs: keeps the larger value and where it came from; the first NaN stays.
template <class T, int fixed_stride>
GRADLOOM_INLINE void max_tap(const T* x, i64 stride, i64 at, i64 n, T* best, Position<T>* where) {
  const i64 step = fixed_stride > 0 ? fixed_stride : stride;
  const Position<T> first = Position<T>(at), distance = Position<T>(step);
#pragma GCC ivdep
  for (i64 i = 0; i < n; ++i) {
    const T v = x[i * step], b = best[i];
    const bool wins = !(v <= b) & (b == b);
    const Position<T> here = first + Position<T>(i) * distance;
    best[i] = wins ? v : b;
    where[i] = wins ? here : where[i];
  }
}

// One tap of a sum.
template <class T, int fixed_stride>
GRADLOOM_INLINE void sum_tap(const T* x, i64 stride, i64 n, double* total) {
  const i64 step = fixed_stride > 0 ? fixed_stride : stride;
#pragma GCC ivdep
  for (i64 i = 0; i < n; ++i) total[i] += double(x[i * step]);
}

constexpr i64 kRun = 64;  // outputs of one row at a time
template <class T>
constexpr i64 kRunRoom = kRun + kLanes<T>;  // and room for whole registers

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

// Calls tap(position in the plane, first output, outputs) for every tap of the windows of outputs [first,
// last) in a row: all outputs of the run that have this tap inside together. A run that reaches the last
// output goes on to whole registers (what lies beyond is not used) where that much can be read: `readable`
// elements from the start of the plane.
template <class T, class Tap>
GRADLOOM_INLINE void for_taps(const PoolShape& s, const Reach& deep, const Reach& rows, i64 first, i64 last,
                              i64 readable, const Tap& tap) {
  for (i64 kz = deep.taps.begin; kz < deep.taps.end; ++kz) {
    const i64 plane = (deep.start + kz * s.dilation[0]) * s.in[1];
    for (i64 ky = rows.taps.begin; ky < rows.taps.end; ++ky) {
      const i64 row = (plane + rows.start + ky * s.dilation[1]) * s.in[2];
      for (i64 kx = 0; kx < s.kernel[2]; ++kx) {
        const i64 offset = kx * s.dilation[2] - s.pad_begin[2];
        const Taps run = outputs_inside(offset, s.stride[2], s.in[2], first, last);
        if (run.begin >= run.end) continue;
        const i64 at = row + run.begin * s.stride[2] + offset, n = run.end - run.begin;
        const i64 whole = ceil_div(n, kLanes<T>) * kLanes<T>;
        const bool more = run.end == last && at + (whole - 1) * s.stride[2] < readable;
        tap(at, run.begin - first, more ? whole : n);
      }
    }
  }
}

template <class T>
struct MaxPlane {
  const PoolShape& s;
  const T* x;
  i64 readable;

  // Outputs [first, last) of row (deep, rows).
  GRADLOOM_INLINE void run(const Reach& deep, const Reach& rows, i64 first, i64 last, T* best,
                           Position<T>* where) const {
    const bool empty = deep.taps.begin >= deep.taps.end || rows.taps.begin >= rows.taps.end;
    const i64 row = ((deep.start + deep.taps.begin * s.dilation[0]) * s.in[1] + rows.start +
                     rows.taps.begin * s.dilation[1]) *
                    s.in[2];
    // The first element of a window wins where nothing is larger.
    const Taps whole = outputs_inside(-s.pad_begin[2], s.stride[2], s.in[2], first, last);
    for (i64 i = 0; i < last - first; ++i) {
      best[i] = T(-__builtin_inf());
      where[i] = Position<T>(row + (first + i) * s.stride[2] - s.pad_begin[2]);
    }
    for (i64 out = first; out < last; ++out) {
      if (!empty && out == whole.begin) out = larger(out, whole.end);
      if (out >= last) break;
      const Reach cols = reach_of(s, 2, out);
      const bool none = empty || cols.taps.begin >= cols.taps.end;
      where[out - first] = none ? -1 : Position<T>(row + cols.start + cols.taps.begin * s.dilation[2]);
    }
    for_taps<T>(s, deep, rows, first, last, readable, [&](i64 at, i64 i, i64 n) {
      if (s.stride[2] == 2) {
        max_tap<T, 2>(x + at, 2, at, n, best + i, where + i);
      } else if (s.stride[2] == 1) {
        max_tap<T, 1>(x + at, 1, at, n, best + i, where + i);
      } else {
        max_tap<T, 0>(x + at, s.stride[2], at, n, best + i, where + i);
      }
    });
  }
};

// ONNX's number of a position in plane `plane`.
GRADLOOM_INLINE i64 index_of(const MaxPoolArgs& args, i64 plane, i64 position) {
  const i64 *const in = args.shape.in, base = plane * in[0] * in[1] * in[2];
  if (!args.column_major || position < 0) return base + position;
  const i64 x = position % in[2], y = position / in[2] % in[1], z = position / in[2] / in[1];
  return base + z + in[0] * (y + in[1] * x);
}

template <class T>
void max_plane(const MaxPoolArgs& args, i64 plane) {
  const PoolShape& s = args.shape;
  const i64 area = s.out[0] * s.out[1] * s.out[2];
  const MaxPlane<T> window{s, static_cast<const T*>(args.x) + plane * product(s.in),
                           (s.planes - plane) * product(s.in)};
  T best[kRunRoom<T>];
  Position<T> where[kRunRoom<T>];
  for (i64 line = 0; line < s.out[0] * s.out[1]; ++line) {
    const Reach deep = reach_of(s, 0, line / s.out[1]), rows = reach_of(s, 1, line % s.out[1]);
    for (i64 first = 0; first < s.out[2]; first += kRun) {
      const i64 last = smaller(s.out[2], first + kRun), to = plane * area + line * s.out[2] + first;
      window.run(deep, rows, first, last, best, where);
      for (i64 i = 0; i < last - first; ++i) static_cast<T*>(args.y)[to + i] = best[i];
      for (i64 i = 0; i < last - first && args.argmax != nullptr; ++i) args.argmax[to + i] = where[i];
      for (i64 i = 0; i < last - first && args.indices != nullptr; ++i) {
        args.indices[to + i] = index_of(args, plane, where[i]);
      }
    }
  }
}

template <class T>
void max_planes(const MaxPoolArgs& args) {
  const PoolShape& s = args.shape;
  parallel_for(s.planes, s.planes * product(s.out) * product(s.kernel) * 2,
               [&](i64 p) { max_plane<T>(args, p); });
}

template <class T>
void max_planes_grad(const MaxPoolGradArgs& args) {
  const i64 in = args.h * args.w, out = args.oh * args.ow;
  parallel_for(args.planes, args.planes * (in + out * 2), [&](i64 p) {
    const T* const dy = static_cast<const T*>(args.dy) + p * out;
    const i64* const argmax = args.argmax + p * out;
    T* const dx = static_cast<T*>(args.dx) + p * in;
    for (i64 i = 0; i < in; ++i) dx[i] = T(0);
    for (i64 i = 0; i < out; ++i) {
      if (argmax[i] >= 0 && argmax[i] < in) dx[argmax[i]] += dy[i];
    }
  });
}

GRADLOOM_INLINE i64 taps_of(const Taps& taps) { return taps.end - taps.begin; }

// What a window's sum is divided by; 0: the window has nothing inside.
GRADLOOM_INLINE i64 divisor_of(const Reach& deep, const Reach& rows, const Reach& cols, PoolDivisor divisor) {
  if (divisor == PoolDivisor::inside) return taps_of(deep.taps) * taps_of(rows.taps) * taps_of(cols.taps);
  return divisor == PoolDivisor::padded ? deep.padded * rows.padded * cols.padded : 1;
}

template <class T>
void average_plane(const AveragePoolArgs& args, i64 plane) {
  const PoolShape& s = args.shape;
  const T* const x = static_cast<const T*>(args.x) + plane * product(s.in);
  T* y = static_cast<T*>(args.y) + plane * product(s.out);
  double total[kRunRoom<T>];
  for (i64 line = 0; line < s.out[0] * s.out[1]; ++line) {
    const Reach deep = reach_of(s, 0, line / s.out[1]), rows = reach_of(s, 1, line % s.out[1]);
    for (i64 first = 0; first < s.out[2]; first += kRun) {
      const i64 last = smaller(s.out[2], first + kRun);
      for (i64 i = 0; i < last - first; ++i) total[i] = 0;
      for_taps<T>(s, deep, rows, first, last, (s.planes - plane) * product(s.in), [&](i64 at, i64 i, i64 n) {
        if (s.stride[2] == 2) {
          sum_tap<T, 2>(x + at, 2, n, total + i);
        } else if (s.stride[2] == 1) {
          sum_tap<T, 1>(x + at, 1, n, total + i);
        } else {
          sum_tap<T, 0>(x + at, s.stride[2], n, total + i);
        }
      });
      for (i64 i = 0; i < last - first; ++i) {
        const i64 count = divisor_of(deep, rows, reach_of(s, 2, first + i), args.divisor);
        *y++ = count > 0 ? T(total[i] / double(count)) : T(0);
      }
    }
  }
}

template <class T>
void average_planes(const AveragePoolArgs& args) {
  const PoolShape& s = args.shape;
  parallel_for(s.planes, s.planes * product(s.out) * product(s.kernel),
               [&](i64 p) { average_plane<T>(args, p); });
}

// Calls window(output, what its sum is divided by), then row(offset of its tap 0, taps) for each row of taps
// of every window of a plane.
template <class Window, class Row>
GRADLOOM_INLINE void for_windows(const PoolShape& s, PoolDivisor divisor, const Window& window,
                                 const Row& row) {
  i64 output = 0;
  for (i64 oz = 0; oz < s.out[0]; ++oz) {
    const Reach deep = reach_of(s, 0, oz);
    for (i64 oy = 0; oy < s.out[1]; ++oy) {
      const Reach rows = reach_of(s, 1, oy);
      for (i64 ox = 0; ox < s.out[2]; ++ox, ++output) {
        const Reach cols = reach_of(s, 2, ox);
        window(output, divisor_of(deep, rows, cols, divisor));
        for (i64 kz = deep.taps.begin; kz < deep.taps.end && cols.taps.begin < cols.taps.end; ++kz) {
          const i64 plane = (deep.start + kz * s.dilation[0]) * s.in[1];
          for (i64 ky = rows.taps.begin; ky < rows.taps.end; ++ky) {
            row((plane + rows.start + ky * s.dilation[1]) * s.in[2] + cols.start, cols.taps);
          }
        }
      }
    }
  }
}

template <class T>
void average_planes_grad(const AveragePoolGradArgs& args) {
  const PoolShape& s = args.shape;
  const i64 in = product(s.in);
  parallel_for(s.planes, s.planes * (in + product(s.out) * product(s.kernel)), [&](i64 p) {
    const T* const dy = static_cast<const T*>(args.dy) + p * product(s.out);
    T* const dx = static_cast<T*>(args.dx) + p * in;
    for (i64 i = 0; i < in; ++i) dx[i] = T(0);
    T share = 0;
    for_windows(
        s, args.divisor, [&](i64 output, i64 count) { share = count > 0 ? dy[output] / T(count) : T(0); },
        [&](i64 at, const Taps& taps) {
          for (i64 k = taps.begin; k < taps.end; ++k) dx[at + k * s.dilation[2]] += share;
        });
  });
}

// ---- channels in blocks: [planes, spatial, block] -------------------------------------------------------------

// tap(position) for every tap inside the window, in order.
template <class Tap>
GRADLOOM_INLINE void for_positions(const PoolShape& s, const Reach& deep, const Reach& rows,
                                   const Reach& cols, const Tap& tap) {
  for (i64 kz = deep.taps.begin; kz < deep.taps.end; ++kz) {
    const i64 plane = (deep.start + kz * s.dilation[0]) * s.in[1];
    for (i64 ky = rows.taps.begin; ky < rows.taps.end; ++ky) {
      const i64 row = (plane + rows.start + ky * s.dilation[1]) * s.in[2] + cols.start;
      for (i64 kx = cols.taps.begin; kx < cols.taps.end; ++kx) tap(row + kx * s.dilation[2]);
    }
  }
}

// output(offset of L neighbours of x's plane, offset in y, the window's reaches) for every output of a part,
// one line of one plane.
template <int L, class Output>
GRADLOOM_INLINE void for_line(const PoolShape& s, i64 part, const Output& output) {
  const i64 lines = s.out[0] * s.out[1], plane = part / lines, line = part % lines;
  const Reach deep = reach_of(s, 0, line / s.out[1]), rows = reach_of(s, 1, line % s.out[1]);
  const i64 from = plane * product(s.in) * s.block, to = (plane * lines + line) * s.out[2] * s.block;
  for (i64 ox = 0; ox < s.out[2]; ++ox) {
    const Reach cols = reach_of(s, 2, ox);
    for (i64 j = 0; j < s.block; j += L) output(from + j, to + ox * s.block + j, deep, rows, cols);
  }
}

// The largest of a window's neighbours and where they are; empty windows: -inf at -1. `careful`: infinities
// and NaN count. Otherwise what is returned is 0 in lanes that had none, NaN in others.
template <class T, int L, bool careful>
GRADLOOM_INLINE Pack<T, L> max_window(const PoolShape& s, const T* x, const Reach& deep, const Reach& rows,
                                      const Reach& cols, Pack<T, L>& best, Pack<Position<T>, L>& where) {
  using Positions = Pack<Position<T>, L>;
  Pack<T, L> odd = {};
  best = Pack<T, L>{} - T(__builtin_inf());
  where = Positions{} - Position<T>(1);
  for_positions(s, deep, rows, cols, [&](i64 at) {
    const auto v = load_pack<T, L>(x + at * s.block);
    const Positions here = Positions{} + Position<T>(at);
    if constexpr (careful) {
      const Positions wins = (Positions(~(v <= best)) & Positions(best == best)) | (where < 0);
      best = wins ? v : best;
      where = wins ? here : where;
    } else {
      where = v > best ? here : where;
      best = v > best ? v : best;
      odd += v - v;
    }
  });
  return odd;
}

template <class T, int L>
void max_blocks(const MaxPoolArgs& args) {
  const PoolShape& s = args.shape;
  const i64 lines = s.out[0] * s.out[1];
  const auto run = [&](i64 part, auto careful) {
    Pack<T, L> odd = {};
    for_line<L>(s, part, [&](i64 from, i64 to, const Reach& deep, const Reach& rows, const Reach& cols) {
      Pack<T, L> best;
      Pack<Position<T>, L> where;
      odd += max_window<T, L, decltype(careful)::value != 0>(s, static_cast<const T*>(args.x) + from, deep,
                                                             rows, cols, best, where);
      store_pack<T, L>(static_cast<T*>(args.y) + to, best);
      for (int j = 0; j < L && args.argmax != nullptr; ++j) args.argmax[to + j] = where[j];
      const i64 plane = part / lines * s.block + to % s.block;
      for (int j = 0; j < L && args.indices != nullptr; ++j)
        args.indices[to + j] = index_of(args, plane + j, where[j]);
    });
    bool finite = true;
    for (int j = 0; j < L; ++j) finite = finite && odd[j] == T(0);
    return finite;
  };
  parallel_for(s.planes * lines, s.planes * s.block * product(s.out) * product(s.kernel), [&](i64 part) {
    if (!run(part, Lanes<0>())) run(part, Lanes<1>());
  });
}

template <class T>
void max_blocks_grad(const MaxPoolGradArgs& args) {
  const i64 in = args.h * args.w, out = args.oh * args.ow, b = args.block;
  parallel_for(args.planes, args.planes * b * (in + out * 2), [&](i64 p) {
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
  });
}

template <class T, int L>
void average_blocks(const AveragePoolArgs& args) {
  const PoolShape& s = args.shape;
  parallel_for(
      s.planes * s.out[0] * s.out[1], s.planes * s.block * product(s.out) * product(s.kernel), [&](i64 part) {
        for_line<L>(s, part, [&](i64 from, i64 to, const Reach& deep, const Reach& rows, const Reach& cols) {
          const T* const x = static_cast<const T*>(args.x) + from;
          Pack<double, L> total = {};
          for_positions(s, deep, rows, cols, [&](i64 at) {
            total += __builtin_convertvector((load_pack<T, L>(x + at * s.block)), Pack<double, L>);
          });
          const double count = double(divisor_of(deep, rows, cols, args.divisor));
          if (count > 0) total /= count;  // else the window has nothing inside
          store_pack<T, L>(static_cast<T*>(args.y) + to, __builtin_convertvector(total, Pack<T, L>));
        });
      });
}

template <class T, int L>
void average_blocks_grad(const AveragePoolGradArgs& args) {
  const PoolShape& s = args.shape;
  const i64 in = product(s.in) * s.block, lines = s.out[0] * s.out[1];
  parallel_for(
      s.planes, s.planes * s.block * (product(s.in) + product(s.out) * product(s.kernel)), [&](i64 plane) {
        T* const all = static_cast<T*>(args.dx);
        for (i64 i = 0; i < in; ++i) all[plane * in + i] = T(0);
        for (i64 line = 0; line < lines; ++line) {
          for_line<L>(s, plane * lines + line,
                      [&](i64 from, i64 to, const Reach& deep, const Reach& rows, const Reach& cols) {
                        const i64 count = divisor_of(deep, rows, cols, args.divisor);
                        if (count == 0) return;
                        const auto share = load_pack<T, L>(static_cast<const T*>(args.dy) + to) / T(count);
                        for_positions(s, deep, rows, cols, [&](i64 at) {
                          T* const dx = all + from + at * s.block;
                          store_pack<T, L>(dx, load_pack<T, L>(dx) + share);
                        });
                      });
        }
      });
}

// ---- one or the other -----------------------------------------------------------------------------------------

template <class T>
void max(const MaxPoolArgs& args) {
  if (args.shape.block == 1) return max_planes<T>(args);
  with_lanes(args.shape.block, [&](auto lanes) { max_blocks<T, decltype(lanes)::value>(args); });
}
template <class T>
void max_grad(const MaxPoolGradArgs& args) {
  if (args.block == 1) return max_planes_grad<T>(args);
  max_blocks_grad<T>(args);
}
template <class T>
void average(const AveragePoolArgs& args) {
  if (args.shape.block == 1) return average_planes<T>(args);
  with_lanes(args.shape.block, [&](auto lanes) { average_blocks<T, decltype(lanes)::value>(args); });
}
template <class T>
void average_grad(const AveragePoolGradArgs& args) {
  if (args.shape.block == 1) return average_planes_grad<T>(args);
  with_lanes(args.shape.block, [&](auto lanes) { average_blocks_grad<T, decltype(lanes)::value>(args); });
}

}  // namespace

void max_pool(const MaxPoolArgs& args) { GRADLOOM_FLOAT_DISPATCH(args.dtype, max, args); }
void max_pool_grad(const MaxPoolGradArgs& args) { GRADLOOM_FLOAT_DISPATCH(args.dtype, max_grad, args); }
void average_pool(const AveragePoolArgs& args) { GRADLOOM_FLOAT_DISPATCH(args.dtype, average, args); }
void average_pool_grad(const AveragePoolGradArgs& args) {
  GRADLOOM_FLOAT_DISPATCH(args.dtype, average_grad, args);
}

}  // namespace gradloom::kernels::GRADLOOM_ISA
