// Arguments of our own attention (conventions: kernels/arguments.h).
#pragma once

#include "kernels/arguments/elements.h"
#include "kernels/types.h"

namespace gradloom::kernels {

// What a mask does to the scores: add: is added; keep (bool): where false the score is `fill`; block: where true.
enum class AttentionMask : std::uint8_t { none, add, keep, block };

// y = D(softmax(mask(scale q k^T))) v, D being dropout, without scores in memory. Half types, on the CPU bf16 (pair_products, prepared/bf16.h);
// scores and sums are f32. q: [batch.., rows, d], k: [.., keys, d], v: [.., keys, e], y: [.., rows, e], each with strides in elements; mask:
// [.., rows, keys], 0 where it is the same for all.
struct FlashAttentionArgs {
  DType dtype;
  int batch_rank;
  std::int64_t batch_dims[kEwMaxRank], q_batch[kEwMaxRank], k_batch[kEwMaxRank], v_batch[kEwMaxRank],
      y_batch[kEwMaxRank], mask_batch[kEwMaxRank];
  std::int64_t rows, keys, d, e;
  std::int64_t q_row, q_col, k_row, k_col, v_row, v_col, y_row, y_col, mask_row, mask_col;
  // Row r sees no key from r + reach on, whatever the mask says; 1: as a causal attention, keys: all.
  std::int64_t reach;
  double scale;
  AttentionMask mask_mode;
  double fill;
  bool safe;  // a row whose scores are all -inf has probabilities of 0, else of NaN
  // Of probability (b, r, c) the random number is that of element (b * rows + r) * keys + c, as Dropout's (kernels/philox.h).
  double dropout;
  std::uint64_t key;
  // Where the batch is a part of a larger one: of each part_run x parts of its elements in a row the part-th part_run; 0: it is whole.
  std::int64_t part_run, parts, part;
  const void *q, *k, *v, *mask;
  void* y;
  float* log_sum_exp;  // of the scores of each row, dense: [batch.., rows]; null: it is not wanted
  const RandomState* random;
};
// forward.y and forward.log_sum_exp are read. dy, dq, dk, dv of the shapes of y, q, k, v, with strides of their own. Rows whose log-sum-exp
// does not tell their probabilities (kTellingLogSumExp, rows.h) find them as the forward does. workspace: of a GPU three f32 per row.
struct FlashAttentionGradArgs {
  FlashAttentionArgs forward;
  std::int64_t dy_batch[kEwMaxRank], dq_batch[kEwMaxRank], dk_batch[kEwMaxRank], dv_batch[kEwMaxRank];
  std::int64_t dy_row, dy_col, dq_row, dq_col, dk_row, dk_col, dv_row, dv_col;
  const void* dy;
  void *dq, *dk, *dv;
  void* workspace;
};

// What computes it, as it is told to users.
constexpr const char* kFlashAttentionName = "our own kernel in one piece, without scores in memory";

// What the kernels take: columns that a warp's registers hold, indices that are ints.
constexpr std::int64_t kFlashColumns = 256;
constexpr bool takes_flash_attention(DType dtype, std::int64_t rows, std::int64_t keys, std::int64_t d,
                                     std::int64_t e) {
  constexpr std::int64_t kMost = std::int64_t{1} << 29;
  return is_half(dtype) && d <= kFlashColumns && e <= kFlashColumns && rows < kMost && keys < kMost;
}

}  // namespace gradloom::kernels

// clang-format off
// Its kernels: K(name, arguments).
#define GRADLOOM_ATTENTION_KERNELS(K) \
  K(flash_attention, FlashAttentionArgs) K(flash_attention_grad, FlashAttentionGradArgs)
// clang-format on
