// Sequences that ONNX Runtime's optimizer writes as one operator (com.microsoft):
//   BiasAdd         x + bias + skip
//   BiasSoftmax     softmax(x + bias), over all axes from `axis` on together
//   BiasSplitGelu   a gelu(b), where a and b are the halves of x + bias
//   FusedConv       activation(Conv + z)          NhwcConv    Conv with the channels behind the spatial axes
//   FusedGemm       activation(Gemm)              GemmFastGelu   FastGelu(x w + bias)
// Source: ONNX Runtime's contrib operators.
#include "engine/onnx/expand/expansion.h"
#include "engine/ir/op.h"

namespace gradloom {

namespace {

using onnx::AttributeProto;

Status bias_add(Expander& e) {
  e.outputs[0] = TRY(e.op("Add", {TRY(e.op("Add", {e.in(0), e.in(1)})), e.in(2)}));
  return {};
}

// is_inner_broadcast says which axes of the bias have size 1 or are left out, which its shape says too.
Status bias_softmax(Expander& e) {
  const ValueId sum = TRY(e.op("Add", {e.in(0), e.in(1)}));
  const std::size_t rank = e.rank(sum);
  if (rank != e.rank(e.in(0))) return infer_error("the bias has a higher rank than the scores");
  const std::int64_t axis = TRY(normalized_axis(e.attrs.integer("axis", 1), rank));
  const bool last = static_cast<std::size_t>(axis) + 1 == rank;
  ValueId x = sum;
  if (!last) {
    std::vector<std::int64_t> rows(static_cast<std::size_t>(axis), 0);  // 0 copies
    rows.push_back(-1);
    x = TRY(e.reshape(sum, rows));
  }
  const ValueId y = TRY(e.op("Softmax", {x}, {{"axis", std::int64_t{-1}}}));
  e.outputs[0] = last ? y : TRY(e.op("Reshape", {y, TRY(e.op("Shape", {sum}))}));
  return {};
}

Status bias_split_gelu(Expander& e) {
  const ValueId sum = TRY(e.op("Add", {e.in(0), e.in(1)}));
  const std::int64_t size = e.rank(sum) == 0 ? 0 : e.shape(sum).back();
  if (size >= 0 && (size == 0 || size % 2 != 0))
    return infer_error("a last axis of " + std::to_string(size) + " has no halves");
  const auto halves = TRY(e.ops("Split", {sum}, {{"axis", std::int64_t{-1}}}, 2));
  e.outputs[0] = TRY(e.op("Mul", {halves[0], TRY(e.op("Gelu", {halves[1]}))}));
  return {};
}

// ---- products and convolutions with an activation ----

// Activations, and which of alpha, beta and gamma they have. The operators' attributes have the same names.
struct Activation {
  const char* name;
  std::vector<const char*> parameters;
};

const Activation* find_activation(const std::string& name) {
  static const Activation kActivations[] = {{"Relu", {}},
                                            {"Sigmoid", {}},
                                            {"Tanh", {}},
                                            {"Softplus", {}},
                                            {"Softsign", {}},
                                            {"HardSwish", {}},
                                            {"LeakyRelu", {"alpha"}},
                                            {"Elu", {"alpha"}},
                                            {"ThresholdedRelu", {"alpha"}},
                                            {"HardSigmoid", {"alpha", "beta"}},
                                            {"Selu", {"alpha", "gamma"}}};
  for (const Activation& a : kActivations)
    if (name == a.name) return &a;
  return nullptr;
}

Error unknown_activation(Expander& e, const std::string& name) {
  return e.unsupported("activation '" + name + "'");
}

// The attributes of a node without those of its activation.
Attrs without(Attrs attrs, std::initializer_list<const char*> names) {
  for (const char* name : names) attrs.erase(name);
  return attrs;
}

// The parameters are a list in the activation's order; Clip has its bounds there.
Result<ValueId> activated(Expander& e, ValueId x) {
  const std::string name = e.attrs.text("activation");
  if (name.empty()) return x;
  const std::vector<double> values = e.attrs.reals("activation_params");
  if (name == "Clip" && values.size() == 2)
    return e.op("Clip", {x, e.scalar(e.dtype(x), values[0]), e.scalar(e.dtype(x), values[1])});
  const Activation* activation = find_activation(name);
  if (activation == nullptr && name != "Clip") return unknown_activation(e, name);
  if (activation == nullptr || values.size() != activation->parameters.size())
    return infer_error("activation '" + name + "' with " + std::to_string(values.size()) + " parameters");
  Attrs attrs;
  for (std::size_t i = 0; i < values.size(); ++i) attrs.set(activation->parameters[i], values[i]);
  return e.op(activation->name, {x}, std::move(attrs));
}

Result<ValueId> convolved(Expander& e, ValueId x, ValueId w) {
  std::vector<ValueId> inputs = {x, w};
  if (e.has(2)) inputs.push_back(e.in(2));
  return e.op("Conv", std::move(inputs), without(e.attrs, {"activation", "activation_params"}));
}

// Inputs: x, weights, bias, z.
Status fused_conv(Expander& e) {
  ValueId y = TRY(convolved(e, e.in(0), e.in(1)));
  if (e.has(3)) y = TRY(e.op("Add", {y, e.in(3)}));
  e.outputs[0] = TRY(activated(e, y));
  return {};
}

// Inputs: x [n, spatial.., c], weights [o, kernel.., c / group], bias [o].
Status nhwc_conv(Expander& e) {
  const std::size_t rank = e.rank(e.in(0));
  if (rank < 3 || e.rank(e.in(1)) != rank)
    return infer_error("input and weights must have the same rank, 3 or more");
  const ValueId x = TRY(e.channels_first(e.in(0))), w = TRY(e.channels_first(e.in(1)));
  e.outputs[0] = TRY(e.channels_last(TRY(convolved(e, x, w))));
  return {};
}

// Inputs: a, b, c.
Status fused_gemm(Expander& e) {
  const ValueId y =
      TRY(e.op("Gemm", {e.in(0), e.in(1), e.in(2)},
               without(e.attrs, {"activation", "activation_alpha", "activation_beta", "activation_gamma"})));
  const std::string name = e.attrs.text("activation");
  const Activation* activation = find_activation(name);
  if (activation == nullptr && !name.empty()) return unknown_activation(e, name);
  Attrs attrs;
  for (const char* parameter : activation == nullptr ? std::vector<const char*>{} : activation->parameters) {
    const std::string own = std::string("activation_") + parameter;
    if (e.attrs.has(own)) attrs.set(parameter, e.attrs.real(own));
  }
  e.outputs[0] = activation == nullptr ? y : TRY(e.op(activation->name, {y}, std::move(attrs)));
  return {};
}

// Inputs: x, weights, bias.
Status gemm_fast_gelu(Expander& e) {
  ValueId y = TRY(e.op("MatMul", {e.in(0), e.in(1)}));
  if (e.has(2)) y = TRY(e.op("Add", {y, e.in(2)}));
  e.outputs[0] = TRY(e.op("GeluTanh", {y}));
  return {};
}

}  // namespace

std::span<const Expansion> fused_expansions() {
  static const std::vector<ExpansionAttribute> kSoftmax = {{"axis", AttributeProto::INT},
                                                           {"is_inner_broadcast", AttributeProto::INT}};
  static const std::vector<ExpansionAttribute> kConv = {
      {"auto_pad", AttributeProto::STRING},   {"dilations", AttributeProto::INTS},
      {"group", AttributeProto::INT},         {"kernel_shape", AttributeProto::INTS},
      {"pads", AttributeProto::INTS},         {"strides", AttributeProto::INTS},
      {"activation", AttributeProto::STRING}, {"activation_params", AttributeProto::FLOATS}};
  static const std::vector<ExpansionAttribute> kNhwc(kConv.begin(), kConv.end() - 2);
  static const std::vector<ExpansionAttribute> kGemm = {{"activation", AttributeProto::STRING},
                                                        {"activation_alpha", AttributeProto::FLOAT},
                                                        {"activation_beta", AttributeProto::FLOAT},
                                                        {"activation_gamma", AttributeProto::FLOAT},
                                                        {"alpha", AttributeProto::FLOAT},
                                                        {"beta", AttributeProto::FLOAT},
                                                        {"transA", AttributeProto::INT},
                                                        {"transB", AttributeProto::INT}};
  static const std::vector<Expansion> kTable = {
      {"BiasAdd", kMicrosoft, 1, kNewest, 3, 3, 1, bias_add, {}},
      {"BiasSoftmax", kMicrosoft, 1, kNewest, 2, 2, 1, bias_softmax, kSoftmax},
      {"BiasSplitGelu", kMicrosoft, 1, kNewest, 2, 2, 1, bias_split_gelu, {}},
      {"FusedConv", kMicrosoft, 1, kNewest, 2, 4, 1, fused_conv, kConv},
      {"NhwcConv", kMicrosoft, 1, kNewest, 2, 3, 1, nhwc_conv, kNhwc},
      {"FusedGemm", kMicrosoft, 1, kNewest, 2, 3, 1, fused_gemm, kGemm},
      {"GemmFastGelu", kMicrosoft, 1, kNewest, 2, 3, 1, gemm_fast_gelu, {}},
  };
  return kTable;
}

}  // namespace gradloom
