// Elementwise operators of ours, and regions of them (FusedElementwise, FusedRows).
#include <algorithm>
#include <cmath>
#include <numbers>

#include "engine/ops/elementwise/fused.h"
#include "engine/ops/inference.h"
#include "engine/ops/preparation.h"
#include "engine/onnx/write/bodies.h"

namespace gradloom {

namespace {

constexpr double kRootTwoOverPi = 0.7978845608028654, kCubic = 0.044715;

// tanh(sqrt(2 / pi) (x + 0.044715 x^3))
ValueId gelu_tanh_part(Body& body, ValueId x) {
  const auto n = [&](double v) { return body.number_like(x, v); };
  const ValueId cube = body.op("Mul", {body.op("Mul", {x, x}), x});
  const ValueId inner = body.op("Add", {x, body.op("Mul", {n(kCubic), cube})});
  return body.op("Tanh", {body.op("Mul", {n(kRootTwoOverPi), inner})});
}

// (1 + erf(x / sqrt(2))) / 2
ValueId normal_cdf(Body& body, ValueId x) {
  const auto n = [&](double v) { return body.number_like(x, v); };
  const ValueId erf = body.op("Erf", {body.op("Mul", {x, n(1 / std::numbers::sqrt2)})});
  return body.op("Mul", {n(0.5), body.op("Add", {n(1), erf})});
}

using Values = std::vector<ValueId>;

Result<Values> square(Body& body) { return Values{body.op("Mul", {body.in[0], body.in[0]})}; }
Result<Values> stop_gradient(Body& body) { return Values{body.op("Identity", {body.in[0]})}; }
// Ours, and ONNX's of opset 20.
Result<Values> either_gelu(Body& body) {
  return Values{gelu(body, body.in[0], body.attrs().text("approximate", "none") == "tanh")};
}
Result<Values> gelu_tanh(Body& body) { return Values{gelu(body, body.in[0], true)}; }
Result<Values> gelu_grad(Body& body) {
  return Values{body.op("Mul", {body.in[0], gelu_slope(body, body.in[1], false)})};
}
Result<Values> gelu_tanh_grad(Body& body) {
  return Values{body.op("Mul", {body.in[0], gelu_slope(body, body.in[1], true)})};
}
// ONNX's of opset 24.
Result<Values> swish(Body& body) {
  const ValueId x = body.in[0];
  const double alpha = body.attrs().real("alpha", 1);
  const ValueId scaled = alpha == 1 ? x : body.op("Mul", {x, body.number_like(x, alpha)});
  return Values{body.op("Mul", {x, body.op("Sigmoid", {scaled})})};
}
Result<Values> relu_grad(Body& body) {
  const ValueId zero = body.number_like(body.in[0], 0);
  return Values{body.op("Where", {body.op("Greater", {body.in[1], zero}), body.in[0], zero})};
}
Result<Values> tanh_grad(Body& body) {
  const ValueId y = body.in[1];
  const ValueId slope = body.op("Sub", {body.number_like(y, 1), body.op("Mul", {y, y})});
  return Values{body.op("Mul", {body.in[0], slope})};
}
Result<Values> sigmoid_grad(Body& body) {
  const ValueId y = body.in[1];
  const ValueId slope = body.op("Mul", {y, body.op("Sub", {body.number_like(y, 1), y})});
  return Values{body.op("Mul", {body.in[0], slope})};
}

// Known before running, or an error.
Result<double> known(const NodeTypes& types, std::size_t input, const char* what, double fallback) {
  if (!types.has(input)) return fallback;
  if (types.constants[input] == nullptr) return infer_error(std::string(what) + " is known only by running");
  return types.constants[input]->at(0);
}

Result<Values> dropout(Body& body) {
  const ValueId x = body.in[0];
  const double ratio = TRY(known(body.types, 1, "the ratio of Dropout", 0.5));
  const bool trains = TRY(known(body.types, 2, "the mode of Dropout", 0)) != 0;
  if (!trains || ratio == 0) {
    const ValueId all = body.op("Expand", {body.number(DType::boolean, 1), body.b.i64s(body.shape(x))});
    return Values{body.op("Identity", {x}), all};
  }
  const std::uint64_t key = random_key(body.attrs(), body.types.node_name);
  const ValueId y = body.dropped(x, ratio, key);
  return Values{y, body.op("Identity", {body.keep.at(key).value})};
}

// Of the Dropout of a region: its ratio, if it drops anything.
Result<double> ratio_of(const Body& body, const FusedStatement& s) {
  const auto operand = [&](std::size_t i, const char* what) -> Result<double> {
    if (i >= s.operands.size() || !s.operands[i].is_input)
      return infer_error(std::string(what) + " is computed");
    return known(body.types, static_cast<std::size_t>(s.operands[i].index), what, 0);
  };
  const double ratio = TRY(operand(1, "the ratio of Dropout"));
  return TRY(operand(2, "the mode of Dropout")) != 0 ? ratio : 0.0;
}

// Over the rows of FusedRows.
ValueId over_rows(Body& body, kernels::EwOp op, ValueId x) {
  const std::vector<std::int64_t> axes = row_axes(body.attrs(), body.shape(x));
  return body.op(row_reduction(op), {x, body.b.i64s(axes)}, {{"keepdims", std::int64_t{1}}});
}

// One statement of a region.
Result<ValueId> statement(Body& body, const FusedStatement& s, Values operands) {
  using kernels::EwOp;
  if (s.op == EwOp::Cast) {
    if (s.key != 0) return infer_error("a Cast in a mode of its own");
    return body.cast(operands[0], s.cast_to);
  }
  if (s.op == EwOp::Dropout) {
    const double ratio = TRY(ratio_of(body, s));
    if (ratio == 0) return operands[0];
    const std::vector<Type>& outputs = body.types.outputs;
    if (std::none_of(outputs.begin(), outputs.end(),
                     [&](const Type& type) { return type.shape == body.shape(operands[0]); }))
      return infer_error("Dropout of a part of a region");
    return body.dropped(operands[0], ratio, s.key);
  }
  if (s.op == EwOp::DropoutMask || s.op == EwOp::Uniform) return infer_error("random numbers in a region");
  if (kernels::ew_reduces(s.op)) return over_rows(body, s.op, operands[0]);
  const OpDef& op = op_by_name(ew_name(s.op));
  if (*op.domain == '\0') return TRY(body.b.add(op, std::move(operands)))[0];
  const auto found = elementwise_bodies().find(op.name);
  if (found == elementwise_bodies().end()) return infer_error(std::string(op.name) + " in a region");
  Body inner{body.b, body.types, std::move(operands)};
  return TRY(found->second(inner))[0];
}

Result<Values> fused_elementwise(Body& body) {
  const auto code = TRY(parse_fused(body.attrs().text("code")));
  Values results;
  for (const FusedStatement& s : code) {
    Values operands;
    for (const FusedOperand& o : s.operands)
      operands.push_back(o.is_input ? body.in[static_cast<std::size_t>(o.index)]
                                    : results[static_cast<std::size_t>(o.index)]);
    results.push_back(TRY(statement(body, s, std::move(operands))));
  }
  Values outputs;
  const std::vector<std::int64_t> numbers = body.attrs().integers("outputs");
  for (std::size_t i = 0; i < body.types.outputs.size() && i < numbers.size(); ++i) {
    ValueId out = results[static_cast<std::size_t>(numbers[i])];
    const Shape& shape = body.types.outputs[i].shape;
    if (body.shape(out) != shape) out = body.op("Expand", {out, body.b.i64s(shape)});
    outputs.push_back(out);
  }
  return outputs;
}

}  // namespace

ValueId gelu(Body& body, ValueId x, bool tanh_form) {
  if (!tanh_form) return body.op("Mul", {x, normal_cdf(body, x)});
  const auto n = [&](double v) { return body.number_like(x, v); };
  return body.op("Mul", {body.op("Mul", {n(0.5), x}), body.op("Add", {n(1), gelu_tanh_part(body, x)})});
}

ValueId gelu_slope(Body& body, ValueId x, bool tanh_form) {
  const auto n = [&](double v) { return body.number_like(x, v); };
  const auto mul = [&](ValueId a, ValueId b) { return body.op("Mul", {a, b}); };
  const ValueId squared = mul(x, x);
  if (!tanh_form) {  // Phi(x) + x phi(x)
    const ValueId density = mul(n(kRootTwoOverPi / 2), body.op("Exp", {mul(n(-0.5), squared)}));
    return body.op("Add", {normal_cdf(body, x), mul(x, density)});
  }
  const ValueId t = gelu_tanh_part(body, x), one = n(1);
  const ValueId inner = mul(n(kRootTwoOverPi), body.op("Add", {one, mul(n(3 * kCubic), squared)}));
  const ValueId steep = mul(mul(x, body.op("Sub", {one, mul(t, t)})), inner);
  return mul(n(0.5), body.op("Add", {body.op("Add", {one, t}), steep}));
}

const Bodies& elementwise_bodies() {
  static const Bodies bodies = {
      {"Square", square},
      {"StopGradient", stop_gradient},
      {"CopyToHost", stop_gradient},
      {"CopyFromHost", stop_gradient},
      {"Gelu", either_gelu},
      {"GeluTanh", gelu_tanh},
      {"GeluGrad", gelu_grad},
      {"GeluTanhGrad", gelu_tanh_grad},
      {"Swish", swish},
      {"ReluGrad", relu_grad},
      {"TanhGrad", tanh_grad},
      {"SigmoidGrad", sigmoid_grad},
      {"Dropout", dropout},
      {"FusedElementwise", fused_elementwise},
      {"FusedRows", fused_elementwise},
  };
  return bodies;
}

}  // namespace gradloom
