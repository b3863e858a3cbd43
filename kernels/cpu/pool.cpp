// Max and average pooling of planes of one to three spatial dims and their gradients. One plane is one part.
//   window of output o: positions o * stride - pad_begin + tap * dilation in every dim, those inside the plane
//   max: first largest element, NaN wins; average: sum / divisor (PoolDivisor)
#include "kernels/cpu/kernel.h"

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
  const i64 begin = offset < 0 ? ceil_div(-offset, stride) : 0;
  const i64 end = offset < w ? ceil_div(w - offset, stride) : 0;
  return {larger(begin, first), smaller(end, last)};
}

// One tap for a run of outputs: keeps the larger value and where it came from.
template <class T, int fixed_stride>
GRADLOOM_INLINE void max_tap(const T* x, i64 stride, int at, i64 n, T* best, int* where) {
  const i64 step = fixed_stride > 0 ? fixed_stride : stride;
#pragma GCC ivdep
  for (i64 i = 0; i < n; ++i) {
    const T v = x[i * step], b = best[i];
    const bool wins = (where[i] < 0) | (v > b) | ((v != v) & (b == b));
    best[i] = wins ? v : b;
    where[i] = wins ? at + int(i * step) : where[i];
  }
}

constexpr i64 kRun = 64;  // outputs of one row at a time

// The taps of one output's window along dim `d` that are inside, and what belongs to them.
struct Reach {
  i64 start;      // position of tap 0
  Taps taps;
  i64 padded;     // taps inside the dim and its pads
};
GRADLOOM_INLINE Reach reach_of(const PoolShape& s, int d, i64 out) {
  const i64 start = out * s.stride[d] - s.pad_begin[d];
  return {start, taps_inside(start, s.kernel[d], s.dilation[d], s.in[d]),
          taps_inside(start, s.kernel[d], s.dilation[d], s.in[d] + s.pad_end[d]).end};
}

template <class T>
struct MaxPlane {
  const PoolShape& s;
  const T* x;

  // Outputs [first, last) of row (deep, rows).
  GRADLOOM_INLINE void run(const Reach& deep, const Reach& rows, i64 first, i64 last, T* best, int* where) const {
    for (i64 i = 0; i < last - first; ++i) {
      best[i] = T(-__builtin_inf());
      where[i] = -1;
    }
    for (i64 kz = deep.taps.begin; kz < deep.taps.end; ++kz) {
      const i64 plane = (deep.start + kz * s.dilation[0]) * s.in[1];
      for (i64 ky = rows.taps.begin; ky < rows.taps.end; ++ky) {
        const i64 row = (plane + rows.start + ky * s.dilation[1]) * s.in[2];
        for (i64 kx = 0; kx < s.kernel[2]; ++kx) {
          const i64 offset = kx * s.dilation[2] - s.pad_begin[2];
          const Taps run = outputs_inside(offset, s.stride[2], s.in[2], first, last);
          const i64 at = row + run.begin * s.stride[2] + offset, i = run.begin - first, n = run.end - run.begin;
          if (s.stride[2] == 2) {
            max_tap<T, 2>(x + at, 2, int(at), n, best + i, where + i);
          } else if (s.stride[2] == 1) {
            max_tap<T, 1>(x + at, 1, int(at), n, best + i, where + i);
          } else {
            max_tap<T, 0>(x + at, s.stride[2], int(at), n, best + i, where + i);
          }
        }
      }
    }
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
  const MaxPlane<T> window{s, static_cast<const T*>(args.x) + plane * s.in[0] * s.in[1] * s.in[2]};
  T best[kRun];
  int where[kRun];
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

GRADLOOM_INLINE i64 product(const i64 (&dims)[3]) { return dims[0] * dims[1] * dims[2]; }

template <class T>
void max_planes(const MaxPoolArgs& args) {
  const PoolShape& s = args.shape;
  parallel_for(s.planes, s.planes * product(s.out) * product(s.kernel) * 2, [&](i64 p) { max_plane<T>(args, p); });
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

// For every window of a plane: start(output, what to divide by), row(offset of its tap 0, taps) for each row of taps, finish(output, ..).
template <class Start, class Row, class Finish>
GRADLOOM_INLINE void for_windows(const PoolShape& s, PoolDivisor divisor, const Start& start, const Row& row, const Finish& finish) {
  i64 output = 0;
  for (i64 oz = 0; oz < s.out[0]; ++oz) {
    const Reach deep = reach_of(s, 0, oz);
    for (i64 oy = 0; oy < s.out[1]; ++oy) {
      const Reach rows = reach_of(s, 1, oy);
      for (i64 ox = 0; ox < s.out[2]; ++ox, ++output) {
        const Reach cols = reach_of(s, 2, ox);
        const i64 inside = (deep.taps.end - deep.taps.begin) * (rows.taps.end - rows.taps.begin) * (cols.taps.end - cols.taps.begin);
        const i64 count = divisor == PoolDivisor::inside   ? inside
                          : divisor == PoolDivisor::padded ? deep.padded * rows.padded * cols.padded
                                                           : 1;
        start(output, count);
        for (i64 kz = deep.taps.begin; kz < deep.taps.end && inside > 0; ++kz) {
          const i64 plane = (deep.start + kz * s.dilation[0]) * s.in[1];
          for (i64 ky = rows.taps.begin; ky < rows.taps.end; ++ky) {
            row((plane + rows.start + ky * s.dilation[1]) * s.in[2] + cols.start, cols.taps);
          }
        }
        finish(output, count);
      }
    }
  }
}

template <class T>
void average_planes(const AveragePoolArgs& args) {
  const PoolShape& s = args.shape;
  parallel_for(s.planes, s.planes * product(s.out) * product(s.kernel), [&](i64 p) {
    const T* const x = static_cast<const T*>(args.x) + p * product(s.in);
    T* const y = static_cast<T*>(args.y) + p * product(s.out);
    double total = 0;
    for_windows(
        s, args.divisor, [&](i64, i64) { total = 0; },
        [&](i64 at, const Taps& taps) {
          for (i64 k = taps.begin; k < taps.end; ++k) total += double(x[at + k * s.dilation[2]]);
        },
        [&](i64 output, i64 count) { y[output] = count > 0 ? T(total / double(count)) : T(0); });
  });
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
        },
        [](i64, i64) {});
  });
}

}  // namespace

void max_pool(const MaxPoolArgs& args) { GRADLOOM_FLOAT_DISPATCH(args.dtype, max_planes, args); }
void max_pool_grad(const MaxPoolGradArgs& args) {
  GRADLOOM_FLOAT_DISPATCH(args.dtype, max_planes_grad, args);
}
void average_pool(const AveragePoolArgs& args) { GRADLOOM_FLOAT_DISPATCH(args.dtype, average_planes, args); }
void average_pool_grad(const AveragePoolGradArgs& args) {
  GRADLOOM_FLOAT_DISPATCH(args.dtype, average_planes_grad, args);
}

}  // namespace gradloom::kernels::GRADLOOM_ISA
