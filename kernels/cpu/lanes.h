// Neighbouring channels of a tensor whose channels lie in blocks, [.., spatial, block]: L of them at a time,
// in as many registers as they take on this x86-64 level.
#pragma once

#include "kernels/cpu/kernel.h"

namespace gradloom::kernels::GRADLOOM_ISA {

template <class T, int L>
using Pack = typename VecOf<T, L* int(sizeof(T))>::type;

template <class T, int L>
GRADLOOM_INLINE Pack<T, L> load_pack(const T* p) {
  Pack<T, L> v;
  __builtin_memcpy(&v, p, sizeof v);
  return v;
}
template <class T, int L>
GRADLOOM_INLINE void store_pack(T* p, const Pack<T, L>& v) {
  __builtin_memcpy(p, &v, sizeof v);
}

// Of two vectors of n lanes, one after the other: every second lane from lane `first` on; and their lanes in
// turn, from lane `first` of each on.
template <int n, int first, class V>
GRADLOOM_INLINE V every_second(const V& a, const V& b) {
  constexpr int f = first;
  if constexpr (n == 16) {
    return __builtin_shufflevector(a, b, f, f + 2, f + 4, f + 6, f + 8, f + 10, f + 12, f + 14, f + 16,
                                   f + 18, f + 20, f + 22, f + 24, f + 26, f + 28, f + 30);
  } else if constexpr (n == 8) {
    return __builtin_shufflevector(a, b, f, f + 2, f + 4, f + 6, f + 8, f + 10, f + 12, f + 14);
  } else if constexpr (n == 4) {
    return __builtin_shufflevector(a, b, f, f + 2, f + 4, f + 6);
  } else {
    return __builtin_shufflevector(a, b, f, f + 2);
  }
}
template <int n, int first, class V>
GRADLOOM_INLINE V in_turn(const V& a, const V& b) {
  constexpr int f = first, g = first + n;
  if constexpr (n == 16) {
    return __builtin_shufflevector(a, b, f, g, f + 1, g + 1, f + 2, g + 2, f + 3, g + 3, f + 4, g + 4, f + 5,
                                   g + 5, f + 6, g + 6, f + 7, g + 7);
  } else if constexpr (n == 8) {
    return __builtin_shufflevector(a, b, f, g, f + 1, g + 1, f + 2, g + 2, f + 3, g + 3);
  } else if constexpr (n == 4) {
    return __builtin_shufflevector(a, b, f, g, f + 1, g + 1);
  } else {
    return __builtin_shufflevector(a, b, f, g);
  }
}
template <int n, class V>
GRADLOOM_INLINE V evens(const V& a, const V& b) {
  return every_second<n, 0>(a, b);
}
template <int n, class V>
GRADLOOM_INLINE V odds(const V& a, const V& b) {
  return every_second<n, 1>(a, b);
}
template <int n, class V>
GRADLOOM_INLINE V mixed_low(const V& a, const V& b) {
  return in_turn<n, 0>(a, b);
}
template <int n, class V>
GRADLOOM_INLINE V mixed_high(const V& a, const V& b) {
  return in_turn<n, n / 2>(a, b);
}

template <class V>
GRADLOOM_INLINE bool all_zero(const V& v) {
  bool all = true;
  for (unsigned i = 0; i < sizeof(V) / sizeof(v[0]); ++i) all = all && v[i] == 0;
  return all;
}

template <int n>
struct Lanes {
  static constexpr int value = n;
};

// body(Lanes<L>) with the largest L that divides the block.
template <class Body>
GRADLOOM_INLINE void with_lanes(i64 block, const Body& body) {
  if (block % 16 == 0) {
    body(Lanes<16>());
  } else if (block % 8 == 0) {
    body(Lanes<8>());
  } else if (block % 4 == 0) {
    body(Lanes<4>());
  } else {
    body(Lanes<1>());
  }
}
// body(Lanes<L>, i) for [i, i + L), which cover [begin, end).
template <class Body>
GRADLOOM_INLINE void for_lanes(i64 begin, i64 end, const Body& body) {
  for (; begin + 16 <= end; begin += 16) body(Lanes<16>(), begin);
  for (; begin + 4 <= end; begin += 4) body(Lanes<4>(), begin);
  for (; begin < end; ++begin) body(Lanes<1>(), begin);
}

}  // namespace gradloom::kernels::GRADLOOM_ISA
