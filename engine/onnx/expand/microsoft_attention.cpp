// Attention as ONNX Runtime's optimizer writes it (com.microsoft):
//   Attention            softmax(scale Q K^T + mask) V per head; Q, K and V are one product of the input and packed weights
//   QAttention           the same of quantized input and weights
//   MultiHeadAttention   of Q, K and V [B, S, H D], or K and V as [B, T, H, 2, D], or all three as [B, S, H, 3, D]
//   RelativePositionBias        a row of a table for each bucket of distances between key and query, added to the scores
//   GatedRelativePositionBias   position bias times (u (r a - 1) + 2), u and r the gates that the query gives
// Source: ONNX Runtime's contrib operators; buckets as in Raffel et al., "Exploring the limits of transfer
// learning with a unified text-to-text transformer", 2020; gates as in Chen et al., "WavLM", 2022.
#include <algorithm>
#include <cmath>

#include "engine/onnx/expand/attention.h"
#include "engine/ir/op.h"

namespace gradloom {

namespace {

using attend::Heads;
using attend::MaskUse;
using onnx::AttributeProto;

// Scores, softmax and values to output 0; output 3, if any, gets the probabilities.
Status finish_attention(Expander& e, const Heads& h, const MaskUse& mask) {
  const std::int64_t head_size = e.shape(h.q)[3];
  double scale = e.attrs.real("scale");  // 0: the default
  if (scale == 0 && head_size <= 0) return e.unsupported("the size of a head is not known");
  if (scale == 0) scale = attend::default_scale(head_size);
  const attend::Scores s = TRY(attend::attention_scores(e, h, scale, 0, e.dtype(h.q), mask, e.wants(3)));
  e.outputs[0] = TRY(attend::merge_heads(e, TRY(attend::weighted_values(e, s, h.v))));
  if (e.wants(3)) e.outputs[3] = s.softmax;
  return {};
}

// ---- MultiHeadAttention ----

// [B, S, H, parts, D] -> each part as [B, S, H, D].
Result<std::vector<ValueId>> unpacked(Expander& e, ValueId x, std::int64_t heads, int parts) {
  if (e.rank(x) != 5) return infer_error("packed query, key and value must have rank 5");
  if (e.shape(x)[2] >= 0 && e.shape(x)[2] != heads)
    return infer_error("num_heads is " + std::to_string(heads) + ", packed are " +
                       std::to_string(e.shape(x)[2]));
  if (e.shape(x)[3] != parts)
    return infer_error("axis 3 of the packed input must be " + std::to_string(parts));
  std::vector<ValueId> apart = TRY(e.ops("Split", {x}, {{"axis", std::int64_t{3}}}, parts));
  for (ValueId& part : apart) part = TRY(e.op("Squeeze", {part, e.ints({3})}));
  return apart;
}

// Query, key and value as they are given, or of the inputs that pack them.
Result<std::vector<ValueId>> query_key_value(Expander& e, std::int64_t heads) {
  if (e.has(1) && e.has(2)) return std::vector<ValueId>{e.in(0), e.in(1), e.in(2)};
  if (e.has(2)) return infer_error("a value comes with a key");
  if (!e.has(1)) return unpacked(e, e.in(0), heads, 3);
  const auto both = TRY(unpacked(e, e.in(1), heads, 2));
  return std::vector<ValueId>{e.in(0), both[0], both[1]};
}

// Inputs: query, key, value, bias, key_padding_mask, attention_bias, past_key, past_value. key and value are
// [B, T, E], packed, or [B, H, T, D] of another layer's attention.
Result<Heads> multi_head_inputs(Expander& e, std::int64_t heads) {
  for (std::size_t i = 0; i < 3; ++i)
    if (e.has(i) && !is_float(e.dtype(e.in(i))))
      return infer_error("query, key and value must be floating point");
  if (e.has(1) && e.rank(e.in(0)) != 3)
    return e.unsupported("a query of rank " + std::to_string(e.rank(e.in(0))));
  const auto given = TRY(query_key_value(e, heads));
  Heads h;
  ValueId* targets[] = {&h.q, &h.k, &h.v};
  std::int64_t begin = 0;  // in the three biases, which are one vector
  for (std::size_t i = 0; i < 3; ++i) {
    ValueId x = given[i];
    const bool packed = x != e.in(i);
    if (e.rank(x) == 4 && !packed && !e.has(3)) {
      *targets[i] = x;
      continue;
    }
    if (e.rank(x) != 3 && !packed) return e.unsupported("an input of rank " + std::to_string(e.rank(x)));
    if (packed) x = TRY(e.reshape(x, {0, 0, -1}));
    if (e.has(3)) {
      const std::int64_t size = e.shape(x).back();
      if (size < 0) return e.unsupported("the hidden size is not known");
      x = TRY(e.op("Add", {x, TRY(e.slice(e.in(3), begin, begin + size, 0))}));
      begin += size;
    }
    *targets[i] = TRY(attend::split_heads(e, x, heads));
  }
  return h;
}

// key_padding_mask: [B, T] with 1 for keys that count, or [B] with their number.
Result<ValueId> padding_mask(Expander& e, ValueId mask, std::int64_t keys) {
  if (is_float(e.dtype(mask))) return infer_error("key_padding_mask must be integers");
  if (e.rank(mask) == 1) return attend::length_mask(e, mask, keys);
  if (e.rank(mask) != 2) return e.unsupported("key_padding_mask of rank " + std::to_string(e.rank(mask)));
  return e.op("Unsqueeze", {TRY(e.cast(mask, DType::boolean)), e.ints({1, 2})});
}

Status multi_head_attention(Expander& e) {
  for (std::size_t i = 8; i < e.input_count(); ++i)
    if (e.has(i)) return e.unsupported("input " + std::to_string(i) + ", a buffer of the past");
  Heads h = TRY(multi_head_inputs(e, e.attrs.integer("num_heads")));
  TRY(attend::add_past(e, &h, e.in(6), e.in(7)));
  MaskUse mask;
  mask.causal = e.attrs.integer("unidirectional") != 0;
  if (mask.causal && h.past < 0) return e.unsupported("the length of the past is not known");
  mask.bias = e.in(5);
  if (e.has(4)) mask.allowed = TRY(padding_mask(e, e.in(4), e.shape(h.k)[2]));
  return finish_attention(e, h, mask);
}

// ---- Attention ----

// Of the projection [B, S, Eq + Ek + Ev]: equal parts, or what qkv_hidden_sizes says.
Result<Heads> projected_heads(Expander& e, ValueId projected, std::int64_t heads) {
  if (e.rank(projected) != 3) return infer_error("the input must have rank 3 and the weights rank 2");
  const std::int64_t all = e.shape(projected)[2];
  if (all < 0) return e.unsupported("the size of the packed weights is not known");
  std::vector<std::int64_t> sizes = e.attrs.integers("qkv_hidden_sizes");
  if (sizes.empty()) sizes.assign(3, all / 3);
  std::int64_t rest = all;
  for (const std::int64_t size : sizes) {
    if (size < 1 || size > rest) return infer_error("qkv_hidden_sizes do not fit " + std::to_string(all));
    rest -= size;
  }
  if (sizes.size() != 3 || rest != 0 || sizes[0] != sizes[1])
    return infer_error(std::to_string(all) + " columns are no query, key and value");
  const auto parts = TRY(e.ops("Split", {projected, e.ints(sizes)}, {{"axis", std::int64_t{2}}}, 3));
  return Heads{TRY(attend::split_heads(e, parts[0], heads)), TRY(attend::split_heads(e, parts[1], heads)),
               TRY(attend::split_heads(e, parts[2], heads)), 0};
}

// allowed[b, 0, 0, j] of mask_index [B], the numbers of keys, or [2 B], the ends and behind them the begins.
Result<ValueId> index_mask(Expander& e, ValueId index, std::int64_t batch, std::int64_t keys) {
  const std::int64_t count = e.shape(index)[0];
  if (count == batch) return attend::length_mask(e, index, keys);
  if (count < 0 || batch < 0) return e.unsupported("the size of the batch is not known");
  if (count == 3 * batch + 2) return e.unsupported("a mask_index of cumulated lengths");
  if (count != 2 * batch)
    return infer_error("mask_index " + to_string(e.shape(index)) + " does not fit a batch of " +
                       std::to_string(batch));
  const ValueId ends = TRY(e.slice(index, 0, batch, 0)), begins = TRY(e.slice(index, batch, count, 0));
  const ValueId before = TRY(attend::length_mask(e, begins, keys));
  return e.op("And", {TRY(attend::length_mask(e, ends, keys)), TRY(e.op("Not", {before}))});
}

// What the mask adds to the scores: 0 for keys that count, `filled` for others.
Result<ValueId> mask_bias(Expander& e, ValueId mask, const Heads& h, double filled) {
  if (is_float(e.dtype(mask))) return infer_error("mask_index must be integers");
  const std::size_t rank = e.rank(mask);
  if (rank < 1 || rank > 3) return e.unsupported("a mask_index of rank " + std::to_string(rank));
  ValueId allowed;
  if (rank == 1) {
    allowed = TRY(index_mask(e, mask, e.shape(h.q)[0], e.shape(h.k)[2]));
  } else {
    const ValueId seen = TRY(e.op("Greater", {mask, e.scalar(e.dtype(mask), 0)}));
    allowed = TRY(e.op("Unsqueeze", {seen, rank == 2 ? e.ints({1, 2}) : e.ints({1})}));
  }
  const DType type = e.dtype(h.q);
  return e.op("Where", {allowed, e.scalar(type, 0), e.scalar(type, filled)});
}

// `mask`, `past`, `bias`: inputs of the node. Output 1: keys and values, [2, B, H, S, D].
Status self_attention(Expander& e, ValueId projected, ValueId index, ValueId past, ValueId bias) {
  if (past != kNone) return e.unsupported("a past");
  for (const char* name : {"do_rotary", "past_present_share_buffer"})
    if (e.attrs.integer(name) != 0) return e.unsupported(std::string("attribute '") + name + "'");
  const Heads h = TRY(projected_heads(e, projected, e.attrs.integer("num_heads")));
  MaskUse mask;
  mask.causal = e.attrs.integer("unidirectional") != 0;
  mask.bias = bias;
  if (index != kNone) {
    const ValueId added = TRY(mask_bias(e, index, h, e.attrs.real("mask_filter_value", -10000)));
    mask.bias = bias == kNone ? added : TRY(e.op("Add", {bias, added}));
  }
  if (e.wants(1)) {
    const ValueId k = TRY(e.op("Unsqueeze", {h.k, e.ints({0})})),
                  v = TRY(e.op("Unsqueeze", {h.v, e.ints({0})}));
    e.outputs[1] = TRY(e.op("Concat", {k, v}, {{"axis", std::int64_t{0}}}));
  }
  return finish_attention(e, h, mask);
}

// Inputs: x [B, S, E], weights [E, Eq + Ek + Ev], bias, mask_index, past, attention_bias, past length.
Status microsoft_attention(Expander& e) {
  if (!is_float(e.dtype(e.in(0)))) return infer_error("the input must be floating point");
  if (e.has(6)) return e.unsupported("a past");
  ValueId projected = TRY(e.op("MatMul", {e.in(0), e.in(1)}));
  if (e.has(2)) projected = TRY(e.op("Add", {projected, e.in(2)}));
  return self_attention(e, projected, e.in(3), e.in(4), e.in(5));
}

// Inputs: x, weights, bias, scale of x, scale of the weights (one, or one per column), mask_index, zero point
// of x, zero point of the weights, past.
Status quantized_attention(Expander& e) {
  const auto single = [&](ValueId x) -> Result<ValueId> {
    return e.rank(x) == 1 && e.shape(x)[0] == 1 ? e.reshape(x, {}) : Result<ValueId>(x);
  };
  const auto real = [&](ValueId x, ValueId scale, ValueId zero) -> Result<ValueId> {
    std::vector<ValueId> inputs = {x, TRY(single(scale))};
    if (zero != kNone) inputs.push_back(TRY(single(zero)));
    return e.op("DequantizeLinear", std::move(inputs), {{"axis", std::int64_t{1}}});
  };
  for (const std::size_t i : {0u, 1u})
    if (e.dtype(e.in(i)) != DType::i8 && e.dtype(e.in(i)) != DType::u8)
      return infer_error(std::string("an input is ") + dtype_name(e.dtype(e.in(i))));
  const ValueId x = TRY(real(e.in(0), e.in(3), e.in(6))), w = TRY(real(e.in(1), e.in(4), e.in(7)));
  const ValueId projected = TRY(e.op("Add", {TRY(e.op("MatMul", {x, w})), e.in(2)}));
  return self_attention(e, projected, e.in(5), e.in(8), kNone);
}

// ---- biases of positions ----

struct Buckets {
  std::int64_t count, furthest;
  bool both_ways;
};

// Near distances have a bucket each, farther ones share buckets that grow as their logarithm. In f32, as the
// models were trained.
std::int64_t bucket_of(std::int64_t distance, const Buckets& b) {  // key - query
  const std::int64_t side = b.both_ways ? b.count / 2 : b.count, near = side / 2;
  const std::int64_t first = b.both_ways && distance > 0 ? side : 0;
  const std::int64_t away = b.both_ways ? std::abs(distance) : std::max<std::int64_t>(-distance, 0);
  if (away < near) return first + away;
  const float part = std::log(static_cast<float>(away) / static_cast<float>(near)) /
                     std::log(static_cast<float>(b.furthest) / static_cast<float>(near));
  const float beyond = part * static_cast<float>(side - near);
  const std::int64_t last = side - 1;
  return first +
         (beyond >= static_cast<float>(last - near) ? last : near + static_cast<std::int64_t>(beyond));
}

// Inputs: table [buckets, H], number of queries, number of keys. Output: [1, H, S, T].
Status relative_position_bias(Expander& e) {
  constexpr std::int64_t kMost = std::int64_t{1} << 24;
  std::int64_t lengths[2];
  for (const std::size_t i : {0u, 1u}) {
    const Tensor* known = e.known(e.in(i + 1));
    if (known == nullptr) return e.unsupported("its lengths are not known before running");
    if (known->count() != 1 || is_float(known->dtype())) return infer_error("a length must be one integer");
    lengths[i] = static_cast<std::int64_t>(known->at(0));
    if (lengths[i] < 1 || lengths[i] > kMost) return infer_error("its lengths must be from 1 to 2^24");
  }
  const auto [queries, keys] = lengths;
  if (queries > kMost / keys) return e.unsupported("more than 2^24 pairs of positions");
  if (e.rank(e.in(0)) != 2 || e.shape(e.in(0))[0] < 0)
    return infer_error("the table must be [buckets, heads]");
  const Buckets b{e.shape(e.in(0))[0], e.attrs.integer("max_distance"),
                  e.attrs.integer("is_bidirectional") != 0};
  const std::int64_t near = (b.both_ways ? b.count / 2 : b.count) / 2;
  if (near < 1 || b.furthest <= near)
    return infer_error(std::to_string(b.count) + " buckets do not fit a max_distance of " +
                       std::to_string(b.furthest));
  std::vector<std::int64_t> rows;
  rows.reserve(static_cast<std::size_t>(queries * keys));
  for (std::int64_t i = 0; i < queries; ++i)
    for (std::int64_t j = 0; j < keys; ++j) rows.push_back(bucket_of(j - i, b));
  const ValueId places = TRY(e.reshape(e.ints(rows), {queries, keys}));
  const ValueId found = TRY(e.op("Gather", {e.in(0), places}));  // [S, T, H]
  e.outputs[0] = TRY(e.op("Unsqueeze", {TRY(e.transpose(found, {2, 0, 1})), e.ints({0})}));
  return {};
}

// Inputs: query [B, S, H D], its bias [H D], position bias [1, H, S, S], weights [D, 2 G] and bias [2 G] of
// the gates, a [1, H, 1, 1].
Status gated_relative_position_bias(Expander& e) {
  if (e.has(6)) return e.unsupported("token_offset, packed sequences");
  if (e.rank(e.in(0)) != 3) return e.unsupported("a query of rank " + std::to_string(e.rank(e.in(0))));
  const Shape weights = e.shape(e.in(3));
  if (weights.size() != 2 || weights[1] < 2 || weights[1] % 2 != 0)
    return infer_error("weights " + to_string(weights) + " are none of two gates");
  const DType type = e.dtype(e.in(0));
  const ValueId biased = TRY(e.op("Add", {e.in(0), e.in(1)}));
  const ValueId query = TRY(attend::split_heads(e, biased, e.attrs.integer("num_heads")));
  ValueId gates = TRY(e.op("Add", {TRY(e.op("MatMul", {query, e.in(3)})), e.in(4)}));
  gates = TRY(e.reshape(gates, {0, 0, 0, 2, weights[1] / 2}));
  gates = TRY(e.op("ReduceSum", {gates, e.ints({4})}, {{"keepdims", std::int64_t{0}}}));
  const auto both =
      TRY(e.ops("Split", {TRY(e.op("Sigmoid", {gates}))}, {{"axis", std::int64_t{3}}}, 2));  // [B, H, S, 1]
  const ValueId reset = TRY(e.op("Sub", {TRY(e.op("Mul", {both[1], e.in(5)})), e.scalar(type, 1)}));
  const ValueId gate = TRY(e.op("Add", {TRY(e.op("Mul", {both[0], reset})), e.scalar(type, 2)}));
  e.outputs[0] = TRY(e.op("Mul", {gate, e.in(2)}));
  return {};
}

}  // namespace

std::span<const Expansion> microsoft_attention_expansions() {
  static const std::vector<ExpansionAttribute> kAttention = {
      {"do_rotary", AttributeProto::INT},         {"mask_filter_value", AttributeProto::FLOAT},
      {"num_heads", AttributeProto::INT},         {"past_present_share_buffer", AttributeProto::INT},
      {"qkv_hidden_sizes", AttributeProto::INTS}, {"rotary_embedding_dim", AttributeProto::INT},
      {"scale", AttributeProto::FLOAT},           {"unidirectional", AttributeProto::INT}};
  static const std::vector<ExpansionAttribute> kMultiHead = {{"num_heads", AttributeProto::INT},
                                                             {"mask_filter_value", AttributeProto::FLOAT},
                                                             {"scale", AttributeProto::FLOAT},
                                                             {"unidirectional", AttributeProto::INT}};
  static const std::vector<ExpansionAttribute> kBuckets = {{"is_bidirectional", AttributeProto::INT},
                                                           {"max_distance", AttributeProto::INT}};
  static const std::vector<ExpansionAttribute> kHeads = {{"num_heads", AttributeProto::INT}};
  static const std::vector<Expansion> kTable = {
      {"Attention", kMicrosoft, 1, kNewest, 2, 7, 2, microsoft_attention, kAttention},
      {"QAttention", kMicrosoft, 1, kNewest, 5, 9, 2, quantized_attention, kAttention},
      {"MultiHeadAttention", kMicrosoft, 1, kNewest, 1, 10, 4, multi_head_attention, kMultiHead},
      {"RelativePositionBias", kMicrosoft, 1, kNewest, 3, 3, 1, relative_position_bias, kBuckets},
      {"GatedRelativePositionBias", kMicrosoft, 1, kNewest, 6, 7, 1, gated_relative_position_bias, kHeads},
  };
  return kTable;
}

}  // namespace gradloom
