// Attention and what belongs to it:
//   Attention (opset 23)   Y = softmax(softcap(scale Q K^T) + mask) V per head
//     Q [B, Hq, S, D], K [B, Hk, T, D], V [B, Hk, T, Dv], or [B, S, H D] with the numbers of heads as attributes;
//     past keys and values come before K and V; key head h serves the query heads h G .. h G + G - 1, G = Hq / Hk;
//     is_causal: query i sees keys up to i + the length of the past. Rows without any key give 0.
//     A mask with fewer columns than keys hides the others; one column is for all keys in opset 23, where a mask is only
//     said to be broadcast, and for the first one from 24 on, whose function body pads any shorter mask.
//   com.microsoft.GroupQueryAttention   the same for [B, S, H D], causal, with rotary embedding of queries and keys inside;
//     its past is a buffer of which each row has a length of its own
//   RotaryEmbedding (opset 23, com.microsoft)   (x1, x2) -> (cos x1 - sin x2, sin x1 + cos x2), where x1 and x2 are the
//     halves of each head, or its even and odd elements
// Source: ONNX operators Attention-23 and -24 and RotaryEmbedding-23 (order of softcap and mask,
// order of grouped heads and offset of the causal mask as corrected in ONNX 1.19 to 1.23); ONNX
// Runtime's contrib operators.
#include "engine/onnx/expand/attention.h"

#include <cmath>
#include <limits>

#include "engine/ops/inference.h"

namespace gradloom {

namespace attend {

Result<ValueId> split_heads(Expander& e, ValueId x, std::int64_t heads) {
  const std::int64_t size = e.shape(x).back();
  if (heads < 1 || (size >= 0 && size % heads != 0)) {
    return infer_error("size " + std::to_string(size) + " in " + std::to_string(heads) + " heads");
  }
  return e.transpose(TRY(e.reshape(x, {0, 0, heads, size < 0 ? -1 : size / heads})), {0, 2, 1, 3});
}

Result<ValueId> merge_heads(Expander& e, ValueId x) {
  return e.reshape(TRY(e.transpose(x, {0, 2, 1, 3})), {0, 0, -1});
}

namespace {

// [B, Hk, T, D] -> [B, Hk G, T, D], every head G times in a row.
Result<ValueId> repeat_heads(Expander& e, ValueId x, std::int64_t groups) {
  if (groups == 1) return x;
  const std::int64_t heads = e.shape(x)[1];
  const ValueId apart = TRY(e.op("Unsqueeze", {x, e.ints({2})}));
  const ValueId repeated = TRY(e.op("Expand", {apart, e.ints({1, 1, groups, 1, 1})}));
  const std::int64_t keys = e.shape(x)[2];
  if (keys > 0) return e.reshape(repeated, {0, heads * groups, keys, -1});
  // A size that is not known is copied from where it stands: the axes of heads are merged behind it.
  const ValueId leading = TRY(e.transpose(repeated, {0, 3, 1, 2, 4}));
  return e.transpose(TRY(e.reshape(leading, {0, 0, heads * groups, -1})), {0, 2, 1, 3});
}

Result<ValueId> masked_by(Expander& e, ValueId scores, ValueId allowed, double otherwise) {
  return e.op("Where", {allowed, scores, e.scalar(e.dtype(scores), otherwise)});
}

// j <= i + past, for sizes that are not known before running.
Result<ValueId> causal_by_positions(Expander& e, const Heads& h) {
  const auto positions = [&](ValueId x, std::int64_t across) -> Result<ValueId> {
    const ValueId count = TRY(e.op("Gather", {TRY(e.op("Shape", {x})), e.scalar(DType::i64, 2)}));
    const ValueId line = TRY(e.op("Range", {e.scalar(DType::i64, 0), count, e.scalar(DType::i64, 1)}));
    return e.op("Unsqueeze", {line, e.ints({across})});
  };
  const ValueId rows = TRY(positions(h.q, 1)), columns = TRY(positions(h.k, 0));
  const ValueId last = TRY(e.op("Add", {rows, e.scalar(DType::i64, static_cast<double>(h.past))}));
  return e.op("LessOrEqual", {columns, last});
}

Result<ValueId> causal_mask(Expander& e, const Heads& h) {
  constexpr std::int64_t kLargest = std::int64_t{1} << 26;  // elements of a mask as a constant
  const std::int64_t rows = e.shape(h.q)[2], columns = e.shape(h.k)[2];
  const bool known = rows >= 0 && columns >= 0 && rows < kLargest && columns < kLargest;
  if (known && rows * columns <= kLargest) return e.causal_mask(rows, columns, h.past);
  return causal_by_positions(e, h);
}

// A finite value, so that rows without any key stay finite; their result is dropped.
double lowest(DType type) { return type == DType::f16 ? -6e4 : -1e30; }

// One mask, so that fuse-attention finds the product, the mask, the softmax and the product behind each
// other. What becomes of queries without any key is said by `rows`.
Status merge_masks(Expander& e, const Heads& h, MaskUse* mask, ValueId* rows) {
  if (mask->allowed == kNone && mask->causal && mask->bias != kNone) {  // every query sees a key
    const double hidden = -std::numeric_limits<double>::infinity();
    mask->bias = TRY(masked_by(e, mask->bias, TRY(causal_mask(e, h)), hidden));
    mask->causal = false;
  }
  if (mask->allowed == kNone) return {};
  if (mask->causal) mask->allowed = TRY(e.op("And", {mask->allowed, TRY(causal_mask(e, h))}));
  mask->causal = false;
  *rows = mask->allowed;
  if (e.rank(mask->allowed) > 0) *rows = TRY(e.op("ReduceMax", {mask->allowed, e.ints({-1})}));
  if (const Tensor* known = e.known(*rows)) {
    bool all = true;
    for (std::int64_t i = 0; i < known->count(); ++i) all = all && known->at(i) != 0;
    if (all) *rows = kNone;
  }
  if (mask->bias == kNone) return {};
  mask->bias = TRY(masked_by(e, mask->bias, mask->allowed, lowest(e.dtype(mask->bias))));
  mask->allowed = kNone;
  return {};
}

}  // namespace

Result<ValueId> weighted_values(Expander& e, const Scores& s, ValueId v) {
  const ValueId y = TRY(e.op("MatMul", {s.softmax, v}));
  return s.rows == kNone ? y : masked_by(e, y, s.rows, 0);
}

Result<Scores> attention_scores(Expander& e, const Heads& h, double scale, double softcap, DType softmax_type,
                                MaskUse mask, bool scores_read) {
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  const DType type = e.dtype(h.q);
  Scores s{};
  if (!scores_read) TRY(merge_masks(e, h, &mask, &s.rows));
  const ValueId scaled = TRY(e.op("Mul", {h.q, e.scalar(type, scale)}));
  s.raw = TRY(e.op("MatMul", {scaled, TRY(e.transpose(h.k, {0, 1, 3, 2}))}));
  s.capped = s.raw;
  if (softcap > 0) {
    const ValueId bounded = TRY(e.op("Tanh", {TRY(e.op("Div", {s.raw, e.scalar(type, softcap)}))}));
    s.capped = TRY(e.op("Mul", {bounded, e.scalar(type, softcap)}));
  }
  s.masked = s.capped;
  if (mask.bias != kNone) s.masked = TRY(e.op("Add", {s.masked, mask.bias}));
  if (mask.allowed != kNone) s.masked = TRY(masked_by(e, s.masked, mask.allowed, lowest(type)));
  if (mask.causal) s.masked = TRY(masked_by(e, s.masked, TRY(causal_mask(e, h)), -kInfinity));
  const ValueId wide = TRY(e.cast(s.masked, softmax_type));
  s.softmax = TRY(e.cast(TRY(e.op("Softmax", {wide}, {{"axis", std::int64_t{-1}}})), type));
  if (mask.allowed != kNone && scores_read) s.softmax = TRY(masked_by(e, s.softmax, mask.allowed, 0));
  return s;
}

double default_scale(std::int64_t head_size) { return 1 / std::sqrt(static_cast<double>(head_size)); }

namespace {

// The mask of Attention: boolean or added, its last axis may be shorter than the keys'. `spreads`: one of size 1 is for
// all keys.
Result<ValueId> full_mask(Expander& e, ValueId mask, std::int64_t keys, bool spreads) {
  if (e.rank(mask) == 0) return mask;
  const std::int64_t given = e.shape(mask).back();
  if (given < 0 || keys < 0 || given >= keys || (spreads && given == 1)) return mask;
  std::vector<std::int64_t> pads(2 * e.rank(mask), 0);
  pads.back() = keys - given;
  const bool boolean = e.dtype(mask) == DType::boolean;
  return e.op("Pad", {mask, e.ints(pads),
                      e.scalar(e.dtype(mask), boolean ? 0 : -std::numeric_limits<double>::infinity())});
}

}  // namespace

Result<ValueId> line(Expander& e, std::int64_t first, std::int64_t end) {
  constexpr std::int64_t kLongest = std::int64_t{1} << 24;
  if (end - first > kLongest) return e.unsupported("more than " + std::to_string(kLongest) + " positions");
  std::vector<std::int64_t> numbers;
  for (; first < end; ++first) numbers.push_back(first);
  return e.ints(numbers);
}

Result<ValueId> length_mask(Expander& e, ValueId lengths, std::int64_t keys) {
  if (keys < 0) return e.unsupported("the number of keys is not known");
  const ValueId column = TRY(e.reshape(TRY(e.cast(lengths, DType::i64)), {-1, 1, 1, 1}));
  return e.op("Less", {TRY(line(e, 0, keys)), column});
}

namespace {

// allowed[b, 0, i, j] = j <= i + lengths[b] - queries: the queries are the last of the keys that count.
Result<ValueId> causal_length_mask(Expander& e, ValueId lengths, const Heads& h) {
  const std::int64_t queries = e.shape(h.q)[2], keys = e.shape(h.k)[2];
  if (queries < 0 || keys < 0) return e.unsupported("the numbers of queries and keys are not known");
  const ValueId column = TRY(e.reshape(TRY(e.cast(lengths, DType::i64)), {-1, 1, 1, 1}));
  const ValueId rows = TRY(e.reshape(TRY(line(e, -queries, 0)), {queries, 1}));
  return e.op("LessOrEqual", {TRY(line(e, 0, keys)), TRY(e.op("Add", {rows, column}))});
}

Result<ValueId> both(Expander& e, ValueId a, ValueId b) {
  if (a == kNone) return b;
  return e.op("And", {a, b});
}

// allowed[.., i, j]: j lies at most `left` before and `right` after the position of query i; -1: without a
// bound. The queries follow the past, or are the last of the keys that count.
Result<ValueId> window_mask(Expander& e, ValueId lengths, const Heads& h, std::int64_t left,
                            std::int64_t right) {
  const std::int64_t queries = e.shape(h.q)[2], keys = e.shape(h.k)[2];
  if (queries < 0 || keys < 0 || h.past < 0)
    return e.unsupported("the numbers of queries and keys are not known");
  const std::int64_t first = lengths == kNone ? h.past : -queries;
  ValueId at = TRY(e.reshape(TRY(line(e, first, first + queries)), {queries, 1}));
  if (lengths != kNone)
    at = TRY(e.op("Add", {at, TRY(e.reshape(TRY(e.cast(lengths, DType::i64)), {-1, 1, 1, 1}))}));
  const ValueId columns = TRY(line(e, 0, keys));
  const auto moved = [&](const char* op, std::int64_t by) -> Result<ValueId> {
    return e.op(op, {at, e.scalar(DType::i64, static_cast<double>(by))});
  };
  ValueId allowed = kNone;
  if (left >= 0) allowed = TRY(e.op("GreaterOrEqual", {columns, TRY(moved("Sub", left))}));
  if (right < 0) return allowed;
  return both(e, allowed, TRY(e.op("LessOrEqual", {columns, TRY(moved("Add", right))})));
}

}  // namespace

Status add_past(Expander& e, Heads* h, ValueId past_key, ValueId past_value) {
  if ((past_key == kNone) != (past_value == kNone)) return infer_error("past key and value come together");
  if (past_key != kNone) {
    if (e.rank(past_key) != 4)
      return infer_error("the past key has rank " + std::to_string(e.rank(past_key)));
    h->past = e.shape(past_key)[2];
    h->k = TRY(e.op("Concat", {past_key, h->k}, {{"axis", std::int64_t{2}}}));
    h->v = TRY(e.op("Concat", {past_value, h->v}, {{"axis", std::int64_t{2}}}));
  }
  if (e.wants(1)) e.outputs[1] = h->k;
  if (e.wants(2)) e.outputs[2] = h->v;
  return {};
}

namespace {

Result<Heads> attention_heads(Expander& e) {
  Heads h{e.in(0), e.in(1), e.in(2), 0};
  for (const ValueId x : {h.q, h.k, h.v}) {
    if (e.rank(x) != e.rank(h.q) || (e.rank(x) != 3 && e.rank(x) != 4))
      return infer_error("Q, K and V must all have rank 3 or all rank 4");
    if (!is_float(e.dtype(x))) return infer_error("Q, K and V must be floating point");
  }
  if (e.rank(h.q) == 4) return h;
  const std::int64_t q_heads = e.attrs.integer("q_num_heads"), kv_heads = e.attrs.integer("kv_num_heads");
  h.q = TRY(split_heads(e, h.q, q_heads));
  h.k = TRY(split_heads(e, h.k, kv_heads));
  h.v = TRY(split_heads(e, h.v, kv_heads));
  return h;
}

Status group_heads(Expander& e, Heads* h) {
  const std::int64_t q_heads = e.shape(h->q)[1], kv_heads = e.shape(h->k)[1];
  if (q_heads < 0 || kv_heads < 0) return e.unsupported("the number of heads is not known");
  if (kv_heads == 0 || q_heads % kv_heads != 0) {
    return infer_error(std::to_string(q_heads) + " query heads for " + std::to_string(kv_heads) +
                       " key heads");
  }
  h->k = TRY(repeat_heads(e, h->k, q_heads / kv_heads));
  h->v = TRY(repeat_heads(e, h->v, q_heads / kv_heads));
  return {};
}

template <bool spreads>
Status attention(Expander& e) {
  Heads h = TRY(attention_heads(e));
  TRY(add_past(e, &h, e.in(4), e.in(5)));
  TRY(group_heads(e, &h));
  const std::int64_t keys = e.shape(h.k)[2];
  MaskUse mask;
  mask.causal = e.attrs.integer("is_causal") != 0;
  if (mask.causal && h.past < 0) return e.unsupported("the length of the past is not known");
  if (e.has(3)) {
    const ValueId given = TRY(full_mask(e, e.in(3), keys, spreads));
    (e.dtype(given) == DType::boolean ? mask.allowed : mask.bias) = given;
  }
  if (e.has(6)) {
    const ValueId counted = mask.causal ? TRY(causal_length_mask(e, e.in(6), h)) : kNone;
    mask.allowed = TRY(both(e, mask.allowed, TRY(length_mask(e, e.in(6), keys))));
    if (counted != kNone) mask.allowed = TRY(both(e, mask.allowed, counted));
    mask.causal = false;
  }
  const std::int64_t left = e.attrs.integer("left_window_size", -1),
                     right = e.attrs.integer("right_window_size", -1);
  if (left >= 0 || right >= 0)
    mask.allowed = TRY(both(e, mask.allowed, TRY(window_mask(e, e.in(6), h, left, right))));
  const std::int64_t head_size = e.shape(h.q)[3];
  if (head_size < 0 && !e.attrs.has("scale")) return e.unsupported("the size of a head is not known");
  // Halves are computed in f32 between the inputs and the outputs.
  const DType stored = e.dtype(h.q), type = stored == DType::f64 ? DType::f64 : DType::f32;
  for (ValueId* x : {&h.q, &h.k, &h.v, &mask.bias})
    if (*x != kNone) *x = TRY(e.cast(*x, type));
  const bool precise = e.attrs.has("softmax_precision") && type != DType::f64;
  const DType softmax_type = precise ? TRY(dtype_from_onnx(e.attrs.integer("softmax_precision"))) : type;
  const double scale = e.attrs.real("scale", head_size > 0 ? default_scale(head_size) : 1);
  const Scores s =
      TRY(attention_scores(e, h, scale, e.attrs.real("softcap"), softmax_type, mask, e.wants(3)));
  const ValueId y = TRY(e.cast(TRY(weighted_values(e, s, h.v)), stored));
  e.outputs[0] = e.rank(e.in(0)) == 3 ? TRY(merge_heads(e, y)) : y;
  if (e.wants(3)) {
    const std::int64_t mode = e.attrs.integer("qk_matmul_output_mode");
    const ValueId scores = mode == 0 ? s.raw : mode == 1 ? s.capped : mode == 2 ? s.masked : s.softmax;
    e.outputs[3] = TRY(e.cast(scores, stored));
  }
  return {};
}

// ---- RotaryEmbedding ----

struct Rotation {
  ValueId cos = kNone, sin = kNone;  // [B or 1, S, 1, half]
  std::int64_t half = 0;
  bool interleaved = false;
};

Result<ValueId> rotated(Expander& e, ValueId x, const Rotation& r) {  // [B, S, H, 2 half]
  ValueId first, second;
  if (r.interleaved) {
    const ValueId pairs = TRY(e.reshape(x, {0, 0, 0, r.half, 2}));
    const auto parts = TRY(e.ops("Split", {pairs}, {{"axis", std::int64_t{4}}}, 2));
    first = TRY(e.op("Squeeze", {parts[0], e.ints({4})}));
    second = TRY(e.op("Squeeze", {parts[1], e.ints({4})}));
  } else {
    const auto parts = TRY(e.ops("Split", {x}, {{"axis", std::int64_t{3}}}, 2));
    first = parts[0];
    second = parts[1];
  }
  ValueId real = TRY(e.op("Sub", {TRY(e.op("Mul", {first, r.cos})), TRY(e.op("Mul", {second, r.sin}))}));
  ValueId imaginary = TRY(e.op("Add", {TRY(e.op("Mul", {first, r.sin})), TRY(e.op("Mul", {second, r.cos}))}));
  if (!r.interleaved) return e.op("Concat", {real, imaginary}, {{"axis", std::int64_t{3}}});
  real = TRY(e.op("Unsqueeze", {real, e.ints({4})}));
  imaginary = TRY(e.op("Unsqueeze", {imaginary, e.ints({4})}));
  return e.reshape(TRY(e.op("Concat", {real, imaginary}, {{"axis", std::int64_t{4}}})),
                   {0, 0, 0, 2 * r.half});
}

// A table [positions, half] looked up, or one that already is [B, S, half].
Result<ValueId> angles(Expander& e, ValueId table, ValueId positions, std::int64_t half) {
  if (positions != kNone) table = TRY(e.op("Gather", {table, positions}));
  if (e.rank(table) != 3)
    return infer_error("a table of sines or cosines has rank " + std::to_string(e.rank(table)));
  if (e.shape(table)[2] > half) table = TRY(e.slice(table, 0, half, 2));
  return e.op("Unsqueeze", {table, e.ints({2})});
}

Status rotary(Expander& e, ValueId cos, ValueId sin, ValueId positions) {
  ValueId x = e.in(0);
  const std::size_t rank = e.rank(x);
  if (rank != 3 && rank != 4) return infer_error("the input has rank " + std::to_string(rank));
  const std::int64_t wanted = e.attrs.integer("rotary_embedding_dim");
  if (rank == 4) {
    x = TRY(e.transpose(x, {0, 2, 1, 3}));
  } else {
    std::int64_t heads = e.attrs.integer("num_heads");
    const std::int64_t size = e.shape(x)[2];
    if (size < 0) return e.unsupported("the hidden size is not known");
    if (heads == 0 && wanted == 0 && e.shape(cos).back() > 0) heads = size / (2 * e.shape(cos).back());
    if (heads < 1 || size % heads != 0)
      return infer_error("size " + std::to_string(size) + " in " + std::to_string(heads) + " heads");
    x = TRY(e.reshape(x, {0, 0, heads, size / heads}));
  }
  const std::int64_t head_size = e.shape(x)[3], size = wanted == 0 ? head_size : wanted;
  if (size < 0) return e.unsupported("the size of a head is not known");
  if (size < 2 || size % 2 != 0 || size > head_size)
    return infer_error(std::to_string(size) + " of " + std::to_string(head_size) +
                       " elements cannot be rotated");
  Rotation r{TRY(angles(e, cos, positions, size / 2)), TRY(angles(e, sin, positions, size / 2)), size / 2,
             e.attrs.integer("interleaved") != 0};
  if (size == head_size) {
    x = TRY(rotated(e, x, r));
  } else {
    const ValueId turned = TRY(rotated(e, TRY(e.slice(x, 0, size, 3)), r));
    x = TRY(e.op("Concat", {turned, TRY(e.slice(x, size, head_size, 3))}, {{"axis", std::int64_t{3}}}));
  }
  e.outputs[0] = rank == 4 ? TRY(e.transpose(x, {0, 2, 1, 3})) : TRY(e.reshape(x, {0, 0, -1}));
  return {};
}

// [B, S, H D] -> rotated [B, H, S, D]; `positions`: [B, S], none: from the first of the tables.
Result<ValueId> rotated_heads(Expander& e, ValueId x, std::int64_t heads, ValueId cos, ValueId sin,
                              bool interleaved, ValueId positions) {
  x = TRY(split_heads(e, x, heads));
  if (cos == kNone) return x;
  const std::int64_t steps = e.shape(x)[2], head_size = e.shape(x)[3],
                     half = e.rank(cos) == 2 ? e.shape(cos)[1] : -1;
  if (steps < 0 || head_size < 0 || half < 0) return e.unsupported("sizes that are not known");
  if (2 * half > head_size) return infer_error("the tables rotate more than the head");
  const auto first = [&](ValueId table) -> Result<ValueId> {
    if (positions != kNone) return angles(e, table, positions, half);
    return angles(e, TRY(e.op("Unsqueeze", {TRY(e.slice(table, 0, steps, 0)), e.ints({0})})), kNone, half);
  };
  const Rotation r{TRY(first(cos)), TRY(first(sin)), half, interleaved};
  x = TRY(e.transpose(x, {0, 2, 1, 3}));
  const ValueId turned = TRY(rotated(e, 2 * half == head_size ? x : TRY(e.slice(x, 0, 2 * half, 3)), r));
  if (2 * half < head_size)
    x = TRY(e.op("Concat", {turned, TRY(e.slice(x, 2 * half, head_size, 3))}, {{"axis", std::int64_t{3}}}));
  else
    x = turned;
  return e.transpose(x, {0, 2, 1, 3});
}

// The past of GroupQueryAttention: buffers [B, Hk, P, D], of which the first before[b] elements count; the
// new keys and values follow those.
struct GroupPast {
  ValueId key = kNone, value = kNone;
  ValueId before = kNone;     // [B, 1]
  std::int64_t size = 0;      // P
  std::int64_t together = 0;  // keys that attention is over, of all rows
};

// before = seqlens_k + 1 - S, but 0 where the new ones are all there are (total_sequence_length = S).
Result<GroupPast> group_past(Expander& e) {
  if (!e.has(3) && !e.has(4)) return GroupPast{};
  GroupPast past{e.in(3), e.in(4)};
  if (!e.has(3) || !e.has(4) || e.rank(past.key) != 4 || e.rank(past.value) != 4)
    return infer_error("past_key and past_value must both be [batch, heads, length, size]");
  if (e.shape(past.key)[2] != e.shape(past.value)[2])
    return infer_error("past_key and past_value have different lengths");
  if (!e.has(5)) return infer_error("a past needs seqlens_k");
  const Tensor* known = e.known(e.in(6));
  const std::int64_t steps = e.shape(e.in(0))[1];
  past.size = e.shape(past.key)[2];
  if (known == nullptr) return e.unsupported("its total_sequence_length is not known before running");
  if (steps < 0 || past.size < 0) return e.unsupported("the lengths of the query and the past are not known");
  const std::int64_t total = known->count() == 1 && !is_float(known->dtype()) ? known->int_at(0) : -1;
  if (total < steps || total > past.size + steps)
    return infer_error("total_sequence_length must be one integer from " + std::to_string(steps) + " to " +
                       std::to_string(past.size + steps));
  past.together = std::max(past.size, total);
  const auto number = [&](std::int64_t n) { return e.scalar(DType::i64, static_cast<double>(n)); };
  const ValueId lengths = TRY(e.reshape(TRY(e.cast(e.in(5), DType::i64)), {-1, 1}));
  const ValueId before = TRY(e.op("Add", {lengths, number(1 - steps)}));
  past.before = TRY(e.op("Mul", {before, number(total == steps ? 0 : 1)}));
  return past;
}

// [B, H, P, D] and the new [B, H, S, D] behind what counts of it: [B, H, together, D]. Behind both what the
// buffer holds there, or the last of the new ones.
Result<ValueId> behind_past(Expander& e, const GroupPast& past, ValueId buffer, ValueId fresh) {
  const std::int64_t steps = e.shape(fresh)[2];
  if (steps < 0) return e.unsupported("the length of the keys is not known");
  const ValueId all = TRY(e.op("Concat", {buffer, fresh}, {{"axis", std::int64_t{2}}}));
  const ValueId at = TRY(line(e, 0, past.together));
  const auto number = [&](std::int64_t n) { return e.scalar(DType::i64, static_cast<double>(n)); };
  const ValueId step = TRY(e.op("Sub", {at, past.before}));  // [B, together]
  const ValueId is_new = TRY(e.op(
      "And", {TRY(e.op("GreaterOrEqual", {step, number(0)})), TRY(e.op("Less", {step, number(steps)}))}));
  const ValueId in_buffer = TRY(e.op("Less", {at, number(past.size)}));
  const ValueId old = TRY(e.op("Where", {in_buffer, at, number(past.size + steps - 1)}));
  const ValueId place = TRY(e.op("Where", {is_new, TRY(e.op("Add", {step, number(past.size)})), old}));
  const ValueId rows = TRY(e.transpose(all, {0, 2, 1, 3}));
  const ValueId picked = TRY(e.op("GatherND", {rows, TRY(e.op("Unsqueeze", {place, e.ints({2})}))},
                                  {{"batch_dims", std::int64_t{1}}}));
  return e.transpose(picked, {0, 2, 1, 3});
}

// Inputs: query, key, value, past_key, past_value, seqlens_k, total_sequence_length, cos_cache, sin_cache.
// Without a past whole sequences, as in training: query i sees keys up to i, so the padding behind a sequence
// is seen by padding only. Without key and value the query holds all three.
Status group_query_attention(Expander& e) {
  const std::int64_t q_heads = e.attrs.integer("num_heads"), kv_heads = e.attrs.integer("kv_num_heads");
  for (std::size_t i = 9; i < e.input_count(); ++i)
    if (e.has(i)) return e.unsupported("input " + std::to_string(i));
  if (e.attrs.integer("smooth_softmax") != 0) return e.unsupported("smooth_softmax");
  if (e.wants(3)) return e.unsupported("the scores as an output");
  if (e.rank(e.in(0)) != 3 || !is_float(e.dtype(e.in(0)))) return infer_error("the query must have rank 3");
  if (q_heads < 1 || kv_heads < 1 || q_heads % kv_heads != 0)
    return infer_error(std::to_string(q_heads) + " query heads for " + std::to_string(kv_heads) +
                       " key heads");
  ValueId q = e.in(0), k = e.in(1), v = e.in(2);
  if ((k == kNone) != (v == kNone)) return infer_error("key and value come together");
  if (k == kNone) {
    const std::int64_t size = e.shape(q)[2], heads = q_heads + 2 * kv_heads;
    if (size < 0 || size % heads != 0)
      return infer_error("size " + std::to_string(size) + " in " + std::to_string(heads) + " heads");
    const std::int64_t head = size / heads, first = q_heads * head, second = first + kv_heads * head;
    k = TRY(e.slice(q, first, second, 2));
    v = TRY(e.slice(q, second, size, 2));
    q = TRY(e.slice(q, 0, first, 2));
  }
  const bool turns = e.attrs.integer("do_rotary") != 0,
             interleaved = e.attrs.integer("rotary_interleaved") != 0;
  if (turns && (!e.has(7) || !e.has(8))) return infer_error("do_rotary needs cos_cache and sin_cache");
  const ValueId cos = turns ? e.in(7) : kNone, sin = turns ? e.in(8) : kNone;
  for (const ValueId x : {k, v})
    if (e.rank(x) != 3) return infer_error("key and value must have rank 3");
  const GroupPast past = TRY(group_past(e));
  const std::int64_t steps = e.shape(q)[1];
  const bool behind = past.key != kNone;
  const ValueId positions = behind && turns ? TRY(e.op("Add", {TRY(line(e, 0, steps)), past.before})) : kNone;
  Heads h{TRY(rotated_heads(e, q, q_heads, cos, sin, interleaved, positions)),
          TRY(rotated_heads(e, k, kv_heads, cos, sin, interleaved, positions)),
          TRY(split_heads(e, v, kv_heads)), 0};
  if (behind) {
    h.k = TRY(behind_past(e, past, past.key, h.k));
    h.v = TRY(behind_past(e, past, past.value, h.v));
  }
  if (e.wants(1)) e.outputs[1] = h.k;
  if (e.wants(2)) e.outputs[2] = h.v;
  TRY(group_heads(e, &h));
  MaskUse mask;
  mask.causal = !behind;
  ValueId lengths = kNone;
  if (behind) {  // of the keys that count, the queries are the last
    lengths = TRY(e.op("Add", {past.before, e.scalar(DType::i64, static_cast<double>(steps))}));
    mask.allowed = TRY(causal_length_mask(e, lengths, h));
  }
  if (const std::int64_t before = e.attrs.integer("local_window_size", -1); before >= 0)
    mask.allowed = TRY(both(e, mask.allowed, TRY(window_mask(e, lengths, h, before, -1))));
  const std::int64_t head_size = e.shape(h.q)[3];
  double scale = e.attrs.real("scale");  // 0: the default
  if (scale == 0 && head_size <= 0) return e.unsupported("the size of a head is not known");
  if (scale == 0) scale = default_scale(head_size);
  const Scores s = TRY(attention_scores(e, h, scale, e.attrs.real("softcap"), e.dtype(h.q), mask, false));
  e.outputs[0] = TRY(merge_heads(e, TRY(weighted_values(e, s, h.v))));
  return {};
}

Status rotary_embedding(Expander& e) { return rotary(e, e.in(1), e.in(2), e.in(3)); }

// Inputs: input, position_ids, cos_cache, sin_cache. position_ids: [B, S], or [1] with the first position.
Status microsoft_rotary_embedding(Expander& e) {
  ValueId positions = e.in(1);
  if (e.rank(positions) == 1) {
    const Shape& shape = e.shape(e.in(0));
    const std::int64_t length = shape.size() == 4 ? shape[2] : shape.size() == 3 ? shape[1] : -1;
    if (length < 0) return e.unsupported("the length of the sequence is not known");
    positions = TRY(e.op("Unsqueeze", {TRY(e.op("Add", {TRY(line(e, 0, length)), positions})), e.ints({0})}));
  }
  const double scale = e.attrs.real("scale", 1);
  if (scale != 1) return e.unsupported("attribute 'scale' other than 1");
  if (e.attrs.integer("is_packed_batching") != 0) return e.unsupported("packed batching");
  return rotary(e, e.in(2), e.in(3), positions);
}

}  // namespace

}  // namespace attend

std::span<const Expansion> attention_expansions() {
  using onnx::AttributeProto;
  static const std::vector<Expansion> kTable = {
      {"Attention", "", 23, 23, 3, 6, 4, attend::attention<true>, {}},
      {"Attention", "", 24, kNewest, 3, 7, 4, attend::attention<false>, {}},
      {"RotaryEmbedding", "", 23, kNewest, 3, 4, 1, attend::rotary_embedding, {}},
      {"GroupQueryAttention",
       kMicrosoft,
       1,
       kNewest,
       1,
       14,
       4,
       attend::group_query_attention,
       {{"do_rotary", AttributeProto::INT},
        {"kv_num_heads", AttributeProto::INT},
        {"local_window_size", AttributeProto::INT},
        {"num_heads", AttributeProto::INT},
        {"rotary_interleaved", AttributeProto::INT},
        {"scale", AttributeProto::FLOAT},
        {"smooth_softmax", AttributeProto::INT},
        {"softcap", AttributeProto::FLOAT}}},
      {"RotaryEmbedding",
       kMicrosoft,
       1,
       kNewest,
       4,
       4,
       1,
       attend::microsoft_rotary_embedding,
       {{"interleaved", AttributeProto::INT},
        {"is_packed_batching", AttributeProto::INT},
        {"num_heads", AttributeProto::INT},
        {"rotary_embedding_dim", AttributeProto::INT},
        {"scale", AttributeProto::FLOAT}}},
  };
  return kTable;
}

}  // namespace gradloom
