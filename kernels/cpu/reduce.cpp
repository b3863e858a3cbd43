// Reductions of [outer, n, inner] over n. Order of the sum: blocks of n (fixed by the shape) in T lanes,
// block results in double (i64 for integers), blocks in order. inner = 1 runs along rows; otherwise strips of
// columns advance together.
//   log_sum_exp: the maximum m first, then m + log(sum(exp(x - m))).
// Sums and means of bf16 are f32's, rounded once.
#include "kernels/cpu/column_sums.h"
#include "kernels/cpu/workspace.h"

namespace gradloom::kernels::GRADLOOM_ISA {
namespace {

constexpr i64 kStrip = 1024;     // columns at a time
constexpr i64 kRowsAhead = 8;    // that are fetched: the hardware does not see a strip of them as a stream
constexpr i64 kFlushRows = 128;  // values added in T before they go to the wide sum
constexpr i64 kAhead = 2048;     // elements of rows that are fetched: the hardware stops at every page

template <class T>
struct WideOf {
  using type = i64;
};
template <>
struct WideOf<float> {
  using type = double;
};
template <>
struct WideOf<double> {
  using type = double;
};
template <class T>
using Wide = typename WideOf<T>::type;
template <class T>
constexpr bool kFloating = T(0.5) != T(0);

// A reduction: map(x) of every element, joined pairwise. Both work on T, Vec<T> and the wide type.
struct Identity {
  template <class V>
  static GRADLOOM_INLINE V map(const V& x) {
    return x;
  }
};
struct Add {
  template <class V>
  static GRADLOOM_INLINE V join(const V& a, const V& b) {
    return a + b;
  }
};
struct Sum : Identity, Add {
  template <class T>
  static constexpr T start() {
    return T(0);
  }
};
struct AbsSum : Sum {
  template <class V>
  static GRADLOOM_INLINE V map(const V& x) {
    return x < 0 ? -x : x;
  }
};
struct SquareSum : Sum {
  template <class V>
  static GRADLOOM_INLINE V map(const V& x) {
    return x * x;
  }
};
struct Product : Identity {
  template <class T>
  static constexpr T start() {
    return T(1);
  }
  template <class V>
  static GRADLOOM_INLINE V join(const V& a, const V& b) {
    return a * b;
  }
};
template <class T>
constexpr T lowest() {
  if constexpr (kFloating<T>) {
    return T(-__builtin_inf());
  } else {
    return T(T(1) << (8 * sizeof(T) - 1));
  }
}
struct Max : Identity {
  template <class T>
  static constexpr T start() {
    return lowest<T>();
  }
  template <class V>
  static GRADLOOM_INLINE V join(const V& a, const V& b) {
    return (a > b) | (a != a) ? a : b;
  }
};
struct Min : Identity {
  template <class T>
  static constexpr T start() {
    if constexpr (kFloating<T>) return T(__builtin_inf());
    return T(-(lowest<T>() + 1));
  }
  template <class V>
  static GRADLOOM_INLINE V join(const V& a, const V& b) {
    return (a < b) | (a != a) ? a : b;
  }
};

template <class Op>
struct JoinLanes {
  template <class V>
  GRADLOOM_INLINE V operator()(const V& a, const V& b) const {
    return Op::join(a, b);
  }
};

// A number, and a register of them, as they are computed in.
template <class Stored>
GRADLOOM_INLINE Computed<Stored> value_of(const Stored& x) {
  if constexpr (kWidened<Stored>) {
    return widen(x);
  } else {
    return x;
  }
}
template <class Stored>
GRADLOOM_INLINE Vec<Computed<Stored>> values_at(const Stored* x) {
  return load_computed<Stored, int(kLanes<Computed<Stored>>)>(x);
}

// One block of a row.
template <class Stored, class Op, class T = Computed<Stored>>
Wide<T> row_block(const Stored* x, i64 n) {
  using W = Wide<T>;
  W result = Op::template start<W>();
  if constexpr (kFloating<T>) {
    for (i64 begin = 0; begin < n; begin += kSumBlock) {
      const i64 end = smaller(n, begin + kSumBlock);
      Vec<T> a[4];
      for (int v = 0; v < 4; ++v) a[v] = Op::template start<T>() - Vec<T>{};
      i64 i = begin;
      for (; i + 4 * kLanes<T> <= end; i += 4 * kLanes<T>) {
        for (int v = 0; v < 4; ++v) {
          fetch(x + i + v * kLanes<T> + kAhead);
          a[v] = Op::join(a[v], Op::map(values_at(x + i + v * kLanes<T>)));
        }
      }
      for (; i + kLanes<T> <= end; i += kLanes<T>) a[0] = Op::join(a[0], Op::map(values_at(x + i)));
      a[0] = Op::join(Op::join(a[0], a[1]), Op::join(a[2], a[3]));
      W block = W(fold<T>(a[0], JoinLanes<Op>()));
      for (; i < end; ++i) block = Op::join(block, Op::map(W(value_of(x[i]))));
      result = Op::join(result, block);
    }
  } else {
    for (i64 i = 0; i < n; ++i) result = Op::join(result, Op::map(W(x[i])));
  }
  return result;
}

// One block of a strip of columns: result[c] for c in [0, columns).
template <class Stored, class Op, class T = Computed<Stored>>
void column_block(const Stored* x, i64 n, i64 stride, i64 columns, Wide<T>* result) {
  using W = Wide<T>;
  T part[kStrip];
  for (i64 c = 0; c < columns; ++c) result[c] = Op::template start<W>();
  for (i64 begin = 0; begin < n; begin += kFlushRows) {
    const i64 end = smaller(n, begin + kFlushRows);
    if constexpr (!kFloating<T>) {
      for (i64 k = begin; k < end; ++k) {
        for (i64 c = 0; c < columns; ++c) result[c] = Op::join(result[c], Op::map(W(x[k * stride + c])));
      }
    } else {
      for (i64 c = 0; c < columns; ++c) part[c] = Op::template start<T>();
      i64 k = begin;
      for (; k + 4 <= end; k += 4) {
        const Stored* const r = x + k * stride;
        const auto joined = [&](const auto& a, const auto& b, const auto& c, const auto& d,
                                const auto& before) {
          return Op::join(before,
                          Op::join(Op::join(Op::map(a), Op::map(b)), Op::join(Op::map(c), Op::map(d))));
        };
        i64 c = 0;
        for (; c + kLanes<T> <= columns; c += kLanes<T>) {
          for (i64 ahead = kRowsAhead; ahead < kRowsAhead + 4; ++ahead) fetch(r + ahead * stride + c);
          store(part + c, joined(values_at(r + c), values_at(r + stride + c), values_at(r + 2 * stride + c),
                                 values_at(r + 3 * stride + c), load(part + c)));
        }
        for (; c < columns; ++c)
          part[c] = joined(value_of(r[c]), value_of(r[stride + c]), value_of(r[2 * stride + c]),
                           value_of(r[3 * stride + c]), part[c]);
      }
      for (; k < end; ++k) {
        for (i64 c = 0; c < columns; ++c) part[c] = Op::join(part[c], Op::map(value_of(x[k * stride + c])));
      }
      for (i64 c = 0; c < columns; ++c) result[c] = Op::join(result[c], W(part[c]));
    }
  }
}

template <class T>
T finished(Reduction op, Wide<T> value, i64 n) {
  if (op == Reduction::mean) {
    if constexpr (kFloating<T>) return T(value / double(n));
    return n > 0 ? T(value / n) : T(0);
  }
  if (op == Reduction::l2) return T(sqrt(double(value)));
  return T(value);
}

template <class Stored>
GRADLOOM_INLINE Stored finish(Reduction op, Wide<Computed<Stored>> value, i64 n) {
  const Computed<Stored> result = finished<Computed<Stored>>(op, value, n);
  if constexpr (kWidened<Stored>) {
    return narrow<Stored>(result);
  } else {
    return result;
  }
}

template <class Stored, class Op>
void reduce_with(const ReduceArgs& args) {
  using W = Wide<Computed<Stored>>;
  const Stored* const in = static_cast<const Stored*>(args.in);
  Stored* const out = static_cast<Stored*>(args.out);
  W* const partial = static_cast<W*>(args.workspace);  // [outer, blocks, inner]
  const i64 n = args.n, inner = args.inner;
  const i64 block = reduce_block(n, inner), blocks = larger(1, blocks_of(n, block));
  const i64 strips = ceil_div(inner, kStrip);
  const i64 work = args.outer * n * inner;
  if (inner == 1 && blocks == 1) {
    return parallel_pieces(args.outer, larger(1, 8192 / larger(1, n)), work, [&](i64 begin, i64 end) {
      for (i64 o = begin; o < end; ++o)
        out[o] = finish<Stored>(args.op, row_block<Stored, Op>(in + o * n, n), n);
    });
  }
  parallel_for(args.outer * blocks * strips, work, [&](i64 part) {
    const i64 column = part % strips * kStrip, columns = smaller(kStrip, inner - column);
    const i64 b = part / strips % blocks, o = part / (strips * blocks);
    const i64 count = smaller(block, n - b * block);
    const Stored* const x = in + (o * n + b * block) * inner + column;
    W result[kStrip];
    if (inner == 1) {
      result[0] = row_block<Stored, Op>(x, count);
    } else {
      column_block<Stored, Op>(x, count, inner, columns, result);
    }
    if (blocks == 1) {
      for (i64 c = 0; c < columns; ++c) out[o * inner + column + c] = finish<Stored>(args.op, result[c], n);
    } else {
      for (i64 c = 0; c < columns; ++c) partial[(o * blocks + b) * inner + column + c] = result[c];
    }
  });
  if (blocks == 1) return;
  parallel_for(args.outer * strips, args.outer * blocks * inner, [&](i64 part) {
    const i64 column = part % strips * kStrip, columns = smaller(kStrip, inner - column), o = part / strips;
    W result[kStrip];
    for (i64 c = 0; c < columns; ++c) result[c] = Op::template start<W>();
    for (i64 b = 0; b < blocks; ++b) {
      const W* const from = partial + (o * blocks + b) * inner + column;
      for (i64 c = 0; c < columns; ++c) result[c] = Op::join(result[c], from[c]);
    }
    for (i64 c = 0; c < columns; ++c) out[o * inner + column + c] = finish<Stored>(args.op, result[c], n);
  });
}

// Of numbers that are `apart`, infinity among them, which must not meet itself in a difference.
template <class T>
T log_sum_exp_of_any(const T* x, i64 n, i64 apart) {
  double total = 0;
  for (i64 k = 0; k < n; ++k) total += double(exp(x[k * apart]));  // infinite, or NaN
  return T(log(total));
}

template <class T>
void log_sum_exp_rows(const ReduceArgs& args) {
  const T* const in = static_cast<const T*>(args.in);
  T* const out = static_cast<T*>(args.out);
  const i64 n = args.n;
  parallel_pieces(args.outer, larger(1, 4096 / larger(1, n)), args.outer * n * 4, [&](i64 begin, i64 end) {
    for (i64 o = begin; o < end; ++o) {
      const T* const x = in + o * n;
      const T largest = peak_of(x, n), peak = largest > T(-__builtin_inf()) ? largest : T(0);
      out[o] = largest < T(__builtin_inf()) ? T(double(peak) + log(exp_sum(x, n, peak, x + n)))
                                            : log_sum_exp_of_any(x, n, 1);
    }
  });
}

template <class T>
void log_sum_exp_columns(const ReduceArgs& args) {
  const T* const in = static_cast<const T*>(args.in);
  T* const out = static_cast<T*>(args.out);
  const i64 n = args.n, inner = args.inner, strips = ceil_div(inner, kColumnStrip);
  parallel_for(args.outer * strips, args.outer * n * inner * 4, [&](i64 part) {
    const i64 column = part % strips * kColumnStrip, columns = smaller(kColumnStrip, inner - column);
    const T* const x = in + part / strips * n * inner + column;
    T* const y = out + part / strips * inner + column;
    ColumnSums<T> sums;
    column_sums(x, n, inner, columns, sums);
#pragma GCC ivdep
    for (i64 c = 0; c < columns; ++c) y[c] = T(double(sums.peak[c]) + double(log(T(sums.total[c]))));
    for (i64 c = 0; c < columns; ++c)
      if (sums.peak[c] == T(__builtin_inf())) y[c] = log_sum_exp_of_any(x + c, n, inner);
  });
}

template <class T>
void log_sum_exp(const ReduceArgs& args) {
  args.inner == 1 ? log_sum_exp_rows<T>(args) : log_sum_exp_columns<T>(args);
}

template <class T>
void log_sum_exp_integer(const ReduceArgs& args) {
  const T* const in = static_cast<const T*>(args.in);
  T* const out = static_cast<T*>(args.out);
  for (i64 i = 0; i < args.outer * args.inner; ++i) {
    const T* const x = in + (i / args.inner) * args.n * args.inner + i % args.inner;
    double total = 0;
    for (i64 k = 0; k < args.n; ++k) total += exp(double(x[k * args.inner]));
    out[i] = T(log(total));
  }
}

template <class T>
void reduce_typed(const ReduceArgs& args) {
  switch (args.op) {
    case Reduction::sum:
    case Reduction::mean: return reduce_with<T, Sum>(args);
    case Reduction::max: return reduce_with<T, Max>(args);
    case Reduction::min: return reduce_with<T, Min>(args);
    case Reduction::prod: return reduce_with<T, Product>(args);
    case Reduction::l1: return reduce_with<T, AbsSum>(args);
    case Reduction::l2:
    case Reduction::sum_square: return reduce_with<T, SquareSum>(args);
    case Reduction::log_sum_exp:
      if constexpr (kFloating<T>) {
        return log_sum_exp<T>(args);
      } else {
        return log_sum_exp_integer<T>(args);
      }
  }
}

}  // namespace

void reduce(const ReduceArgs& args) {
  if (args.outer * args.inner == 0) return;
  switch (args.dtype) {
    case DType::f64: return reduce_typed<double>(args);
    case DType::i32: return reduce_typed<std::int32_t>(args);
    case DType::i64: return reduce_typed<i64>(args);
    case DType::bf16: return reduce_with<Brain, Sum>(args);
    default: return reduce_typed<float>(args);
  }
}

}  // namespace gradloom::kernels::GRADLOOM_ISA
