// Panels of matrices as products read them: lines (rows of A, columns of B) side by side, one k after the other.
#pragma once

#include "kernels/cpu/lanes.h"

namespace gradloom::kernels::GRADLOOM_ISA {

// Rows become columns, in registers of 32 bytes: pairs within their halves, then the halves.
template <class V>
GRADLOOM_INLINE void transpose(V (&x)[8]) {
  V pairs[8], fours[8];
#pragma GCC unroll 4
  for (int i = 0; i < 8; i += 2) {
    pairs[i] = __builtin_shufflevector(x[i], x[i + 1], 0, 8, 1, 9, 4, 12, 5, 13);
    pairs[i + 1] = __builtin_shufflevector(x[i], x[i + 1], 2, 10, 3, 11, 6, 14, 7, 15);
  }
#pragma GCC unroll 2
  for (int i = 0; i < 8; i += 4)
#pragma GCC unroll 2
    for (int j = 0; j < 2; ++j) {
      const auto &low = pairs[i + j], &high = pairs[i + j + 2];
      fours[i + 2 * j] = __builtin_shufflevector(low, high, 0, 1, 8, 9, 4, 5, 12, 13);
      fours[i + 2 * j + 1] = __builtin_shufflevector(low, high, 2, 3, 10, 11, 6, 7, 14, 15);
    }
#pragma GCC unroll 4
  for (int i = 0; i < 4; ++i) {
    x[i] = __builtin_shufflevector(fours[i], fours[i + 4], 0, 1, 2, 3, 8, 9, 10, 11);
    x[i + 4] = __builtin_shufflevector(fours[i], fours[i + 4], 4, 5, 6, 7, 12, 13, 14, 15);
  }
}
template <class V>
GRADLOOM_INLINE void transpose(V (&x)[4]) {
  V pairs[4];
#pragma GCC unroll 2
  for (int i = 0; i < 4; i += 2) {
    pairs[i] = __builtin_shufflevector(x[i], x[i + 1], 0, 4, 2, 6);
    pairs[i + 1] = __builtin_shufflevector(x[i], x[i + 1], 1, 5, 3, 7);
  }
#pragma GCC unroll 2
  for (int i = 0; i < 2; ++i) {
    x[i] = __builtin_shufflevector(pairs[i], pairs[i + 2], 0, 1, 4, 5);
    x[i + 2] = __builtin_shufflevector(pairs[i], pairs[i + 2], 2, 3, 6, 7);
  }
}

#if defined(__AVX512F__)
// Rows become columns, in registers of 64 bytes: within their quarters, then the quarters.
GRADLOOM_INLINE void transpose(Vec<unsigned> (&x)[16]) {
  Vec<unsigned> y[16];
  const auto i512 = [](const Vec<unsigned>& v) { return __builtin_bit_cast(__m512i, v); };
  const auto back = [](const __m512i& v) { return __builtin_bit_cast(Vec<unsigned>, v); };
#pragma GCC unroll 8
  for (int i = 0; i < 16; i += 2) {
    y[i] = __builtin_shufflevector(x[i], x[i + 1], 0, 16, 1, 17, 4, 20, 5, 21, 8, 24, 9, 25, 12, 28, 13, 29);
    y[i + 1] =
        __builtin_shufflevector(x[i], x[i + 1], 2, 18, 3, 19, 6, 22, 7, 23, 10, 26, 11, 27, 14, 30, 15, 31);
  }
#pragma GCC unroll 4
  for (int i = 0; i < 16; i += 4)
#pragma GCC unroll 2
    for (int j = 0; j < 2; ++j) {  // x[i + c]: column c of each quarter, of rows i..i+3
      const auto &low = y[i + j], &high = y[i + j + 2];
      x[i + 2 * j] =
          __builtin_shufflevector(low, high, 0, 1, 16, 17, 4, 5, 20, 21, 8, 9, 24, 25, 12, 13, 28, 29);
      x[i + 2 * j + 1] =
          __builtin_shufflevector(low, high, 2, 3, 18, 19, 6, 7, 22, 23, 10, 11, 26, 27, 14, 15, 30, 31);
    }
#pragma GCC unroll 4
  for (int c = 0; c < 4; ++c) {
    const __m512i a = i512(x[c]), b = i512(x[4 + c]), d = i512(x[8 + c]), e = i512(x[12 + c]);
    const __m512i ab0 = _mm512_maskz_shuffle_i32x4(kEveryLane, a, b, 0x44),
                  ab1 = _mm512_maskz_shuffle_i32x4(kEveryLane, a, b, 0xee),
                  de0 = _mm512_maskz_shuffle_i32x4(kEveryLane, d, e, 0x44),
                  de1 = _mm512_maskz_shuffle_i32x4(kEveryLane, d, e, 0xee);
    y[c] = back(_mm512_maskz_shuffle_i32x4(kEveryLane, ab0, de0, 0x88));
    y[4 + c] = back(_mm512_maskz_shuffle_i32x4(kEveryLane, ab0, de0, 0xdd));
    y[8 + c] = back(_mm512_maskz_shuffle_i32x4(kEveryLane, ab1, de1, 0x88));
    y[12 + c] = back(_mm512_maskz_shuffle_i32x4(kEveryLane, ab1, de1, 0xdd));
  }
#pragma GCC unroll 16
  for (int i = 0; i < 16; ++i) x[i] = y[i];
}
#endif

// A panel of `width` lines whose elements lie beside one another: out[k][line]. `count` of the lines are there, the
// others are zero; they lie line_bytes apart. What is written beyond one k's lines, and beyond the panel, is
// overwritten by the next.
template <class T, i64 width>
GRADLOOM_INLINE void pack_transposed(const char* x, i64 line_bytes, i64 count, i64 depth, T* out) {
  constexpr int n = 32 / int(sizeof(T));
  using V = typename VecOf<T, 32>::type;
  i64 k = 0;
  for (; k + n <= depth; k += n) {
    V blocks[ceil_div(width, n)][n];
#pragma GCC unroll 8
    for (i64 block = 0; block * n < width; ++block) {
#pragma GCC unroll 8
      for (i64 i = 0; i < n; ++i) {
        const i64 line = block * n + i;
        blocks[block][i] = V{};
        if (line < smaller(count, width))
          __builtin_memcpy(&blocks[block][i], x + line * line_bytes + k * i64(sizeof(T)), sizeof(V));
      }
      transpose(blocks[block]);
    }
#pragma GCC unroll 8
    for (i64 i = 0; i < n; ++i)
#pragma GCC unroll 8
      for (i64 block = 0; block * n < width; ++block)
        __builtin_memcpy(out + (k + i) * width + block * n, &blocks[block][i], sizeof(V));
  }
  for (; k < depth; ++k)
    for (i64 i = 0; i < width; ++i) {
      out[k * width + i] = T(0);
      if (i < count)
        __builtin_memcpy(out + k * width + i, x + i * line_bytes + k * i64(sizeof(T)), sizeof(T));
    }
}

}  // namespace gradloom::kernels::GRADLOOM_ISA
