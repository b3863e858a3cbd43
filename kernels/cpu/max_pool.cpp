// Max pooling (first largest element, NaN wins) and its gradient, which goes where the maximum came from.
#include "kernels/cpu/pool_windows.h"

namespace gradloom::kernels::GRADLOOM_ISA {
namespace {

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

// Maxima of a register of neighbouring outputs and their positions in the plane.
template <class T, bool positions>
struct Maxima {
  Vec<T> best = Vec<T>{} - T(__builtin_inf());
  LaneNumbers<T> where = LaneNumbers<T>{} - Position<T>(1);

  GRADLOOM_INLINE void take(const Vec<T>& v, const LaneNumbers<T>& at) {
    if constexpr (positions) where = v > best ? at : where;
    best = v > best ? v : best;
  }
};

// Reads ahead of the windows: what is not finite is found with one load for all windows that it is in.
template <class T>
struct Scan {
  const T* x;
  i64 n, seen = 0;
  Vec<T> odd = {};
  T last = 0;

  GRADLOOM_INLINE void until(i64 end) {
    for (; seen < end && seen + kLanes<T> <= n; seen += kLanes<T>) {
      __builtin_prefetch(x + seen + kAhead);
      odd += load(x + seen) - load(x + seen);
    }
  }
  GRADLOOM_INLINE bool all_finite() {
    until(n);
    for (; seen < n; ++seen) last += x[seen] - x[seen];
    return all_zero(odd) && last == 0;
  }
};

// The windows of one plane, `known` taps along the row (0: any number).
template <class T, int stride, int known, bool positions>
class Plane {
 public:
  Plane(const MaxPoolArgs& args, i64 plane)
      : args_(args),
        s_(args.shape),
        plane_(plane),
        x_(static_cast<const T*>(args.x) + plane * product(s_.in)),
        line_{s_, plane, whole_windows(s_)},
        numbers_(lane_numbers<T>() * Position<T>(line_.step())) {}

  bool by_windows() {
    Scan<T> scan{x_, product(s_.in)};
    for (i64 oz = 0, l = 0; oz < s_.out[0]; ++oz) {
      for (i64 oy = 0; oy < s_.out[1]; ++oy, ++l) {
        line_.enter(oz, oy);
        scan.until(line_.high + s_.in[2]);
        for_runs<n>(s_.out[2], [&](i64 first, i64 count) {
          Maxima<T, positions> m;
          with_edge(line_.edge(first), [&](auto edge) {
            for_tap_rows(s_, line_.deep, line_.rows,
                         [&](i64 row) { along<decltype(edge)::value>(row, first, m); });
          });
          put_out(l * s_.out[2] + first, count, m);
        });
      }
    }
    return scan.all_finite();
  }

  // The same of one image: the maxima along its rows first, which all windows that reach a row share. Among
  // equal ones the first of a row and then the first row wins, as in a window.
  bool by_rows() {
    const i64 pitch = row_pitch(s_), held = window_rows(s_), width = s_.in[2];
    alignas(64) T best[kHeld];
    alignas(64) Position<T> where[positions ? kHeld : 1];
    Scan<T> scan{x_, product(s_.in)};
    i64 made = 0;
    for (i64 oy = 0; oy < s_.out[1]; ++oy) {
      const Reach rows = reach_of(s_, 1, oy);
      for (const i64 end = smaller(rows.start + held, s_.in[1]); made < end; ++made) {
        scan.until((made + 1) * width);
        line_.enter_row(made);
        const i64 to = made % held * pitch;
        for (i64 first = 0; first < pitch; first += n) {  // apart: what overlaps cannot be read at once
          Maxima<T, positions> m;
          with_edge(line_.edge(first),
                    [&](auto edge) { along<decltype(edge)::value>(made * width, first, m); });
          store(best + to + first, m.best);
          if constexpr (positions) store(where + to + first, m.where);
        }
      }
      const i64 taps = taps_of(rows.taps);
      i64 from[kMostTaps];
      for (i64 k = 0; k < taps; ++k)
        from[k] = (rows.start + (rows.taps.begin + k) * s_.dilation[1]) % held * pitch;
      for (i64 first = 0; first < pitch; first += n) {
        Maxima<T, positions> m;
        for (i64 k = 0; k < taps; ++k)
          m.take(load(best + from[k] + first), positions ? load(where + from[k] + first) : LaneNumbers<T>{});
        put_out(oy * s_.out[2] + first, smaller(n, s_.out[2] - first), m);
      }
    }
    return scan.all_finite();
  }

  // Whether windows have rows in common, and what they hold of them is little.
  static bool shares_rows(const PoolShape& s) {
    return s.in[0] == 1 && s.out[0] == 1 && s.kernel[0] == 1 && s.pad_begin[0] == 0 && s.kernel[1] > 1 &&
           s.kernel[2] > 1 && s.kernel[1] <= kMostTaps && s.stride[1] < window_rows(s) &&
           window_rows(s) * row_pitch(s) <= kHeld;
  }

 private:
  static constexpr i64 n = kLanes<T>, kHeld = 4096, kMostTaps = 64;

  static i64 row_pitch(const PoolShape& s) { return ceil_div(s.out[2], n) * n; }
  static i64 window_rows(const PoolShape& s) { return (s.kernel[1] - 1) * s.dilation[1] + 1; }

  // The taps of outputs from `first` on in the row at offset `row`.
  template <Edge e>
  GRADLOOM_INLINE void along(i64 row, i64 first, Maxima<T, positions>& m) const {
    const i64 start = first * line_.step() - s_.pad_begin[2], apart = s_.dilation[2];
    const i64 taps = known > 0 ? known : s_.kernel[2];
    LaneNumbers<T> here = numbers_ + Position<T>(row + start);
    for (i64 kx = 0; kx < taps; ++kx, here += Position<T>(apart)) {
      LaneNumbers<T> valid;
      Vec<T> v = spaced<T, stride, e>(x_ + row, start + kx * apart, line_.step(), s_.in[2], &valid);
      if constexpr (e != Edge::none) v = valid ? v : Vec<T>{} - T(__builtin_inf());
      m.take(v, here);
    }
  }

  GRADLOOM_INLINE void put_out(i64 at, i64 count, const Maxima<T, positions>& m) const {
    const i64 area = product(s_.out), to = plane_ * area + at;
    store_some(static_cast<T*>(args_.y) + to, m.best, count, area - at);
    if constexpr (positions) {
      if (args_.argmax != nullptr)
        store_some(args_.argmax + to, __builtin_convertvector(m.where, Pack<i64, int(n)>), count, area - at);
      for (i64 i = 0; i < count && args_.indices != nullptr; ++i)
        args_.indices[to + i] = index_of(args_, plane_, m.where[int(i)]);
    }
  }

  const MaxPoolArgs args_;  // copies, which stores leave alone
  const PoolShape s_;
  const i64 plane_;
  const T* const x_;
  Line<T, stride> line_;
  const LaneNumbers<T> numbers_;
};

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

// False: there are values that are not finite, or there may be.
template <class T, int stride, int known, bool positions>
__attribute__((noinline)) bool max_plane(const MaxPoolArgs& args, i64 p) {
  using Of = Plane<T, stride, known, positions>;
  Of plane(args, p);
  return Of::shares_rows(args.shape) ? plane.by_rows() : plane.by_windows();
}

template <class T>
void max_planes(const MaxPoolArgs& args) {
  const PoolShape& s = args.shape;
  const i64 lines = s.out[0] * s.out[1];
  const bool positions = args.argmax != nullptr || args.indices != nullptr;
  with_known<1, 2>(s.stride[2], [&](auto stride) {
    with_known<2, 3>(s.kernel[2], [&](auto taps) {
      constexpr int step = decltype(stride)::value, known = decltype(taps)::value;
      const auto plane = positions ? max_plane<T, step, known, true> : max_plane<T, step, known, false>;
      parallel_for(s.planes, s.planes * product(s.out) * product(s.kernel) * 2, [&](i64 p) {
        if (plane(args, p)) return;
        for (i64 line = 0; line < lines; ++line) max_line_of_any<T, 1>(args, p * lines + line);
      });
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
        __builtin_prefetch(x + at * s.block + u * apart + kAhead);  // to L1, which holds what is ahead
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
  for_block_lines(s, [&](i64 part, const Reach& deep, const Reach& rows, const Taps& whole) {
    Pack<T, L> odd = {};
    for_outputs<T, L>(s, whole, [&](auto count, i64 ox, i64 j, const Taps& cols) {
      max_outputs<T, L, decltype(count)::value>(args, part, deep, rows, cols, ox, j, odd);
    });
    if (!all_zero(odd)) max_line_of_any<T, L>(args, part);
  });
}

// ---- gradient of max ------------------------------------------------------------------------------------------

constexpr i64 kReached = 512;  // elements that a run of outputs reaches, about

// n elements of dy are added to where their argmax is; those outside of the `size` positions of dx are not. A
// function of its own so that its loop stays in registers.
template <class T, int known>
__attribute__((noinline)) void scatter(const i64* argmax, const T* dy, i64 n, i64 size, i64 block, T* dx) {
  const i64 b = known > 0 ? known : block;
  for (const T* const end = dy + n; dy < end; dy += b, argmax += b) {
#pragma GCC unroll 16
    for (i64 j = 0; j < b; ++j) {
      const i64 at = argmax[j];
      if (std::uint64_t(at) < std::uint64_t(size)) dx[at * b + j] += dy[j];
    }
  }
}

// Every output adds to where its argmax is. What a run of outputs may add to is cleared just before, so that
// it is in L1; nothing is fetched ahead, which slows the stores down.
template <class T, int known>
void scatter_plane(const MaxPoolGradArgs& args, i64 p) {
  const i64 b = args.block, size = args.h * args.w, in = size * b, out = args.oh * args.ow * b;
  const T* const dy = static_cast<const T*>(args.dy) + p * out;
  const i64* const argmax = args.argmax + p * out;
  T* const dx = static_cast<T*>(args.dx) + p * in;
  i64 cleared = 0;
  const auto clear = [&](i64 end) {
    for (; cleared < end && cleared + kLanes<T> <= in; cleared += kLanes<T>) store(dx + cleared, Vec<T>{});
    for (; cleared < end; ++cleared) dx[cleared] = T(0);
  };
  const i64 run = larger(1, kReached * out / larger(1, in) / b) * b;
  for (i64 first = 0; first < out; first += run) {
    const i64 n = smaller(run, out - first);
    i64 highest = -1;
    for (i64 i = 0; i < n; ++i) highest = larger(highest, argmax[first + i]);
    clear((smaller(highest, size - 1) + 1) * b);
    scatter<T, known>(argmax + first, dy + first, n, size, b, dx);
  }
  clear(in);
}

template <class T>
void max_planes_grad(const MaxPoolGradArgs& args) {
  const auto planes = [&](auto block) {
    parallel_for(args.planes, args.planes * args.block * (args.h * args.w + args.oh * args.ow * 2),
                 [&](i64 p) { scatter_plane<T, decltype(block)::value>(args, p); });
  };
  if (args.block == 1) return planes(Lanes<1>());
  with_known<8, 16>(args.block, planes);
}

template <class T>
void max(const MaxPoolArgs& args) {
  if (args.shape.block == 1) return max_planes<T>(args);
  with_registers<T>(args.shape.block, [&](auto lanes) { max_blocks<T, decltype(lanes)::value>(args); });
}

}  // namespace

void max_pool(const MaxPoolArgs& args) { GRADLOOM_FLOAT_DISPATCH(args.dtype, max, args); }
void max_pool_grad(const MaxPoolGradArgs& args) {
  GRADLOOM_FLOAT_DISPATCH(args.dtype, max_planes_grad, args);
}

}  // namespace gradloom::kernels::GRADLOOM_ISA
