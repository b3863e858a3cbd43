// Division of an index by a number that is fixed when a kernel is launched: a multiplication and a shift
// while all dividends are below 2^31, a plain division otherwise.
//   n / d = (high32(n * magic) + n) >> shift,  shift = ceil(log2 d),  magic = floor(2^32 (2^shift - d) / d) + 1
// (Granlund and Montgomery 1994, section 4.)
#pragma once

#include "kernels/gpu/gpu.h"

namespace gradloom::kernels::gpu {

struct Divider {
  long long divisor = 1;
  unsigned magic = 1, shift = 0;
  bool small = true;

  Divider() = default;
  // limit: no dividend is larger.
  Divider(long long d, long long limit) : divisor(d), small(d > 0 && d < (1ll << 31) && limit < (1ll << 31)) {
    if (!small) return;
    while ((1ll << shift) < d) ++shift;
    magic = unsigned(((1ull << 32) * ((1ull << shift) - static_cast<unsigned long long>(d))) /
                         static_cast<unsigned long long>(d) +
                     1);
  }
  GRADLOOM_DEVICE long long operator()(long long n) const {
    if (!small) return n / divisor;
    const unsigned low = unsigned(n);
    const unsigned high = unsigned((static_cast<unsigned long long>(low) * magic) >> 32);
    return (high + low) >> shift;
  }
};

}  // namespace gradloom::kernels::gpu
