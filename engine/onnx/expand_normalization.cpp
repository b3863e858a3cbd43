// Normalizations:
//   RMSNormalization (opset 23)    y = x / sqrt(mean(x^2) + epsilon) * scale, mean over the axes from `axis` on
//   GroupNormalization (18, 21)    per sample and group of channels; scale and bias per group (18) or channel (21)
//   MeanVarianceNormalization (9)  (x - mean) / (sqrt(mean(x^2) - mean^2) + 1e-9) over `axes`
//   com.microsoft: SimplifiedLayerNormalization (ONNX's domain has it too, in ONNX Runtime's files),
//   SkipLayerNormalization, SkipSimplifiedLayerNormalization: of input + skip (+ bias)
// The statistics are those of the type that `stash_type` names, f32 by default, or the input's when wider.
// Source: ONNX operators RMSNormalization-23, GroupNormalization-18 and -21, MeanVarianceNormalization-13; ONNX
// Runtime's contrib operators.
#include "engine/onnx/expansion.h"
#include "engine/ops/common.h"

namespace gradloom {

namespace {

using onnx::AttributeProto;
using Ints = std::vector<std::int64_t>;

Ints range(std::int64_t first, std::int64_t end) {
  Ints axes;
  for (; first < end; ++first) axes.push_back(first);
  return axes;
}

Status require_float_input(const Expander& e) {
  if (is_float(e.dtype(e.in(0)))) return {};
  return infer_error(std::string("the input is ") + dtype_name(e.dtype(e.in(0))));
}

// In which type the statistics are computed.
Result<DType> statistics_type(Expander& e) {
  const DType own = e.dtype(e.in(0));
  if (own == DType::f64) return own;
  return TRY(dtype_from_onnx(e.attrs.integer("stash_type", onnx_from_dtype(DType::f32))));
}

struct Rms {
  ValueId y, inverse;  // inverse: 1 / sqrt(mean(x^2) + epsilon)
};

Result<Rms> rms(Expander& e, ValueId x, ValueId scale, std::int64_t axis, double epsilon) {
  const DType own = e.dtype(x), work = TRY(statistics_type(e));
  const auto rank = static_cast<std::int64_t>(e.rank(x));
  const std::int64_t first = TRY(normalized_axis(axis, e.rank(x)));
  const ValueId wide = TRY(e.cast(x, work));
  const ValueId square = TRY(e.op("Mul", {wide, wide}));
  const ValueId shifted = TRY(e.op("Add", {TRY(e.mean(square, range(first, rank))), e.scalar(work, epsilon)}));
  const ValueId inverse = TRY(e.op("Reciprocal", {TRY(e.op("Sqrt", {shifted}))}));
  const ValueId normalized = TRY(e.cast(TRY(e.op("Mul", {wide, inverse})), own));
  return Rms{TRY(e.op("Mul", {normalized, scale})), inverse};
}

Status rms_normalization(Expander& e) {
  TRY(require_float_input(e));
  e.outputs[0] = TRY(rms(e, e.in(0), e.in(1), e.attrs.integer("axis", -1), e.attrs.real("epsilon", 1e-5))).y;
  return {};
}

Status simplified_layer_normalization(Expander& e) {
  TRY(require_float_input(e));
  const Rms result = TRY(rms(e, e.in(0), e.in(1), e.attrs.integer("axis", -1), e.attrs.real("epsilon", 1e-5)));
  e.outputs[0] = result.y;
  if (e.wants(1)) e.outputs[1] = result.inverse;
  return {};
}

// [N, C, ..] -> [N, groups, C / groups * ..] normalized over the last -> [N, C, ..].
Result<ValueId> group_normalized(Expander& e, std::int64_t groups) {
  const ValueId x = e.in(0);
  const DType own = e.dtype(x), work = TRY(statistics_type(e));
  const ValueId rows = TRY(e.cast(TRY(e.reshape(x, {0, groups, -1})), work));
  const ValueId centred = TRY(e.op("Sub", {rows, TRY(e.mean(rows, {2}))}));
  const ValueId variance = TRY(e.mean(TRY(e.op("Mul", {centred, centred})), {2}));
  const ValueId shifted = TRY(e.op("Add", {variance, e.scalar(work, e.attrs.real("epsilon", 1e-5))}));
  const ValueId inverse = TRY(e.op("Reciprocal", {TRY(e.op("Sqrt", {shifted}))}));
  const ValueId normalized = TRY(e.cast(TRY(e.op("Mul", {centred, inverse})), own));
  if (is_static(e.shape(x))) return e.reshape(normalized, e.shape(x));
  return e.op("Reshape", {normalized, TRY(e.op("Shape", {x}))});
}

// [C] -> [C, 1, ..]: broadcasts along the channels of x.
Result<ValueId> per_channel(Expander& e, ValueId vector) {
  Ints shape(e.rank(e.in(0)) - 1, 1);
  shape[0] = -1;
  return e.reshape(vector, shape);
}

template <bool per_group>
Status group_normalization(Expander& e) {
  TRY(require_float_input(e));
  const Shape& shape = e.shape(e.in(0));
  if (shape.size() < 2) return infer_error("the input has rank " + std::to_string(shape.size()) + ", it needs 2");
  const std::int64_t groups = e.attrs.integer("num_groups"), channels = shape[1];
  if (groups < 1 || (channels >= 0 && channels % groups != 0)) {
    return infer_error(std::to_string(channels) + " channels in " + std::to_string(groups) + " groups");
  }
  const std::int64_t expected = per_group ? groups : channels;
  for (const std::size_t i : {std::size_t{1}, std::size_t{2}}) {
    const Shape& given = e.shape(e.in(i));
    if (given.size() != 1 || (given[0] >= 0 && expected >= 0 && given[0] != expected)) {
      return infer_error("scale and bias are vectors of " + std::to_string(expected) + ", not " +
                         to_string(given));
    }
  }
  ValueId parameters[2];
  for (const std::size_t i : {std::size_t{0}, std::size_t{1}}) {
    ValueId vector = e.in(i + 1);
    if (per_group) {  // each entry stands for the channels of its group
      if (channels < 0) return e.unsupported("the number of channels is not known");
      vector = TRY(e.op("Expand", {TRY(e.reshape(vector, {groups, 1})), e.ints({groups, channels / groups})}));
    }
    parameters[i] = TRY(per_channel(e, vector));
  }
  const ValueId scaled = TRY(e.op("Mul", {TRY(group_normalized(e, groups)), parameters[0]}));
  e.outputs[0] = TRY(e.op("Add", {scaled, parameters[1]}));
  return {};
}

Status mean_variance_normalization(Expander& e) {
  TRY(require_float_input(e));
  const ValueId x = e.in(0);
  const DType type = e.dtype(x);
  const Ints axes = e.attrs.integers("axes", {0, 2, 3});
  const ValueId centred = TRY(e.op("Sub", {x, TRY(e.mean(x, axes))}));
  const ValueId variance = TRY(e.mean(TRY(e.op("Mul", {centred, centred})), axes));
  const ValueId deviation = TRY(e.op("Add", {TRY(e.op("Sqrt", {variance})), e.scalar(type, 1e-9)}));
  e.outputs[0] = TRY(e.op("Div", {centred, deviation}));
  return {};
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
  TRY(require_float_input(e));
  const ValueId sum = TRY(skip_sum(e, 4));
  std::vector<ValueId> inputs = {sum, e.in(2)};
  if (e.has(3)) inputs.push_back(e.in(3));
  const int count = e.wants(2) ? 3 : e.wants(1) ? 2 : 1;
  const auto results = TRY(e.ops("LayerNormalization", std::move(inputs),
                                 {{"axis", std::int64_t{-1}}, {"epsilon", e.attrs.real("epsilon", 1e-12)}}, count));
  for (std::size_t i = 0; i < results.size(); ++i) e.outputs[i] = results[i];
  return {};
}

// Inputs: input, skip, gamma, bias. Output 2: 1 / root mean square; there is no mean for output 1.
Status skip_simplified_layer_normalization(Expander& e) {
  TRY(require_float_input(e));
  const Rms result = TRY(rms(e, TRY(skip_sum(e, 3)), e.in(2), -1, e.attrs.real("epsilon", 1e-12)));
  e.outputs[0] = result.y;
  if (e.wants(2)) e.outputs[2] = result.inverse;
  return {};
}

const char* const kMicrosoft = "com.microsoft";
constexpr int kNewest = 1000;

}  // namespace

std::span<const Expansion> normalization_expansions() {
  static const std::vector<ExpansionAttribute> kSimplified = {
      {"axis", AttributeProto::INT}, {"epsilon", AttributeProto::FLOAT}, {"stash_type", AttributeProto::INT}};
  static const std::vector<ExpansionAttribute> kEpsilon = {{"epsilon", AttributeProto::FLOAT}};
  static const std::vector<Expansion> kTable = {
      {"RMSNormalization", "", 23, kNewest, 2, 2, 1, rms_normalization, {}},
      {"GroupNormalization", "", 18, 20, 3, 3, 1, group_normalization<true>, {}},
      {"GroupNormalization", "", 21, kNewest, 3, 3, 1, group_normalization<false>, {}},
      {"MeanVarianceNormalization", "", 9, kNewest, 1, 1, 1, mean_variance_normalization, {}},
      {"SimplifiedLayerNormalization", "", 1, kNewest, 2, 2, 2, simplified_layer_normalization, kSimplified},
      {"SimplifiedLayerNormalization", kMicrosoft, 1, kNewest, 2, 2, 2, simplified_layer_normalization,
       kSimplified},
      {"SkipLayerNormalization", kMicrosoft, 1, kNewest, 3, 5, 4, skip_layer_normalization, kEpsilon},
      {"SkipSimplifiedLayerNormalization", kMicrosoft, 1, kNewest, 3, 4, 4, skip_simplified_layer_normalization,
       kEpsilon},
  };
  return kTable;
}

}  // namespace gradloom
