// ONNX operators that are a few elementwise statements: Clip, Mod, BitShift, IsInf, Xor, Sum and
// Mean. One kernel each through prepare_elementwise; gradients from ordinary nodes.
// Activations: activations.cpp.
#include <cmath>
#include <limits>

#include "engine/ops/noops.h"
#include "engine/ops/inference.h"
#include "engine/ops/samples.h"
#include "engine/ops/elementwise/code.h"
#include "engine/ops/elementwise/gradients.h"
#include "engine/ops/rows.h"
#include "kernels/launcher.h"

namespace gradloom {
namespace {

using kernels::EwOp;
using namespace elementwise_code;

// ---- Clip: min(max(x, low), high); bounds are attributes before opset 11 ----------------------------------

Status infer_clip(InferContext& ctx) {
  TRY(require_inputs(ctx, 1));
  if (ctx.dtype(0) == DType::boolean || is_small(ctx.dtype(0)))
    return infer_error(std::string("Clip does not take ") + dtype_name(ctx.dtype(0)));
  for (std::size_t i = 1; i < 3; ++i) {
    if (!ctx.has(i)) continue;
    if (ctx.dtype(i) != ctx.dtype(0)) return infer_error("Clip: the bounds must have the type of the input");
    if (!ctx.shape(i).empty() && ctx.shape(i) != Shape{1})
      return infer_error("Clip: the bounds must be scalars");
  }
  ctx.outputs[0] = ctx.in(0);
  return {};
}

Result<Kernel> prepare_clip(const NodeTypes& types) {
  Code code(types);
  FusedOperand y = Code::in(0);
  if (types.has(1)) y = code.op(EwOp::Max, {y, Code::in(1)});
  if (types.attrs.has("min")) y = code.op(EwOp::Max, {y, code.scalar(types.attrs.real("min"))});
  if (types.has(2)) y = code.op(EwOp::Min, {y, Code::in(2)});
  if (types.attrs.has("max")) y = code.op(EwOp::Min, {y, code.scalar(types.attrs.real("max"))});
  return code.prepare(y);
}

// The gradient passes where low < x < high, as that of Relu does (torch's hardtanh, relu6, clamp); a bound takes it
// where x is beyond it.
Status grad_clip(GradContext& ctx) {
  const Nodes n{ctx};
  const auto bound = [&](std::size_t i, const char* attr) {
    if (ctx.in(i) != kNone) return ctx.in(i);
    return ctx.node.attrs.has(attr) ? n.number(ctx.node.attrs.real(attr)) : kNone;
  };
  const ValueId x = ctx.in(0), g = ctx.grad(), low = bound(1, "min"), high = bound(2, "max");
  if (ctx.wants(0)) {
    ValueId dx = g;
    if (low != kNone) dx = n.where(n.op("LessOrEqual", {x, low}), n.number(0), dx);
    if (high != kNone) dx = n.where(n.op("GreaterOrEqual", {x, high}), n.number(0), dx);
    ctx.set(0, dx);
  }
  if (ctx.wants(1)) {
    // With low > high the result is high everywhere, and low has no share in it.
    ValueId share = n.where(n.op("Less", {x, low}), g, n.number(0));
    if (high != kNone) share = n.where(n.op("Greater", {low, high}), n.number(0), share);
    ctx.set(1, ctx.reduce_to(share, low));
  }
  if (ctx.wants(2)) {
    const ValueId over = n.op("Greater", {low == kNone ? x : n.op("Max", {x, low}), high});
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

// ---- Mod: fmod = 0: sign of the divisor (Python); fmod = 1: sign of the dividend (C) ----------------------

bool is_fmod(const Attrs& attrs) { return attrs.integer("fmod") != 0; }

Status infer_mod(InferContext& ctx) {
  TRY(require_inputs(ctx, 2));
  if (ctx.dtype(0) != ctx.dtype(1) || ctx.dtype(0) == DType::boolean || is_small(ctx.dtype(0)))
    return infer_error("Mod: the inputs must have one number type");
  ctx.outputs[0] = {ctx.dtype(0), TRY(broadcast_inputs(ctx))};
  return {};
}

Result<Kernel> prepare_mod(const NodeTypes& types) {
  Code code(types);
  const bool by_dividend = is_fmod(types.attrs) || is_float(types.inputs[0].dtype);
  const FusedOperand b = Code::in(1);
  const FusedOperand rest = code.op(by_dividend ? EwOp::TruncMod : EwOp::FloorMod, {Code::in(0), b});
  if (is_fmod(types.attrs) || !by_dividend) return code.prepare(rest);
  const FusedOperand zero = code.scalar(0);
  const FusedOperand apart =
      code.op(EwOp::Less, {code.op(EwOp::Mul, {code.op(EwOp::Sign, {rest}), b}), zero});
  return code.prepare(code.op(EwOp::Where, {apart, code.op(EwOp::Add, {rest, b}), rest}));
}

std::vector<Sample> mod_samples() {
  const Attrs fmod = {{"fmod", std::int64_t{1}}};
  return {
      with("floats", fmod, {floats({3, 5}, -4, 4), floats({5}, 0.5, 2)}),
      with("floats, sign of the divisor", {},
           {exact(DType::f32, {6}, {-3.25, 3.25, -3.25, 3.25, 1.5, -0.75}),
            exact(DType::f32, {6}, {1.5, -1.5, -1.25, 1.25, 4, 2.5})}),
      with("integers", {}, {ints({3, 5}, -9, 9), ints({5}, -4, 4)}),
      with("sign of the dividend", fmod, {ints({3, 5}, -9, 9, DType::i32), ints({3, 1}, 1, 4, DType::i32)}),
      with("unsigned", {}, {ints({7}, 0, 200, DType::u8), ints({7}, 1, 9, DType::u8)})};
}

// ---- BitShift ---------------------------------------------------------------------------------------------

Status infer_bit_shift(InferContext& ctx) {
  TRY(require_inputs(ctx, 2));
  if (ctx.dtype(0) != ctx.dtype(1) || is_float(ctx.dtype(0)) || ctx.dtype(0) == DType::boolean ||
      is_small(ctx.dtype(0)))
    return infer_error("BitShift: the inputs must have one integer type");
  const std::string direction = ctx.attrs.text("direction");
  if (direction != "LEFT" && direction != "RIGHT")
    return infer_error("BitShift: the direction is '" + direction + "', not LEFT or RIGHT");
  ctx.outputs[0] = {ctx.dtype(0), TRY(broadcast_inputs(ctx))};
  return {};
}

Result<Kernel> prepare_bit_shift(const NodeTypes& types) {
  Code code(types);
  const bool left = types.attrs.text("direction") == "LEFT";
  return code.prepare(code.op(left ? EwOp::ShiftLeft : EwOp::ShiftRight, {Code::in(0), Code::in(1)}));
}

std::vector<Sample> bit_shift_samples() {
  const Attrs left = {{"direction", std::string("LEFT")}}, right = {{"direction", std::string("RIGHT")}};
  return {with("left", left, {ints({3, 5}, 0, 200, DType::u8), ints({5}, 0, 9, DType::u8)}),
          with("right", right, {ints({3, 5}, 0, 60000, DType::u16), ints({3, 1}, 0, 17, DType::u16)}),
          with("signed", right, {ints({3, 5}, -200, 200, DType::i16), ints({5}, -2, 17, DType::i16)}),
          with("signed, left", left, {ints({9}, -100, 100, DType::i8), ints({9}, -2, 9, DType::i8)}),
          with("64 bits", right, {ints({7}, 0, 1e15, DType::u64), ints({}, 3, 3, DType::u64)})};
}

// ---- IsInf: attributes detect_negative, detect_positive ---------------------------------------------------

Status infer_is_inf(InferContext& ctx) {
  TRY(require_inputs(ctx, 1));
  if (!is_small_float(ctx.dtype(0))) TRY(infer_float(ctx));
  ctx.outputs[0] = {DType::boolean, ctx.shape(0)};
  return {};
}

Result<Kernel> prepare_is_inf(const NodeTypes& types) {
  Code code(types);
  const double infinity = std::numeric_limits<double>::infinity();
  const DType type = types.inputs[0].dtype, work = is_small_float(type) ? DType::f32 : type;
  const FusedOperand x = work == type ? Code::in(0) : code.cast(Code::in(0), work);
  const bool negative = types.attrs.integer("detect_negative", 1) != 0,
             positive = types.attrs.integer("detect_positive", 1) != 0;
  if (negative && positive)
    return code.prepare(code.op(EwOp::Equal, {code.op(EwOp::Abs, {x}), code.scalar(work, infinity)}));
  // Neither: nothing is smaller than -infinity.
  const double bound = positive ? infinity : -infinity;
  return code.prepare(
      code.op(negative || positive ? EwOp::Equal : EwOp::Less, {x, code.scalar(work, bound)}));
}

std::vector<Sample> is_inf_samples() {
  const SampleInput x = exact(DType::f32, {5}, {-INFINITY, 1, INFINITY, 0, std::nan("")});
  const std::int64_t no = 0;
  return {with("both", {}, {x}),
          with("positive", {{"detect_negative", no}}, {x}),
          with("negative", {{"detect_positive", no}}, {x}),
          with("neither", {{"detect_negative", no}, {"detect_positive", no}}, {x}),
          with("f8e5m2", {}, {exact(DType::f8e5m2, {4}, {-INFINITY, 1, INFINITY, std::nan("")})}),
          with("f8e4m3fn, positive", {{"detect_negative", no}},
               {exact(DType::f8e4m3fn, {3}, {-448, 0, std::nan("")})})};
}

// ---- Xor --------------------------------------------------------------------------------------------------

Status infer_xor(InferContext& ctx) {
  TRY(require_inputs(ctx, 2));
  if (ctx.dtype(0) != DType::boolean || ctx.dtype(1) != DType::boolean)
    return infer_error("Xor needs booleans");
  ctx.outputs[0] = {DType::boolean, TRY(broadcast_inputs(ctx))};
  return {};
}

Result<Kernel> prepare_xor(const NodeTypes& types) {
  Code code(types);
  return code.prepare(code.op(EwOp::Not, {code.op(EwOp::Equal, {Code::in(0), Code::in(1)})}));
}

std::vector<Sample> xor_samples() { return {with("broadcast", {}, {bools({3, 1}), bools({5})})}; }

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

Result<Kernel> prepare_sum(const NodeTypes& types) {
  Code code(types);
  return code.prepare(chained_sum(code, types));
}

Result<Kernel> prepare_mean(const NodeTypes& types) {
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

constexpr int kMostInputs = 64;

Status grad_mod(GradContext& ctx) { return ew_gradient(EwOp::TruncMod).rule(ctx); }

}  // namespace

const OpDef clip_op = {.name = "Clip",
                       .summary = "min(max(x, low), high)",
                       .traits = kPointwise,
                       .min_inputs = 1,
                       .max_inputs = 3,
                       .infer = infer_clip,
                       .grad = grad_clip,
                       .cpu = prepare_clip,
                       .gpu = prepare_clip,
                       .samples = clip_samples};
const OpDef mod_op = {.name = "Mod",
                      .since = 10,
                      .summary = "Remainder: sign of the divisor, or with fmod of the dividend",
                      .traits = kPointwise,
                      .min_inputs = 2,
                      .max_inputs = 2,
                      .infer = infer_mod,
                      .grad = grad_mod,
                      .cpu = prepare_mod,
                      .gpu = prepare_mod,
                      .samples = mod_samples};
const OpDef bit_shift_op = {.name = "BitShift",
                            .since = 11,
                            .summary = "Bits moved left or right by the second input",
                            .traits = kNoGradient | kPointwise,
                            .min_inputs = 2,
                            .max_inputs = 2,
                            .infer = infer_bit_shift,
                            .cpu = prepare_bit_shift,
                            .gpu = prepare_bit_shift,
                            .samples = bit_shift_samples};
const OpDef is_inf_op = {.name = "IsInf",
                         .since = 10,
                         .summary = "Whether infinite, of either sign or of one",
                         .traits = kNoGradient | kPointwise,
                         .infer = infer_is_inf,
                         .cpu = prepare_is_inf,
                         .gpu = prepare_is_inf,
                         .samples = is_inf_samples};
const OpDef logical_xor_op = {.name = "Xor",
                              .summary = "Exactly one of two",
                              .traits = kNoGradient | kPointwise,
                              .min_inputs = 2,
                              .max_inputs = 2,
                              .infer = infer_xor,
                              .cpu = prepare_xor,
                              .gpu = prepare_xor,
                              .samples = xor_samples};
const OpDef sum_op = {.name = "Sum",
                      .summary = "Sum of the inputs, broadcast",
                      .traits = kPointwise,
                      .min_inputs = 1,
                      .max_inputs = kMostInputs,
                      .infer = infer_sum,
                      .grad = grad_sum,
                      .cpu = prepare_sum,
                      .gpu = prepare_sum,
                      .samples = sum_samples,
                      .noop = one_input};
const OpDef mean_op = {.name = "Mean",
                       .summary = "Mean of the inputs, broadcast",
                       .traits = kPointwise,
                       .min_inputs = 1,
                       .max_inputs = kMostInputs,
                       .infer = infer_sum,
                       .grad = grad_mean,
                       .cpu = prepare_mean,
                       .gpu = prepare_mean,
                       .samples = sum_samples};

}  // namespace gradloom
