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

// Outputs [begin, end) of one row of single elements, `fixed` sources each.
template <int fixed, class T>
GRADLOOM_INLINE void mix_fixed(const ResampleArgs& args, const T* x, T* y, i64 begin, i64 end) {
  const auto* const index = args.index + args.begin[begin];
  const double* const weight = args.weight + args.begin[begin];
#pragma GCC ivdep
  for (i64 j = 0; j < end - begin; ++j) {
    T sum = T(0);
    for (int k = 0; k < fixed; ++k) sum += T(weight[j * fixed + k]) * x[index[j * fixed + k]];
    y[begin + j] = sum;
  }
}

template <class T>
GRADLOOM_INLINE void mix_any(const ResampleArgs& args, const T* x, T* y, i64 begin, i64 end) {
  for (i64 j = begin; j < end; ++j) {
    T sum = T(0);
    for (i64 e = args.begin[j]; e < args.begin[j + 1]; ++e) sum += T(args.weight[e]) * x[args.index[e]];
    y[j] = sum;
  }
}

// Outputs [begin, end) have `count` sources each: all but those at the borders, as interpolation has it.
struct Middle {
  i64 begin, end, count;
};
inline Middle middle_of(const ResampleArgs& args) {
  Middle m{args.out / 2, args.out / 2, 0};
  if (args.out == 0) return m;
  const auto count = [&](i64 j) { return i64(args.begin[j + 1] - args.begin[j]); };
  m.count = count(m.begin);
  while (m.begin > 0 && count(m.begin - 1) == m.count) --m.begin;
  while (m.end < args.out && count(m.end) == m.count) ++m.end;
  return m;
}

constexpr i64 kColumns = 128;  // outputs of a row that are made for many rows before the next ones

template <class T>
struct LaneNumber;
template <>
struct LaneNumber<float> {
  using Type = int;
};
template <>
struct LaneNumber<double> {
  using Type = long long;
};

template <class T, class Numbers>
GRADLOOM_INLINE Vec<T> picked(const Vec<T>& from, const Numbers& lanes) {
#if defined(__clang__)
  Vec<T> result;
  for (i64 i = 0; i < kLanes<T>; ++i) result[i] = from[lanes[i]];
  return result;
#else
  return __builtin_shuffle(from, lanes);
#endif
}

// Outputs [begin, begin + count) of a row, `fixed` sources each, a register at a time: all sources of its
// lanes are among as many neighbours, which one load brings and permutations sort out.
template <int fixed, class T>
struct Windows {
  using Number = typename LaneNumber<T>::Type;
  static constexpr i64 lanes = kLanes<T>, most = kColumns / lanes;

  bool fits = true;  // else nothing is known
  i64 from[most];
  Vec<Number> lane[most][fixed];
  Vec<T> weight[most][fixed];

  Windows(const ResampleArgs& args, i64 begin, i64 registers) {
    for (i64 b = 0; b < registers && fits; ++b) {
      const i64 first = args.begin[begin + b * lanes];
      i64 low = args.in, high = 0;
      for (i64 e = first; e < first + lanes * fixed; ++e) {
        low = smaller(low, args.index[e]);
        high = larger(high, args.index[e]);
      }
      from[b] = smaller(low, args.in - lanes);
      fits = from[b] >= 0 && high - from[b] < lanes;
      for (i64 i = 0; i < lanes; ++i) {
        for (int k = 0; k < fixed; ++k) {
          lane[b][k][i] = Number(args.index[first + i * fixed + k] - from[b]);
          weight[b][k][i] = T(args.weight[first + i * fixed + k]);
        }
      }
    }
  }

  void mix(const T* x, T* y, i64 registers) const {
    for (i64 b = 0; b < registers; ++b) {
      const Vec<T> near = load(x + from[b]);
      Vec<T> sum = weight[b][0] * picked<T>(near, lane[b][0]);
      for (int k = 1; k < fixed; ++k) sum += weight[b][k] * picked<T>(near, lane[b][k]);
      store(y + b * lanes, sum);
    }
  }
};

// Outputs [begin, end), `fixed` sources each, of `rows` rows.
template <int fixed, class T>
void mix_middle(const ResampleArgs& args, const T* x, T* y, i64 begin, i64 end, i64 rows) {
  for (i64 at = begin; at < end; at += kColumns) {
    const i64 columns = smaller(kColumns, end - at);
    i64 done = 0;
    if (rows >= 4) {  // else preparing costs more than it brings
      const i64 registers = columns / kLanes<T>;
      const Windows<fixed, T> windows(args, at, registers);
      if (windows.fits) {
        done = registers * kLanes<T>;
        for (i64 r = 0; r < rows; ++r) windows.mix(x + r * args.in, y + r * args.out + at, registers);
      }
    }
    for (i64 r = 0; r < rows; ++r)
      mix_fixed<fixed>(args, x + r * args.in, y + r * args.out, at + done, at + columns);
  }
}

// Rows of single elements.
template <class T>
void mix_elements(const ResampleArgs& args) {
  const Middle m = middle_of(args);
  const i64 grain = larger(1, 16384 / larger(args.out, 1));
  parallel_pieces(args.outer, grain, args.outer * args.out * 8, [&](i64 begin, i64 end) {
    const T* const x = static_cast<const T*>(args.x) + begin * args.in;
    T* const y = static_cast<T*>(args.y) + begin * args.out;
    const i64 rows = end - begin;
    if (m.count == 1) {
      mix_middle<1>(args, x, y, m.begin, m.end, rows);
    } else if (m.count == 2) {
      mix_middle<2>(args, x, y, m.begin, m.end, rows);
    } else if (m.count == 4) {
      mix_middle<4>(args, x, y, m.begin, m.end, rows);
    }
    const bool some = m.count == 1 || m.count == 2 || m.count == 4;
    const i64 left = some ? m.begin : args.out, right = some ? m.end : args.out;
    for (i64 r = 0; r < rows; ++r) {
      mix_any(args, x + r * args.in, y + r * args.out, 0, left);
      mix_any(args, x + r * args.in, y + r * args.out, right, args.out);
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
