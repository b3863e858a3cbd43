// 16-bit floating-point numbers as they lie in memory; arithmetic on them is in f32.
#pragma once

#include "kernels/cpu/lanes.h"

namespace gradloom::kernels::GRADLOOM_ISA {

struct Half {
  _Float16 value;
};
struct Brain {  // bf16: the upper half of an f32
  std::uint16_t bits;
};

GRADLOOM_INLINE float widen(Half x) { return float(x.value); }
GRADLOOM_INLINE float widen(Brain x) { return __builtin_bit_cast(float, unsigned(x.bits) << 16); }

// The upper halves of f32 numbers, rounded to the nearest, ties to even; NaN stays a quiet NaN. Words:
// unsigned for a number, a vector of them for a vector.
template <class Words, class V>
GRADLOOM_INLINE Words brain_bits(const V& x) {
  const Words bits = __builtin_bit_cast(Words, x), upper = bits >> 16,
              rounded = (bits + 0x7fffu + (upper & 1u)) >> 16;
  return x != x ? upper | 0x40u : rounded;
}
GRADLOOM_INLINE Brain brain_of(float x) { return {std::uint16_t(brain_bits<unsigned>(x))}; }

// What a type of memory is computed in.
template <class Stored>
struct ComputedOf {
  using type = Stored;
};
template <>
struct ComputedOf<Brain> {
  using type = float;
};
template <class Stored>
using Computed = typename ComputedOf<Stored>::type;
template <class Stored>
constexpr bool kWidened = sizeof(Stored) != sizeof(Computed<Stored>);

// One number, out of memory and to it.
GRADLOOM_INLINE float widen(float x) { return x; }
GRADLOOM_INLINE double widen(double x) { return x; }
template <class Stored>
GRADLOOM_INLINE Stored narrow(Computed<Stored> x) {
  if constexpr (!kWidened<Stored>) {
    return x;
  } else {
    return brain_of(x);
  }
}

template <class Stored, int L>
GRADLOOM_INLINE Pack<Computed<Stored>, L> load_computed(const Stored* p) {
  if constexpr (!kWidened<Stored>) {
    return load_pack<Stored, L>(p);
  } else {
    const auto bits = load_pack<std::uint16_t, L>(&p->bits);
    return __builtin_bit_cast(Pack<float, L>, __builtin_convertvector(bits, Pack<unsigned, L>) << 16);
  }
}
template <class Stored, int L>
GRADLOOM_INLINE void store_computed(Stored* p, const Pack<Computed<Stored>, L>& v) {
  if constexpr (!kWidened<Stored>) {
    store_pack<Stored, L>(p, v);
  } else {
    const auto bits = brain_bits<Pack<unsigned, L>>(v);
    store_pack<std::uint16_t, L>(&p->bits, __builtin_convertvector(bits, Pack<std::uint16_t, L>));
  }
}

// body(i, v) for n elements of a row, v a register of them as they are computed in while there is one, else a
// number; put_computed writes either back.
template <class Stored, class Body>
GRADLOOM_INLINE void for_computed(const Stored* x, i64 n, const Body& body) {
  constexpr int lanes = int(kLanes<Computed<Stored>>);
  i64 i = 0;
  for (; i + lanes <= n; i += lanes) body(i, load_computed<Stored, lanes>(x + i));
  for (; i < n; ++i) body(i, widen(x[i]));
}
template <class Stored>
GRADLOOM_INLINE void put_computed(Stored* p, const Vec<Computed<Stored>>& v) {
  store_computed<Stored, int(kLanes<Computed<Stored>>)>(p, v);
}
template <class Stored>
GRADLOOM_INLINE void put_computed(Stored* p, Computed<Stored> v) {
  *p = narrow<Stored>(v);
}

// As many as `like` holds.
template <class Stored>
GRADLOOM_INLINE auto get_computed(const Stored* p, const Vec<Computed<Stored>>&) {
  return load_computed<Stored, int(kLanes<Computed<Stored>>)>(p);
}
template <class Stored>
GRADLOOM_INLINE auto get_computed(const Stored* p, Computed<Stored>) {
  return widen(*p);
}

// n elements of a row as they are computed in.
template <class Stored>
GRADLOOM_INLINE void read_row(const Stored* x, i64 n, Computed<Stored>* to) {
  for_computed(x, n, [&](i64 i, const auto& v) { put(to + i, v); });
}

template <class Stored>
GRADLOOM_INLINE void write_row(const Computed<Stored>* x, i64 n, Stored* to) {
  for_computed(x, n, [&](i64 i, const auto& v) { put_computed(to + i, v); });
}

// body(begin, count) for the parts of a row of n elements that a buffer of kSumBlock holds.
template <class Body>
GRADLOOM_INLINE void for_row_parts(i64 n, const Body& body) {
  for (i64 begin = 0; begin < n; begin += kSumBlock) body(begin, smaller(kSumBlock, n - begin));
}

// The largest element of a row and the sum of exp(x - peak), read part by part into `part`.
template <class T>
struct PeakAndTotal {
  T peak;
  double total;
};
template <class Stored, class T = Computed<Stored>>
GRADLOOM_INLINE PeakAndTotal<T> peak_and_total(const Stored* x, i64 n, T* part) {
  PeakAndTotal<T> row{T(-__builtin_inf()), 0};
  for_row_parts(n, [&](i64 begin, i64 count) {
    read_row(x + begin, count, part);
    row.peak = max(row.peak, peak_of(part, count));
  });
  for_row_parts(n, [&](i64 begin, i64 count) {
    read_row(x + begin, count, part);
    row.total += exp_sum(part, count, row.peak, part);
  });
  return row;
}

}  // namespace gradloom::kernels::GRADLOOM_ISA
