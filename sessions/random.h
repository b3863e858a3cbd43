// Random numbers with fixed definitions, so that data and intervals repeat on every machine. Philox4x32-10:
// Salmon et al., "Parallel random numbers: as easy as 1, 2, 3", SC 2011. PCG32: O'Neill 2014 (XSH-RR).
#pragma once

#include <array>
#include <cstdint>

namespace gradloom {

// Four 32-bit words of block `counter` of stream `stream` under `key`.
inline std::array<std::uint32_t, 4> philox4x32(std::uint64_t key, std::uint64_t counter,
                                               std::uint64_t stream) {
  std::uint32_t k0 = static_cast<std::uint32_t>(key), k1 = static_cast<std::uint32_t>(key >> 32);
  std::array<std::uint32_t, 4> c = {
      static_cast<std::uint32_t>(counter), static_cast<std::uint32_t>(counter >> 32),
      static_cast<std::uint32_t>(stream), static_cast<std::uint32_t>(stream >> 32)};
  for (int round = 0; round < 10; ++round) {
    const std::uint64_t p0 = std::uint64_t{0xD2511F53u} * c[0], p1 = std::uint64_t{0xCD9E8D57u} * c[2];
    c = {static_cast<std::uint32_t>(p1 >> 32) ^ c[1] ^ k0, static_cast<std::uint32_t>(p1),
         static_cast<std::uint32_t>(p0 >> 32) ^ c[3] ^ k1, static_cast<std::uint32_t>(p0)};
    k0 += 0x9E3779B9u;
    k1 += 0xBB67AE85u;
  }
  return c;
}

class Pcg32 {
 public:
  explicit Pcg32(std::uint64_t seed) : state_(seed + kIncrement) { next(); }
  std::uint32_t next() {
    const std::uint64_t old = state_;
    state_ = old * 6364136223846793005ull + kIncrement;
    const auto shifted = static_cast<std::uint32_t>(((old >> 18) ^ old) >> 27);
    const auto rotation = static_cast<std::uint32_t>(old >> 59);
    return (shifted >> rotation) | (shifted << ((32 - rotation) & 31));
  }
  // Uniform in [0, bound): Lemire's multiplication with rejection, unbiased.
  std::uint32_t below(std::uint32_t bound) {
    std::uint64_t product = std::uint64_t{next()} * bound;
    if (static_cast<std::uint32_t>(product) < bound) {
      const std::uint32_t threshold = (0u - bound) % bound;
      while (static_cast<std::uint32_t>(product) < threshold) product = std::uint64_t{next()} * bound;
    }
    return static_cast<std::uint32_t>(product >> 32);
  }

 private:
  static constexpr std::uint64_t kIncrement = 1442695040888963407ull;
  std::uint64_t state_;
};

}  // namespace gradloom
