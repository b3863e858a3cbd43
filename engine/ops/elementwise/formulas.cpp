// The rows of kernels/elementwise.def and Cast: inference (numpy broadcasting) and kernels from the formula,
// gradient rules and samples here. Gradients of broadcast inputs are summed down to their shape
// (GradContext::reduce_to).
#include "engine/ops/elementwise/formulas.h"

#include <cmath>

#include "engine/ops/gradient_rules.h"
#include "engine/ops/inference.h"
#include "engine/ops/samples.h"
#include "engine/ops/elementwise/gradients.h"
#include "kernels/launcher.h"

namespace gradloom {
namespace {

using kernels::EwOp;

std::vector<FusedStatement> single(EwOp op) {
  FusedStatement s;
  s.op = op;
  for (int i = 0; i < ew_arity(op); ++i) s.operands.push_back({true, i});
  return {s};
}

template <EwOp op>
Status infer_ew(InferContext& ctx) {
  const auto arity = static_cast<std::size_t>(ew_arity(op));
  TRY(require_inputs(ctx, arity));
  std::vector<DType> operands;
  for (std::size_t i = 0; i < arity; ++i) operands.push_back(ctx.dtype(i));
  DType cast_to = DType::f32;
  if constexpr (op == EwOp::Cast) {
    cast_to = TRY(dtype_from_onnx(ctx.attrs.integer("to")));
    TRY(cast_mode(ctx.attrs, cast_to));
  }
  DType result = operands[0];
  if (op == EwOp::Pow) {  // the exponent may be of another number type: the result has the base's
    for (const DType t : operands)
      if (t == DType::boolean || is_small(t))
        return infer_error(std::string("Pow does not take ") + dtype_name(t));
  } else {
    result = TRY(ew_result_type(op, operands, cast_to));
  }
  ctx.outputs[0] = {result, TRY(broadcast_inputs(ctx))};
  return {};
}

// Pow of mixed types: floats in the base's type, integers in f64, then back.
Result<Kernel> prepare_mixed_pow(const NodeTypes& types) {
  const DType base = types.inputs[0].dtype, work = is_float(base) ? base : DType::f64;
  std::vector<Tensor> extra;
  std::vector<FusedStatement> code;
  const auto add = [&](EwOp op, std::vector<FusedOperand> operands, DType to = DType::f32) {
    code.push_back({op, to, 0, std::move(operands)});
    return FusedOperand{false, static_cast<int>(code.size()) - 1};
  };
  FusedOperand a{true, 0}, b{true, 1};
  if (work != base) a = add(EwOp::Cast, {a}, work);
  const Tensor* exponent = types.constants[1];
  if (exponent != nullptr && exponent->count() == 1) {  // stays a constant, so that x^2 is x * x
    extra.push_back(Tensor::scalar(work, exponent->at(0)));
    b = {true, static_cast<int>(types.inputs.size())};
  } else if (types.inputs[1].dtype != work) {
    b = add(EwOp::Cast, {b}, work);
  }
  FusedOperand y = add(EwOp::Pow, {a, b});
  if (work != base) y = add(EwOp::Cast, {y}, base);
  return prepare_elementwise(code, {y.index}, types, extra);
}

template <EwOp op>
Result<Kernel> prepare_ew(const NodeTypes& types) {
  if (op == EwOp::Pow && (!is_float(types.inputs[0].dtype) || types.inputs[0].dtype != types.inputs[1].dtype))
    return prepare_mixed_pow(types);
  std::vector<FusedStatement> code = single(op);
  if (op == EwOp::Cast) {
    code[0].cast_to = types.outputs[0].dtype;
    code[0].key = TRY(cast_mode(types.attrs, code[0].cast_to));
  }
  return prepare_elementwise(code, {0}, types);
}

// FLOPs per element as usually counted: 1 for arithmetic, more for functions evaluated by a polynomial.
template <EwOp op>
Cost cost_ew(const NodeTypes& types) {
  Cost cost = default_cost(types);
  switch (op) {
    case EwOp::Exp:
    case EwOp::Log:
    case EwOp::Sqrt:
    case EwOp::Erf:
    case EwOp::Tanh:
    case EwOp::Sigmoid:
    case EwOp::Sin:
    case EwOp::Cos:
    case EwOp::Softplus:
    case EwOp::Pow:
    case EwOp::Tan:
    case EwOp::Asin:
    case EwOp::Acos:
    case EwOp::Atan:
    case EwOp::Sinh:
    case EwOp::Cosh:
    case EwOp::Asinh:
    case EwOp::Acosh:
    case EwOp::Atanh:
    case EwOp::TruncMod: cost.flops *= 10; break;
    case EwOp::Gelu:
    case EwOp::GeluTanh:
    case EwOp::GeluGrad:
    case EwOp::GeluTanhGrad: cost.flops *= 16; break;
    case EwOp::TanhGrad:
    case EwOp::SigmoidGrad: cost.flops *= 3; break;
    default: break;
  }
  return cost;
}

// ---- samples ----------------------------------------------------------------------------------------------

Sample sample(const char* name, std::vector<SampleInput> inputs) {
  Sample s;
  s.name = name;
  s.inputs = std::move(inputs);
  return s;
}

std::vector<Sample> unary_in(double low, double high, double kink = 0) {
  std::vector<Sample> list = {
      sample("matrix", {floats({5, 7}, low, high)}), sample("scalar", {floats({}, low, high)}),
      sample("odd", {floats({3, 1, 37}, low, high)}), sample("empty", {floats({0, 3}, low, high)}),
      sample("large", {floats({64, 1024}, low, high)})};
  list.back().bench = true;
  if (kink > 0)
    for (Sample& s : list) s.kinks = {0}, s.kink_distance = kink;
  return list;
}
std::vector<Sample> unary_samples() { return unary_in(-2, 2); }
std::vector<Sample> kinked_samples() { return unary_in(-2, 2, 0.01); }
std::vector<Sample> positive_samples() { return unary_in(0.2, 3); }
std::vector<Sample> within_one_samples() { return unary_in(-0.95, 0.95); }
std::vector<Sample> above_one_samples() { return unary_in(1.1, 9); }
std::vector<Sample> with_integers(std::vector<Sample> list) {
  list.push_back(sample("integers", {ints({3, 5}, -4, 4)}));
  return list;
}
std::vector<Sample> number_samples() { return with_integers(unary_samples()); }
std::vector<Sample> kinked_number_samples() { return with_integers(kinked_samples()); }

std::vector<Sample> binary_in(double a_low, double a_high, double b_low, double b_high) {
  const auto a = [&](Shape s) { return floats(std::move(s), a_low, a_high); };
  const auto b = [&](Shape s) { return floats(std::move(s), b_low, b_high); };
  std::vector<Sample> list = {
      sample("same shape", {a({3, 5}), b({3, 5})}), sample("row", {a({4, 7}), b({7})}),
      sample("column", {a({4, 1}), b({4, 7})}),     sample("both ways", {a({4, 1, 3}), b({5, 1})}),
      sample("scalar", {a({2, 3}), b({})}),         sample("scalar first", {a({}), b({1, 3})}),
      sample("empty", {a({0, 3}), b({3})}),         sample("large", {a({64, 1024}), b({1024})})};
  list.back().bench = true;
  return list;
}
std::vector<Sample> float_binary_samples() { return binary_in(-2, 2, -2, 2); }
std::vector<Sample> binary_samples() {
  auto list = float_binary_samples();
  list.push_back(sample("integers", {ints({3, 5}, -9, 9), ints({5}, -9, 9)}));
  list.push_back(sample("32-bit integers", {ints({3, 5}, -9, 9, DType::i32), ints({}, -9, 9, DType::i32)}));
  return list;
}
std::vector<Sample> division_samples() {
  auto list = binary_in(-2, 2, 0.5, 2);
  list.push_back(sample("integers", {ints({3, 5}, -9, 9), ints({5}, 1, 4)}));
  return list;
}
std::vector<Sample> integer_binary_samples() {
  std::vector<Sample> list = {sample("both ways", {ints({4, 1, 3}, -9, 9), ints({5, 1}, -3, 3)}),
                              sample("scalar", {ints({2, 3}, -9, 9), ints({}, -3, 3)})};
  for (const DType type : {DType::i8, DType::i16, DType::i32})
    list.push_back(sample(dtype_name(type), {ints({3, 5}, -100, 100, type), ints({3, 5}, -9, 9, type)}));
  for (const DType type : {DType::u8, DType::u16, DType::u32, DType::u64})
    list.push_back(sample(dtype_name(type), {ints({3, 5}, 0, 200, type), ints({3, 5}, 0, 9, type)}));
  return list;
}
std::vector<Sample> bitwise_not_samples() {
  std::vector<Sample> list = integer_binary_samples();
  for (Sample& s : list) s.inputs.pop_back();
  return list;
}
std::vector<Sample> remainder_samples() {
  auto list = division_samples();
  for (Sample& s : integer_binary_samples()) list.push_back(std::move(s));
  return list;
}
std::vector<Sample> is_nan_samples() {
  return {sample("matrix", {floats({3, 7})}),
          sample("special values", {exact(DType::f32, {4}, {0, std::nan(""), -INFINITY, 1})}),
          sample("f8e4m3fn", {exact(DType::f8e4m3fn, {3}, {0, std::nan(""), 448})}),
          sample("f8e5m2", {exact(DType::f8e5m2, {4}, {0, std::nan(""), -INFINITY, 1})})};
}
std::vector<Sample> pow_samples() {
  auto list = binary_in(0.3, 2, -2, 2);
  list.push_back(sample("square", {floats({3, 5}, -2, 2), known_scalar(DType::f32, 2)}));
  list.push_back(sample("cube", {floats({3, 5}, -2, 2), known_scalar(DType::f32, 3)}));
  list.push_back(sample("square root", {floats({3, 5}, 0.2, 2), known_scalar(DType::f32, 0.5)}));
  list.push_back(sample("integer exponent", {floats({3, 5}, 0.5, 2), ints({5}, -2, 3)}));
  list.push_back(sample("integers", {ints({3, 5}, 0, 5), ints({5}, 0, 4)}));
  return list;
}
std::vector<Sample> gradient_samples() {
  auto list = float_binary_samples();
  list.push_back(sample("activations", {floats({64, 1024}), floats({64, 1024})}));
  list.back().bench = true;
  return list;
}
std::vector<Sample> compare_samples() {
  return {
      sample("floats", {floats({3, 5}), floats({5})}),
      sample("small integers", {ints({4, 9}, -1, 1), ints({4, 9}, -1, 1)}),
      sample("equal values", {exact(DType::f32, {4}, {0, -1, 2, 3}), exact(DType::f32, {4}, {0, -1, 3, 2})}),
      sample("scalar", {ints({2, 3}, -2, 2, DType::i32), ints({}, -2, 2, DType::i32)})};
}
std::vector<Sample> equal_samples() {
  auto list = compare_samples();
  list.push_back(sample("booleans", {bools({7}), bools({7})}));
  return list;
}
std::vector<Sample> logic_samples() {
  return {sample("same shape", {bools({3, 7}), bools({3, 7})}),
          sample("broadcast", {bools({3, 1}), bools({5})})};
}
std::vector<Sample> not_samples() {
  return {sample("matrix", {bools({3, 7})}), sample("scalar", {bools({})})};
}
std::vector<Sample> where_samples() {
  return {sample("same shape", {bools({3, 5}), floats({3, 5}), floats({3, 5})}),
          sample("broadcast condition", {bools({5}), floats({3, 5}), floats({3, 1})}),
          sample("broadcast all ways", {bools({4, 1, 1}), floats({3, 1}), floats({5})}),
          sample("mask fill", {bools({2, 3, 3}), floats({}), floats({2, 3, 3})}),
          sample("integers", {bools({2, 3}), ints({3}, -5, 5), ints({2, 1}, -5, 5)})};
}
std::vector<Sample> cast_samples() {
  const auto to = [](Sample s, DType t) {
    s.attrs.set("to", onnx_from_dtype(t));
    return s;
  };
  const auto mode = [](Sample s, const char* rounding) {
    s.attrs.set("round_mode", std::string(rounding));
    return s;
  };
  const auto unsaturated = [](Sample s) {
    s.attrs.set("saturate", std::int64_t{0});
    return s;
  };
  const auto bench = [](Sample s) {
    s.bench = true;
    return s;
  };
  return {to(sample("float to float", {floats({3, 5})}), DType::f32),
          to(sample("integer to float", {ints({7}, -9, 9)}), DType::f32),
          to(sample("float to integer", {floats({7}, -9, 9)}), DType::i64),
          to(sample("float to bool", {floats({7})}), DType::boolean),
          to(sample("bool to float", {bools({2, 3})}), DType::f32),
          to(sample("narrow", {ints({7}, -9, 9)}), DType::i32),
          to(sample("float to f16", {floats({3, 5}, -70000, 70000)}), DType::f16),
          to(sample("f16 to float", {ints({3, 5}, -9, 9, DType::f16)}), DType::f32),
          to(sample("float to bf16", {floats({3, 5}, -9, 9)}), DType::bf16),
          to(bench(sample("weight to bf16", {floats({1024, 3072})})), DType::bf16),
          to(bench(sample("gradient from bf16", {ints({1024, 3072}, -9, 9, DType::bf16)})), DType::f32),
          to(sample("bf16 to integer", {ints({3, 5}, -900, 900, DType::bf16)}), DType::i8),
          to(sample("saturate", {floats({3, 5}, -900, 900)}), DType::u8),
          to(sample("wrap", {ints({3, 5}, -900, 900)}), DType::i8),
          to(sample("unsigned", {ints({3, 5}, 0, 60000, DType::u16)}), DType::u64),
          to(sample("integer to f16", {ints({3, 5}, -30000, 30000, DType::i16)}), DType::f16),
          to(sample("float to i4", {floats({3, 5}, -9, 9)}), DType::i4),
          to(sample("integer to u4 wraps", {ints({7}, -90, 90, DType::i32)}), DType::u4),
          to(sample("wide integer to i2", {ints({7}, -90, 90)}), DType::i2),
          to(sample("i4 to u2", {ints({9}, -8, 7, DType::i4)}), DType::u2),
          to(sample("i4 to float", {ints({3, 5}, -8, 7, DType::i4)}), DType::f32),
          to(sample("u4 to f16", {ints({3, 5}, 0, 15, DType::u4)}), DType::f16),
          to(sample("i2 to integer", {ints({7}, -2, 1, DType::i2)}), DType::i64),
          to(sample("u2 to bool", {ints({7}, 0, 3, DType::u2)}), DType::boolean),
          to(sample("float to f8e4m3fn", {floats({3, 700}, -500, 500)}), DType::f8e4m3fn),
          to(sample("float to f8e4m3fnuz", {floats({3, 5}, -500, 500)}), DType::f8e4m3fnuz),
          to(sample("f16 to f8e5m2", {ints({3, 5}, -60000, 60000, DType::f16)}), DType::f8e5m2),
          to(sample("integer to f8e5m2fnuz", {ints({3, 5}, -90000, 90000, DType::i32)}), DType::f8e5m2fnuz),
          to(sample("bf16 to f4e2m1", {ints({3, 5}, -9, 9, DType::bf16)}), DType::f4e2m1),
          to(sample("float to f8e8m0", {floats({3, 5}, 0, 9)}), DType::f8e8m0),
          to(mode(sample("towards zero", {floats({3, 5}, 0, 9)}), "down"), DType::f8e8m0),
          to(mode(sample("nearest", {floats({3, 5}, 0, 9)}), "nearest"), DType::f8e8m0),
          to(unsaturated(sample("to NaN", {floats({3, 5}, -900, 900)})), DType::f8e4m3fn),
          to(unsaturated(sample("to infinity", {floats({3, 5}, -90000, 90000)})), DType::f8e5m2),
          to(sample("f8e4m3fn to float", {ints({3, 500}, -20, 20, DType::f8e4m3fn)}), DType::f32),
          to(sample("f8e4m3fnuz to integer", {ints({9}, -20, 20, DType::f8e4m3fnuz)}), DType::i32),
          to(sample("f8e5m2 to f8e4m3fn", {ints({9}, -20, 20, DType::f8e5m2)}), DType::f8e4m3fn),
          to(sample("f8e5m2fnuz to f16", {ints({9}, -20, 20, DType::f8e5m2fnuz)}), DType::f16),
          to(sample("f4e2m1 to i4", {ints({9}, -6, 6, DType::f4e2m1)}), DType::i4),
          to(sample("f8e8m0 to bf16", {exact(DType::f8e8m0, {4}, {0.25, 1, 16, 1024})}), DType::bf16)};
}

#define ROW(op, DOMAIN_, SUMMARY, TRAITS, GRAD, SAMPLES)                                               \
  OpDef {                                                                                              \
    .name = #op, .domain = DOMAIN_, .summary = SUMMARY, .traits = kElementwise | (TRAITS),             \
    .min_inputs = ew_arity(EwOp::op), .max_inputs = ew_arity(EwOp::op), .infer = infer_ew<EwOp::op>,   \
    .grad = GRAD, .cost = cost_ew<EwOp::op>, .cpu = prepare_ew<EwOp::op>, .gpu = prepare_ew<EwOp::op>, \
    .samples = SAMPLES, .ew = EwOp::op                                                                 \
  }
std::vector<OpDef> make_rows() {
  return {
      ROW(Add, "", "a + b", 0, ew_grad::add, binary_samples),
      ROW(Sub, "", "a - b", 0, ew_grad::sub, binary_samples),
      ROW(Mul, "", "a * b", 0, ew_grad::mul, binary_samples),
      ROW(Div, "", "a / b; integers truncate, x / 0 is 0", 0, ew_grad::div, division_samples),
      ROW(Pow, "", "a to the power of b", 0, ew_grad::pow, pow_samples),
      ROW(Max, "", "The larger of two; a tie shares the gradient equally", 0, ew_grad::max, binary_samples),
      ROW(Min, "", "The smaller of two; a tie shares the gradient equally", 0, ew_grad::min, binary_samples),
      ROW(Neg, "", "-a", 0, ew_grad::neg, number_samples),
      ROW(Abs, "", "|a|; gradient 0 at 0", 0, ew_grad::abs, kinked_number_samples),
      ROW(Sign, "", "-1, 0 or 1", kNoGradient, nullptr, kinked_number_samples),
      ROW(Exp, "", "e to the power of a", 0, ew_grad::exp, unary_samples),
      ROW(Log, "", "Natural logarithm", 0, ew_grad::log, positive_samples),
      ROW(Sqrt, "", "Square root", 0, ew_grad::sqrt, positive_samples),
      ROW(Reciprocal, "", "1 / a", 0, ew_grad::reciprocal, positive_samples),
      ROW(Erf, "", "Error function", 0, ew_grad::erf, unary_samples),
      ROW(Tanh, "", "Hyperbolic tangent", 0, ew_grad::tanh, unary_samples),
      ROW(Sigmoid, "", "1 / (1 + exp(-a))", 0, ew_grad::sigmoid, unary_samples),
      ROW(Sin, "", "Sine", 0, ew_grad::sin, unary_samples),
      ROW(Cos, "", "Cosine", 0, ew_grad::cos, unary_samples),
      ROW(Tan, "", "Tangent", 0, ew_grad::tan, within_one_samples),
      ROW(Asin, "", "Inverse sine", 0, ew_grad::asin, within_one_samples),
      ROW(Acos, "", "Inverse cosine", 0, ew_grad::acos, within_one_samples),
      ROW(Atan, "", "Inverse tangent", 0, ew_grad::atan, unary_samples),
      ROW(Sinh, "", "Hyperbolic sine", 0, ew_grad::sinh, unary_samples),
      ROW(Cosh, "", "Hyperbolic cosine", 0, ew_grad::cosh, unary_samples),
      ROW(Asinh, "", "Inverse hyperbolic sine", 0, ew_grad::asinh, unary_samples),
      ROW(Acosh, "", "Inverse hyperbolic cosine", 0, ew_grad::acosh, above_one_samples),
      ROW(Atanh, "", "Inverse hyperbolic tangent", 0, ew_grad::atanh, within_one_samples),
      ROW(Floor, "", "Largest integer not above a", kNoGradient, nullptr, unary_samples),
      ROW(Ceil, "", "Smallest integer not below a", kNoGradient, nullptr, unary_samples),
      ROW(Round, "", "Nearest integer, the even one of two", kNoGradient, nullptr, unary_samples),
      ROW(Softplus, "", "log(1 + exp(a))", 0, ew_grad::softplus, unary_samples),
      ROW(Relu, "", "max(a, 0); gradient 0 at 0", 0, ew_grad::relu, kinked_number_samples),
      ROW(Square, "gradloom", "a * a", 0, ew_grad::square, number_samples),
      ROW(Gelu, "gradloom", "a * Phi(a), exact (erf)", 0, ew_grad::gelu, unary_samples),
      ROW(GeluTanh, "gradloom", "a * Phi(a), tanh approximation", 0, ew_grad::gelu_tanh, unary_samples),
      ROW(ReluGrad, "gradloom", "Gradient of Relu from dy and y", 0, nullptr, gradient_samples),
      ROW(TanhGrad, "gradloom", "Gradient of Tanh from dy and y", 0, nullptr, gradient_samples),
      ROW(SigmoidGrad, "gradloom", "Gradient of Sigmoid from dy and y", 0, nullptr, gradient_samples),
      ROW(GeluGrad, "gradloom", "Gradient of Gelu from dy and x", 0, nullptr, gradient_samples),
      ROW(GeluTanhGrad, "gradloom", "Gradient of GeluTanh from dy and x", 0, nullptr, gradient_samples),
      ROW(TruncMod, "gradloom", "Remainder with the sign of a (C); x mod 0 is 0 for integers", 0,
          ew_grad::trunc_mod, remainder_samples),
      ROW(FloorMod, "gradloom", "Remainder with the sign of b (Python); x mod 0 is 0", kNoGradient, nullptr,
          integer_binary_samples),
      ROW(ShiftLeft, "gradloom", "a << b; 0 when b is outside the type's width", kNoGradient, nullptr,
          integer_binary_samples),
      ROW(ShiftRight, "gradloom", "a >> b; 0 when b is outside the type's width", kNoGradient, nullptr,
          integer_binary_samples),
      ROW(BitwiseAnd, "", "a & b", kNoGradient, nullptr, integer_binary_samples),
      ROW(BitwiseOr, "", "a | b", kNoGradient, nullptr, integer_binary_samples),
      ROW(BitwiseXor, "", "a ^ b", kNoGradient, nullptr, integer_binary_samples),
      ROW(BitwiseNot, "", "~a", kNoGradient, nullptr, bitwise_not_samples),
      ROW(Equal, "", "a == b", kNoGradient, nullptr, equal_samples),
      ROW(Greater, "", "a > b", kNoGradient, nullptr, compare_samples),
      ROW(Less, "", "a < b", kNoGradient, nullptr, compare_samples),
      ROW(GreaterOrEqual, "", "a >= b", kNoGradient, nullptr, compare_samples),
      ROW(LessOrEqual, "", "a <= b", kNoGradient, nullptr, compare_samples),
      ROW(And, "", "a and b", kNoGradient, nullptr, logic_samples),
      ROW(Or, "", "a or b", kNoGradient, nullptr, logic_samples),
      ROW(Not, "", "not a", kNoGradient, nullptr, not_samples),
      ROW(IsNaN, "", "Whether a is not a number", kNoGradient, nullptr, is_nan_samples),
      ROW(Where, "", "a ? b : c", 0, ew_grad::where, where_samples),
      ROW(Cast, "", "Another element type; floats to integers truncate and saturate", 0, ew_grad::cast,
          cast_samples),
  };
}
#undef ROW

// The first opset of what came after opset 7.
int first_opset(EwOp op) {
  switch (op) {
    case EwOp::Acosh:
    case EwOp::Asinh:
    case EwOp::Atanh:
    case EwOp::Cosh:
    case EwOp::Sinh:
    case EwOp::Erf:
    case EwOp::IsNaN:
    case EwOp::Sign:
    case EwOp::Where: return 9;
    case EwOp::Round: return 11;
    case EwOp::GreaterOrEqual:
    case EwOp::LessOrEqual: return 12;
    case EwOp::BitwiseAnd:
    case EwOp::BitwiseOr:
    case EwOp::BitwiseXor:
    case EwOp::BitwiseNot: return 18;
    default: return 1;
  }
}

// What enlarges relative errors or leaves the range of its operand soon.
Precision precision_of(EwOp op) {
  switch (op) {
    case EwOp::Exp:
    case EwOp::Log:
    case EwOp::Pow:
    case EwOp::Reciprocal:
    case EwOp::Tan:
    case EwOp::Asin:
    case EwOp::Acos:
    case EwOp::Sinh:
    case EwOp::Cosh:
    case EwOp::Acosh:
    case EwOp::Atanh:
    case EwOp::Softplus:
    case EwOp::TruncMod: return Precision::full;
    default: return Precision::follow;
  }
}

}  // namespace

const std::vector<OpDef>& elementwise_rows() {
  static const std::vector<OpDef> rows = [] {
    std::vector<OpDef> list = make_rows();
    for (OpDef& row : list) {
      row.since = first_opset(row.ew);
      row.precision = precision_of(row.ew);
    }
    return list;
  }();
  return rows;
}

}  // namespace gradloom
