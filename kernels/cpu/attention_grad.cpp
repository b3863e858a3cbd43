// Gradient of attention of bf16 (arguments/attention.h): a part is a head, or some of its rows where heads are few. Blocks of rows make
// their probabilities again, from log-sum-exp, and the slopes of their scores, which stay in the nearer caches for the products behind:
//   p = exp(mask(scale q k^T) - log_sum_exp), dp = D(dy v^T), ds = p (dp - rowsum(p dp))
//   dq = scale ds k; over the blocks dk += ds^T q, times scale, and dv += D(p)^T dy, in f32
// The parts of a head add up in order.
#include "kernels/cpu/attention_rows.h"
#include "kernels/cpu/workspace.h"

namespace gradloom::kernels::GRADLOOM_ISA {
namespace {

constexpr i64 kBlockRows = 96;

struct GradParts : ScratchParts {
  i64 pitch, steps_d, steps_e, keys, values, key_columns, queries, slopes_of_y, block_queries, block_slopes,
      scores, grads, dropped, share_pairs, slope_pairs, slopes;
  explicit GradParts(const FlashAttentionArgs& args)
      : pitch(score_pitch(args)), steps_d(ceil_div(args.d, 2)), steps_e(ceil_div(args.e, 2)) {
    const i64 all_keys = rounded_up(args.keys, kPairColumns), block = kBlockRows / 2;
    keys = take<Pair>(all_keys * steps_d);
    values = take<Pair>(all_keys * steps_e);
    key_columns = take<Pair>(rounded_up(args.d, kPairColumns) * ceil_div(args.keys, 2));
    queries = take<Pair>(kPairRowPitch * steps_d);
    slopes_of_y = take<Pair>(kPairRowPitch * steps_e);
    block_queries = take<Pair>(rounded_up(args.d, kPairColumns) * block);
    block_slopes = take<Pair>(rounded_up(args.e, kPairColumns) * block);
    scores = take<float>(kPairRows * pitch);
    grads = take<float>(kPairRows * pitch);
    dropped = args.dropout > 0 ? take<float>(kPairRows * pitch) : scores;
    share_pairs = take<Pair>(block * pitch);
    slope_pairs = take<Pair>(block * pitch);
    slopes = take<Brain>(kBlockRows * pitch);
  }
};

// What a part of a head's rows works on.
struct GradHead {
  const FlashAttentionGradArgs& args;
  i64 number;
  void* scratch;
  const Brain *q, *k, *v, *dy;
  Brain* dq;
  float *dk, *dv;  // sums, rows of columns filled up to whole panels
};

// 0 where the mask has replaced the score.
void mask_slopes(const FlashAttentionArgs& args, i64 head, i64 row, i64 n, float* x) {
  if (args.mask_mode != AttentionMask::keep && args.mask_mode != AttentionMask::block) return;
  const std::uint8_t* const set = mask_row<std::uint8_t>(args, head, row);
  const bool shows = args.mask_mode == AttentionMask::keep;
  for (i64 i = 0; i < n; ++i) x[i] = (set[i * args.mask_col] != 0) == shows ? x[i] : 0;
}

// Of a row: scores -> probabilities, as values meet them in `dropped`; gradients of those -> slopes; zeros from its last key to `end`.
void row_slopes(const FlashAttentionArgs& args, i64 head, i64 row, i64 end, float* x, float* grads,
                float* dropped) {
  const i64 n = keys_of(args, row);
  mask_scores(args, head, row, n, x);
  softmax_again_row<float>({DType::f32, 1, n, nullptr, nullptr, nullptr, args.safe},
                           args.log_sum_exp[head * args.rows + row], x, x);
  if (args.dropout > 0) {
    drop_shares(args, head, row, n, x, dropped);
    drop_shares(args, head, row, n, grads, grads);
  }
  const float total = float(sum_of(grads, x, n, [](const auto& a, const auto& b) { return a * b; }));
  for_registers<float>(
      n, [&](i64 i, auto like) { put(grads + i, get(x + i, like) * (get(grads + i, like) - total)); });
  mask_slopes(args, head, row, n, grads);
  for (i64 i = n; i < end; ++i) dropped[i] = grads[i] = 0;
}

// Two rows of probabilities and slopes as products read them, `columns` of them, whole pairs of registers.
void put_pairs(const float* shares, const float* grads, i64 pitch, i64 columns, Pair* share_pairs,
               Pair* slope_pairs, Brain* slopes) {
  constexpr i64 lanes = kLanes<float>;
  for (i64 i = 0; i < columns; i += 2 * lanes) {
    const float* const below = grads + pitch;
    const Vec<float> a = load(grads + i), b = load(grads + i + lanes), c = load(below + i),
                     d = load(below + i + lanes);
    store(share_pairs + i, paired(load(shares + i), load(shares + pitch + i)));
    store(share_pairs + i + lanes, paired(load(shares + i + lanes), load(shares + pitch + i + lanes)));
    store(slope_pairs + i, paired(a, c));
    store(slope_pairs + i + lanes, paired(b, d));
    put_narrow(slopes + i, a, b);
    put_narrow(slopes + pitch + i, c, d);
  }
}

// Probabilities and slopes of a panel of rows of the block at `begin`, up to key `end` of the block.
void panel_slopes(const GradHead& head, const GradParts& parts, i64 begin, i64 row, i64 end) {
  const FlashAttentionArgs& args = head.args.forward;
  const auto pairs_at = [&](i64 at) { return scratch_at<Pair>(head.scratch, at); };
  float *const scores = scratch_at<float>(head.scratch, parts.scores),
               *const grads = scratch_at<float>(head.scratch, parts.grads),
               *const dropped = scratch_at<float>(head.scratch, parts.dropped);
  const i64 rows = smaller(kPairRows, args.rows - row), last = keys_of(args, row + rows - 1),
            pitch = parts.pitch;
  pack_pairs<kPairRowPitch>(head.q + row * args.q_row, args.q_row, args.q_col, rows, args.d,
                            pairs_at(parts.queries));
  pack_pairs<kPairRowPitch>(head.dy + row * head.args.dy_row, head.args.dy_row, head.args.dy_col, rows,
                            args.e, pairs_at(parts.slopes_of_y));
  panel_scores(pairs_at(parts.queries), pairs_at(parts.keys), parts.steps_d, last, float(args.scale), scores,
               pitch);
  panel_scores(pairs_at(parts.slopes_of_y), pairs_at(parts.values), parts.steps_e, last, 1, grads, pitch);
  for (i64 r = 0; r < rows; ++r)
    row_slopes(args, head.number, row + r, end, scores + r * pitch, grads + r * pitch, dropped + r * pitch);
  for (i64 r = rows; r < rounded_up(rows, 2); ++r)
    for (i64 i = 0; i < end; ++i) dropped[r * pitch + i] = grads[r * pitch + i] = 0;
  for (i64 r = 0; r < rows; r += 2) {
    const i64 at = (row - begin + r) / 2 * pitch;
    put_pairs(dropped + r * pitch, grads + r * pitch, pitch, end, pairs_at(parts.share_pairs) + at,
              pairs_at(parts.slope_pairs) + at, scratch_at<Brain>(head.scratch, parts.slopes) + 2 * at);
  }
}

void panel_query_grads(const GradHead& head, const GradParts& parts, i64 begin, i64 row) {
  const FlashAttentionArgs& args = head.args.forward;
  const i64 rows = smaller(kPairRows, args.rows - row), steps = ceil_div(keys_of(args, row + rows - 1), 2),
            words = kPairColumns * ceil_div(keys_of(args, args.rows - 1), 2);
  const Brain* const slopes = scratch_at<Brain>(head.scratch, parts.slopes) + (row - begin) * parts.pitch;
  const Pair* const keys = scratch_at<Pair>(head.scratch, parts.key_columns);
  for (i64 j = 0; j < args.d; j += kPairColumns) {
    Vec<float> sums[kPairRows][kPairRegisters] = {};
    multiply_pairs<kPairRows, kPairRegisters>(reinterpret_cast<const Pair*>(slopes), parts.pitch / 2, 1,
                                              keys + j / kPairColumns * words, kPairColumns, steps, sums);
    put_sums(sums, float(args.scale), rows, smaller(kPairColumns, args.d - j),
             head.dq + row * head.args.dq_row + j * head.args.dq_col, head.args.dq_row, head.args.dq_col);
  }
}

// sums [keys, columns filled up] += pairs^T x, x being rows of the block: `packed` makes room for them.
void add_key_grads(const Pair* pairs, i64 pitch, i64 rows, i64 end, const Brain* x, i64 x_row, i64 x_col,
                   i64 columns, Pair* packed, float* sums) {
  const i64 steps = ceil_div(rows, 2), width = rounded_up(columns, kPairColumns);
  pack_panels<kPairColumns>(x, x_col, x_row, columns, rows, packed);
  for (i64 key = 0; key < end; key += kPairRows)
    for (i64 j = 0; j < width; j += kPairColumns) {
      float* const to = sums + key * width + j;
      Vec<float> tile[kPairRows][kPairRegisters];
#pragma GCC unroll 12
      for (i64 r = 0; r < kPairRows; ++r)
#pragma GCC unroll 2
        for (i64 v = 0; v < kPairRegisters; ++v) tile[r][v] = load(to + r * width + v * kLanes<float>);
      multiply_pairs<kPairRows, kPairRegisters>(pairs + key, 1, pitch, packed + j * steps, kPairColumns,
                                                steps, tile);
      put_sums(tile, 1, kPairRows, kPairColumns, to, width, 1);
    }
}

void block_grads(const GradHead& head, const GradParts& parts, i64 begin) {
  const FlashAttentionArgs& args = head.args.forward;
  const i64 rows = smaller(kBlockRows, args.rows - begin), end = keys_of(args, begin + rows - 1),
            filled = rounded_up(rounded_up(end, kPairRows), 2 * kLanes<float>);
  for (i64 row = begin; row < begin + rows; row += kPairRows) panel_slopes(head, parts, begin, row, filled);
  for (i64 row = begin; row < begin + rows; row += kPairRows) panel_query_grads(head, parts, begin, row);
  const auto pairs_at = [&](i64 at) { return scratch_at<Pair>(head.scratch, at); };
  add_key_grads(pairs_at(parts.slope_pairs), parts.pitch, rows, end, head.q + begin * args.q_row, args.q_row,
                args.q_col, args.d, pairs_at(parts.block_queries), head.dk);
  add_key_grads(pairs_at(parts.share_pairs), parts.pitch, rows, end, head.dy + begin * head.args.dy_row,
                head.args.dy_row, head.args.dy_col, args.e, pairs_at(parts.block_slopes), head.dv);
}

// The sums of all parts of a head, times scale.
void put_key_grads(const float* sums, i64 parts, i64 part_step, i64 keys, i64 columns, float scale,
                   Brain* out, i64 row, i64 column) {
  const i64 width = rounded_up(columns, kPairColumns);
  for (i64 key = 0; key < keys; ++key, sums += width, out += row) {
    const auto sum_at = [&](i64 i, auto like) {
      auto sum = get(sums + i, like);
      for (i64 part = 1; part < parts; ++part) sum += get(sums + part * part_step + i, like);
      return sum * scale;
    };
    if (column == 1) {
      for_registers<float>(columns, [&](i64 i, auto like) { put_computed(out + i, sum_at(i, like)); });
    } else {
      for (i64 i = 0; i < columns; ++i) out[i * column] = narrow<Brain>(sum_at(i, 0.0f));
    }
  }
}

}  // namespace

void flash_attention_grad(const FlashAttentionGradArgs& args) {
  const FlashAttentionArgs& f = args.forward;
  const i64 heads = heads_of(f), parts = attention_parts(f), sums = attention_grad_sums(f),
            dk_sums = attention_grad_keys(f.keys) * rounded_up(f.d, kPairColumns),
            work = heads * f.rows * f.keys * (f.d + f.e);
  float* const all = static_cast<float*>(args.workspace);
  const auto finish = [&](i64 head) {
    const float* const from = all + head * parts * sums;
    put_key_grads(from, parts, sums, f.keys, f.d, float(f.scale),
                  head_at(f, head, args.dk_batch, static_cast<Brain*>(args.dk)), args.dk_row, args.dk_col);
    put_key_grads(from + dk_sums, parts, sums, f.keys, f.e, 1,
                  head_at(f, head, args.dv_batch, static_cast<Brain*>(args.dv)), args.dv_row, args.dv_col);
  };
  parallel_for(heads * parts, work, [&](i64 number) {
    const i64 head = number / parts, last = keys_of(f, f.rows - 1);
    const GradParts places(f);
    float* const own = all + number * sums;
    const GradHead of{args,
                      head,
                      thread_scratch(std::size_t(places.bytes)),
                      head_of(f, head, f.q_batch, f.q),
                      head_of(f, head, f.k_batch, f.k),
                      head_of(f, head, f.v_batch, f.v),
                      head_of(f, head, args.dy_batch, args.dy),
                      head_at(f, head, args.dq_batch, static_cast<Brain*>(args.dq)),
                      own,
                      own + dk_sums};
    __builtin_memset(own, 0, std::size_t(sums) * sizeof(float));
    pack_panels<kPairColumns>(of.k, f.k_row, f.k_col, last, f.d, scratch_at<Pair>(of.scratch, places.keys));
    pack_panels<kPairColumns>(of.v, f.v_row, f.v_col, last, f.e, scratch_at<Pair>(of.scratch, places.values));
    pack_panels<kPairColumns>(of.k, f.k_col, f.k_row, f.d, last,
                              scratch_at<Pair>(of.scratch, places.key_columns));
    for (i64 begin = number % parts * kBlockRows; begin < f.rows; begin += parts * kBlockRows)
      block_grads(of, places, begin);
    if (parts == 1) finish(head);
  });
  if (parts > 1) parallel_for(heads, work, finish);
}

}  // namespace gradloom::kernels::GRADLOOM_ISA
