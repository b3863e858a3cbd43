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
