#include "sessions/permutation.h"

#include <algorithm>
#include <bit>

#include "sessions/random.h"

namespace gradloom {

constexpr std::uint64_t kRounds = 6;

Permutation::Permutation(std::int64_t n, std::uint64_t seed, std::uint64_t epoch)
    : n_(static_cast<std::uint64_t>(n)),
      seed_(seed),
      epoch_(epoch),
      half_bits_(std::max(1, static_cast<int>(std::bit_width(n_ - 1) + 1) / 2)) {}

std::int64_t Permutation::operator()(std::int64_t i) const {
  const std::uint64_t mask = (std::uint64_t{1} << half_bits_) - 1;
  auto x = static_cast<std::uint64_t>(i);
  do {
    std::uint64_t left = x >> half_bits_, right = x & mask;
    for (std::uint64_t round = 0; round < kRounds; ++round) {
      const auto bits = philox4x32(seed_ + round * 0x9e3779b97f4a7c15u, right, epoch_);
      const std::uint64_t mixed = left ^ ((std::uint64_t{bits[1]} << 32 | bits[0]) & mask);
      left = right;
      right = mixed;
    }
    x = left << half_bits_ | right;
  } while (x >= n_);
  return static_cast<std::int64_t>(x);
}

}  // namespace gradloom
