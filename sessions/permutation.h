// An order of n things that is a function of seed and epoch alone and takes no memory: element i of a permutation
// of 0..n-1, by a Feistel network of Philox rounds over the smallest square that holds n, walked until it is inside.
#pragma once

#include <cstdint>

namespace gradloom {

class Permutation {
 public:
  // REQUIRES n > 0.
  Permutation(std::int64_t n, std::uint64_t seed, std::uint64_t epoch);
  std::int64_t operator()(std::int64_t i) const;  // REQUIRES 0 <= i < n

 private:
  std::uint64_t n_, seed_, epoch_;
  int half_bits_;
};

}  // namespace gradloom
