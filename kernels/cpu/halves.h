// 16-bit floating-point numbers as they lie in memory: computed in f32.
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

// Rounds to the nearest, ties to even; NaN stays a quiet NaN.
GRADLOOM_INLINE Brain brain_of(float x) {
  const unsigned bits = __builtin_bit_cast(unsigned, x);
  const unsigned rounded = bits + 0x7fffu + ((bits >> 16) & 1u);
  return {std::uint16_t(x != x ? (bits >> 16) | 0x40u : rounded >> 16)};
}

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

template <class Stored, int L>
GRADLOOM_INLINE Pack<Computed<Stored>, L> load_computed(const Stored* p) {
  if constexpr (sizeof(Stored) == sizeof(Computed<Stored>)) {
    return load_pack<Stored, L>(p);
  } else {
    const auto bits = load_pack<std::uint16_t, L>(&p->bits);
    return __builtin_bit_cast(Pack<float, L>, __builtin_convertvector(bits, Pack<unsigned, L>) << 16);
  }
}
template <class Stored, int L>
GRADLOOM_INLINE void store_computed(Stored* p, const Pack<Computed<Stored>, L>& v) {
  if constexpr (sizeof(Stored) == sizeof(Computed<Stored>)) {
    store_pack<Stored, L>(p, v);
  } else {
    using Words = Pack<unsigned, L>;
    const Words bits = __builtin_bit_cast(Words, v), upper = bits >> 16,
                rounded = (bits + 0x7fffu + (upper & 1u)) >> 16;
    const Words chosen = v != v ? upper | 0x40u : rounded;
    store_pack<std::uint16_t, L>(&p->bits, __builtin_convertvector(chosen, Pack<std::uint16_t, L>));
  }
}

}  // namespace gradloom::kernels::GRADLOOM_ISA
