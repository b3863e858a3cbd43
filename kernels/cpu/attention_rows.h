// What attention and its gradient share (attention.cpp, attention_grad.cpp): heads, scores of a panel of rows, masks.
#pragma once

#include "kernels/cpu/pairs.h"
#include "kernels/cpu/softmax_rows.h"
#include "kernels/cpu/uniforms.h"

namespace gradloom::kernels::GRADLOOM_ISA {

GRADLOOM_INLINE i64 rounded_up(i64 n, i64 step) { return ceil_div(n, step) * step; }

GRADLOOM_INLINE i64 heads_of(const FlashAttentionArgs& args) {
  i64 heads = 1;
  for (int d = 0; d < args.batch_rank; ++d) heads *= args.batch_dims[d];
  return heads;
}

// `head` of a tensor of which these are the strides of the batch dims.
template <class T>
GRADLOOM_INLINE T* head_at(const FlashAttentionArgs& args, i64 head, const i64 (&strides)[kEwMaxRank],
                           T* tensor) {
  i64 at = 0;
  for (int d = args.batch_rank - 1; d >= 0; --d) {
    at += head % args.batch_dims[d] * strides[d];
    head /= args.batch_dims[d];
  }
  return tensor + at;
}
GRADLOOM_INLINE const Brain* head_of(const FlashAttentionArgs& args, i64 head,
                                     const i64 (&strides)[kEwMaxRank], const void* tensor) {
  return head_at(args, head, strides, static_cast<const Brain*>(tensor));
}

// Keys that row `row` can see.
GRADLOOM_INLINE i64 keys_of(const FlashAttentionArgs& args, i64 row) {
  return smaller(args.keys, row + args.reach);
}

// Elements from one row of scores to the next: whole registers of all keys and more, so that rows do not lie a multiple of a page apart.
GRADLOOM_INLINE i64 score_pitch(const FlashAttentionArgs& args) {
  return rounded_up(args.keys, kPairColumns) + 3 * kPairColumns / 2;
}

// Parts of a thread's scratch, in bytes.
struct ScratchParts {
  i64 bytes = 0;
  template <class T>
  GRADLOOM_INLINE i64 take(i64 count) {
    const i64 at = bytes;
    bytes += rounded_up(count * i64(sizeof(T)), 64);
    return at;
  }
};
template <class T>
GRADLOOM_INLINE T* scratch_at(void* scratch, i64 at) {
  return reinterpret_cast<T*>(static_cast<char*>(scratch) + at);
}

// The first rows of a panel of A times panels of B: `columns` of them, times scale, into rows of `out` that lie pitch apart.
inline void panel_scores(const Pair* a, const Pair* b, i64 steps, i64 columns, float scale, float* out,
                         i64 pitch) {
  for (i64 j = 0; j < columns; j += kPairColumns, b += kPairColumns * steps) {
    Vec<float> sums[kPairRows][kPairRegisters] = {};
    multiply_pairs<kPairRows, kPairRegisters>(a, 1, kPairRowPitch, b, kPairColumns, steps, sums);
    put_sums(sums, scale, kPairRows, kPairColumns, out + j, pitch, 1);
  }
}

// `row` of a head's mask as [keys]; Set: Brain of sums, std::uint8_t of what hides or shows.
template <class Set>
GRADLOOM_INLINE const Set* mask_row(const FlashAttentionArgs& args, i64 head, i64 row) {
  return head_at(args, head, args.mask_batch, static_cast<const Set*>(args.mask)) + row * args.mask_row;
}

// What the mask makes of the first n scores of a row.
inline void mask_scores(const FlashAttentionArgs& args, i64 head, i64 row, i64 n, float* x) {
  if (args.mask_mode == AttentionMask::none) return;
  if (args.mask_mode == AttentionMask::add) {
    const Brain* const added = mask_row<Brain>(args, head, row);
    if (args.mask_col == 1)
      return for_computed(added, n, [&](i64 i, const auto& v) { put(x + i, get(x + i, v) + v); });
    for (i64 i = 0; i < n; ++i) x[i] += widen(added[i * args.mask_col]);
    return;
  }
  const std::uint8_t* const set = mask_row<std::uint8_t>(args, head, row);
  const bool shows = args.mask_mode == AttentionMask::keep;
  const float fill = float(args.fill);
  for (i64 i = 0; i < n; ++i) x[i] = (set[i * args.mask_col] != 0) == shows ? x[i] : fill;
}

// Dropout of the first n probabilities of a row, or of their gradients.
inline void drop_shares(const FlashAttentionArgs& args, i64 head, i64 row, i64 n, const float* x, float* y) {
  const i64 run = args.part_run,
            number = run == 0 ? head : head / run * run * args.parts + args.part * run + head % run;
  drop_run(*args.random, args.key, args.dropout, (number * args.rows + row) * args.keys, n, x, y);
}

}  // namespace gradloom::kernels::GRADLOOM_ISA
