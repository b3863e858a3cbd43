// A sparse matrix times one axis, or two of them times two neighbouring axes: y[o, j, :] = sum over e in
// [begin[j], begin[j + 1]) of weight[e] * x[o, index[e], :], in order of e. x: [outer, in, inner], y: [outer,
// out, inner]. Interpolation, padding and the gradients of both.
// Both axes of an image in one pass over memory: where rows become more, those of x are mixed along the row
// first and kept in a ring in L1 while rows of y need them; where rows become fewer, the rows that one of y
// needs are mixed first.
#include "kernels/cpu/kernel.h"

namespace gradloom::kernels::GRADLOOM_ISA {
namespace {

constexpr i64 kStrip = 1024;  // elements of a row that stay in L1 while its sources are added

// y = (y +) sum of w[k] * rows[k] over n elements.
template <int count, bool add, class T>
GRADLOOM_INLINE void combine(T* y, const T* const (&rows)[4], const T (&w)[4], i64 n) {
  const T *const p = rows[0], *const q = rows[1], *const r = rows[2], *const s = rows[3];
  const T a = w[0], b = w[1], c = w[2], d = w[3];
#pragma GCC ivdep
  for (i64 i = 0; i < n; ++i) {
    T sum = add ? y[i] + a * p[i] : a * p[i];
    if constexpr (count > 1) sum += b * q[i];
    if constexpr (count > 2) sum += c * r[i];
    if constexpr (count > 3) sum += d * s[i];
    y[i] = sum;
  }
}
template <bool add, class T>
GRADLOOM_INLINE void combine(i64 count, T* y, const T* const (&rows)[4], const T (&w)[4], i64 n) {
  if (count == 1) return combine<1, add>(y, rows, w, n);
  if (count == 2) return combine<2, add>(y, rows, w, n);
  if (count == 3) return combine<3, add>(y, rows, w, n);
  combine<4, add>(y, rows, w, n);
}

// Row j of the table, n elements of each source: row(index) points to those of one.
template <class T, class Row>
GRADLOOM_INLINE void mix_row(const ResampleTable& t, i64 j, T* y, i64 n, const Row& row) {
  const i64 first = t.begin[j], end = t.begin[j + 1];
  for (i64 i = 0; i < n && first == end; ++i) y[i] = T(0);
  for (i64 e = first; e < end; e += 4) {
    const i64 count = smaller(4, end - e);
    const T* rows[4] = {};
    T w[4] = {};
    for (i64 k = 0; k < count; ++k) {
      rows[k] = row(t.index[e + k]);
      w[k] = T(t.weight[e + k]);
    }
    if (e == first) {
      combine<false>(count, y, rows, w, n);
    } else {
      combine<true>(count, y, rows, w, n);
    }
  }
}

// ---- single elements of a row ---------------------------------------------------------------------------------

// Outputs [begin, end) of a row into y, `fixed` sources each (0: any number).
template <int fixed, class T>
GRADLOOM_INLINE void mix_elements(const ResampleTable& t, const T* x, T* y, i64 begin, i64 end) {
  if constexpr (fixed > 0) {
    const auto* const index = t.index + t.begin[begin];
    const double* const weight = t.weight + t.begin[begin];
#pragma GCC ivdep
    for (i64 j = 0; j < end - begin; ++j) {
      T sum = T(weight[j * fixed]) * x[index[j * fixed]];
      for (int k = 1; k < fixed; ++k) sum += T(weight[j * fixed + k]) * x[index[j * fixed + k]];
      y[j] = sum;
    }
  } else {
    for (i64 j = begin; j < end; ++j) {
      T sum = T(0);
      for (i64 e = t.begin[j]; e < t.begin[j + 1]; ++e) sum += T(t.weight[e]) * x[t.index[e]];
      y[j - begin] = sum;
    }
  }
}

// Outputs [begin, end) have `count` sources each: all but those at the borders, as interpolation has it.
struct Middle {
  i64 begin, end, count;
};
inline Middle middle_of(const ResampleTable& t) {
  Middle m{t.out / 2, t.out / 2, 0};
  if (t.out == 0) return m;
  const auto count = [&](i64 j) { return i64(t.begin[j + 1] - t.begin[j]); };
  m.count = count(m.begin);
  while (m.begin > 0 && count(m.begin - 1) == m.count) --m.begin;
  while (m.end < t.out && count(m.end) == m.count) ++m.end;
  return m;
}

// body(Fixed<how many sources the outputs of the middle have>), 0 for what has no code of its own.
template <int n>
struct Fixed {
  static constexpr int value = n;
};
template <class Body>
GRADLOOM_INLINE void with_count(i64 count, const Body& body) {
  if (count == 1) return body(Fixed<1>());
  if (count == 2) return body(Fixed<2>());
  if (count == 4) return body(Fixed<4>());
  if (count == 8) return body(Fixed<8>());
  body(Fixed<0>());
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

// Lanes of `a` and of `b` behind it.
template <class T, class Numbers>
GRADLOOM_INLINE Vec<T> picked(const Vec<T>& a, const Vec<T>& b, const Numbers& lanes) {
#if defined(__clang__)
  Vec<T> result;
  for (i64 i = 0; i < kLanes<T>; ++i)
    result[i] = lanes[i] < kLanes<T> ? a[lanes[i]] : b[lanes[i] - kLanes<T>];
  return result;
#else
  return __builtin_shuffle(a, b, lanes);
#endif
}
template <class T, class Numbers>
GRADLOOM_INLINE Vec<T> picked(const Vec<T>& a, const Numbers& lanes) {
#if defined(__clang__)
  return picked<T>(a, a, lanes);
#else
  return __builtin_shuffle(a, lanes);
#endif
}

// Outputs [begin, end) of a row, `fixed` sources each, a register at a time: all sources of its lanes are
// among as many neighbours, or those with the same number among twice as many, which loads bring and
// permutations sort out. The last register overlaps the one before. Where sizes are a whole factor apart the
// wide ones are alike: source k is one further than source k - 1, lanes and weights are the first register's.
template <int fixed, class T>
struct Windows {
  using Number = typename LaneNumber<T>::Type;
  static constexpr i64 lanes = kLanes<T>, most = kColumns / lanes;

  i64 registers = 0, columns = 0;  // 0 registers: sources lie too far apart
  bool wide = false, alike = false;
  i64 from[most][fixed];
  Vec<Number> lane[most][fixed];
  Vec<T> weight[most][fixed];

  // `low`, `high`: what may be read of a row.
  Windows(const ResampleTable& t, i64 begin, i64 end, i64 low, i64 high) : columns(end - begin) {
    if (columns < lanes) return;
    const i64 count = ceil_div(columns, lanes);
    const bool permutes = kVecBytes > 16;  // lanes of two registers
    if (place<false>(t, begin, count, low, high) || (permutes && place<true>(t, begin, count, low, high)))
      registers = count;
    wide = wide && registers > 0;
    alike = wide;
    for (i64 b = 0; b < registers && alike; ++b) {
      for (int k = 0; k < fixed; ++k) {
        alike = alike && from[b][k] == from[b][0] + k;
        for (i64 i = 0; i < lanes; ++i)
          alike = alike && lane[b][k][i] == lane[0][0][i] && weight[b][k][i] == weight[0][k][i];
      }
    }
  }
  GRADLOOM_INLINE i64 at(i64 b) const { return smaller(b * lanes, columns - lanes); }

  template <bool two>
  bool place(const ResampleTable& t, i64 begin, i64 count, i64 low, i64 high) {
    constexpr i64 width = two ? 2 * lanes : lanes;
    wide = two;
    for (i64 b = 0; b < count; ++b) {
      const i64 first = t.begin[begin + at(b)];
      for (int k = 0; k < fixed; ++k) {
        i64 lowest = high, highest = low;
        for (i64 e = first + k; e < first + lanes * fixed; e += two ? fixed : 1) {
          lowest = smaller(lowest, t.index[e]);
          highest = larger(highest, t.index[e]);
        }
        from[b][k] = two || k == 0 ? smaller(lowest, high - width) : from[b][0];
        if (from[b][k] < low || highest - from[b][k] >= width) return false;
        for (i64 i = 0; i < lanes; ++i) {
          lane[b][k][i] = Number(t.index[first + i * fixed + k] - from[b][k]);
          weight[b][k][i] = T(t.weight[first + i * fixed + k]);
        }
      }
    }
    return true;
  }

  GRADLOOM_INLINE void mix(const T* x, T* y) const {
    for (i64 b = 0; b < registers && !wide; ++b) {
      const Vec<T> near = load(x + from[b][0]);
      Vec<T> sum = weight[b][0] * picked<T>(near, lane[b][0]);
      for (int k = 1; k < fixed; ++k) sum += weight[b][k] * picked<T>(near, lane[b][k]);
      store(y + at(b), sum);
    }
    if (wide) alike ? mix_wide<true>(x, y) : mix_wide<false>(x, y);
  }

 private:
  template <bool same>
  __attribute__((noinline)) void mix_wide(const T* x, T* y) const {
    const Vec<Number> every = lane[0][0];
    Vec<T> w[fixed];
    for (int k = 0; k < fixed; ++k) w[k] = weight[0][k];
    for (i64 b = 0; b < registers; ++b) {
      const auto part = [&](int k) {
        const T* const source = x + (same ? from[b][0] + k : from[b][k]);
        return (same ? w[k] : weight[b][k]) *
               picked<T>(load(source), load(source + lanes), same ? every : lane[b][k]);
      };
      Vec<T> sum = part(0);
      for (int k = 1; k < fixed; ++k) sum += part(k);
      store(y + at(b), sum);
    }
  }
};
template <class T>
struct Windows<0, T> {
  i64 registers = 0;
  Windows(const ResampleTable&, i64, i64, i64, i64) {}
  GRADLOOM_INLINE void mix(const T*, T*) const {}
};

// Outputs [begin, end) of rows, at most kColumns where elements are single.
template <int fixed, class T>
class RowMixer {
 public:
  // `low`, `high`: sources that may be read.
  RowMixer(const ResampleTable& t, const Middle& m, i64 inner, i64 begin, i64 end, i64 low, i64 high)
      : t_(t),
        inner_(inner),
        begin_(begin),
        end_(end),
        left_(fixed > 0 ? smaller(larger(m.begin, begin), end) : end),
        right_(fixed > 0 ? larger(smaller(m.end, end), left_) : end),
        windows_(t, left_, inner == 1 ? right_ : left_, low, high) {}

  // x: element 0 of a row, y: output `begin`.
  GRADLOOM_INLINE void run(const T* x, T* y) const {
    if (inner_ > 1) {
      for (i64 j = begin_; j < end_; ++j, y += inner_)
        mix_row(t_, j, y, inner_, [&](i64 at) { return x + at * inner_; });
      return;
    }
    mix_elements<0>(t_, x, y, begin_, left_);
    windows_.mix(x, y + left_ - begin_);
    if (windows_.registers == 0 && left_ < right_)
      mix_elements<fixed>(t_, x, y + left_ - begin_, left_, right_);
    mix_elements<0>(t_, x, y + right_ - begin_, right_, end_);
  }

 private:
  const ResampleTable& t_;
  i64 inner_, begin_, end_, left_, right_;
  Windows<fixed, T> windows_;
};

// ---- one axis -------------------------------------------------------------------------------------------------

constexpr i64 kFewRows = 4;  // fewer are not worth preparing windows for

// Rows of single elements.
template <class T>
void mix_rows(const ResampleTable& t, i64 rows, const T* x, T* y) {
  const Middle m = middle_of(t);
  const i64 strips = ceil_div(t.out, kColumns),
            grain = larger(1, 32768 / larger(smaller(t.out, kColumns), 1));
  with_count(m.count, [&](auto fixed) {
    parallel_for(ceil_div(rows, grain) * strips, rows * t.out * 8, [&](i64 part) {
      const i64 first = part / strips * grain, begin = part % strips * kColumns;
      const i64 readable = rows >= kFewRows ? t.in : 0;
      const RowMixer<decltype(fixed)::value, T> mixer(t, m, 1, begin, smaller(t.out, begin + kColumns), 0,
                                                      readable);
      for (i64 r = first; r < smaller(rows, first + grain); ++r)
        mixer.run(x + r * t.in, y + r * t.out + begin);
    });
  });
}

template <class T>
void mix(const ResampleArgs& args) {
  const T* const x = static_cast<const T*>(args.x);
  T* const y = static_cast<T*>(args.y);
  const ResampleTable t{args.in, args.out, args.begin, args.index, args.weight};
  if (args.inner == 1) return mix_rows<T>(t, args.outer, x, y);
  const i64 strips = ceil_div(args.inner, kStrip), rows = args.outer * args.out;
  const i64 grain = larger(1, 8192 / smaller(larger(args.inner, 1), kStrip)), groups = ceil_div(rows, grain);
  parallel_for(groups * strips, rows * args.inner * 4, [&](i64 part) {
    const i64 column = part % strips * kStrip, columns = smaller(kStrip, args.inner - column);
    for (i64 r = part / strips * grain; r < smaller(rows, (part / strips + 1) * grain); ++r) {
      const T* const from = x + r / args.out * args.in * args.inner + column;
      mix_row(t, r % args.out, y + r * args.inner + column, columns,
              [&](i64 at) { return from + at * args.inner; });
    }
  });
}

// ---- two axes -------------------------------------------------------------------------------------------------

constexpr i64 kMostMixed = 2048;  // elements of a row of x that are mixed before they are mixed along the row
constexpr i64 kRowElements = 1024;  // of all rows that are mixed before: stores settle before they are read
constexpr i64 kAhead = 2048;        // elements between what is read and what is fetched

// Begins to fetch n elements.
template <class T>
GRADLOOM_INLINE void fetch_row(const T* p, i64 n) {
  for (i64 i = 0; i < n; i += 64 / i64(sizeof(T))) fetch(p + i);
}

// The rows of x that were mixed along the row last; more than one call of `combine` takes.
template <class T>
struct Ring {
  static constexpr int rows = 8;
  alignas(64) T row[rows][kColumns];
  i64 held[rows], used[rows], time = 0;

  Ring() { forget(); }
  void forget() {
    for (int k = 0; k < rows; ++k) held[k] = used[k] = -1;
  }
  // The place of row `at`; make(place) where it is not there, instead of the one used longest ago.
  template <class Make>
  GRADLOOM_INLINE const T* find(i64 at, const Make& make) {
    int oldest = 0;
    ++time;
    for (int k = 0; k < rows; ++k) {
      if (held[k] == at) {
        used[k] = time;
        return row[k];
      }
      if (used[k] < used[oldest]) oldest = k;
    }
    make(row[oldest]);
    held[oldest] = at;
    used[oldest] = time;
    return row[oldest];
  }
};

// One plane's outputs of a strip of columns, whose rows are `elements` long.
template <class T, class Mixer>
GRADLOOM_INLINE void mix_columns_first(const ResamplePlanesArgs& args, const Mixer& mixer, Ring<T>& ring,
                                       const T* x, T* y, i64 elements) {
  const i64 in = args.cols.in * args.inner, out = args.cols.out * args.inner;
  ring.forget();
  for (i64 j = 0; j < args.rows.out; ++j) {
    mix_row(args.rows, j, y + j * out, elements,
            [&](i64 at) { return ring.find(at, [&](T* place) { mixer.run(x + at * in, place); }); });
  }
}

template <class T, class Mixer>
GRADLOOM_INLINE void mix_rows_first(const ResamplePlanesArgs& args, const Mixer& mixer, const T* x, T* y,
                                    i64 low, i64 high) {
  const i64 in = args.cols.in * args.inner, out = args.cols.out * args.inner, first = low * args.inner;
  const i64 n = (high - low) * args.inner, pitch = n + 2 * kLanes<T>;
  const i64 together = larger(1, kRowElements / pitch);
  alignas(64) T room[kMostMixed + 2 * kLanes<T>];
  i64 step = 0, fetched = 0;
  const auto fetch_rows = [&] {  // evenly: memory works while rows are mixed along the row too
    for (const i64 until = ++step * args.rows.in / (2 * args.rows.out); fetched < until; ++fetched)
      fetch_row(x + fetched * in + first + kAhead, n);
  };
  for (i64 begin = 0; begin < args.rows.out; begin += together) {
    const i64 end = smaller(args.rows.out, begin + together);
    for (i64 j = begin; j < end; ++j) {
      fetch_rows();
      mix_row(args.rows, j, room + (j - begin) * pitch, n, [&](i64 at) { return x + at * in + first; });
    }
    for (i64 j = begin; j < end; ++j) {
      fetch_rows();
      mixer.run(room + (j - begin) * pitch - first, y + j * out);
    }
  }
}

// Columns [low, high) are the sources of outputs [begin, end).
inline void sources_of(const ResampleTable& t, i64 begin, i64 end, i64* low, i64* high) {
  *low = t.in;
  *high = 0;
  for (i64 e = t.begin[begin]; e < t.begin[end]; ++e) {
    *low = smaller(*low, t.index[e]);
    *high = larger(*high, t.index[e] + 1);
  }
  *low = smaller(*low, *high);
}

template <class T>
void mix_planes(const ResamplePlanesArgs& args) {
  const ResampleTable& cols = args.cols;
  const i64 in = args.rows.in * cols.in * args.inner, out = args.rows.out * cols.out * args.inner;
  if (out == 0) return;
  const Middle m = middle_of(cols);
  const i64 columns = larger(1, kColumns / args.inner), strips = ceil_div(cols.out, columns);
  const i64 grain = larger(1, 131072 / out);
  with_count(m.count, [&](auto fixed) {
    parallel_for(ceil_div(args.outer, grain) * strips, args.outer * out * 8, [&](i64 part) {
      const i64 first = part / strips * grain, begin = part % strips * columns,
                end = smaller(cols.out, begin + columns);
      i64 low, high;
      sources_of(cols, begin, end, &low, &high);
      const bool few = args.rows.out < args.rows.in && (high - low) * args.inner <= kMostMixed;
      const RowMixer<decltype(fixed)::value, T> mixer(cols, m, args.inner, begin, end, few ? low : 0,
                                                      few ? high + 2 * kLanes<T> : cols.in);
      Ring<T> ring;
      for (i64 p = first; p < smaller(args.outer, first + grain); ++p) {
        const T* const x = static_cast<const T*>(args.x) + p * in;
        T* const y = static_cast<T*>(args.y) + p * out + begin * args.inner;
        if (few) {
          mix_rows_first(args, mixer, x, y, low, high);
        } else {
          mix_columns_first(args, mixer, ring, x, y, (end - begin) * args.inner);
        }
      }
    });
  });
}

}  // namespace

void resample(const ResampleArgs& args) { GRADLOOM_FLOAT_DISPATCH(args.dtype, mix, args); }
void resample_planes(const ResamplePlanesArgs& args) {
  GRADLOOM_FLOAT_DISPATCH(args.dtype, mix_planes, args);
}

}  // namespace gradloom::kernels::GRADLOOM_ISA
