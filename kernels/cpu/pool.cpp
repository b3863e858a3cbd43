// Max and average pooling of planes [h, w] -> [oh, ow] and their gradients. One plane is one part.
//   window of (oy, ox): rows oy * stride_h - pad_top + ky * dilation_h, columns likewise, those inside the
//   plane max: first largest element, NaN wins; average: sum / (kh * kw) with count_include_pad, else /
//   elements inside
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

template <class T>
void max_plane(const MaxPoolArgs& args, const T* x, T* y, i64* argmax) {
  T best[kRun];
  int where[kRun];
  for (i64 oy = 0; oy < args.oh; ++oy) {
    const i64 top = oy * args.stride_h - args.pad_top;
    const Taps rows = taps_inside(top, args.kh, args.dilation_h, args.h);
    for (i64 first = 0; first < args.ow; first += kRun) {
      const i64 last = smaller(args.ow, first + kRun);
      for (i64 i = 0; i < last - first; ++i) {
        best[i] = T(-__builtin_inf());
        where[i] = -1;
      }
      for (i64 ky = rows.begin; ky < rows.end; ++ky) {
        const i64 row = (top + ky * args.dilation_h) * args.w;
        for (i64 kx = 0; kx < args.kw; ++kx) {
          const i64 offset = kx * args.dilation_w - args.pad_left;
          const Taps run = outputs_inside(offset, args.stride_w, args.w, first, last);
          const i64 at = row + run.begin * args.stride_w + offset, i = run.begin - first,
                    n = run.end - run.begin;
          if (args.stride_w == 2) {
            max_tap<T, 2>(x + at, 2, int(at), n, best + i, where + i);
          } else if (args.stride_w == 1) {
            max_tap<T, 1>(x + at, 1, int(at), n, best + i, where + i);
          } else {
            max_tap<T, 0>(x + at, args.stride_w, int(at), n, best + i, where + i);
          }
        }
      }
      for (i64 i = 0; i < last - first; ++i) y[oy * args.ow + first + i] = best[i];
      if (argmax == nullptr) continue;
      for (i64 i = 0; i < last - first; ++i) argmax[oy * args.ow + first + i] = where[i];
    }
  }
}

template <class T>
void max_planes(const MaxPoolArgs& args) {
  const i64 in = args.h * args.w, out = args.oh * args.ow;
  parallel_for(args.planes, args.planes * out * args.kh * args.kw * 2, [&](i64 p) {
    max_plane(args, static_cast<const T*>(args.x) + p * in, static_cast<T*>(args.y) + p * out,
              args.argmax != nullptr ? args.argmax + p * out : nullptr);
  });
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

template <class T>
void average_planes(const AveragePoolArgs& args) {
  const i64 in = args.h * args.w, out = args.oh * args.ow;
  parallel_for(args.planes, args.planes * out * args.kh * args.kw, [&](i64 p) {
    const T* const x = static_cast<const T*>(args.x) + p * in;
    T* y = static_cast<T*>(args.y) + p * out;
    for (i64 oy = 0; oy < args.oh; ++oy) {
      const i64 top = oy * args.stride_h - args.pad_top;
      const Taps rows = taps_inside(top, args.kh, 1, args.h);
      for (i64 ox = 0; ox < args.ow; ++ox) {
        const i64 left = ox * args.stride_w - args.pad_left;
        const Taps cols = taps_inside(left, args.kw, 1, args.w);
        double total = 0;
        for (i64 ky = rows.begin; ky < rows.end; ++ky) {
          const T* const row = x + (top + ky) * args.w + left;
          for (i64 kx = cols.begin; kx < cols.end; ++kx) total += double(row[kx]);
        }
        const i64 inside = (rows.end - rows.begin) * (cols.end - cols.begin);
        const i64 count = args.count_include_pad ? args.kh * args.kw : inside;
        *y++ = count > 0 ? T(total / double(count)) : T(0);
      }
    }
  });
}

template <class T>
void average_planes_grad(const AveragePoolGradArgs& args) {
  const i64 in = args.h * args.w, out = args.oh * args.ow;
  parallel_for(args.planes, args.planes * (in + out * args.kh * args.kw), [&](i64 p) {
    const T* dy = static_cast<const T*>(args.dy) + p * out;
    T* const dx = static_cast<T*>(args.dx) + p * in;
    for (i64 i = 0; i < in; ++i) dx[i] = T(0);
    for (i64 oy = 0; oy < args.oh; ++oy) {
      const i64 top = oy * args.stride_h - args.pad_top;
      const Taps rows = taps_inside(top, args.kh, 1, args.h);
      for (i64 ox = 0; ox < args.ow; ++ox, ++dy) {
        const i64 left = ox * args.stride_w - args.pad_left;
        const Taps cols = taps_inside(left, args.kw, 1, args.w);
        const i64 inside = (rows.end - rows.begin) * (cols.end - cols.begin);
        const i64 count = args.count_include_pad ? args.kh * args.kw : inside;
        if (count <= 0) continue;
        const T share = *dy / T(count);
        for (i64 ky = rows.begin; ky < rows.end; ++ky) {
          T* const row = dx + (top + ky) * args.w + left;
          for (i64 kx = cols.begin; kx < cols.end; ++kx) row[kx] += share;
        }
      }
    }
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
