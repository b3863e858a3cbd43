// Products of bf16 with f32 sums, as AVX512_BF16 multiplies them: the numbers of two neighbouring k lie in one word, a pair, the first in
// its lower half. Denormal numbers count as 0, and each addition is rounded (Intel's manual, VDPBF16PS). Level v4 REQUIRES a processor
// that has AVX512_BF16; lower levels multiply the halves of a pair one after the other.
#pragma once

#include "kernels/cpu/halves.h"
#include "kernels/cpu/panels.h"

namespace gradloom::kernels::GRADLOOM_ISA {

using Pair = std::uint32_t;

// Sums of so many rows and registers of columns stay in registers while pairs of A pass pairs of B.
// Panels of rows have room for whole registers.
#if defined(__AVX512F__)
constexpr i64 kPairRows = 12, kPairRowPitch = 16;
#else
constexpr i64 kPairRows = 4, kPairRowPitch = 4;
#endif
constexpr i64 kPairRegisters = 2, kPairColumns = kPairRegisters * kLanes<float>;

// sums + a's halves * b's halves, lane by lane.
GRADLOOM_INLINE Vec<float> add_products(Vec<float> sums, const Vec<unsigned>& a, const Vec<unsigned>& b) {
#if defined(__AVX512F__)
  asm("vdpbf16ps %2, %1, %0" : "+v"(sums) : "v"(a), "v"(b));
#else
  const auto value = [](const Vec<unsigned>& bits) { return __builtin_bit_cast(Vec<float>, bits); };
  sums += value(a & 0xffff0000u) * value(b & 0xffff0000u);
  sums += value(a << 16) * value(b << 16);
#endif
  return sums;
}

// Rows of A times registers of columns of B over `steps` pairs of k, added to sums. a: rows a_row, steps a_step words apart; b: steps
// b_step words apart, columns side by side.
template <i64 rows, i64 registers>
GRADLOOM_INLINE void multiply_pairs(const Pair* a, i64 a_row, i64 a_step, const Pair* b, i64 b_step,
                                    i64 steps, Vec<float> (&sums)[rows][registers]) {
  constexpr i64 together = 3;  // rows that one address reaches
  const Pair* group[ceil_div(rows, together)];
  for (i64 g = 0; g < ceil_div(rows, together); ++g) group[g] = a + g * together * a_row;
  for (i64 step = 0; step < steps; ++step) {
    Vec<unsigned> line[registers];
#pragma GCC unroll 4
    for (i64 v = 0; v < registers; ++v) line[v] = load(b + v * kLanes<float>);
    b += b_step;
#pragma GCC unroll 12
    for (i64 r = 0; r < rows; ++r) {
      const Vec<unsigned> value = group[r / together][r % together * a_row] - Vec<unsigned>{};
#pragma GCC unroll 4
      for (i64 v = 0; v < registers; ++v) sums[r][v] = add_products(sums[r][v], value, line[v]);
    }
    for (i64 g = 0; g < ceil_div(rows, together); ++g) group[g] += a_step;
  }
}

// A row of `width` words of two rows of 16-bit numbers, those of `first` in the lower halves; second null: zeros.
template <i64 width>
GRADLOOM_INLINE void pair_up(const Brain* first, const Brain* second, Pair* out) {
#if defined(__AVX512F__)
  static_assert(width % 16 == 0);
#pragma GCC unroll 2
  for (i64 i = 0; i < width; i += 16) {
    const auto wide = [i](const Brain* x) {
      return _mm512_maskz_cvtepu16_epi32(kEveryLane,
                                         _mm256_loadu_si256(reinterpret_cast<const __m256i*>(x + i)));
    };
    __m512i words = wide(first);
    if (second != nullptr) words |= _mm512_maskz_slli_epi32(kEveryLane, wide(second), 16);
    __builtin_memcpy(out + i, &words, sizeof words);
  }
#else
  for (i64 i = 0; i < width; ++i)
    out[i] = first[i].bits | (second == nullptr ? 0u : unsigned(second[i].bits) << 16);
#endif
}

// Whole pairs of lines whose numbers lie beside one another -> out[pair][line], as pack_transposed.
template <i64 width>
GRADLOOM_INLINE void pack_pairs_transposed(const char* x, i64 line_bytes, i64 count, i64 pairs, Pair* out) {
#if defined(__AVX512F__)
  i64 k = 0;
  for (; k + 16 <= pairs; k += 16, x += 64, out += 16 * width)
    for (i64 block = 0; block < width; block += 16) {
      Vec<unsigned> words[16];
#pragma GCC unroll 16
      for (i64 i = 0; i < 16; ++i) {
        words[i] = Vec<unsigned>{};
        if (block + i < smaller(count, width)) __builtin_memcpy(&words[i], x + (block + i) * line_bytes, 64);
      }
      transpose(words);
#pragma GCC unroll 16
      for (i64 i = 0; i < 16; ++i) store(out + i * width + block, words[i]);
    }
  pack_transposed<Pair, width>(x, line_bytes, count, pairs - k, out);
#else
  pack_transposed<Pair, width>(x, line_bytes, count, pairs, out);
#endif
}

// Lines of `depth` numbers -> out[pair of k][line]; lines from `count` on are zero, and so is what an odd depth lacks.
template <i64 width>
void pack_pairs(const Brain* x, i64 line_stride, i64 depth_stride, i64 count, i64 depth, Pair* out) {
  const i64 pairs = depth / 2;
  i64 k = 0;
  if (line_stride == 1 && count == width) {
    for (; k < depth; k += 2, out += width) {
      const Brain *const first = x + k * depth_stride, *const second =
                                                           k + 1 < depth ? first + depth_stride : nullptr;
      pair_up<width>(first, second, out);
    }
    return;
  }
  if (depth_stride == 1) {
    const char* const bytes = reinterpret_cast<const char*>(x);
    const i64 line_bytes = line_stride * i64(sizeof(Brain));
    if (count == width) {
      pack_pairs_transposed<width>(bytes, line_bytes, width, pairs, out);
    } else {
      pack_pairs_transposed<width>(bytes, line_bytes, count, pairs, out);
    }
    k = 2 * pairs;
    out += pairs * width;
  }
  for (; k < depth; k += 2, out += width)
    for (i64 i = 0; i < width; ++i) {
      const Brain* const at = x + i * line_stride + k * depth_stride;
      Pair pair = i < count ? at->bits : 0;
      if (i < count && k + 1 < depth) pair |= Pair(at[depth_stride].bits) << 16;
      out[i] = pair;
    }
}

// Panels of `width` lines one after the other.
template <i64 width>
void pack_panels(const Brain* x, i64 line_stride, i64 depth_stride, i64 lines, i64 depth, Pair* out) {
  const i64 words = width * ceil_div(depth, 2);
  for (i64 first = 0; first < lines; first += width, out += words)
    pack_pairs<width>(x + first * line_stride, line_stride, depth_stride, smaller(width, lines - first),
                      depth, out);
}

// Two registers as 16-bit numbers, rounded to the nearest, ties to even: those of `first` in the lower halves, or one after the other.
GRADLOOM_INLINE Vec<unsigned> paired(const Vec<float>& first, const Vec<float>& second) {
#if defined(__AVX512F__)
  Vec<std::uint16_t> halves;
  asm("vcvtne2ps2bf16 %1, %2, %0" : "=v"(halves) : "v"(first), "v"(second));
  return __builtin_bit_cast(
      Vec<unsigned>,
      __builtin_shufflevector(halves, halves, 0, 16, 1, 17, 2, 18, 3, 19, 4, 20, 5, 21, 6, 22, 7, 23, 8, 24,
                              9, 25, 10, 26, 11, 27, 12, 28, 13, 29, 14, 30, 15, 31));
#else
  return brain_bits<Vec<unsigned> >(first) | brain_bits<Vec<unsigned> >(second) << 16;
#endif
}
GRADLOOM_INLINE void put_narrow(Brain* p, const Vec<float>& first, const Vec<float>& second) {
#if defined(__AVX512F__)
  Vec<std::uint16_t> halves;
  asm("vcvtne2ps2bf16 %1, %2, %0" : "=v"(halves) : "v"(first), "v"(second));
  __builtin_memcpy(p, &halves, sizeof halves);
#else
  put_computed(p, first);
  put_computed(p + kLanes<float>, second);
#endif
}

// rows x columns of sums, times what scale_of(row) says, into bf16 or f32 (Out) with any strides.
template <i64 rows, i64 registers, class Out, class ScaleOf>
GRADLOOM_INLINE void put_scaled(const Vec<float> (&sums)[rows][registers], const ScaleOf& scale_of,
                                i64 row_count, i64 columns, Out* out, i64 row_stride, i64 column_stride) {
  if (row_count == rows && columns == registers * kLanes<float> && column_stride == 1) {
#pragma GCC unroll 12
    for (i64 r = 0; r < rows; ++r)
#pragma GCC unroll 4
      for (i64 v = 0; v < registers; ++v)
        put_computed(out + r * row_stride + v * kLanes<float>, scale_of(r) * sums[r][v]);
    return;
  }
  alignas(64) float all[rows * registers * kLanes<float>];
#pragma GCC unroll 12
  for (i64 r = 0; r < rows; ++r)
#pragma GCC unroll 4
    for (i64 v = 0; v < registers; ++v)
      store(all + (r * registers + v) * kLanes<float>, scale_of(r) * sums[r][v]);
  for (i64 r = 0; r < row_count; ++r)
    for (i64 c = 0; c < columns; ++c)
      out[r * row_stride + c * column_stride] = narrow<Out>(all[r * registers * kLanes<float> + c]);
}
template <i64 rows, i64 registers, class Out>
GRADLOOM_INLINE void put_sums(const Vec<float> (&sums)[rows][registers], float scale, i64 row_count,
                              i64 columns, Out* out, i64 row_stride, i64 column_stride) {
  put_scaled(
      sums, [scale](i64) { return scale; }, row_count, columns, out, row_stride, column_stride);
}

}  // namespace gradloom::kernels::GRADLOOM_ISA
