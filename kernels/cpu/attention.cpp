// Attention of bf16 (arguments/attention.h): a part is a head, or a chunk of its rows where heads are few. Keys and values are packed once for it; then a panel of
// rows at a time its scores stay in the nearest cache, become probabilities, and meet the values. Keys that no row of a panel sees are
// left out.
#include "kernels/cpu/attention_rows.h"
#include "kernels/cpu/workspace.h"

namespace gradloom::kernels::GRADLOOM_ISA {
namespace {

struct AttentionParts : ScratchParts {
  i64 pitch, keys, values, queries, scores, shares;
  explicit AttentionParts(const FlashAttentionArgs& args) : pitch(score_pitch(args)) {
    const i64 all_keys = rounded_up(args.keys, kPairColumns);
    keys = take<Pair>(all_keys * ceil_div(args.d, 2));
    values = take<Pair>(rounded_up(args.e, kPairColumns) * ceil_div(args.keys, 2));
    queries = take<Pair>(kPairRowPitch * ceil_div(args.d, 2));
    scores = take<float>(kPairRows * pitch);
    shares = take<Brain>(kPairRows * pitch);
  }
};

// Sum of exp(x - peak) of whole registers up to `end`, which go to y in bf16. Even many registers.
double narrow_exponentials(const float* x, i64 end, float peak, Brain* y) {
  constexpr i64 lanes = kLanes<float>;
  double total = 0;
  for (i64 begin = 0; begin < end; begin += kSumBlock) {
    Vec<float> even = {}, odd = {};
    for (i64 i = begin; i < smaller(end, begin + kSumBlock); i += 2 * lanes) {
      const Vec<float> first = exp_down(load(x + i) - peak), second = exp_down(load(x + i + lanes) - peak);
      even += first;
      odd += second;
      put_narrow(y + i, first, second);
    }
    total += lane_sum(even + odd);
  }
  return total;
}

// Scores of a row -> exponentials in bf16, zeros from its last key to `last`, and what they are to be multiplied with to be probabilities.
float row_shares(const FlashAttentionArgs& args, i64 head, i64 row, i64 last, float* x, Brain* y) {
  const i64 n = keys_of(args, row);
  mask_scores(args, head, row, n, x);
  for (i64 i = n; i < last; ++i) x[i] = -__builtin_inff();
  const SoftmaxArgs form{DType::f32, false, 1, n, 1, nullptr, nullptr, args.safe};
  const float peak = based(form, peak_of(x, n));
  const double total = narrow_exponentials(x, last, peak, y);
  if (args.log_sum_exp != nullptr)
    args.log_sum_exp[head * args.rows + row] =
        total == 0 ? -__builtin_inff() : float(double(peak) + log(total));
  if (args.dropout > 0) {
    for_registers<float>(n, [&](i64 i, auto like) { put(x + i, exp_down(get(x + i, like) - peak)); });
    drop_shares(args, head, row, n, x, x);
    for (i64 i = n; i < last; ++i) x[i] = 0;
    for (i64 i = 0; i < last; i += 2 * kLanes<float>)
      put_narrow(y + i, load(x + i), load(x + i + kLanes<float>));
  }
  return share<float>(form, total);
}

void attend_rows(const FlashAttentionArgs& args, i64 head, i64 begin, i64 end) {
  const AttentionParts parts(args);
  void* const scratch = thread_scratch(std::size_t(parts.bytes));
  Pair *const keys = scratch_at<Pair>(scratch, parts.keys),
              *const values = scratch_at<Pair>(scratch, parts.values),
              *const queries = scratch_at<Pair>(scratch, parts.queries);
  float* const scores = scratch_at<float>(scratch, parts.scores);
  Brain* const shares = scratch_at<Brain>(scratch, parts.shares);
  const i64 seen = keys_of(args, end - 1), steps = ceil_div(args.d, 2),
            value_words = kPairColumns * ceil_div(seen, 2);
  const Brain *const q = head_of(args, head, args.q_batch, args.q),
                     *const k = head_of(args, head, args.k_batch, args.k),
                     *const v = head_of(args, head, args.v_batch, args.v);
  Brain* const y = head_at(args, head, args.y_batch, static_cast<Brain*>(args.y));
  pack_panels<kPairColumns>(k, args.k_row, args.k_col, seen, args.d, keys);
  pack_panels<kPairColumns>(v, args.v_col, args.v_row, args.e, seen, values);
  for (i64 row = begin; row < end; row += kPairRows) {
    const i64 rows = smaller(kPairRows, end - row), last = keys_of(args, row + rows - 1),
              filled = rounded_up(last, 2 * kLanes<float>);
    pack_pairs<kPairRowPitch>(q + row * args.q_row, args.q_row, args.q_col, rows, args.d, queries);
    panel_scores(queries, keys, steps, last, float(args.scale), scores, parts.pitch);
    float factor[kPairRows] = {};
    for (i64 r = 0; r < rows; ++r)
      factor[r] = row_shares(args, head, row + r, filled, scores + r * parts.pitch, shares + r * parts.pitch);
    for (i64 j = 0; j < args.e; j += kPairColumns) {
      Vec<float> sums[kPairRows][kPairRegisters] = {};
      multiply_pairs<kPairRows, kPairRegisters>(reinterpret_cast<const Pair*>(shares), parts.pitch / 2, 1,
                                                values + j / kPairColumns * value_words, kPairColumns,
                                                ceil_div(last, 2), sums);
      put_scaled(
          sums, [&](i64 r) { return factor[r]; }, rows, smaller(kPairColumns, args.e - j),
          y + row * args.y_row + j * args.y_col, args.y_row, args.y_col);
    }
  }
}

}  // namespace

void flash_attention(const FlashAttentionArgs& args) {
  const i64 heads = heads_of(args), parts = attention_parts(args),
            rows = rounded_up(ceil_div(args.rows, parts), kPairRows),
            chunks = ceil_div(args.rows, larger(1, rows));
  parallel_for(heads * chunks, heads * args.rows * args.keys * (args.d + args.e), [&](i64 part) {
    const i64 begin = (chunks - 1 - part / heads) * rows;  // those that see most keys first
    attend_rows(args, part % heads, begin, smaller(args.rows, begin + rows));
  });
}

}  // namespace gradloom::kernels::GRADLOOM_ISA
