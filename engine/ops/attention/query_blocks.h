// How FusedAttention (attention.cpp) goes through its queries: blocks of rows whose scores fit a small
// workspace, and the keys that a known mask leaves to each.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "engine/ir/op.h"
#include "engine/ops/rank_part.h"
#include "kernels/arguments/attention.h"

namespace gradloom::attention {

using Mask = kernels::AttentionMask;

// A tensor as the products see it: strides of [batch.., row, column].
struct View {
  std::vector<std::int64_t> strides;
  std::int64_t row() const { return strides[strides.size() - 2]; }
};

// The first of FusedAttentionGrad's inputs that are FusedAttention's: q, k, v and the mask, behind dy, y and log-sum-exp.
constexpr std::size_t kGradOperands = 3;

struct Attention {
  Shape batch;
  std::int64_t rows = 0, keys = 0, d = 0, e = 0;
  View q, k, v, y;
  View dy, dq, dk, dv;  // of the gradient
  double scale = 1, fill = 0;
  bool safe = false;  // probabilities of a row that sees nothing are 0
  Mask mask = Mask::none;
  double dropout = 0;            // ratio of probabilities that are dropped
  std::uint64_t random_key = 0;  // whose random numbers, as Dropout's of [batch.., rows, keys]
  RankPart part{};               // where those are a part: in elements of the batch (run 0: they are whole)
  DType dtype = DType::f32;      // of q, k, v, y
  DType scores =
      DType::f32;  // of what lies between the products: dtype, or f32 where they leave f32 (has_wide_results)
};

// Strides of the mask in [batch.., row, key]; broadcast dims have 0.
std::vector<std::int64_t> mask_strides(const Attention& a, const Shape& mask);

struct QueryBlock {
  std::int64_t row, rows, keys;  // scores [batch.., rows, keys] of the rows from `row` on and the first keys
  bool masked;                   // the mask does something to them
};

struct Schedule {
  std::vector<QueryBlock> blocks;
  // Where the mask replaces a score the probability may be more than 0: the replacement does not hide, or a
  // row sees no key at all. True of a mask that is not known.
  bool masked_shares = false;
};

// From shapes and the known mask (null: none, or not known when planning) alone. Keys that it
// hides from all rows of a block are left out: hidden scores are -1e9 or less (of f16 -3e4),
// their probability is 0 beside any other.
Schedule schedule_of(const Attention& a, const Tensor* known);

// What a known mask lets rows see, in every part of the batch.
struct Reach {
  std::int64_t keys;  // row r sees no key from r + keys on
  bool all;           // row r sees every key before, and the mask does nothing else
};
Reach reach_of(const Attention& a, const Tensor& known);

// Whether the mask hides from row r the keys after the r-th, in every part of the
// batch, and does nothing else.
bool hides_the_future_only(const Attention& a, const Tensor& known);

// Whether it hides every key from some row, in some part of the batch.
bool hides_all_of_a_row(const Attention& a, const Tensor& known);

std::int64_t rounded(std::int64_t n, std::int64_t step);  // up

}  // namespace gradloom::attention
