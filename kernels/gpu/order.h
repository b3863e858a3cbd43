// Numbers of any type as unsigned keys in the same order, so that searches compare whole numbers only.
#pragma once

#include "kernels/gpu/gpu.h"

namespace gradloom::kernels::gpu {

using Key = unsigned long long;

template <class T>
constexpr int kKeyBits = sizeof(T) == 8 ? 64 : 32;
template <class T>
constexpr Key kLargestKey = ~0ull >> (64 - kKeyBits<T>);

GRADLOOM_DEVICE Key ascending_key(float v) {
  const unsigned bits = __builtin_bit_cast(unsigned, v);
  if (bits << 1 == 0) return 0x80000000u;  // -0 is 0
  return bits >> 31 != 0 ? ~bits : bits | 0x80000000u;
}
GRADLOOM_DEVICE Key ascending_key(double v) {
  const Key bits = __builtin_bit_cast(Key, v);
  if (bits << 1 == 0) return 1ull << 63;
  return bits >> 63 != 0 ? ~bits : bits | 1ull << 63;
}
GRADLOOM_DEVICE Key ascending_key(f16 v) { return ascending_key(to_float(v)); }
GRADLOOM_DEVICE Key ascending_key(bf16 v) { return ascending_key(to_float(v)); }
template <class T>
GRADLOOM_DEVICE Key ascending_key(T v) {
  if constexpr (sizeof(T) == 8) return T(-1) < T(0) ? Key(v) ^ 1ull << 63 : Key(v);
  return T(-1) < T(0) ? unsigned(int(v)) ^ 0x80000000u : unsigned(v);
}

template <class T>
GRADLOOM_DEVICE bool is_nan(T v) {
  const auto x = to_accum(v);
  return x != x;
}

// The larger, the better: NaN has the best key, or the worst.
template <class T>
GRADLOOM_DEVICE Key rank_key(T v, bool largest, bool nan_best) {
  if (is_nan(v)) return nan_best ? kLargestKey<T> : 0;
  const Key key = ascending_key(v);
  return largest ? key : kLargestKey<T> - key;
}

}  // namespace gradloom::kernels::gpu
