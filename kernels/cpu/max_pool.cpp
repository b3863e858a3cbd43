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

// A plane of finite values; false: there are others, or there may be. What is read next is looked through for
// them, one load for all windows that it is in. `known`: the taps along the row.
template <class T, int stride, int known, bool positions>
__attribute__((noinline)) bool max_plane(const MaxPoolArgs& args, i64 plane) {
  using Where = LaneNumbers<T>;
  constexpr i64 n = kLanes<T>;
  const PoolShape& s = args.shape;
  const i64 area = product(s.out), in = product(s.in), taps = known > 0 ? known : s.kernel[2];
  const i64 apart = s.dilation[2], width = s.in[2];
  const T* const x = static_cast<const T*>(args.x) + plane * in;
  const Vec<T> lowest = Vec<T>{} - T(__builtin_inf());
  Line<T, stride> line{s, plane, whole_windows(s)};
  const Where numbers = lane_numbers<T>() * Position<T>(line.step());
  Vec<T> odd = {};
  i64 seen = 0;
  for (i64 oz = 0, l = 0; oz < s.out[0]; ++oz) {
    for (i64 oy = 0; oy < s.out[1]; ++oy, ++l) {
      line.enter(oz, oy);
      for (; seen < line.high + width && seen + n <= in; seen += n) {
        __builtin_prefetch(x + seen + kAhead);
        odd += load(x + seen) - load(x + seen);
      }
      for_runs<n>(s.out[2], [&](i64 first, i64 count) {
        const i64 start = first * line.step() - s.pad_begin[2];
        Vec<T> best = lowest;
        Where where = Where{} - Position<T>(1);
        with_edge(line.edge(first), [&](auto edge) {
          constexpr Edge e = decltype(edge)::value;
          for_tap_rows(s, line.deep, line.rows, [&](i64 row) {
            Where here = numbers + Position<T>(row + start);
            for (i64 kx = 0; kx < taps; ++kx, here += Position<T>(apart)) {
              Where valid;
              Vec<T> v = spaced<T, stride, e>(x + row, start + kx * apart, line.step(), width, &valid);
              if constexpr (e != Edge::none) v = valid ? v : lowest;
              if constexpr (positions) where = v > best ? here : where;
              best = v > best ? v : best;
            }
          });
        });
        const i64 at = l * s.out[2] + first, to = plane * area + at;
        store_some(static_cast<T*>(args.y) + to, best, count, area - at);
        if (positions && args.argmax != nullptr)
          store_some(args.argmax + to, __builtin_convertvector(where, Pack<i64, int(n)>), count, area - at);
        for (i64 i = 0; positions && i < count && args.indices != nullptr; ++i)
          args.indices[to + i] = index_of(args, plane, where[int(i)]);
      });
    }
  }
  T last = 0;
  for (; seen < in; ++seen) last += x[seen] - x[seen];
  return all_zero(odd) && last == 0;
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
