// A sparse matrix times one axis: y[o, j, :] = sum over e in [begin[j], begin[j + 1]) of weight[e] * x[o,
// index[e], :], in order of e. x: [outer, in, inner], y: [outer, out, inner]. Interpolation, padding and the
// gradients of both.
#include "kernels/cpu/kernel.h"

namespace gradloom::kernels::GRADLOOM_ISA {
namespace {

constexpr i64 kStrip = 1024;  // elements of a row that stay in L1 while its sources are added

// y = (y +) a * p + b * q over n elements.
template <bool add, class T>
GRADLOOM_INLINE void combine(T* y, const T* p, T a, const T* q, T b, i64 n) {
#pragma GCC ivdep
  for (i64 i = 0; i < n; ++i) y[i] = (add ? y[i] + a * p[i] : a * p[i]) + b * q[i];
}

template <class T>
GRADLOOM_INLINE void mix_row(const ResampleArgs& args, i64 j, const T* x, T* y, i64 n) {
  i64 e = args.begin[j];
  const i64 end = args.begin[j + 1];
  const auto row = [&](i64 at) { return x + i64(args.index[at]) * args.inner; };
  if (e == end) {
    for (i64 i = 0; i < n; ++i) y[i] = T(0);
    return;
  }
  bool first = true;
  for (; e < end; e += 2, first = false) {
    const bool two = e + 1 < end;
    const T *const p = row(e), *const q = two ? row(e + 1) : p, a = T(args.weight[e]),
                   b = two ? T(args.weight[e + 1]) : T(0);
    if (!two) {
#pragma GCC ivdep
      for (i64 i = 0; i < n; ++i) y[i] = first ? a * p[i] : y[i] + a * p[i];
    } else if (first) {
      combine<false>(y, p, a, q, b, n);
    } else {
      combine<true>(y, p, a, q, b, n);
    }
  }
}

// Rows of single elements.
template <class T>
void mix_elements(const ResampleArgs& args) {
  const T* const x = static_cast<const T*>(args.x);
  T* const y = static_cast<T*>(args.y);
  const i64 count = args.outer * args.out;
  parallel_pieces(count, 4096, count * 8, [&](i64 begin, i64 end) {
    for (i64 at = begin; at < end; ++at) {
      const i64 o = at / args.out, j = at - o * args.out;
      T sum = T(0);
      for (i64 e = args.begin[j]; e < args.begin[j + 1]; ++e)
        sum += T(args.weight[e]) * x[o * args.in + args.index[e]];
      y[at] = sum;
    }
  });
}

template <class T>
void mix(const ResampleArgs& args) {
  if (args.inner == 1) return mix_elements<T>(args);
  const T* const x = static_cast<const T*>(args.x);
  T* const y = static_cast<T*>(args.y);
  const i64 strips = ceil_div(args.inner, kStrip), rows = args.outer * args.out;
  const i64 grain = larger(1, 8192 / smaller(larger(args.inner, 1), kStrip)), groups = ceil_div(rows, grain);
  parallel_for(groups * strips, rows * args.inner * 4, [&](i64 part) {
    const i64 column = part % strips * kStrip, columns = smaller(kStrip, args.inner - column);
    for (i64 r = part / strips * grain; r < smaller(rows, (part / strips + 1) * grain); ++r) {
      mix_row(args, r % args.out, x + r / args.out * args.in * args.inner + column,
              y + r * args.inner + column, columns);
    }
  });
}

}  // namespace

void resample(const ResampleArgs& args) { GRADLOOM_FLOAT_DISPATCH(args.dtype, mix, args); }

}  // namespace gradloom::kernels::GRADLOOM_ISA
