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

// Of two vectors of n lanes, one after the other: every second lane, from the first or from the second; and
// their lanes in turn, of the lower and of the upper halves.
template <int n, class V>
GRADLOOM_INLINE V evens(const V& a, const V& b) {
  if constexpr (n == 16) {
    return __builtin_shufflevector(a, b, 0, 2, 4, 6, 8, 10, 12, 14, 16, 18, 20, 22, 24, 26, 28, 30);
  } else if constexpr (n == 8) {
    return __builtin_shufflevector(a, b, 0, 2, 4, 6, 8, 10, 12, 14);
  } else if constexpr (n == 4) {
    return __builtin_shufflevector(a, b, 0, 2, 4, 6);
  } else {
    return __builtin_shufflevector(a, b, 0, 2);
  }
}
template <int n, class V>
GRADLOOM_INLINE V odds(const V& a, const V& b) {
  if constexpr (n == 16) {
    return __builtin_shufflevector(a, b, 1, 3, 5, 7, 9, 11, 13, 15, 17, 19, 21, 23, 25, 27, 29, 31);
  } else if constexpr (n == 8) {
    return __builtin_shufflevector(a, b, 1, 3, 5, 7, 9, 11, 13, 15);
  } else if constexpr (n == 4) {
    return __builtin_shufflevector(a, b, 1, 3, 5, 7);
  } else {
    return __builtin_shufflevector(a, b, 1, 3);
  }
}
template <int n, class V>
GRADLOOM_INLINE V mixed_low(const V& a, const V& b) {
  if constexpr (n == 16) {
    return __builtin_shufflevector(a, b, 0, 16, 1, 17, 2, 18, 3, 19, 4, 20, 5, 21, 6, 22, 7, 23);
  } else if constexpr (n == 8) {
    return __builtin_shufflevector(a, b, 0, 8, 1, 9, 2, 10, 3, 11);
  } else if constexpr (n == 4) {
    return __builtin_shufflevector(a, b, 0, 4, 1, 5);
  } else {
    return __builtin_shufflevector(a, b, 0, 2);
  }
}
template <int n, class V>
GRADLOOM_INLINE V mixed_high(const V& a, const V& b) {
  if constexpr (n == 16) {
    return __builtin_shufflevector(a, b, 8, 24, 9, 25, 10, 26, 11, 27, 12, 28, 13, 29, 14, 30, 15, 31);
  } else if constexpr (n == 8) {
    return __builtin_shufflevector(a, b, 4, 12, 5, 13, 6, 14, 7, 15);
  } else if constexpr (n == 4) {
    return __builtin_shufflevector(a, b, 2, 6, 3, 7);
  } else {
    return __builtin_shufflevector(a, b, 1, 3);
  }
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

}  // namespace gradloom::kernels::GRADLOOM_ISA
