// QuantizeLinear, DequantizeLinear (ONNX-10 .. -24) and DynamicQuantizeLinear.
//   q = saturate(round_even(x / scale) + zero_point)        x~ = (q - zero_point) scale
// to floats of 8 and 4 bits: q = cast(x / scale + zero_point)
// scale, zero_point: one element, one per index of `axis` (default 1), or one per block of block_size indices
// along it (whole blocks); the scale may be float8e8m0. `precision` of 16 bits: the quotient is rounded to
// it. Gradients: straight-through (Bengio et al. 2013), zero where q saturates; the gradient of a quantized
// tensor is a float tensor of its shape (autodiff.cpp).
#include <limits>

#include "engine/ops/elementwise/code.h"
#include "engine/ops/kernel_sequence.h"
#include "engine/ops/gradient_rules.h"
#include "engine/ops/inference.h"
#include "engine/ops/samples.h"
#include "engine/ops/rows.h"
#include "kernels/launcher.h"

namespace gradloom {
namespace {

using kernels::EwOp;
using namespace elementwise_code;

bool is_code(DType t) {
  return t == DType::u8 || t == DType::i8 || t == DType::u16 || t == DType::i16 || is_small_int(t) ||
         (is_small_float(t) && t != DType::f8e8m0);
}
bool is_scale(DType t) { return is_float(t) || t == DType::f8e8m0; }

struct Range {
  double low, high;
};
Range range_of(DType t) {
  switch (t) {
    case DType::i8: return {-128, 127};
    case DType::u16: return {0, 65535};
    case DType::i16: return {-32768, 32767};
    case DType::i4: return {-8, 7};
    case DType::u4: return {0, 15};
    case DType::i2: return {-2, 1};
    case DType::u2: return {0, 3};
    case DType::f8e4m3fn: return {-448, 448};
    case DType::f8e4m3fnuz: return {-240, 240};
    case DType::f8e5m2:
    case DType::f8e5m2fnuz: return {-57344, 57344};
    case DType::f4e2m1: return {-6, 6};
    default: return {0, 255};
  }
}

// f16 and bf16 (and 32-bit integers) are computed in f32.
DType work_type(DType t) { return t == DType::f64 ? DType::f64 : DType::f32; }

bool one_element(const Shape& shape) { return is_static(shape) && element_count(shape) == 1; }

std::size_t axis_of(const Attrs& attrs, std::size_t rank) {
  const std::int64_t axis = attrs.integer("axis", 1);
  return static_cast<std::size_t>(axis < 0 ? axis + static_cast<std::int64_t>(rank) : axis);
}

// Scale and zero point have the input's shape, but one element per block along the axis.
Status check_blocks(const InferContext& ctx) {
  const std::int64_t block = ctx.attrs.integer("block_size");
  const Shape& x = ctx.shape(0);
  if (block < 0) return infer_error("block_size is " + std::to_string(block));
  const auto axis = static_cast<std::size_t>(TRY(normalized_axis(ctx.attrs.integer("axis", 1), x.size())));
  if (x[axis] >= 0 && x[axis] % block != 0)
    return infer_error("blocks of " + std::to_string(block) + " do not divide " + std::to_string(x[axis]) +
                       " elements");
  for (std::size_t i = 1; i < 3; ++i) {
    if (!ctx.has(i)) continue;
    const Shape& given = ctx.shape(i);
    bool fits = given.size() == x.size();
    for (std::size_t d = 0; fits && d < x.size(); ++d) {
      const std::int64_t wanted = d == axis && x[d] >= 0 ? x[d] / block : x[d];
      fits = wanted < 0 || given[d] < 0 || wanted == given[d];
    }
    if (!fits)
      return infer_error("scale or zero point " + to_string(given) + " is no blocks of " + to_string(x));
  }
  return {};
}

// [.., axis, ..] seen as [.., blocks, block, ..].
Shape in_blocks(const Attrs& attrs, const Shape& shape, bool of_parameter) {
  const std::size_t axis = axis_of(attrs, shape.size());
  const std::int64_t block = attrs.integer("block_size");
  Shape split = shape;
  if (!of_parameter) split[axis] /= block;
  split.insert(split.begin() + static_cast<std::ptrdiff_t>(axis) + 1, of_parameter ? 1 : block);
  return split;
}

// Scale and zero point of inputs 1 and 2 fit the input.
Status check_parameters(const InferContext& ctx) {
  if (!is_scale(ctx.dtype(1))) return infer_error(std::string("the scale is ") + dtype_name(ctx.dtype(1)));
  if (ctx.attrs.integer("block_size") != 0) return check_blocks(ctx);
  for (std::size_t i = 1; i < 3; ++i) {
    if (!ctx.has(i) || ctx.shape(i).empty() || one_element(ctx.shape(i))) continue;
    const char* what = i == 1 ? "scale" : "zero point";
    if (ctx.shape(i).size() != 1)
      return infer_error(std::string("the ") + what + " must be a scalar or a vector");
    const auto axis =
        static_cast<std::size_t>(TRY(normalized_axis(ctx.attrs.integer("axis", 1), ctx.shape(0).size())));
    const std::int64_t dim = ctx.shape(0)[axis], given = ctx.shape(i)[0];
    if (dim >= 0 && given >= 0 && dim != given)
      return infer_error(std::string("the ") + what + " has " + std::to_string(given) +
                         " elements for a dimension of " + std::to_string(dim));
  }
  return {};
}

// How many dims of 1 follow a vector along the axis of a tensor of this rank,
// for broadcasting; 0 for one element.
std::size_t trailing(const Attrs& attrs, const Shape& parameter, std::size_t rank) {
  if (parameter.empty() || one_element(parameter)) return 0;
  return rank - 1 - axis_of(attrs, rank);
}

// Types whose scale and zero point broadcast against the input.
NodeTypes broadcastable(const NodeTypes& types) {
  NodeTypes result = types;
  if (types.attrs.integer("block_size") != 0) {
    for (std::size_t i = 0; i < types.inputs.size(); ++i)
      if (types.has(i)) result.inputs[i].shape = in_blocks(types.attrs, types.inputs[i].shape, i > 0);
    result.outputs[0].shape = result.inputs[0].shape;
    return result;
  }
  const std::size_t rank = types.inputs[0].shape.size();
  for (std::size_t i = 1; i < std::min<std::size_t>(3, types.inputs.size()); ++i) {
    Shape& shape = result.inputs[i].shape;
    const std::size_t after = trailing(types.attrs, shape, rank);
    if (one_element(shape)) shape.clear();
    shape.insert(shape.end(), after, 1);
  }
  return result;
}
ValueId broadcastable(GradContext& ctx, ValueId parameter) {
  if (ctx.node.attrs.integer("block_size") != 0)
    return ctx.b.op("Reshape",
                    {parameter, ctx.b.i64s(in_blocks(ctx.node.attrs, ctx.shape(parameter), true))});
  const std::size_t after = trailing(ctx.node.attrs, ctx.shape(parameter), ctx.shape(ctx.in(0)).size());
  std::vector<std::int64_t> axes;
  for (std::size_t i = 0; i < after; ++i) axes.push_back(static_cast<std::int64_t>(i) + 1);
  return axes.empty() ? parameter : ctx.b.op("Unsqueeze", {parameter, ctx.b.i64s(axes)});
}

// The input or its gradient, as scale and zero point broadcast against it.
ValueId blocked(GradContext& ctx, ValueId x) {
  if (ctx.node.attrs.integer("block_size") == 0) return x;
  return ctx.b.reshape(x, in_blocks(ctx.node.attrs, ctx.shape(x), false));
}
Status require_blocks(GradContext& ctx) {
  if (ctx.node.attrs.integer("block_size") == 0) return {};
  TRY(require_static(ctx, ctx.in(0)));
  return require_static(ctx, ctx.in(1));
}

// A scale of float8e8m0 that a Cast made has a float gradient (autodiff.cpp).
DType scale_gradient_type(GradContext& ctx, DType work) {
  const DType scale = ctx.dtype(ctx.in(1));
  return is_small_float(scale) ? work : scale;
}

FusedOperand as(Code& code, FusedOperand x, DType from, DType to) {
  return from == to ? x : code.cast(x, to);
}

// ---- QuantizeLinear ---------------------------------------------------------------------------------------

// Attribute `precision`, the type that the quotient is rounded to; f64 for none.
Result<DType> rounded_quotient(const Attrs& attrs) {
  const std::int64_t named = attrs.integer("precision");
  if (named == 0) return DType::f64;
  const DType type = TRY(dtype_from_onnx(named));
  if (!is_float(type)) return infer_error(std::string("the precision is ") + dtype_name(type));
  return type == DType::f32 ? DType::f64 : type;
}

Status infer_quantize(InferContext& ctx) {
  TRY(require_inputs(ctx, 2));
  if (!is_float(ctx.dtype(0)) && ctx.dtype(0) != DType::i32)
    return infer_error(std::string("cannot quantize ") + dtype_name(ctx.dtype(0)));
  TRY(check_parameters(ctx));
  const std::int64_t named = ctx.attrs.integer("output_dtype");
  DType out = named != 0 ? TRY(dtype_from_onnx(named)) : DType::u8;
  if (ctx.has(2)) {
    if (named != 0 && out != ctx.dtype(2))
      return infer_error("output_dtype is not the type of the zero point");
    out = ctx.dtype(2);
  }
  if (!is_code(out))
    return infer_error(std::string("quantization to ") + dtype_name(out) + " is not supported");
  TRY(rounded_quotient(ctx.attrs));
  ctx.outputs[0] = {out, ctx.shape(0)};
  return {};
}

Result<Kernel> prepare_quantize(const NodeTypes& given) {
  const NodeTypes types = broadcastable(given);
  Code code(types);
  const DType x = types.inputs[0].dtype, work = work_type(x);
  const DType out = types.outputs[0].dtype, quotient = TRY(rounded_quotient(types.attrs));
  FusedOperand dividend = as(code, Code::in(0), x, work),
               divisor = as(code, Code::in(1), types.inputs[1].dtype, work);
  if (quotient != DType::f64) {
    dividend = code.cast(code.cast(dividend, quotient), work);
    divisor = code.cast(code.cast(divisor, quotient), work);
  }
  FusedOperand q = code.op(EwOp::Div, {dividend, divisor});
  if (quotient != DType::f64) q = code.cast(code.cast(q, quotient), work);
  if (!is_small_float(out)) q = code.op(EwOp::Round, {q});
  if (types.has(2)) q = code.op(EwOp::Add, {q, code.cast(Code::in(2), work)});
  if (is_small_int(out)) {  // whose cast keeps the lowest bits
    const Range range = range_of(out);
    q = code.op(EwOp::Min,
                {code.op(EwOp::Max, {q, code.scalar(work, range.low)}), code.scalar(work, range.high)});
  }
  return code.prepare(code.cast(q, out, TRY(cast_mode(types.attrs, out))));  // saturates
}

// As if q = x / scale + zero_point inside the range: dx = g / scale, dscale = -g x / scale^2.
Status grad_quantize(GradContext& ctx) {
  TRY(require_blocks(ctx));
  GraphBuilder& b = ctx.b;
  const ValueId x = blocked(ctx, ctx.in(0)), g = blocked(ctx, ctx.grad());
  const DType work = ctx.dtype(g);
  const ValueId raw = broadcastable(ctx, ctx.in(1)), scale = cast_to(b, raw, work);
  const ValueId ratio = b.op("Div", {cast_to(b, x, work), scale});
  ValueId q = is_small_float(ctx.dtype(ctx.out(0))) ? ratio : b.op("Round", {ratio});
  if (ctx.in(2) != kNone) q = b.op("Add", {q, cast_to(b, broadcastable(ctx, ctx.in(2)), work)});
  const Range range = range_of(ctx.dtype(ctx.out(0)));
  const ValueId inside = b.op("And", {b.op("GreaterOrEqual", {q, b.scalar(work, range.low)}),
                                      b.op("LessOrEqual", {q, b.scalar(work, range.high)})});
  const ValueId slope = b.op("Where", {inside, b.op("Div", {g, scale}), b.scalar(work, 0)});
  if (ctx.wants(0)) {
    const ValueId dx = cast_to(b, slope, ctx.dtype(x));
    ctx.set(0, x == ctx.in(0) ? dx : reshaped_like(ctx, dx, ctx.in(0)));
  }
  if (ctx.wants(1)) {
    const ValueId ds = ctx.reduce_to(b.op("Neg", {b.op("Mul", {slope, ratio})}), raw);
    ctx.set(1, cast_to(b, raw == ctx.in(1) ? ds : reshaped_like(ctx, ds, ctx.in(1)),
                       scale_gradient_type(ctx, work)));
  }
  return {};
}

std::vector<Sample> quantize_samples() {
  const auto vector = [](DType t, const std::vector<double>& v) {
    return exact(t, {static_cast<std::int64_t>(v.size())}, v);
  };
  return {
      with("u8", {}, {floats({3, 5}, -2, 2), known_scalar(DType::f32, 0.0173), known_scalar(DType::u8, 117)}),
      with("no zero point", {}, {floats({7}, -1, 5), known_scalar(DType::f32, 0.013)}),
      with(
          "i8, per axis", {},
          {floats({2, 3, 4}, -2, 2), vector(DType::f32, {0.013, 0.1, 0.7}), vector(DType::i8, {-3, 0, 100})}),
      with("i16, last axis", {{"axis", std::int64_t{-1}}},
           {floats({3, 2}, -2, 2), vector(DType::f32, {0.0007, 0.1}), vector(DType::i16, {-3, 1000})}),
      with("u16, named", {{"output_dtype", onnx_from_dtype(DType::u16)}},
           {floats({9}, -1, 5), known_scalar(DType::f32, 0.00003)}),
      with("blocks", {{"axis", std::int64_t{1}}, {"block_size", std::int64_t{2}}},
           {floats({2, 4, 3}, -2, 2), floats({2, 2, 3}, 0.01, 0.1),
            exact(DType::u8, {2, 2, 3}, {0, 9, 99, 100, 1, 2, 3, 4, 5, 6, 7, 8})}),
      with("integers", {},
           {ints({9}, -500, 500, DType::i32), known_scalar(DType::f32, 3.1), known_scalar(DType::i8, 2)}),
      with("i4, per axis", {},
           {floats({2, 3, 4}, -2, 2), vector(DType::f32, {0.13, 0.31, 0.7}), vector(DType::i4, {-3, 0, 7})}),
      with("u4, blocks", {{"axis", std::int64_t{1}}, {"block_size", std::int64_t{2}}},
           {floats({2, 4, 3}, -2, 2), floats({2, 2, 3}, 0.1, 0.3),
            exact(DType::u4, {2, 2, 3}, {0, 9, 15, 8, 1, 2, 3, 4, 5, 6, 7, 8})}),
      with("i2", {}, {floats({9}, -2, 2), known_scalar(DType::f32, 0.73), known_scalar(DType::i2, -1)}),
      with("u2, named", {{"output_dtype", onnx_from_dtype(DType::u2)}},
           {floats({9}, -1, 5), known_scalar(DType::f32, 0.73)}),
      with("f8e4m3fn", {},
           {floats({3, 5}, -900, 900), known_scalar(DType::f32, 1.7), known_scalar(DType::f8e4m3fn, 0)}),
      with("f8e4m3fnuz, per axis", {},
           {floats({2, 3, 4}, -2, 2), vector(DType::f32, {0.13, 0.001, 0.7}),
            vector(DType::f8e4m3fnuz, {0, 0, 0})}),
      with("f8e5m2, to infinity", {{"saturate", std::int64_t{0}}},
           {floats({3, 5}, -90000, 90000), known_scalar(DType::f32, 1.1), known_scalar(DType::f8e5m2, 0)}),
      with("f8e5m2fnuz, named", {{"output_dtype", onnx_from_dtype(DType::f8e5m2fnuz)}},
           {floats({9}, -1, 5), known_scalar(DType::f32, 0.73)}),
      with("f4e2m1, blocks of a power of two",
           {{"axis", std::int64_t{-1}},
            {"block_size", std::int64_t{2}},
            {"output_dtype", onnx_from_dtype(DType::f4e2m1)}},
           {floats({2, 4}, -2, 2), exact(DType::f8e8m0, {2, 2}, {0.25, 0.5, 1, 0.125})}),
      with("precision", {{"precision", onnx_from_dtype(DType::f16)}},
           {floats({7}, -1, 5), known_scalar(DType::f32, 0.013)})};
}

// ---- DequantizeLinear -------------------------------------------------------------------------------------

Status infer_dequantize(InferContext& ctx) {
  TRY(require_inputs(ctx, 2));
  if (!is_code(ctx.dtype(0)) && ctx.dtype(0) != DType::i32)
    return infer_error(std::string("cannot dequantize ") + dtype_name(ctx.dtype(0)));
  TRY(check_parameters(ctx));
  if (ctx.has(2) && ctx.dtype(2) != ctx.dtype(0))
    return infer_error("the zero point must have the type of the input");
  const std::int64_t named = ctx.attrs.integer("output_dtype");
  const DType out = named != 0 ? TRY(dtype_from_onnx(named)) : ctx.dtype(1);
  if (!is_float(out)) return infer_error(std::string("dequantization to ") + dtype_name(out));
  ctx.outputs[0] = {out, ctx.shape(0)};
  return {};
}

// In which codes are subtracted.
DType exact_type(DType code) { return is_small_float(code) ? DType::f32 : DType::i32; }

Result<Kernel> prepare_dequantize(const NodeTypes& given) {
  const NodeTypes types = broadcastable(given);
  Code code(types);
  const DType x = types.inputs[0].dtype, out = types.outputs[0].dtype, work = work_type(out);
  const DType exact = exact_type(x);
  FusedOperand difference = as(code, Code::in(0), x, exact);
  if (types.has(2)) difference = code.op(EwOp::Sub, {difference, as(code, Code::in(2), x, exact)});
  const FusedOperand scale = as(code, Code::in(1), types.inputs[1].dtype, work);
  return code.prepare(as(code, code.op(EwOp::Mul, {as(code, difference, exact, work), scale}), work, out));
}

// dq = g scale, dscale = g (q - zero_point).
Status grad_dequantize(GradContext& ctx) {
  TRY(require_blocks(ctx));
  GraphBuilder& b = ctx.b;
  const ValueId g = blocked(ctx, ctx.grad()), raw = broadcastable(ctx, ctx.in(1));
  const DType work = ctx.dtype(g);
  if (ctx.wants(0)) {
    const ValueId dq = b.op("Mul", {g, cast_to(b, raw, work)});
    ctx.set(0, g == ctx.grad() ? dq : reshaped_like(ctx, dq, ctx.in(0)));
  }
  if (ctx.wants(1)) {
    const DType exact = exact_type(ctx.dtype(ctx.in(0)));
    ValueId difference = cast_to(b, blocked(ctx, ctx.in(0)), exact);
    if (ctx.in(2) != kNone)
      difference = b.op("Sub", {difference, cast_to(b, broadcastable(ctx, ctx.in(2)), exact)});
    const ValueId ds = ctx.reduce_to(b.op("Mul", {g, cast_to(b, difference, work)}), raw);
    ctx.set(1, cast_to(b, raw == ctx.in(1) ? ds : reshaped_like(ctx, ds, ctx.in(1)),
                       scale_gradient_type(ctx, work)));
  }
  return {};
}

std::vector<Sample> dequantize_samples() {
  return {
      with("u8", {}, {ints({3, 5}, 0, 255, DType::u8), floats({}, 0.01, 0.1), known_scalar(DType::u8, 117)}),
      with("per axis", {},
           {ints({2, 3, 4}, -128, 127, DType::i8), floats({3}, 0.01, 0.1),
            exact(DType::i8, {3}, {-3, 0, 100})}),
      with("last axis", {{"axis", std::int64_t{-1}}},
           {ints({3, 2}, -900, 900, DType::i16), floats({2}, 0.01, 0.1)}),
      with("u16", {},
           {ints({7}, 0, 60000, DType::u16), floats({1}, 0.001, 0.01), exact(DType::u16, {1}, {30000})}),
      with("blocks", {{"axis", std::int64_t{-1}}, {"block_size", std::int64_t{3}}},
           {ints({2, 6}, 0, 255, DType::u8), floats({2, 2}, 0.01, 0.1),
            exact(DType::u8, {2, 2}, {0, 9, 99, 100})}),
      with("32-bit integers", {}, {ints({7}, -900, 900, DType::i32), floats({}, 0.01, 0.1)}),
      with("i4, per axis", {},
           {ints({2, 3, 4}, -8, 7, DType::i4), floats({3}, 0.1, 0.3), exact(DType::i4, {3}, {-3, 0, 7})}),
      with("u4, blocks", {{"axis", std::int64_t{-1}}, {"block_size", std::int64_t{3}}},
           {ints({2, 6}, 0, 15, DType::u4), floats({2, 2}, 0.1, 0.3),
            exact(DType::u4, {2, 2}, {0, 9, 8, 15})}),
      with("i2", {}, {ints({5}, -2, 1, DType::i2), floats({}, 0.1, 0.3), known_scalar(DType::i2, 1)}),
      with("u2", {}, {ints({5}, 0, 3, DType::u2), floats({}, 0.1, 0.3)}),
      with("f8e4m3fn", {},
           {ints({3, 5}, -20, 20, DType::f8e4m3fn), floats({}, 0.1, 0.3), known_scalar(DType::f8e4m3fn, 0)}),
      with("f8e4m3fnuz", {}, {ints({7}, -20, 20, DType::f8e4m3fnuz), floats({}, 0.1, 0.3)}),
      with("f8e5m2, per axis", {}, {ints({2, 3}, -20, 20, DType::f8e5m2), floats({3}, 0.1, 0.3)}),
      with("f8e5m2fnuz", {}, {ints({7}, -20, 20, DType::f8e5m2fnuz), floats({}, 0.1, 0.3)}),
      with("f4e2m1, scales that are powers of two",
           {{"axis", std::int64_t{-1}},
            {"block_size", std::int64_t{2}},
            {"output_dtype", onnx_from_dtype(DType::f32)}},
           {ints({2, 4}, -6, 6, DType::f4e2m1), exact(DType::f8e8m0, {2, 2}, {0.25, 0.5, 1, 0.125})})};
}

// ---- DynamicQuantizeLinear: the range of x, widened to hold 0, over 0..255 --------------------------------

Status infer_dynamic(InferContext& ctx) {
  TRY(infer_float(ctx));
  const Type types[] = {{DType::u8, ctx.shape(0)}, {ctx.dtype(0), {}}, {DType::u8, {}}};
  for (std::size_t i = 0; i < ctx.outputs.size(); ++i) ctx.outputs[i] = types[i];
  return {};
}

Result<Kernel> prepare_dynamic(const NodeTypes& types) {
  KernelSequence s(types);
  GraphBuilder& b = s.b();
  const DType dtype = types.inputs[0].dtype, work = work_type(dtype);
  const Attrs all{{"keepdims", std::int64_t{0}}};
  const ValueId x = s.cast(s.in(0), work), zero = b.scalar(work, 0);
  const ValueId low = s.op("Min", {s.op("ReduceMin", {x}, all), zero}),
                high = s.op("Max", {s.op("ReduceMax", {x}, all), zero});
  const ValueId scale = s.op("Div", {s.op("Sub", {high, low}), b.scalar(work, 255)});
  const ValueId point = s.cast(s.op("Round", {s.op("Div", {s.op("Neg", {low}), scale})}), DType::u8);
  const ValueId q = s.op("Add", {s.op("Round", {s.op("Div", {x, scale})}), s.cast(point, work)});
  return s.prepare("dynamic quantization", {s.cast(q, DType::u8), s.cast(scale, dtype), point});
}

std::vector<Sample> dynamic_samples() {
  return {sample_of("both signs", {}, {floats({3, 7}, -2, 3)}, 3),
          sample_of("positive", {}, {floats({9}, 1, 3)}, 3),
          sample_of("zeros", {}, {exact(DType::f32, {3}, {0, 0, 0})}, 3)};
}

Cost dynamic_cost(const NodeTypes& types) {
  Cost cost = default_cost(types);
  cost.flops = 5.0 * static_cast<double>(element_count(types.inputs[0].shape));
  return cost;
}

}  // namespace

const OpDef quantize_linear_op = {.name = "QuantizeLinear",
                                  .since = 10,
                                  .summary = "Nearest integer code of x / scale + zero point",
                                  .min_inputs = 2,
                                  .max_inputs = 3,
                                  .infer = infer_quantize,
                                  .grad = grad_quantize,
                                  .cpu = prepare_quantize,
                                  .gpu = prepare_quantize,
                                  .samples = quantize_samples,
                                  .precision = Precision::full,
                                  .codes = Codes::all};
const OpDef dequantize_linear_op = {.name = "DequantizeLinear",
                                    .since = 10,
                                    .summary = "(code - zero point) scale",
                                    .min_inputs = 2,
                                    .max_inputs = 3,
                                    .infer = infer_dequantize,
                                    .grad = grad_dequantize,
                                    .cpu = prepare_dequantize,
                                    .gpu = prepare_dequantize,
                                    .samples = dequantize_samples,
                                    .precision = Precision::full};
const OpDef dynamic_quantize_linear_op = {
    .name = "DynamicQuantizeLinear",
    .since = 11,
    .summary = "8-bit codes, with scale and zero point from the range of the input",
    .traits = kNoGradient,
    .max_outputs = 3,
    .infer = infer_dynamic,
    .cost = dynamic_cost,
    .cpu = prepare_dynamic,
    .gpu = prepare_dynamic,
    .samples = dynamic_samples,
    .precision = Precision::full};

}  // namespace gradloom
