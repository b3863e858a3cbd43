// Uniform random numbers of consecutive elements.
#pragma once

#include <immintrin.h>

#include "kernels/cpu/kernel.h"
#include "kernels/philox.h"

namespace gradloom::kernels::GRADLOOM_ISA {

constexpr i64 kRandomChunk = 256;  // numbers at a time

using Words = Vec<unsigned long long>;  // one 32-bit word of each of several blocks, in the low halves

// Low half times low half of each lane. (No multiplication of C++'s on vectors becomes the instruction.)
GRADLOOM_INLINE Words product_of_low_halves(const Words& a, const Words& b) {
#if defined(__AVX512F__)
  return Words(_mm512_mul_epu32(__m512i(a), __m512i(b)));
#elif defined(__AVX2__)
  return Words(_mm256_mul_epu32(__m256i(a), __m256i(b)));
#else
  return Words(_mm_mul_epu32(__m128i(a), __m128i(b)));
#endif
}

// uniform[i] for the elements first .. first + 256: philox_block of kernels/philox.h, several blocks at once.
// What the upper halves of the lanes hold is never read.
inline void uniforms(i64 first, std::uint64_t stream, std::uint64_t step, float* uniform) {
  constexpr i64 lanes = kLanes<unsigned long long>, blocks = kRandomChunk / 4;
  const Words zero = {}, factor0 = zero + kPhiloxFactor0, factor1 = zero + kPhiloxFactor1;
  Words counter = zero + std::uint64_t(first) / 4;
  for (i64 i = 0; i < lanes; ++i) counter[i] += std::uint64_t(i);
  unsigned word[4][blocks];
  for (i64 j = 0; j < blocks; j += lanes) {
    Words c0 = counter, c1 = counter >> 32, c2 = zero + step, c3 = zero + (step >> 32);
    unsigned k0 = unsigned(stream), k1 = unsigned(stream >> 32);
    for (int round = 0; round < kPhiloxRounds; ++round) {
      const Words product0 = product_of_low_halves(c0, factor0),
                  product1 = product_of_low_halves(c2, factor1);
      c0 = (product1 >> 32) ^ c1 ^ (zero + k0);
      c1 = product1;
      c2 = (product0 >> 32) ^ c3 ^ (zero + k1);
      c3 = product0;
      k0 += kPhiloxStep0;
      k1 += kPhiloxStep1;
    }
    for (i64 i = 0; i < lanes; ++i) {
      word[0][j + i] = unsigned(c0[i]);
      word[1][j + i] = unsigned(c1[i]);
      word[2][j + i] = unsigned(c2[i]);
      word[3][j + i] = unsigned(c3[i]);
    }
    counter += std::uint64_t(lanes);
  }
  for (i64 j = 0; j < blocks; ++j) {
    uniform[4 * j] = philox_uniform(word[0][j]);
    uniform[4 * j + 1] = philox_uniform(word[1][j]);
    uniform[4 * j + 2] = philox_uniform(word[2][j]);
    uniform[4 * j + 3] = philox_uniform(word[3][j]);
  }
}

// y = uniform >= ratio ? x * (1 / (1 - ratio)) : 0.
template <class T>
GRADLOOM_INLINE void drop(const float* uniform, T ratio, const T* x, T* y, i64 n) {
  const T scale = T(1) / (T(1) - ratio);
#pragma GCC ivdep
  for (i64 i = 0; i < n; ++i) {
    const T kept = x[i] * scale;
    y[i] = T(uniform[i]) >= ratio ? kept : T(0);
  }
}

}  // namespace gradloom::kernels::GRADLOOM_ISA
