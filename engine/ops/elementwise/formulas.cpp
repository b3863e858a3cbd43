// The operators of kernels/elementwise.def, and Cast: inference (numpy broadcasting), kernels, cost and samples
// from their rows. What of Pow, Cast and Equal no row can say (mixed types, attributes, booleans) stands here.
#include "engine/ops/elementwise/formulas.h"

#include <cmath>
#include <cstring>

#include "engine/ops/gradient_rules.h"
#include "engine/ops/inference.h"
#include "engine/ops/noops.h"
#include "engine/ops/samples.h"
#include "engine/ops/elementwise/gradients.h"
#include "kernels/launcher.h"

namespace gradloom {
namespace {

using kernels::ew_row;
using kernels::EwOp;
using kernels::EwRow;

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

template <EwOp op>
Cost cost_ew(const NodeTypes& types) {
  Cost cost = default_cost(types);
  cost.flops *= ew_row(op).flops;
  return cost;
}

// An operand with which the operator gives the other.
template <EwOp op>
Noop neutral_operand(const Graph& graph, const Node& node) {
  const auto rule = [](double neutral) {
    std::string text = ew_row(op).name;
    for (char& c : text) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
    return text + "-" + (neutral == 0 ? "zero" : neutral == 1 ? "one" : std::to_string(neutral));
  };
  if (scalar_is(graph, node.inputs[1], ew_row(op).neutral_b)) return {rule(ew_row(op).neutral_b), 0};
  if (scalar_is(graph, node.inputs[0], ew_row(op).neutral_a)) return {rule(ew_row(op).neutral_a), 1};
  return {};
}
Noop same_type(const Graph&, const Node&) { return {"cast-same-type", 0}; }

// ---- samples ----------------------------------------------------------------------------------------------

Sample sample(const char* name, std::vector<SampleInput> inputs) {
  Sample s;
  s.name = name;
  s.inputs = std::move(inputs);
  return s;
}

std::vector<Sample> unary_samples(const EwRow& row) {
  const auto a = [&](Shape s) { return floats(std::move(s), row.a.low, row.a.high); };
  std::vector<Sample> list = {sample("matrix", {a({5, 7})}), sample("scalar", {a({})}),
                              sample("odd", {a({3, 1, 37})}), sample("empty", {a({0, 3})}),
                              sample("large", {a({64, 1024})})};
  list.back().bench = true;
  if (!std::isnan(row.kink))
    for (Sample& s : list) s.kinks = {row.kink}, s.kink_distance = 0.01;
  if (row.types == 'N') list.push_back(sample("integers", {ints({3, 5}, -4, 4)}));
  return list;
}

std::vector<Sample> binary_samples(const EwRow& row) {
  const auto a = [&](Shape s) { return floats(std::move(s), row.a.low, row.a.high); };
  const auto b = [&](Shape s) { return floats(std::move(s), row.b.low, row.b.high); };
  std::vector<Sample> list = {
      sample("same shape", {a({3, 5}), b({3, 5})}), sample("row", {a({4, 7}), b({7})}),
      sample("column", {a({4, 1}), b({4, 7})}),     sample("both ways", {a({4, 1, 3}), b({5, 1})}),
      sample("scalar", {a({2, 3}), b({})}),         sample("scalar first", {a({}), b({1, 3})}),
      sample("empty", {a({0, 3}), b({3})}),         sample("large", {a({64, 1024}), b({1024})})};
  list.back().bench = true;
  if (!std::isnan(row.kink))
    for (Sample& s : list) s.kinks = {row.kink}, s.kink_distance = 0.01;
  if (row.types == 'F') {
    list.push_back(sample("activations", {a({64, 1024}), b({64, 1024})}));
    list.back().bench = true;
    return list;
  }
  const bool positive = row.b.low > 0;
  list.push_back(sample("integers", {ints({3, 5}, -9, 9), positive ? ints({5}, 1, 4) : ints({5}, -9, 9)}));
  if (!positive)
    list.push_back(sample("32-bit integers", {ints({3, 5}, -9, 9, DType::i32), ints({}, -9, 9, DType::i32)}));
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
std::vector<Sample> is_nan_samples() {
  return {sample("matrix", {floats({3, 7})}),
          sample("special values", {exact(DType::f32, {4}, {0, std::nan(""), -INFINITY, 1})}),
          sample("f8e4m3fn", {exact(DType::f8e4m3fn, {3}, {0, std::nan(""), 448})}),
          sample("f8e5m2", {exact(DType::f8e5m2, {4}, {0, std::nan(""), -INFINITY, 1})})};
}
std::vector<Sample> pow_samples() {
  std::vector<Sample> list = binary_samples(ew_row(EwOp::Pow));
  list.push_back(sample("square", {floats({3, 5}, -2, 2), known_scalar(DType::f32, 2)}));
  list.push_back(sample("cube", {floats({3, 5}, -2, 2), known_scalar(DType::f32, 3)}));
  list.push_back(sample("square root", {floats({3, 5}, 0.2, 2), known_scalar(DType::f32, 0.5)}));
  list.push_back(sample("integer exponent", {floats({3, 5}, 0.5, 2), ints({5}, -2, 3)}));
  list.push_back(sample("integers", {ints({3, 5}, 0, 5), ints({5}, 0, 4)}));
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

template <EwOp op>
std::vector<Sample> samples_ew() {
  const EwRow& row = ew_row(op);
  switch (row.types) {
    case 'I': return row.arity == 1 ? bitwise_not_samples() : integer_binary_samples();
    case 'C': return op == EwOp::Equal ? equal_samples() : compare_samples();
    case 'B': return row.arity == 1 ? not_samples() : logic_samples();
    case 'P': return is_nan_samples();
    case 'S': return where_samples();
    case 'X': return cast_samples();
    default: break;
  }
  if (op == EwOp::Pow) return pow_samples();
  std::vector<Sample> list = row.arity == 1 ? unary_samples(row) : binary_samples(row);
  if (op == EwOp::TruncMod)  // of all integer types, and by 0
    for (Sample& s : integer_binary_samples()) list.push_back(std::move(s));
  return list;
}

bool gives_floats(const EwRow& row) { return std::strchr("FNSX", row.types) != nullptr; }

template <EwOp op>
OpDef row_of() {
  const EwRow& row = ew_row(op);
  const EwGradient gradient = ew_gradient(op);
  const bool neutral = !std::isnan(row.neutral_a) || !std::isnan(row.neutral_b);
  std::uint32_t traits = kElementwise;
  if (gradient.zero || !gives_floats(row)) traits |= kNoGradient;
  if (row.commutative) traits |= kCommutative;
  if (row.chained) traits |= kChained;
  return {.name = row.name,
          .domain = row.ours ? "gradloom" : "",
          .since = row.since,
          .summary = row.summary,
          .traits = traits,
          .min_inputs = row.arity,
          .max_inputs = row.arity,
          .infer = infer_ew<op>,
          .grad = gradient.rule,
          .cost = cost_ew<op>,
          .cpu = prepare_ew<op>,
          .gpu = prepare_ew<op>,
          .samples = samples_ew<op>,
          .ew = op,
          .precision = row.full_precision ? Precision::full : Precision::follow,
          .noop = neutral ? neutral_operand<op> : nullptr};
}

}  // namespace

const std::vector<OpDef>& elementwise_rows() {
  static const std::vector<OpDef> rows = [] {
    std::vector<OpDef> list = {
#define EW(name, ...) row_of<EwOp::name>(),
#include "kernels/elementwise.def"
#undef EW
        row_of<EwOp::Cast>()};
    list.back().noop = same_type;
    list.back().codes = Codes::small_floats;
    return list;
  }();
  return rows;
}

}  // namespace gradloom
