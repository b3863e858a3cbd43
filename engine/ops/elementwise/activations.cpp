// Activations that are a few elementwise statements: LeakyRelu, PRelu, Elu, Selu, Celu, HardSigmoid,
// HardSwish, ThresholdedRelu, Shrink, Mish, Swish and ONNX-20 Gelu. One kernel each through
// prepare_elementwise; gradients from ordinary nodes.
#include "engine/ops/elementwise/code.h"
#include "engine/ops/inference.h"
#include "engine/ops/samples.h"
#include "engine/ops/rows.h"

namespace gradloom {
namespace {

using kernels::EwOp;
using namespace elementwise_code;

// ---- LeakyRelu, PRelu: x where x > 0, slope x elsewhere ---------------------------------------------------

Result<Kernel> prepare_leaky_relu(const NodeTypes& types) {
  Code code(types);
  const FusedOperand scaled = code.op(EwOp::Mul, {Code::in(0), code.scalar(types.attrs.real("alpha", 0.01))});
  const FusedOperand positive = code.op(EwOp::Greater, {Code::in(0), code.scalar(0)});
  return code.prepare(code.op(EwOp::Where, {positive, Code::in(0), scaled}));
}

Status grad_leaky_relu(GradContext& ctx) {
  const Nodes n{ctx};
  const ValueId positive = n.op("Greater", {ctx.in(0), n.number(0)});
  ctx.set(0, n.where(positive, ctx.grad(),
                     n.op("Mul", {ctx.grad(), n.number(ctx.node.attrs.real("alpha", 0.01))})));
  return {};
}

std::vector<Sample> leaky_relu_samples() {
  return {with("default slope", {}, {floats({3, 7})}, 0.01, {0}),
          with("alpha", {{"alpha", 0.2}}, {floats({5})}, 0.01, {0})};
}

Status infer_prelu(InferContext& ctx) {
  TRY(require_inputs(ctx, 2));
  if (ctx.dtype(0) == DType::boolean || is_small(ctx.dtype(0)))
    return infer_error(std::string("PRelu does not take ") + dtype_name(ctx.dtype(0)));
  ctx.outputs[0] = ctx.in(0);
  if (ctx.dtype(1) != ctx.dtype(0)) return infer_error("PRelu: the slope must have the type of the input");
  if (TRY(broadcast_inputs(ctx)).size() != ctx.shape(0).size())
    return infer_error("PRelu: the slope must broadcast to the input");
  ctx.outputs[0].shape = TRY(broadcast_inputs(ctx));
  return {};
}

Result<Kernel> prepare_prelu(const NodeTypes& types) {
  Code code(types);
  const FusedOperand scaled = code.op(EwOp::Mul, {Code::in(0), Code::in(1)});
  const FusedOperand positive = code.op(EwOp::Greater, {Code::in(0), code.scalar(0)});
  return code.prepare(code.op(EwOp::Where, {positive, Code::in(0), scaled}));
}

Status grad_prelu(GradContext& ctx) {
  const Nodes n{ctx};
  const ValueId x = ctx.in(0), g = ctx.grad(), positive = n.op("Greater", {x, n.number(0)});
  if (ctx.wants(0)) ctx.set(0, ctx.reduce_to(n.where(positive, g, n.op("Mul", {g, ctx.in(1)})), x));
  if (ctx.wants(1)) ctx.set(1, ctx.reduce_to(n.where(positive, n.number(0), n.op("Mul", {g, x})), ctx.in(1)));
  return {};
}

std::vector<Sample> prelu_samples() {
  return {with("integers", {}, {ints({2, 5}, -9, 9), ints({5}, -3, 3)}),
          with("slope per channel", {}, {floats({2, 3, 5}), floats({3, 1})}, 0.01, {0}),
          with("one slope", {}, {floats({4, 5}), floats({1})}, 0.01, {0})};
}

// ---- Elu: x where x > 0, alpha (exp(x) - 1) elsewhere -----------------------------------------------------

// exp(min(x, 0)) - 1: of the negative part only, so that nothing overflows in the branch that is not taken.
FusedOperand exp_below_zero(Code& code) {
  const FusedOperand exp = code.op(EwOp::Exp, {code.op(EwOp::Min, {Code::in(0), code.scalar(0)})});
  return code.op(EwOp::Sub, {exp, code.scalar(1)});
}

Result<Kernel> prepare_elu(const NodeTypes& types) {
  Code code(types);
  const FusedOperand alpha = code.scalar(types.attrs.real("alpha", 1)), zero = code.scalar(0);
  const FusedOperand low = code.op(EwOp::Mul, {alpha, exp_below_zero(code)});
  return code.prepare(code.op(EwOp::Where, {code.op(EwOp::Greater, {Code::in(0), zero}), Code::in(0), low}));
}

Status grad_elu(GradContext& ctx) {
  const Nodes n{ctx};
  const ValueId low =
      n.op("Mul", {ctx.grad(), n.op("Add", {ctx.out(0), n.number(ctx.node.attrs.real("alpha", 1))})});
  ctx.set(0, n.where(n.op("Greater", {ctx.in(0), n.number(0)}), ctx.grad(), low));
  return {};
}

std::vector<Sample> elu_samples() {
  return {with("default", {}, {floats({3, 7}, -2, 2)}, 0.01, {0}),
          with("alpha", {{"alpha", 0.5}}, {floats({5}, -2, 2)}, 0.01, {0})};
}

// ---- HardSigmoid: min(max(alpha x + beta, 0), 1); HardSwish: x hard_sigmoid(x; 1/6, 1/2) ------------------

FusedOperand hard_sigmoid(Code& code, double alpha, double beta) {
  const FusedOperand line =
      code.op(EwOp::Add, {code.op(EwOp::Mul, {Code::in(0), code.scalar(alpha)}), code.scalar(beta)});
  return code.op(EwOp::Min, {code.op(EwOp::Max, {line, code.scalar(0)}), code.scalar(1)});
}

Result<Kernel> prepare_hard_sigmoid(const NodeTypes& types) {
  Code code(types);
  return code.prepare(hard_sigmoid(code, types.attrs.real("alpha", 0.2), types.attrs.real("beta", 0.5)));
}

Status grad_hard_sigmoid(GradContext& ctx) {
  const Nodes n{ctx};
  const ValueId y = ctx.out(0);
  const ValueId inside = n.op("And", {n.op("Greater", {y, n.number(0)}), n.op("Less", {y, n.number(1)})});
  ctx.set(0, n.where(inside, n.op("Mul", {ctx.grad(), n.number(ctx.node.attrs.real("alpha", 0.2))}),
                     n.number(0)));
  return {};
}

std::vector<Sample> hard_sigmoid_samples() {
  return {with("default", {}, {floats({3, 7}, -4, 4)}, 0.01, {-2.5, 2.5}),
          with("slope", {{"alpha", 0.5}, {"beta", 0.6}}, {floats({9}, -2, 2)}, 0.01, {-1.2, 0.8})};
}

Result<Kernel> prepare_hard_swish(const NodeTypes& types) {
  Code code(types);
  return code.prepare(code.op(EwOp::Mul, {Code::in(0), hard_sigmoid(code, 1.0 / 6, 0.5)}));
}

// 0 below -3, x / 3 + 1/2 between, 1 above 3.
Status grad_hard_swish(GradContext& ctx) {
  const Nodes n{ctx};
  const ValueId x = ctx.in(0), g = ctx.grad();
  const ValueId slope = n.op("Add", {n.op("Mul", {x, n.number(1.0 / 3)}), n.number(0.5)});
  const ValueId inner = n.where(n.op("Less", {x, n.number(3)}), n.op("Mul", {g, slope}), g);
  ctx.set(0, n.where(n.op("Greater", {x, n.number(-3)}), inner, n.number(0)));
  return {};
}

std::vector<Sample> hard_swish_samples() {
  return {with("default", {}, {floats({3, 11}, -5, 5)}, 0.01, {-3, 3})};
}

// ---- Selu: gamma (x where x > 0, alpha (exp(x) - 1) elsewhere) --------------------------------------------

constexpr double kSeluAlpha = 1.67326319217681884765625, kSeluGamma = 1.05070102214813232421875;

Result<Kernel> prepare_selu(const NodeTypes& types) {
  Code code(types);
  const double alpha = types.attrs.real("alpha", kSeluAlpha), gamma = types.attrs.real("gamma", kSeluGamma);
  const FusedOperand low = code.op(EwOp::Mul, {exp_below_zero(code), code.scalar(alpha * gamma)});
  const FusedOperand high = code.op(EwOp::Mul, {Code::in(0), code.scalar(gamma)});
  return code.prepare(
      code.op(EwOp::Where, {code.op(EwOp::Greater, {Code::in(0), code.scalar(0)}), high, low}));
}

// g gamma, or g (y + alpha gamma).
Status grad_selu(GradContext& ctx) {
  const Nodes n{ctx};
  const Attrs& attrs = ctx.node.attrs;
  const double alpha = attrs.real("alpha", kSeluAlpha), gamma = attrs.real("gamma", kSeluGamma);
  const ValueId low = n.op("Add", {ctx.out(0), n.number(alpha * gamma)});
  const ValueId slope = n.where(n.op("Greater", {ctx.in(0), n.number(0)}), n.number(gamma), low);
  ctx.set(0, n.op("Mul", {ctx.grad(), slope}));
  return {};
}

std::vector<Sample> selu_samples() {
  return {with("default", {}, {floats({3, 7}, -2, 2)}, 0.01, {0}),
          with("alpha, gamma", {{"alpha", 2.0}, {"gamma", 3.0}}, {floats({5}, -2, 2)}, 0.01, {0})};
}

// ---- Celu: max(x, 0) + min(0, alpha (exp(x / alpha) - 1)) -------------------------------------------------

Status infer_celu(InferContext& ctx) {
  if (ctx.attrs.real("alpha", 1) == 0) return infer_error("Celu: alpha is 0");
  return infer_float(ctx);
}

Result<Kernel> prepare_celu(const NodeTypes& types) {
  Code code(types);
  const FusedOperand alpha = code.scalar(types.attrs.real("alpha", 1)), zero = code.scalar(0);
  const FusedOperand negative = code.op(EwOp::Min, {Code::in(0), zero});
  const FusedOperand exp = code.op(EwOp::Exp, {code.op(EwOp::Div, {negative, alpha})});
  const FusedOperand low = code.op(EwOp::Mul, {alpha, code.op(EwOp::Sub, {exp, code.scalar(1)})});
  return code.prepare(
      code.op(EwOp::Add, {code.op(EwOp::Max, {Code::in(0), zero}), code.op(EwOp::Min, {zero, low})}));
}

// g, or g exp(x / alpha) = g (y / alpha + 1).
Status grad_celu(GradContext& ctx) {
  const Nodes n{ctx};
  const ValueId ratio = n.op("Div", {ctx.out(0), n.number(ctx.node.attrs.real("alpha", 1))});
  const ValueId low = n.op("Mul", {ctx.grad(), n.op("Add", {ratio, n.number(1)})});
  ctx.set(0, n.where(n.op("Greater", {ctx.in(0), n.number(0)}), ctx.grad(), low));
  return {};
}

std::vector<Sample> celu_samples() {
  return {with("default", {}, {floats({3, 7}, -2, 2)}, 0.01, {0}),
          with("alpha", {{"alpha", 2.0}}, {floats({5}, -2, 2)}, 0.01, {0})};
}

// ---- ThresholdedRelu: x where x > alpha, 0 elsewhere ------------------------------------------------------

Result<Kernel> prepare_thresholded_relu(const NodeTypes& types) {
  Code code(types);
  const FusedOperand above = code.op(EwOp::Greater, {Code::in(0), code.scalar(types.attrs.real("alpha", 1))});
  return code.prepare(code.op(EwOp::Where, {above, Code::in(0), code.scalar(0)}));
}

Status grad_thresholded_relu(GradContext& ctx) {
  const Nodes n{ctx};
  const ValueId above = n.op("Greater", {ctx.in(0), n.number(ctx.node.attrs.real("alpha", 1))});
  ctx.set(0, n.where(above, ctx.grad(), n.number(0)));
  return {};
}

std::vector<Sample> thresholded_relu_samples() {
  return {with("default", {}, {floats({3, 7}, -3, 3)}, 0.01, {1}),
          with("alpha", {{"alpha", -0.5}}, {floats({9}, -2, 2)}, 0.01, {-0.5})};
}

// ---- Shrink: x + bias below -lambd, x - bias above lambd, 0 between ---------------------------------------

Status infer_shrink(InferContext& ctx) {
  TRY(require_inputs(ctx, 1));
  if (ctx.dtype(0) == DType::boolean || is_small(ctx.dtype(0)))
    return infer_error(std::string("Shrink does not take ") + dtype_name(ctx.dtype(0)));
  ctx.outputs[0] = ctx.in(0);
  return {};
}

// Integers are compared and moved as f64, so that no attribute is cut short.
Result<Kernel> prepare_shrink(const NodeTypes& types) {
  Code code(types);
  const DType dtype = types.inputs[0].dtype, work = is_float(dtype) ? dtype : DType::f64;
  const double lambd = types.attrs.real("lambd", 0.5), bias = types.attrs.real("bias", 0);
  const FusedOperand x = work == dtype ? Code::in(0) : code.cast(Code::in(0), work);
  const FusedOperand below = code.op(EwOp::Less, {x, code.scalar(work, -lambd)});
  const FusedOperand above = code.op(EwOp::Greater, {x, code.scalar(work, lambd)});
  const FusedOperand shift = code.scalar(work, bias);
  const FusedOperand high =
      code.op(EwOp::Where, {above, code.op(EwOp::Sub, {x, shift}), code.scalar(work, 0)});
  const FusedOperand y = code.op(EwOp::Where, {below, code.op(EwOp::Add, {x, shift}), high});
  return code.prepare(work == dtype ? y : code.cast(y, dtype));
}

Status grad_shrink(GradContext& ctx) {
  const Nodes n{ctx};
  const double lambd = ctx.node.attrs.real("lambd", 0.5);
  const ValueId above = n.op("Greater", {ctx.in(0), n.number(lambd)});
  const ValueId outside = n.op("Or", {n.op("Less", {ctx.in(0), n.number(-lambd)}), above});
  ctx.set(0, n.where(outside, ctx.grad(), n.number(0)));
  return {};
}

std::vector<Sample> shrink_samples() {
  return {with("hard", {{"lambd", 1.5}}, {floats({3, 7}, -3, 3)}, 0.01, {-1.5, 1.5}),
          with("soft", {{"lambd", 1.5}, {"bias", 1.5}}, {floats({9}, -3, 3)}, 0.01, {-1.5, 1.5}),
          with("integers", {{"lambd", 1.5}, {"bias", 1.0}}, {ints({9}, -4, 4, DType::i32)})};
}

// ---- Mish: x tanh(softplus(x)); Swish: x sigmoid(alpha x) -------------------------------------------------

Result<Kernel> prepare_mish(const NodeTypes& types) {
  Code code(types);
  const FusedOperand squash = code.op(EwOp::Tanh, {code.op(EwOp::Softplus, {Code::in(0)})});
  return code.prepare(code.op(EwOp::Mul, {Code::in(0), squash}));
}

// t + x sigmoid(x) (1 - t^2), t = tanh(softplus(x)).
Status grad_mish(GradContext& ctx) {
  const Nodes n{ctx};
  const ValueId x = ctx.in(0), t = n.op("Tanh", {n.op("Softplus", {x})});
  const ValueId bend = n.op("TanhGrad", {n.op("Mul", {x, n.op("Sigmoid", {x})}), t});
  ctx.set(0, n.op("Mul", {ctx.grad(), n.op("Add", {t, bend})}));
  return {};
}

std::vector<Sample> smooth_samples() {
  return {with("default", {}, {floats({3, 7}, -3, 3)}), with("vector", {}, {floats({9}, -8, 8)})};
}

Result<Kernel> prepare_swish(const NodeTypes& types) {
  Code code(types);
  const double alpha = types.attrs.real("alpha", 1);
  const FusedOperand scaled =
      alpha == 1 ? Code::in(0) : code.op(EwOp::Mul, {Code::in(0), code.scalar(alpha)});
  return code.prepare(code.op(EwOp::Mul, {Code::in(0), code.op(EwOp::Sigmoid, {scaled})}));
}

// g (s + alpha x s (1 - s)), s = sigmoid(alpha x).
Status grad_swish(GradContext& ctx) {
  const Nodes n{ctx};
  const double alpha = ctx.node.attrs.real("alpha", 1);
  const ValueId scaled = alpha == 1 ? ctx.in(0) : n.op("Mul", {ctx.in(0), n.number(alpha)});
  const ValueId s = n.op("Sigmoid", {scaled});
  ctx.set(0, n.op("Mul", {ctx.grad(), n.op("Add", {s, n.op("SigmoidGrad", {scaled, s})})}));
  return {};
}

std::vector<Sample> swish_samples() {
  return {with("default", {}, {floats({3, 7}, -3, 3)}),
          with("alpha", {{"alpha", 1.702}}, {floats({9}, -3, 3)}),
          {.name = "activations", .inputs = {floats({1024, 1024}, -3, 3)}, .bench = true}};
}

// ---- ONNX-20 Gelu -----------------------------------------------------------------------------------------

bool is_tanh(const Attrs& attrs) { return attrs.text("approximate", "none") == "tanh"; }

Status infer_gelu(InferContext& ctx) {
  const std::string form = ctx.attrs.text("approximate", "none");
  if (form != "none" && form != "tanh") return infer_error("Gelu: unknown approximation '" + form + "'");
  return infer_float(ctx);
}

Result<Kernel> prepare_gelu(const NodeTypes& types) {
  Code code(types);
  return code.prepare(code.op(is_tanh(types.attrs) ? EwOp::GeluTanh : EwOp::Gelu, {Code::in(0)}));
}

Status grad_gelu(GradContext& ctx) {
  ctx.set(0, ctx.b.op(is_tanh(ctx.node.attrs) ? "GeluTanhGrad" : "GeluGrad", {ctx.grad(), ctx.in(0)}));
  return {};
}

std::vector<Sample> gelu_samples() {
  return {with("exact", {}, {floats({3, 7}, -3, 3)}),
          with("tanh", {{"approximate", std::string("tanh")}}, {floats({3, 7}, -3, 3)})};
}

}  // namespace

const OpDef leaky_relu_op = {.name = "LeakyRelu",
                             .summary = "x where positive, alpha x elsewhere",
                             .traits = kPointwise,
                             .infer = infer_float,
                             .grad = grad_leaky_relu,
                             .cpu = prepare_leaky_relu,
                             .gpu = prepare_leaky_relu,
                             .samples = leaky_relu_samples};
const OpDef prelu_op = {.name = "PRelu",
                        .summary = "x where positive, slope x elsewhere",
                        .traits = kPointwise,
                        .min_inputs = 2,
                        .max_inputs = 2,
                        .infer = infer_prelu,
                        .grad = grad_prelu,
                        .cpu = prepare_prelu,
                        .gpu = prepare_prelu,
                        .samples = prelu_samples};
const OpDef elu_op = {.name = "Elu",
                      .summary = "x where positive, alpha (exp(x) - 1) elsewhere",
                      .traits = kPointwise,
                      .infer = infer_float,
                      .grad = grad_elu,
                      .cpu = prepare_elu,
                      .gpu = prepare_elu,
                      .samples = elu_samples};
const OpDef hard_sigmoid_op = {.name = "HardSigmoid",
                               .summary = "min(max(alpha x + beta, 0), 1)",
                               .traits = kPointwise,
                               .infer = infer_float,
                               .grad = grad_hard_sigmoid,
                               .cpu = prepare_hard_sigmoid,
                               .gpu = prepare_hard_sigmoid,
                               .samples = hard_sigmoid_samples};
const OpDef hard_swish_op = {.name = "HardSwish",
                             .since = 14,
                             .summary = "x min(max(x / 6 + 1/2, 0), 1)",
                             .traits = kPointwise,
                             .infer = infer_float,
                             .grad = grad_hard_swish,
                             .cpu = prepare_hard_swish,
                             .gpu = prepare_hard_swish,
                             .samples = hard_swish_samples};
const OpDef gelu_onnx_op = {.name = "Gelu",
                            .since = 20,
                            .summary = "x Phi(x), exact or by tanh",
                            .traits = kPointwise,
                            .infer = infer_gelu,
                            .grad = grad_gelu,
                            .cpu = prepare_gelu,
                            .gpu = prepare_gelu,
                            .samples = gelu_samples};
const OpDef selu_op = {.name = "Selu",
                       .summary = "gamma x where positive, alpha gamma (exp(x) - 1) elsewhere",
                       .traits = kPointwise,
                       .infer = infer_float,
                       .grad = grad_selu,
                       .cpu = prepare_selu,
                       .gpu = prepare_selu,
                       .samples = selu_samples};
const OpDef celu_op = {.name = "Celu",
                       .since = 12,
                       .summary = "max(x, 0) + min(0, alpha (exp(x / alpha) - 1))",
                       .traits = kPointwise,
                       .infer = infer_celu,
                       .grad = grad_celu,
                       .cpu = prepare_celu,
                       .gpu = prepare_celu,
                       .samples = celu_samples};
const OpDef thresholded_relu_op = {.name = "ThresholdedRelu",
                                   .since = 10,
                                   .summary = "x above alpha, 0 elsewhere",
                                   .traits = kPointwise,
                                   .infer = infer_float,
                                   .grad = grad_thresholded_relu,
                                   .cpu = prepare_thresholded_relu,
                                   .gpu = prepare_thresholded_relu,
                                   .samples = thresholded_relu_samples};
const OpDef shrink_op = {.name = "Shrink",
                         .since = 9,
                         .summary = "x moved by bias towards 0 outside of -lambd..lambd, 0 inside",
                         .traits = kPointwise,
                         .infer = infer_shrink,
                         .grad = grad_shrink,
                         .cpu = prepare_shrink,
                         .gpu = prepare_shrink,
                         .samples = shrink_samples};
const OpDef mish_op = {.name = "Mish",
                       .since = 18,
                       .summary = "x tanh(log(1 + exp(x)))",
                       .traits = kPointwise,
                       .infer = infer_float,
                       .grad = grad_mish,
                       .cpu = prepare_mish,
                       .gpu = prepare_mish,
                       .samples = smooth_samples};
const OpDef swish_op = {.name = "Swish",
                        .since = 24,
                        .summary = "x sigmoid(alpha x)",
                        .traits = kPointwise,
                        .infer = infer_float,
                        .grad = grad_swish,
                        .cpu = prepare_swish,
                        .gpu = prepare_swish,
                        .samples = swish_samples};

}  // namespace gradloom
