// Normalizations of ONNX Runtime (com.microsoft; SimplifiedLayerNormalization is in ONNX's domain in its
// files too):
//   SimplifiedLayerNormalization      RMSNormalization of the input
//   SkipLayerNormalization            LayerNormalization of input + skip + bias, over the last axis
//   SkipSimplifiedLayerNormalization  RMSNormalization of input + skip + bias, over the last axis
// Source: ONNX Runtime's contrib operators.
#include "engine/onnx/expansion.h"

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

// Inputs: input, skip, gamma, beta, bias. Outputs 1 and 2: mean and 1 / standard deviation.
Status skip_layer_normalization(Expander& e) {
  const ValueId sum = TRY(skip_sum(e, 4));
  std::vector<ValueId> inputs = {sum, e.in(2)};
  if (e.has(3)) inputs.push_back(e.in(3));
  const int count = e.wants(2) ? 3 : e.wants(1) ? 2 : 1;
  const auto results =
      TRY(e.ops("LayerNormalization", std::move(inputs),
                {{"axis", std::int64_t{-1}}, {"epsilon", e.attrs.real("epsilon", 1e-12)}}, count));
  for (std::size_t i = 0; i < results.size(); ++i) e.outputs[i] = results[i];
  return {};
}

// Inputs: input, skip, gamma, bias. Output 2: 1 / root mean square; there is no mean for output 1.
Status skip_simplified_layer_normalization(Expander& e) {
  return rms(e, TRY(skip_sum(e, 3)), e.in(2), -1, e.attrs.real("epsilon", 1e-12), 2);
}

}  // namespace

std::span<const Expansion> normalization_expansions() {
  static const std::vector<ExpansionAttribute> kSimplified = {
      {"axis", AttributeProto::INT}, {"epsilon", AttributeProto::FLOAT}, {"stash_type", AttributeProto::INT}};
  static const std::vector<ExpansionAttribute> kEpsilon = {{"epsilon", AttributeProto::FLOAT}};
  static const std::vector<Expansion> kTable = {
      {"SimplifiedLayerNormalization", "", 1, kNewest, 2, 2, 2, simplified_layer_normalization, kSimplified},
      {"SimplifiedLayerNormalization", kMicrosoft, 1, kNewest, 2, 2, 2, simplified_layer_normalization,
       kSimplified},
      {"SkipLayerNormalization", kMicrosoft, 1, kNewest, 3, 5, 4, skip_layer_normalization, kEpsilon},
      {"SkipSimplifiedLayerNormalization", kMicrosoft, 1, kNewest, 3, 4, 4,
       skip_simplified_layer_normalization, kEpsilon},
  };
  return kTable;
}

}  // namespace gradloom
