// Sums over the planes of a channel, or over one run of neighbours, in a fixed order: what BatchNormalization
// and GroupNormalization are made of.
#pragma once

#include "kernels/cpu/kernel.h"

namespace gradloom::kernels::GRADLOOM_ISA {

// The planes of a channel, one of every image. Offsets count from the first one.
struct Planes {
  i64 n, stride, spatial;
  // To the channel to fetch meanwhile: the next one, or where planes are short one behind it.
  i64 ahead() const { return ceil_div(1024, larger(1, spatial)) * spatial; }
};

// Elements, or positions of a block, that are added in T before they go to the sums in double.
constexpr i64 kRun = 512;

// `count` sums over a channel: term(offset, sums) adds to each a number or a register.
template <int count>
struct Sums {
  double total[count] = {};
};
template <int count, class T, class Term>
GRADLOOM_INLINE Sums<count> sums_of(const Planes& p, const Term& term) {
  constexpr i64 lanes = kLanes<T>;
  Sums<count> sums;
  for (i64 image = 0; image < p.n; ++image) {
    const i64 plane = image * p.stride;
    i64 i = 0;
    while (i + lanes <= p.spatial) {
      const i64 end = smaller(p.spatial, i + kRun);
      Vec<T> s[4][count] = {};
      for (; i + 4 * lanes <= end; i += 4 * lanes) {
        term(plane + i, s[0]);
        term(plane + i + lanes, s[1]);
        term(plane + i + 2 * lanes, s[2]);
        term(plane + i + 3 * lanes, s[3]);
      }
      for (; i + lanes <= end; i += lanes) term(plane + i, s[0]);
      for (int k = 0; k < count; ++k) sums.total[k] += lane_sum((s[0][k] + s[1][k]) + (s[2][k] + s[3][k]));
    }
    for (; i < p.spatial; ++i) {
      T one[count] = {};
      term(plane + i, one);
      for (int k = 0; k < count; ++k) sums.total[k] += double(one[k]);
    }
  }
  return sums;
}

// body(offset, a number or a register) over a channel.
template <class T, class Body>
GRADLOOM_INLINE void for_elements(const Planes& p, const Body& body) {
  for (i64 image = 0; image < p.n; ++image)
    for_registers<T>(p.spatial, [&](i64 i, const auto& zero) { body(image * p.stride + i, zero); });
}

}  // namespace gradloom::kernels::GRADLOOM_ISA
