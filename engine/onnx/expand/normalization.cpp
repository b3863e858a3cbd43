// Normalizations of ONNX Runtime (com.microsoft;
// SimplifiedLayerNormalization is in ONNX's domain in its files too):
//   SimplifiedLayerNormalization      RMSNormalization of the input
//   SkipLayerNormalization            LayerNormalization of input + skip + bias, over the last axis
//   SkipSimplifiedLayerNormalization  RMSNormalization of input + skip + bias, over the last axis
//   LayerNormalization                in ONNX's domain before opset 17, which added it
//   EmbedLayerNormalization           LayerNormalization of the sum of rows of tables: of words, positions and segments
//   GroupNorm, SkipGroupNorm          GroupNormalization of input (+ skip + bias), channels last; x sigmoid(x) of it if asked
// Source: ONNX Runtime's contrib operators.
#include "engine/onnx/expand/expansion.h"
#include "engine/ir/op.h"

namespace gradloom {

namespace {

using onnx::AttributeProto;

// Output `inverse` of the node: 1 / root mean square.
Status rms(Expander& e, ValueId x, ValueId scale, std::int64_t axis, double epsilon, std::size_t inverse) {
  const auto results = TRY(e.ops("RMSNormalization", {x, scale}, {{"axis", axis}, {"epsilon", epsilon}},
                                 e.wants(inverse) ? 2 : 1));
  e.outputs[0] = results[0];
  if (results.size() > 1) e.outputs[inverse] = results[1];
  return {};
}

Status simplified_layer_normalization(Expander& e) {
  return rms(e, e.in(0), e.in(1), e.attrs.integer("axis", -1), e.attrs.real("epsilon", 1e-5), 1);
}

// input + skip (+ bias), which is also output 3.
Result<ValueId> skip_sum(Expander& e, std::size_t bias) {
  ValueId sum = TRY(e.op("Add", {e.in(0), e.in(1)}));
  if (e.has(bias)) sum = TRY(e.op("Add", {sum, e.in(bias)}));
  if (e.wants(3)) e.outputs[3] = sum;
  return sum;
}

// Outputs 1 and 2: mean and 1 / standard deviation. `bias` may be none.
Status layer(Expander& e, ValueId x, ValueId scale, ValueId bias, const Attrs& attrs) {
  std::vector<ValueId> inputs = {x, scale};
  if (bias != kNone) inputs.push_back(bias);
  const int count = e.wants(2) ? 3 : e.wants(1) ? 2 : 1;
  const auto results = TRY(e.ops("LayerNormalization", std::move(inputs), attrs, count));
  for (std::size_t i = 0; i < results.size(); ++i) e.outputs[i] = results[i];
  return {};
}

Status layer_normalization(Expander& e) { return layer(e, e.in(0), e.in(1), e.in(2), e.attrs); }

// Inputs: input, skip, gamma, beta, bias.
Status skip_layer_normalization(Expander& e) {
  return layer(e, TRY(skip_sum(e, 4)), e.in(2), e.in(3),
               {{"axis", std::int64_t{-1}}, {"epsilon", e.attrs.real("epsilon", 1e-12)}});
}

// Inputs: input, skip, gamma, bias. Output 2: 1 / root mean square; there is no mean for output 1.
Status skip_simplified_layer_normalization(Expander& e) {
  return rms(e, TRY(skip_sum(e, 3)), e.in(2), -1, e.attrs.real("epsilon", 1e-12), 2);
}

// Rows of the table of positions: those of the ids, or the first ones.
Result<ValueId> position_rows(Expander& e, ValueId ids, ValueId table, ValueId positions) {
  if (positions != kNone) return e.op("Gather", {table, positions});
  const std::int64_t length = e.shape(ids)[1], rows = e.rank(table) == 2 ? e.shape(table)[0] : -1;
  if (length < 0 || rows < 0) return e.unsupported("the length of the sequence is not known");
  if (length > rows)
    return infer_error(std::to_string(length) + " positions in a table of " + std::to_string(rows));
  return e.slice(table, 0, length, 0);
}

// Inputs: word ids [B, S], segment ids, tables of words, positions and segments, gamma, beta, mask, position
// ids. Outputs: result, how many ones the mask has [B], sum of the rows.
Status embed_layer_normalization(Expander& e) {
  const ValueId ids = e.in(0);
  for (const std::size_t i : {2u, 3u, 5u, 6u})
    if (!e.has(i)) return infer_error("input " + std::to_string(i) + " is required");
  if (e.rank(ids) != 2) return infer_error("the ids have rank " + std::to_string(e.rank(ids)));
  if (e.has(1) != e.has(4)) return infer_error("ids and table of the segments come together");
  ValueId sum = TRY(e.op("Gather", {e.in(2), ids}));
  sum = TRY(e.op("Add", {sum, TRY(position_rows(e, ids, e.in(3), e.in(8)))}));
  if (e.has(1)) sum = TRY(e.op("Add", {sum, TRY(e.op("Gather", {e.in(4), e.in(1)}))}));
  const Attrs attrs = {{"axis", std::int64_t{-1}}, {"epsilon", e.attrs.real("epsilon", 1e-12)}};
  e.outputs[0] = TRY(e.op("LayerNormalization", {sum, e.in(5), e.in(6)}, attrs));
  if (e.wants(1)) {
    // Without a mask the count is 0.
    const ValueId ones =
        TRY(e.has(7) ? e.op("Equal", {e.in(7), e.scalar(e.dtype(e.in(7)), 1)}) : e.op("Less", {ids, ids}));
    e.outputs[1] =
        TRY(e.op("ReduceSum", {TRY(e.cast(ones, DType::i32)), e.ints({1})}, {{"keepdims", std::int64_t{0}}}));
  }
  if (e.wants(2)) e.outputs[2] = sum;
  return {};
}

// x [n, spatial.., c], gamma and beta [c].
Result<ValueId> group_normalized(Expander& e, ValueId x, bool channels_last) {
  const std::int64_t activation = e.attrs.integer("activation");
  if (e.rank(x) < 3) return infer_error("the input has rank " + std::to_string(e.rank(x)));
  if (channels_last) x = TRY(e.channels_first(x));
  const DType type = e.dtype(x);
  ValueId y =
      TRY(e.op("GroupNormalization", {x, TRY(e.cast(e.in(1), type)), TRY(e.cast(e.in(2), type))},
               {{"num_groups", e.attrs.integer("groups")}, {"epsilon", e.attrs.real("epsilon", 1e-5)}}));
  if (channels_last) y = TRY(e.channels_last(y));
  return activation == 0 ? Result<ValueId>(y) : e.op("Swish", {y});
}

// Inputs: x, gamma, beta.
Status group_norm(Expander& e) {
  e.outputs[0] = TRY(group_normalized(e, e.in(0), e.attrs.integer("channels_last", 1) != 0));
  return {};
}

// Inputs: x [n, h, w, c], gamma, beta, skip [n, h, w, c], [n, 1, 1, c] or [n, c],
// bias [c]. Output 1: the sum.
Status skip_group_norm(Expander& e) {
  if (e.attrs.integer("channels_last", 1) == 0) return e.unsupported("attribute 'channels_last' = 0");
  ValueId skip = e.in(3);
  if (e.rank(skip) == 2) skip = TRY(e.op("Unsqueeze", {skip, e.ints({1, 2})}));
  ValueId sum = TRY(e.op("Add", {e.in(0), skip}));
  if (e.has(4)) sum = TRY(e.op("Add", {sum, e.in(4)}));
  e.outputs[0] = TRY(group_normalized(e, sum, true));
  if (e.wants(1)) e.outputs[1] = sum;
  return {};
}

}  // namespace

std::span<const Expansion> normalization_expansions() {
  static const std::vector<ExpansionAttribute> kSimplified = {
      {"axis", AttributeProto::INT}, {"epsilon", AttributeProto::FLOAT}, {"stash_type", AttributeProto::INT}};
  static const std::vector<ExpansionAttribute> kEpsilon = {{"epsilon", AttributeProto::FLOAT}};
  static const std::vector<ExpansionAttribute> kEmbed = {{"epsilon", AttributeProto::FLOAT},
                                                         {"mask_index_type", AttributeProto::INT}};
  static const std::vector<ExpansionAttribute> kGroup = {{"activation", AttributeProto::INT},
                                                         {"channels_last", AttributeProto::INT},
                                                         {"epsilon", AttributeProto::FLOAT},
                                                         {"groups", AttributeProto::INT}};
  static const std::vector<Expansion> kTable = {
      {"SimplifiedLayerNormalization", "", 1, kNewest, 2, 2, 2, simplified_layer_normalization, kSimplified},
      {"SimplifiedLayerNormalization", kMicrosoft, 1, kNewest, 2, 2, 2, simplified_layer_normalization,
       kSimplified},
      {"LayerNormalization", "", 1, 16, 2, 3, 3, layer_normalization, kSimplified},
      {"EmbedLayerNormalization", kMicrosoft, 1, kNewest, 1, 9, 3, embed_layer_normalization, kEmbed},
      {"GroupNorm", kMicrosoft, 1, kNewest, 3, 3, 1, group_norm, kGroup},
      {"SkipGroupNorm", kMicrosoft, 1, kNewest, 4, 5, 2, skip_group_norm, kGroup},
      {"SkipLayerNormalization", kMicrosoft, 1, kNewest, 3, 5, 4, skip_layer_normalization, kEpsilon},
      {"SkipSimplifiedLayerNormalization", kMicrosoft, 1, kNewest, 3, 4, 4,
       skip_simplified_layer_normalization, kEpsilon},
  };
  return kTable;
}

}  // namespace gradloom
