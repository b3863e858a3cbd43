// Random words of consecutive elements.
#pragma once

#include <immintrin.h>

#include "kernels/cpu/kernel.h"
#include "kernels/philox.h"

namespace gradloom::kernels::GRADLOOM_ISA {

constexpr i64 kRandomChunk = 256;  // numbers at a time

using Words = Vec<unsigned long long>;  // one 32-bit word of each of several blocks, in the low halves

// Asks for the next chunk of x and y while this one's numbers are made:
// the hardware's own prefetching pauses there.
template <class T>
GRADLOOM_INLINE void prefetch_chunk(const T* x, const T* y) {
  for (i64 i = kRandomChunk; i < 2 * kRandomChunk; i += 64 / i64(sizeof(T))) {
    __builtin_prefetch(x + i, 0);
    __builtin_prefetch(y + i, 1);
  }
}

// Low half times low half of each lane. (No multiplication of C++'s on vectors becomes the instruction.)
GRADLOOM_INLINE Words product_of_low_halves(const Words& a, const Words& b) {
#if defined(__AVX512F__)
  return Words(_mm512_maskz_mul_epu32(0xff, __m512i(a), __m512i(b)));
#elif defined(__AVX2__)
  return Words(_mm256_mul_epu32(__m256i(a), __m256i(b)));
#else
  return Words(_mm_mul_epu32(__m128i(a), __m128i(b)));
#endif
}

// Each pair of lanes (2 i, 2 i + 1) of a and b as the pairs a, b of the even lanes, and of the odd ones.
GRADLOOM_INLINE void interleave_pairs(const Words& a, const Words& b, Words& even, Words& odd) {
#if defined(__AVX512F__)
  even = __builtin_shufflevector(a, b, 0, 8, 2, 10, 4, 12, 6, 14);
  odd = __builtin_shufflevector(a, b, 1, 9, 3, 11, 5, 13, 7, 15);
#elif defined(__AVX__)
  even = __builtin_shufflevector(a, b, 0, 4, 2, 6);
  odd = __builtin_shufflevector(a, b, 1, 5, 3, 7);
#else
  even = __builtin_shufflevector(a, b, 0, 2);
  odd = __builtin_shufflevector(a, b, 1, 3);
#endif
}

// word[i] for the elements first .. first + 256: philox_block of kernels/philox.h, several blocks at once.
// What the upper halves of the lanes hold is never read. Even lanes hold the first half of the blocks, odd
// ones the second, so that the words come out in order.
inline void random_words(i64 first, std::uint64_t stream, std::uint64_t step, unsigned* word) {
  constexpr i64 lanes = kLanes<unsigned long long>;
  const Words zero = {}, factor0 = zero + kPhiloxFactor0, factor1 = zero + kPhiloxFactor1;
  constexpr unsigned long long block[8] = {0, lanes / 2,     1, lanes / 2 + 1,
                                           2, lanes / 2 + 2, 3, lanes / 2 + 3};
  Words counter = load(block) + std::uint64_t(first) / 4;
  for (i64 j = 0; j < kRandomChunk; j += 4 * lanes) {
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
    Words even, odd;
    interleave_pairs((c0 & 0xffffffffull) | (c1 << 32), (c2 & 0xffffffffull) | (c3 << 32), even, odd);
    __builtin_memcpy(word + j, &even, sizeof even);
    __builtin_memcpy(word + j + 2 * lanes, &odd, sizeof odd);
    counter += std::uint64_t(lanes);
  }
}

// y = philox_uniform(word) >= ratio ? x * (1 / (1 - ratio)) : 0. The ratio is made the smallest word, less
// its last 8 bits, that is kept.
template <class T>
GRADLOOM_INLINE void drop(const unsigned* word, T ratio, const T* x, T* y, i64 n) {
  const T scale = T(1) / (T(1) - ratio), smallest = ceil(ratio * T(1 << 24));
  const int kept = smallest <= T(1 << 24) ? (smallest > T(0) ? int(smallest) : 0) : 1 << 24;
#pragma GCC ivdep
  for (i64 i = 0; i < n; ++i) {
    const T value = x[i] * scale;
    y[i] = int(word[i] >> 8) >= kept ? value : T(0);
  }
}

// n elements of what is dropped, the first of them element number `first`; key: the node's. y may be x.
template <class T>
inline void drop_run(const RandomState& random, std::uint64_t key, double ratio, i64 first, i64 n, const T* x,
                     T* y) {
  unsigned word[kRandomChunk];
  i64 count;
  for (i64 begin = 0; begin < n; begin += count) {
    const i64 number = first + begin, skipped = number % 4;  // the numbers come in blocks of four
    count = smaller(kRandomChunk - skipped, n - begin);
    prefetch_chunk(x + begin, y + begin);
    random_words(number - skipped, random.seed ^ key, random.step, word);
    drop(word + skipped, T(ratio), x + begin, y + begin, count);
  }
}

}  // namespace gradloom::kernels::GRADLOOM_ISA
