// ONNX operators that are a few elementwise statements: Clip, LeakyRelu, PRelu, Elu, HardSigmoid, HardSwish,
// Softsign, Xor, CastLike, Sum, Mean and ONNX-20 Gelu. One kernel each through prepare_elementwise; gradients
// from ordinary nodes.
#include "engine/ops/common.h"
#include "engine/ops/elementwise.h"

namespace gradloom {
namespace {

using kernels::EwOp;

// Statements over the inputs and over scalars given by attributes, which follow the inputs.
class Code {
 public:
  explicit Code(const NodeTypes& types) : types_(types), dtype_(types.inputs[0].dtype) {}
  static FusedOperand in(int i) { return {true, i}; }
  FusedOperand scalar(double v) {
    extra_.push_back(Tensor::scalar(dtype_, v));
    return {true, static_cast<int>(types_.inputs.size() + extra_.size()) - 1};
  }
  FusedOperand op(EwOp op, std::vector<FusedOperand> operands) {
    code_.push_back({op, DType::f32, 0, std::move(operands)});
    return {false, static_cast<int>(code_.size()) - 1};
  }
  // The result must be a statement: a node that leaves its input as it is becomes max(x, x).
  Result<CpuKernel> prepare(FusedOperand result) {
    if (result.is_input) result = op(EwOp::Max, {result, result});
    return prepare_elementwise(code_, {result.index}, types_, extra_);
  }

 private:
  const NodeTypes& types_;
  DType dtype_;
  std::vector<FusedStatement> code_;
  std::vector<Tensor> extra_;
};

// Short forms for gradient rules.
struct Nodes {
  GradContext& ctx;
  ValueId number(double v) const { return ctx.b.scalar(ctx.dtype(ctx.grad()), v); }
  ValueId op(const char* name, std::vector<ValueId> inputs) const {
    return ctx.b.op(name, std::move(inputs));
  }
  ValueId where(ValueId c, ValueId p, ValueId q) const { return op("Where", {c, p, q}); }
};

Status infer_float(InferContext& ctx) {
  TRY(require_inputs(ctx, 1));
  if (!is_float(ctx.dtype(0)))
    return infer_error(std::string("needs floating point, not ") + dtype_name(ctx.dtype(0)));
  ctx.outputs[0] = ctx.in(0);
  return {};
}

Sample with(const char* name, Attrs attrs, std::vector<SampleInput> inputs, double kink_distance = 0,
            std::vector<double> kinks = {}) {
  return {.name = name,
          .attrs = std::move(attrs),
          .inputs = std::move(inputs),
          .kink_distance = kink_distance,
          .kinks = std::move(kinks)};
}

// ---- Clip: min(max(x, low), high); bounds are attributes before opset 11 ----------------------------------

Status infer_clip(InferContext& ctx) {
  TRY(require_inputs(ctx, 1));
  if (ctx.dtype(0) == DType::boolean) return infer_error("Clip does not take booleans");
  for (std::size_t i = 1; i < 3; ++i) {
    if (!ctx.has(i)) continue;
    if (ctx.dtype(i) != ctx.dtype(0)) return infer_error("Clip: the bounds must have the type of the input");
    if (!ctx.shape(i).empty() && ctx.shape(i) != Shape{1})
      return infer_error("Clip: the bounds must be scalars");
  }
  ctx.outputs[0] = ctx.in(0);
  return {};
}

Result<CpuKernel> prepare_clip(const NodeTypes& types) {
  Code code(types);
  FusedOperand y = Code::in(0);
  if (types.has(1)) y = code.op(EwOp::Max, {y, Code::in(1)});
  if (types.attrs.has("min")) y = code.op(EwOp::Max, {y, code.scalar(types.attrs.real("min"))});
  if (types.has(2)) y = code.op(EwOp::Min, {y, Code::in(2)});
  if (types.attrs.has("max")) y = code.op(EwOp::Min, {y, code.scalar(types.attrs.real("max"))});
  return code.prepare(y);
}

// The gradient passes where low <= x <= high (torch.clamp); a bound takes it where it is the result.
Status grad_clip(GradContext& ctx) {
  const Nodes n{ctx};
  const auto bound = [&](std::size_t i, const char* attr) {
    if (ctx.in(i) != kNone) return ctx.in(i);
    return ctx.node.attrs.has(attr) ? n.number(ctx.node.attrs.real(attr)) : kNone;
  };
  const ValueId x = ctx.in(0), g = ctx.grad(), low = bound(1, "min"), high = bound(2, "max");
  const ValueId below = low == kNone ? kNone : n.op("Less", {x, low});
  const ValueId above = high == kNone ? kNone : n.op("Greater", {x, high});
  if (ctx.wants(0)) {
    ValueId dx = g;
    if (below != kNone) dx = n.where(below, n.number(0), dx);
    if (above != kNone) dx = n.where(above, n.number(0), dx);
    ctx.set(0, dx);
  }
  if (ctx.wants(1)) {
    // With low > high the result is high everywhere, and low has no share in it.
    ValueId share = n.where(below, g, n.number(0));
    if (high != kNone) share = n.where(n.op("Greater", {low, high}), n.number(0), share);
    ctx.set(1, ctx.reduce_to(share, low));
  }
  if (ctx.wants(2)) {
    ValueId over = above;
    if (low != kNone) over = n.op("Greater", {n.op("Max", {x, low}), high});
    ctx.set(2, ctx.reduce_to(n.where(over, g, n.number(0)), high));
  }
  return {};
}

std::vector<Sample> clip_samples() {
  return {with("both bounds", {},
               {floats({3, 7}), known_scalar(DType::f32, -0.5), known_scalar(DType::f32, 0.25)}, 0.01,
               {-0.5, 0.25}),
          with("attributes", {{"min", 0.0}, {"max", 0.5}}, {floats({3, 7})}, 0.01, {0, 0.5}),
          with("upper only", {}, {floats({11}), omitted(), known_scalar(DType::f32, 0.25)}, 0.01, {0.25}),
          with("bounds that are computed", {},
               {floats({3, 7}), exact(DType::f32, {}, {-0.5}), exact(DType::f32, {}, {0.75})}, 0.01,
               {-0.5, 0.75}),
          with("no bounds", {}, {floats({5})}),
          with("integers", {}, {ints({9}, -9, 9), known_scalar(DType::i64, -3)})};
}

// ---- LeakyRelu, PRelu: x where x > 0, slope x elsewhere ---------------------------------------------------

Result<CpuKernel> prepare_leaky_relu(const NodeTypes& types) {
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
  TRY(infer_float(ctx));
  if (ctx.dtype(1) != ctx.dtype(0)) return infer_error("PRelu: the slope must have the type of the input");
  if (TRY(broadcast_inputs(ctx)).size() != ctx.shape(0).size())
    return infer_error("PRelu: the slope must broadcast to the input");
  ctx.outputs[0].shape = TRY(broadcast_inputs(ctx));
  return {};
}

Result<CpuKernel> prepare_prelu(const NodeTypes& types) {
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
  return {with("slope per channel", {}, {floats({2, 3, 5}), floats({3, 1})}, 0.01, {0}),
          with("one slope", {}, {floats({4, 5}), floats({1})}, 0.01, {0})};
}

// ---- Elu: x where x > 0, alpha (exp(x) - 1) elsewhere -----------------------------------------------------

Result<CpuKernel> prepare_elu(const NodeTypes& types) {
  Code code(types);
  const FusedOperand alpha = code.scalar(types.attrs.real("alpha", 1)), zero = code.scalar(0);
  // exp of the negative part only: no overflow in the branch that is not taken.
  const FusedOperand exp = code.op(EwOp::Exp, {code.op(EwOp::Min, {Code::in(0), zero})});
  const FusedOperand low = code.op(EwOp::Mul, {alpha, code.op(EwOp::Sub, {exp, code.scalar(1)})});
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

Result<CpuKernel> prepare_hard_sigmoid(const NodeTypes& types) {
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

Result<CpuKernel> prepare_hard_swish(const NodeTypes& types) {
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

// ---- Softsign: x / (1 + |x|) ------------------------------------------------------------------------------

Result<CpuKernel> prepare_softsign(const NodeTypes& types) {
  Code code(types);
  const FusedOperand bottom = code.op(EwOp::Add, {code.op(EwOp::Abs, {Code::in(0)}), code.scalar(1)});
  return code.prepare(code.op(EwOp::Div, {Code::in(0), bottom}));
}

Status grad_softsign(GradContext& ctx) {
  const Nodes n{ctx};
  const ValueId bottom = n.op("Add", {n.op("Abs", {ctx.in(0)}), n.number(1)});
  ctx.set(0, n.op("Div", {ctx.grad(), n.op("Square", {bottom})}));
  return {};
}

std::vector<Sample> softsign_samples() { return {with("default", {}, {floats({3, 7}, -3, 3)}, 0.01, {0})}; }

// ---- Xor --------------------------------------------------------------------------------------------------

Status infer_xor(InferContext& ctx) {
  TRY(require_inputs(ctx, 2));
  if (ctx.dtype(0) != DType::boolean || ctx.dtype(1) != DType::boolean)
    return infer_error("Xor needs booleans");
  ctx.outputs[0] = {DType::boolean, TRY(broadcast_inputs(ctx))};
  return {};
}

Result<CpuKernel> prepare_xor(const NodeTypes& types) {
  Code code(types);
  return code.prepare(code.op(EwOp::Not, {code.op(EwOp::Equal, {Code::in(0), Code::in(1)})}));
}

std::vector<Sample> xor_samples() { return {with("broadcast", {}, {bools({3, 1}), bools({5})})}; }

// ---- CastLike: Cast to the type of the second input -------------------------------------------------------

Status infer_cast_like(InferContext& ctx) {
  TRY(require_inputs(ctx, 2));
  ctx.outputs[0] = {ctx.dtype(1), ctx.shape(0)};
  return {};
}

Result<CpuKernel> prepare_cast_like(const NodeTypes& types) {
  return prepare_elementwise({{EwOp::Cast, types.outputs[0].dtype, 0, {Code::in(0)}}}, {0}, types);
}

Status grad_cast_like(GradContext& ctx) {
  const bool floats_only = is_float(ctx.dtype(ctx.in(0))) && is_float(ctx.dtype(ctx.in(1)));
  if (ctx.wants(0) && floats_only) ctx.set(0, ctx.b.op(cast_like_op, {ctx.grad(), ctx.in(0)}));
  return {};
}

std::vector<Sample> cast_like_samples() {
  return {with("float to float", {}, {floats({3, 5}), floats({2})}),
          with("integer to float", {}, {ints({7}, -9, 9), floats({})}),
          with("float to integer", {}, {floats({7}, -9, 9), ints({1}, 0, 1)})};
}

// ---- Sum, Mean of any number of inputs --------------------------------------------------------------------

Status infer_sum(InferContext& ctx) {
  TRY(require_inputs(ctx, ctx.inputs.size()));
  for (std::size_t i = 0; i < ctx.inputs.size(); ++i)
    if (ctx.dtype(i) != ctx.dtype(0) || !is_float(ctx.dtype(i)))
      return infer_error("the inputs must have one floating point type");
  ctx.outputs[0] = {ctx.dtype(0), TRY(broadcast_inputs(ctx))};
  return {};
}

FusedOperand chained_sum(Code& code, const NodeTypes& types) {
  FusedOperand sum = Code::in(0);
  for (std::size_t i = 1; i < types.inputs.size(); ++i)
    sum = code.op(EwOp::Add, {sum, Code::in(static_cast<int>(i))});
  return sum;
}

Result<CpuKernel> prepare_sum(const NodeTypes& types) {
  Code code(types);
  return code.prepare(chained_sum(code, types));
}

Result<CpuKernel> prepare_mean(const NodeTypes& types) {
  Code code(types);
  const FusedOperand sum = chained_sum(code, types);
  return code.prepare(code.op(EwOp::Div, {sum, code.scalar(static_cast<double>(types.inputs.size()))}));
}

void give_all(GradContext& ctx, ValueId g) {
  for (std::size_t i = 0; i < ctx.node.inputs.size(); ++i)
    if (ctx.wants(i)) ctx.set(i, ctx.reduce_to(g, ctx.in(i)));
}

Status grad_sum(GradContext& ctx) {
  give_all(ctx, ctx.grad());
  return {};
}

Status grad_mean(GradContext& ctx) {
  const Nodes n{ctx};
  give_all(ctx, n.op("Div", {ctx.grad(), n.number(static_cast<double>(ctx.node.inputs.size()))}));
  return {};
}

std::vector<Sample> sum_samples() {
  return {with("three", {}, {floats({3, 5}), floats({5}), floats({3, 1})}), with("one", {}, {floats({3, 5})}),
          with("two", {}, {floats({2, 3}), floats({})})};
}

// ---- ONNX-20 Gelu -----------------------------------------------------------------------------------------

bool is_tanh(const Attrs& attrs) { return attrs.text("approximate", "none") == "tanh"; }

Status infer_gelu(InferContext& ctx) {
  const std::string form = ctx.attrs.text("approximate", "none");
  if (form != "none" && form != "tanh") return infer_error("Gelu: unknown approximation '" + form + "'");
  return infer_float(ctx);
}

Result<CpuKernel> prepare_gelu(const NodeTypes& types) {
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

constexpr int kMostInputs = 64;

}  // namespace

const OpDef clip_op = {.name = "Clip",
                       .summary = "min(max(x, low), high)",
                       .min_inputs = 1,
                       .max_inputs = 3,
                       .infer = infer_clip,
                       .grad = grad_clip,
                       .cpu = prepare_clip,
                       .samples = clip_samples};
const OpDef leaky_relu_op = {.name = "LeakyRelu",
                             .summary = "x where positive, alpha x elsewhere",
                             .infer = infer_float,
                             .grad = grad_leaky_relu,
                             .cpu = prepare_leaky_relu,
                             .samples = leaky_relu_samples};
const OpDef prelu_op = {.name = "PRelu",
                        .summary = "x where positive, slope x elsewhere",
                        .min_inputs = 2,
                        .max_inputs = 2,
                        .infer = infer_prelu,
                        .grad = grad_prelu,
                        .cpu = prepare_prelu,
                        .samples = prelu_samples};
const OpDef elu_op = {.name = "Elu",
                      .summary = "x where positive, alpha (exp(x) - 1) elsewhere",
                      .infer = infer_float,
                      .grad = grad_elu,
                      .cpu = prepare_elu,
                      .samples = elu_samples};
const OpDef hard_sigmoid_op = {.name = "HardSigmoid",
                               .summary = "min(max(alpha x + beta, 0), 1)",
                               .infer = infer_float,
                               .grad = grad_hard_sigmoid,
                               .cpu = prepare_hard_sigmoid,
                               .samples = hard_sigmoid_samples};
const OpDef hard_swish_op = {.name = "HardSwish",
                             .summary = "x min(max(x / 6 + 1/2, 0), 1)",
                             .infer = infer_float,
                             .grad = grad_hard_swish,
                             .cpu = prepare_hard_swish,
                             .samples = hard_swish_samples};
const OpDef softsign_op = {.name = "Softsign",
                           .summary = "x / (1 + |x|)",
                           .infer = infer_float,
                           .grad = grad_softsign,
                           .cpu = prepare_softsign,
                           .samples = softsign_samples};
const OpDef logical_xor_op = {.name = "Xor",
                              .summary = "Exactly one of two",
                              .traits = kNoGradient,
                              .min_inputs = 2,
                              .max_inputs = 2,
                              .infer = infer_xor,
                              .cpu = prepare_xor,
                              .samples = xor_samples};
const OpDef cast_like_op = {.name = "CastLike",
                            .summary = "The element type of the second input",
                            .min_inputs = 2,
                            .max_inputs = 2,
                            .infer = infer_cast_like,
                            .grad = grad_cast_like,
                            .cpu = prepare_cast_like,
                            .samples = cast_like_samples};
const OpDef sum_op = {.name = "Sum",
                      .summary = "Sum of the inputs, broadcast",
                      .min_inputs = 1,
                      .max_inputs = kMostInputs,
                      .infer = infer_sum,
                      .grad = grad_sum,
                      .cpu = prepare_sum,
                      .samples = sum_samples};
const OpDef mean_op = {.name = "Mean",
                       .summary = "Mean of the inputs, broadcast",
                       .min_inputs = 1,
                       .max_inputs = kMostInputs,
                       .infer = infer_sum,
                       .grad = grad_mean,
                       .cpu = prepare_mean,
                       .samples = sum_samples};
const OpDef gelu_onnx_op = {.name = "Gelu",
                            .since = 20,
                            .summary = "x Phi(x), exact or by tanh",
                            .infer = infer_gelu,
                            .grad = grad_gelu,
                            .cpu = prepare_gelu,
                            .samples = gelu_samples};

}  // namespace gradloom
