// Philox4x32-10 (Salmon, Moraes, Dror, Shaw: Parallel Random Numbers: As Easy as 1, 2, 3, SC 2011), and how
// dropout uses it. Bit for bit the same on every device:
//   element i of a tensor, random stream `key` (identity of the original forward node), training step `step`,
//   run `seed`: counter words = { lo32(i / 4), hi32(i / 4), lo32(step), hi32(step) },
//   key words = { lo32(seed ^ key), hi32(seed ^ key) }, of which word i % 4 of the output is taken;
//   u = (word >> 8) * 2^-24 in [0, 1); the element is kept if u >= ratio.
#pragma once

#include "kernels/math.h"

namespace gradloom::kernels::GRADLOOM_MATH_NAMESPACE {

struct PhiloxWords {
  unsigned word[4];
};

constexpr unsigned kPhiloxFactor0 = 0xD2511F53u, kPhiloxFactor1 = 0xCD9E8D57u;
constexpr unsigned kPhiloxStep0 = 0x9E3779B9u, kPhiloxStep1 = 0xBB67AE85u;  // of the key, each round
constexpr int kPhiloxRounds = 10;

GRADLOOM_HD PhiloxWords philox4x32_10(unsigned c0, unsigned c1, unsigned c2, unsigned c3, unsigned k0,
                                      unsigned k1) {
  for (int round = 0; round < kPhiloxRounds; ++round) {
    const unsigned long long product0 = 1ull * kPhiloxFactor0 * c0, product1 = 1ull * kPhiloxFactor1 * c2;
    c0 = unsigned(product1 >> 32) ^ c1 ^ k0;
    c1 = unsigned(product1);
    c2 = unsigned(product0 >> 32) ^ c3 ^ k1;
    c3 = unsigned(product0);
    k0 += kPhiloxStep0;
    k1 += kPhiloxStep1;
  }
  return {{c0, c1, c2, c3}};
}

// The four words for elements 4 * block .. 4 * block + 3.
GRADLOOM_HD PhiloxWords philox_block(unsigned long long block, unsigned long long stream,
                                     unsigned long long step) {
  return philox4x32_10(unsigned(block), unsigned(block >> 32), unsigned(step), unsigned(step >> 32),
                       unsigned(stream), unsigned(stream >> 32));
}

// Between low (u = 0) and high (not reached, up to rounding).
template <class T>
GRADLOOM_HD T between(T u, T low, T high) {
  return low + u * (high - low);
}

GRADLOOM_HD float philox_uniform(unsigned word) { return float(word >> 8) * 5.9604644775390625e-8f; }

}  // namespace gradloom::kernels::GRADLOOM_MATH_NAMESPACE
