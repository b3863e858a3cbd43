// States of optimizers in 8 bits, the same text for every device: numbers in blocks of kCodeBlock, each as a scale and codes of a
// map that has small steps near 0 and large ones near 1 (dynamic quantization).
//   number = map(code) scale, scale = the number of the block with the largest size, with its sign
//   map of any numbers:     code 127 is 0, code 127 + n is mean(i, n), code 127 - n is -mean(i, n), n in 1..127; code 255 is 1
//   map of positive ones:   code 0 is 0, code n - 1 is mean(i, n), n in 2..255; code 255 is 1
//   mean(i, n) = 10^(i - 6) (0.9 (n + 0.5) / part(i) - 0.8): decade i in 0..6 is cut into part(i) = 2^i (positive: 2^(i + 1))
//   equal parts, n in part(i)..2 part(i) - 1
// The code of a number is that of the nearest value, but that no number above 0 becomes 0 in the map of positive ones: a second
// moment that vanishes would leave its first moment divided by eps. The largest number of a block is exact, as its scale has its
// sign, so encoding what was decoded gives the same bytes. Scales below 1e-37 are 0; where a number of the block is not finite as f32,
// its scale is NaN and so is every number of the block.
// In memory: a scale (f32) for each block, then a code (byte) for each number; zeros in all bytes are zeros.
// Source: Dettmers, Lewis, Shleifer, Zettlemoyer: 8-bit Optimizers via Block-wise Quantization, ICLR 2022; the maps are those of
// bitsandbytes' create_dynamic_map (its scales have no signs).
#pragma once

#include "kernels/math.h"

namespace gradloom::kernels::GRADLOOM_MATH_NAMESPACE {

constexpr int kCodeBlock = 256, kCodes = 256;

GRADLOOM_HD constexpr long long code_blocks(long long numbers) {
  return (numbers + kCodeBlock - 1) / kCodeBlock;
}
GRADLOOM_HD constexpr long long encoded_bytes(long long numbers) {
  return code_blocks(numbers) * (long long)sizeof(float) + numbers;
}

// Of decade i: how many parts it has, and how large its end is.
GRADLOOM_HD constexpr int code_parts(int decade, bool positive) { return (positive ? 2 : 1) << decade; }
GRADLOOM_HD constexpr double decade_end(int decade) {
  constexpr double kEnds[] = {1e-6, 1e-5, 1e-4, 1e-3, 1e-2, 1e-1, 1};
  return kEnds[decade];
}
GRADLOOM_HD constexpr double code_mean(int decade, int n, bool positive) {
  return decade_end(decade) * (0.9 * (n + 0.5) / code_parts(decade, positive) - 0.8);
}

GRADLOOM_HD constexpr float map_value(int code, bool positive) {
  if (code == kCodes - 1) return 1;
  const int signed_n = positive ? code + 1 : code - 127, n = signed_n < 0 ? -signed_n : signed_n;
  if (n == (positive ? 1 : 0)) return 0;
  int decade = 0;
  while (n >= 2 * code_parts(decade, positive)) ++decade;
  const float mean = float(code_mean(decade, n, positive));
  return signed_n < 0 ? -mean : mean;
}

// The code of number / scale.
template <bool positive>
GRADLOOM_HD int code_of(float ratio) {
  constexpr int kLeast = code_parts(0, positive), kMost = code_parts(7, positive);
  // Between the largest mean of a decade and the least of the next; between the two next to 0 and to 1.
  constexpr float kAboveZero = float(code_mean(0, kLeast, positive) / 2),
                  kBelowOne = float((code_mean(6, kMost - 1, positive) + 1) / 2);
  const float size = ratio < 0 ? -ratio : ratio;
  int parts = kLeast;
  float per_size = float(kLeast / (0.9 * decade_end(0)));
#define GRADLOOM_DECADE(i)                                                                              \
  {                                                                                                     \
    constexpr int kParts = code_parts(i, positive);                                                     \
    constexpr float kFrom = float(                                                                      \
                        (code_mean(i - 1, kParts - 1, positive) + code_mean(i, kParts, positive)) / 2), \
                    kPerSize = float(kParts / (0.9 * decade_end(i)));                                   \
    parts = size >= kFrom ? kParts : parts;                                                             \
    per_size = size >= kFrom ? kPerSize : per_size;                                                     \
  }
  GRADLOOM_DECADE(1)
  GRADLOOM_DECADE(2)
  GRADLOOM_DECADE(3)
  GRADLOOM_DECADE(4)
  GRADLOOM_DECADE(5)
  GRADLOOM_DECADE(6)
#undef GRADLOOM_DECADE
  int n = int(size * per_size + float(parts) * float(0.8 / 0.9));
  n = n < parts ? parts : n > 2 * parts - 1 ? 2 * parts - 1 : n;
  n = size >= kBelowOne && ratio > 0 ? kMost : n;
  if (positive) return (size > 0 ? n : 1) - 1;
  n = size < kAboveZero ? 0 : n;
  return ratio < 0 ? 127 - n : 127 + n;
}

// The scale of a block whose numbers lie from `least` to `most` (NaN: one of them is).
template <class T>
GRADLOOM_HD float block_scale(T least, T most) {
  const float scale = float(most >= -least ? most : least), size = scale < 0 ? -scale : scale;
  const float nan = __builtin_bit_cast(float, 0x7fc00000u);
  // A NaN is neither above nor below.
  return most >= -least || most < -least ? (size <= 3.40282347e38f ? (size < 1e-37f ? 0.0f : scale) : nan)
                                         : nan;
}

// The code of a number in a block of this scale.
template <bool positive, class T>
GRADLOOM_HD int code_in_block(T number, float scale) {
  return code_of<positive>(scale > 0 || scale < 0 ? float(number / T(scale)) : 0.0f);
}

}  // namespace gradloom::kernels::GRADLOOM_MATH_NAMESPACE
