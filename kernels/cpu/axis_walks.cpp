// Kernels that walk along an axis or over matrices: triangles, running sums, the index of the largest
// element, the k largest. x: [outer, n, inner]. Columns are independent, so the work is cut between them.
#include "kernels/cpu/kernel.h"

namespace gradloom::kernels::GRADLOOM_ISA {
namespace {

// Parts of the columns [outer, inner]: body(outer, first column, end column).
template <class Body>
GRADLOOM_INLINE void for_columns(i64 outer, i64 inner, i64 strip, i64 work, const Body& body) {
  const i64 strips = ceil_div(inner, strip);
  parallel_for(outer * strips, work, [&](i64 part) {
    const i64 first = part % strips * strip;
    body(part / strips, first, smaller(inner, first + strip));
  });
}

constexpr i64 kStrip = 256;

// ---- cum_sum ----------------------------------------------------------------------------------------------

template <class T, class Total>
void running_sum(const CumSumArgs& args) {
  const T* const x = static_cast<const T*>(args.x);
  T* const y = static_cast<T*>(args.y);
  for_columns(args.outer, args.inner, kStrip, args.outer * args.n * args.inner * 4,
              [&](i64 o, i64 first, i64 last) {
                Total totals[kStrip] = {};
                for (i64 k = 0; k < args.n; ++k) {
                  const i64 row = (o * args.n + (args.reverse ? args.n - 1 - k : k)) * args.inner;
#pragma GCC ivdep
                  for (i64 i = first; i < last; ++i) {
                    const Total before = totals[i - first], after = before + Total(x[row + i]);
                    y[row + i] = T(args.exclusive ? before : after);
                    totals[i - first] = after;
                  }
                }
              });
}

// ---- arg_extreme ------------------------------------------------------------------------------------------

template <bool largest, class T>
GRADLOOM_INLINE bool beats(T a, T b) {
  return (largest ? a > b : a < b) || (a != a && b == b);
}

template <class T, bool largest>
void find_extremes(const ArgExtremeArgs& args) {
  const T* const x = static_cast<const T*>(args.x);
  for_columns(
      args.outer, args.inner, kStrip, args.outer * args.n * args.inner * 2, [&](i64 o, i64 first, i64 last) {
        T best[kStrip];
        i64 where[kStrip];
        for (i64 k = 0; k < args.n; ++k) {
          const T* const row = x + (o * args.n + k) * args.inner;
          for (i64 i = first; i < last; ++i) {
            const T v = row[i], old = best[i - first];
            const bool taken = k == 0 || beats<largest>(v, old) || (args.last && !beats<largest>(old, v));
            best[i - first] = taken ? v : old;
            where[i - first] = taken ? k : where[i - first];
          }
        }
        for (i64 i = first; i < last; ++i) args.y[o * args.inner + i] = where[i - first];
      });
}

template <class T>
void find_extreme(const ArgExtremeArgs& args) {
  return args.largest ? find_extremes<T, true>(args) : find_extremes<T, false>(args);
}

// ---- top_k ------------------------------------------------------------------------------------------------

// Whether element a at index i comes before b at j.
template <bool largest, class T>
GRADLOOM_INLINE bool precedes(T a, i64 i, T b, i64 j) {
  const bool nan_a = a != a, nan_b = b != b;
  if (nan_a != nan_b) return nan_a == largest;
  if (nan_a || a == b) return i < j;
  return largest ? a > b : a < b;
}

// The best k so far as a heap with the worst on top, in the place of the result.
template <class T, bool largest>
struct Heap {
  T* values;
  i64* indices;
  i64 stride;

  GRADLOOM_INLINE bool before(i64 a, i64 b) const {
    return precedes<largest>(values[a * stride], indices[a * stride], values[b * stride],
                             indices[b * stride]);
  }
  GRADLOOM_INLINE void put(i64 at, T value, i64 index) const {
    values[at * stride] = value;
    indices[at * stride] = index;
  }
  // The element at `at` sinks until nothing below is worse.
  void sink(i64 at, i64 size) const {
    const T value = values[at * stride];
    const i64 index = indices[at * stride];
    for (i64 child = 2 * at + 1; child < size; child = 2 * at + 1) {
      if (child + 1 < size && before(child, child + 1)) ++child;
      if (!precedes<largest>(value, index, values[child * stride], indices[child * stride])) break;
      put(at, values[child * stride], indices[child * stride]);
      at = child;
    }
    put(at, value, index);
  }
};

template <class T, bool largest>
void select_column(const TopKArgs& args, const T* x, T* values, i64* indices) {
  const Heap<T, largest> heap{values, indices, args.inner};
  for (i64 j = 0; j < args.k; ++j) heap.put(j, x[j * args.inner], j);
  for (i64 j = args.k / 2; j-- > 0;) heap.sink(j, args.k);
  for (i64 i = args.k; i < args.n; ++i) {
    const T v = x[i * args.inner];
    if (!precedes<largest>(v, i, values[0], indices[0])) continue;
    heap.put(0, v, i);
    heap.sink(0, args.k);
  }
  for (i64 end = args.k - 1; end > 0; --end) {
    const T worst = values[0];
    const i64 index = indices[0];
    heap.put(0, values[end * args.inner], indices[end * args.inner]);
    heap.put(end, worst, index);
    heap.sink(0, end);
  }
}

template <class T>
void select(const TopKArgs& args) {
  const T* const x = static_cast<const T*>(args.x);
  T* const values = static_cast<T*>(args.values);
  const i64 columns = args.outer * args.inner;
  parallel_pieces(columns, larger(1, 16384 / larger(1, args.n)), columns * args.n * 8,
                  [&](i64 begin, i64 end) {
                    for (i64 c = begin; c < end; ++c) {
                      const i64 o = c / args.inner, i = c % args.inner, from = o * args.n * args.inner + i,
                                to = o * args.k * args.inner + i;
                      if (args.largest) {
                        select_column<T, true>(args, x + from, values + to, args.indices + to);
                      } else {
                        select_column<T, false>(args, x + from, values + to, args.indices + to);
                      }
                    }
                  });
}

// f<T>(args) for every type of numbers.
#define GRADLOOM_NUMBER_DISPATCH(type, f, args)        \
  switch (type) {                                      \
    case DType::f64: return f<double>(args);           \
    case DType::i32: return f<std::int32_t>(args);     \
    case DType::i64: return f<std::int64_t>(args);     \
    case DType::u8:                                    \
    case DType::boolean: return f<std::uint8_t>(args); \
    case DType::i8: return f<std::int8_t>(args);       \
    case DType::i16: return f<std::int16_t>(args);     \
    case DType::u16: return f<std::uint16_t>(args);    \
    case DType::u32: return f<std::uint32_t>(args);    \
    case DType::u64: return f<std::uint64_t>(args);    \
    default: return f<float>(args);                    \
  }

}  // namespace

void trilu(const TriluArgs& args) {
  // Far outside the matrix all values of k mean the same; clamped, no sum below overflows.
  const i64 k = args.k == nullptr ? 0 : smaller(larger(*args.k, -args.rows - 1), args.cols + 1);
  const i64 bytes = i64(args.element_bytes), row_bytes = args.cols * bytes, rows = args.matrices * args.rows;
  parallel_pieces(rows, larger(1, 32768 / larger(1, row_bytes)), rows * row_bytes, [&](i64 begin, i64 end) {
    for (i64 r = begin; r < end; ++r) {
      const char* const x = static_cast<const char*>(args.x) + r * row_bytes;
      char* const y = static_cast<char*>(args.y) + r * row_bytes;
      const i64 diagonal = r % args.rows + k + (args.upper ? 0 : 1);
      const auto left = std::size_t(smaller(larger(diagonal, 0), args.cols) * bytes),
                 right = std::size_t(row_bytes) - left;
      if (args.upper) {
        __builtin_memset(y, 0, left);
        __builtin_memcpy(y + left, x + left, right);
      } else {
        __builtin_memcpy(y, x, left);
        __builtin_memset(y + left, 0, right);
      }
    }
  });
}

void cum_sum(const CumSumArgs& args) {
  switch (args.dtype) {
    case DType::f64: return running_sum<double, double>(args);
    case DType::i32: return running_sum<std::int32_t, std::uint32_t>(args);
    case DType::i64: return running_sum<std::int64_t, std::uint64_t>(args);
    default: return running_sum<float, double>(args);
  }
}

void arg_extreme(const ArgExtremeArgs& args) { GRADLOOM_NUMBER_DISPATCH(args.dtype, find_extreme, args) }

void top_k(const TopKArgs& args) {
  if (args.k == 0) return;
  GRADLOOM_NUMBER_DISPATCH(args.dtype, select, args)
}

}  // namespace gradloom::kernels::GRADLOOM_ISA
