// Activations, products with scaling, training operators, and CastLike (Cast to the element
// type of the second input):
//   com.microsoft: Gelu, FastGelu (tanh form, of x + bias), BiasGelu, QuickGelu (x sigmoid(alpha x)),
//   FusedMatMul and its older name TransposeMatMul (alpha op(A) op(B)), BiasDropout (dropout(x + bias) + residual), SoftmaxCrossEntropyLossInternal
//   (SoftmaxCrossEntropyLoss with ignore_index as an input)
// Source: ONNX Runtime's contrib operators.
#include <algorithm>
#include <numeric>

#include "engine/onnx/expand/expansion.h"
#include "engine/ops/inference.h"

namespace gradloom {

namespace {

using onnx::AttributeProto;

Status require_float_input(const Expander& e) {
  if (is_float(e.dtype(e.in(0)))) return {};
  return infer_error(std::string("the input is ") + dtype_name(e.dtype(e.in(0))));
}

Status quick_gelu(Expander& e) {
  e.outputs[0] = TRY(e.op("Swish", {e.in(0)}, {{"alpha", e.attrs.real("alpha", 1.702)}}));
  return {};
}

template <bool tanh>
Status gelu(Expander& e) {
  TRY(require_float_input(e));
  const ValueId x = e.has(1) ? TRY(e.op("Add", {e.in(0), e.in(1)})) : e.in(0);
  e.outputs[0] = TRY(e.op(tanh ? "GeluTanh" : "Gelu", {x}));
  return {};
}

Status cast_like(Expander& e) {
  Attrs attrs = e.attrs;
  attrs.set("to", onnx_from_dtype(e.dtype(e.in(1))));
  e.outputs[0] = TRY(e.op("Cast", {e.in(0)}, attrs));
  return {};
}

// transBatch moves the first axis before the last two: [m, batch.., k] -> [batch.., m, k].
Result<ValueId> operand(Expander& e, ValueId x, bool transposed, bool batch_last) {
  const auto rank = static_cast<std::int64_t>(e.rank(x));
  if (rank < 2) return x;
  std::vector<std::int64_t> order(static_cast<std::size_t>(rank));
  std::iota(order.begin(), order.end(), 0);
  if (batch_last) std::rotate(order.begin(), order.begin() + 1, order.end() - 1);
  if (transposed) std::swap(order[order.size() - 1], order[order.size() - 2]);
  if (std::is_sorted(order.begin(), order.end())) return x;
  return e.transpose(x, order);
}

Status fused_matmul(Expander& e) {
  const auto flag = [&](const char* name) { return e.attrs.integer(name) != 0; };
  const ValueId a = TRY(operand(e, e.in(0), flag("transA"), flag("transBatchA")));
  const ValueId b = TRY(operand(e, e.in(1), flag("transB"), flag("transBatchB")));
  const ValueId product = TRY(e.op("MatMul", {a, b}));
  const double alpha = e.attrs.real("alpha", 1);
  e.outputs[0] = alpha == 1 ? product : TRY(e.op("Mul", {product, e.scalar(e.dtype(product), alpha)}));
  return {};
}

// Inputs: data, bias, residual, ratio, training_mode.
Status bias_dropout(Expander& e) {
  TRY(require_float_input(e));
  const ValueId sum = TRY(e.op("Add", {e.in(0), e.in(1)}));
  std::vector<ValueId> inputs = {sum, e.in(3), e.in(4)};
  while (inputs.back() == kNone) inputs.pop_back();
  const auto dropped = TRY(e.ops("Dropout", std::move(inputs), {}, e.wants(1) ? 2 : 1));
  e.outputs[0] = e.has(2) ? TRY(e.op("Add", {dropped[0], e.in(2)})) : dropped[0];
  if (e.wants(1)) e.outputs[1] = dropped[1];
  return {};
}

// Inputs: scores, labels, weights, ignore_index. Outputs: loss, log-probabilities.
Status softmax_cross_entropy_internal(Expander& e) {
  Attrs attrs = e.attrs;
  if (attrs.has("output_type")) return e.unsupported("attribute 'output_type'");
  if (e.has(3)) {
    const Tensor* ignored = e.known(e.in(3));
    if (ignored == nullptr || ignored->count() != 1)
      return e.unsupported("an ignore_index that is not known before running");
    attrs.set("ignore_index", static_cast<std::int64_t>(ignored->at(0)));
  }
  std::vector<ValueId> inputs = {e.in(0), e.in(1)};
  if (e.has(2)) inputs.push_back(e.in(2));
  const auto results =
      TRY(e.ops("SoftmaxCrossEntropyLoss", std::move(inputs), std::move(attrs), e.wants(1) ? 2 : 1));
  for (std::size_t i = 0; i < results.size(); ++i) e.outputs[i] = results[i];
  return {};
}

}  // namespace

std::span<const Expansion> activation_expansions() {
  static const std::vector<ExpansionAttribute> kProduct = {{"alpha", AttributeProto::FLOAT},
                                                           {"transA", AttributeProto::INT},
                                                           {"transB", AttributeProto::INT},
                                                           {"transBatchA", AttributeProto::INT},
                                                           {"transBatchB", AttributeProto::INT}};
  static const std::vector<Expansion> kTable = {
      {"CastLike", "", 15, kNewest, 2, 2, 1, cast_like, {}},
      {"Gelu", kMicrosoft, 1, kNewest, 1, 1, 1, gelu<false>, {}},
      {"BiasGelu", kMicrosoft, 1, kNewest, 2, 2, 1, gelu<false>, {}},
      {"FastGelu", kMicrosoft, 1, kNewest, 1, 2, 1, gelu<true>, {}},
      {"QuickGelu", kMicrosoft, 1, kNewest, 1, 1, 1, quick_gelu, {{"alpha", AttributeProto::FLOAT}}},
      {"FusedMatMul", kMicrosoft, 1, kNewest, 2, 2, 1, fused_matmul, kProduct},
      {"TransposeMatMul", kMicrosoft, 1, kNewest, 2, 2, 1, fused_matmul, kProduct},
      {"BiasDropout", kMicrosoft, 1, kNewest, 2, 5, 2, bias_dropout, {{"seed", AttributeProto::INT}}},
      {"SoftmaxCrossEntropyLossInternal",
       kMicrosoft,
       1,
       kNewest,
       2,
       4,
       2,
       softmax_cross_entropy_internal,
       {{"ignore_index", AttributeProto::INT},
        {"output_type", AttributeProto::INT},
        {"reduction", AttributeProto::STRING}}},
  };
  return kTable;
}

}  // namespace gradloom
