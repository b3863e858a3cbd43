// Products of quantized numbers, computed exactly in f64: differences from the zero point are below 2^9, so
// sums stay whole up to 2^35 terms. Integers have no gradient.
//   MatMulInteger, ConvInteger     (a - a_zero) (b - b_zero) as i32
//   QLinearMatMul, QLinearConv     the same times a_scale b_scale / y_scale, rounded to even, + y_zero, saturated;
//     QLinearMatMul of floats of 8 bits: rounded to the nearest of theirs
// Source: ONNX MatMulInteger-10, ConvInteger-10, QLinearMatMul-10 and -21, QLinearConv-10.
#include "engine/onnx/expand/expansion.h"
#include "engine/ops/samples.h"

namespace gradloom {

namespace {

bool is_float8(DType t) { return is_small_float(t) && t != DType::f4e2m1 && t != DType::f8e8m0; }

// x - zero in f64. A zero point per row or channel lies on `axis` of x.
Result<ValueId> centred(Expander& e, ValueId x, ValueId zero, std::int64_t axis, bool floats = false) {
  const DType type = e.dtype(x);
  if (type != DType::i8 && type != DType::u8 && !(floats && is_float8(type)))
    return infer_error(std::string("an input is ") + dtype_name(type));
  const ValueId wide = TRY(e.cast(x, DType::f64));
  if (zero == kNone) return wide;
  ValueId offset = TRY(e.cast(zero, DType::f64));
  const std::size_t rank = e.rank(x);
  if (e.rank(offset) == 1 && e.shape(offset)[0] != 1 && rank > 1) {
    std::vector<std::int64_t> shape(rank, 1);
    shape[static_cast<std::size_t>(TRY(normalized_axis(axis, rank)))] = -1;
    offset = TRY(e.reshape(offset, shape));
  }
  return e.op("Sub", {wide, offset});
}

Status matmul_integer(Expander& e) {
  const ValueId a = TRY(centred(e, e.in(0), e.in(2), -2)), b = TRY(centred(e, e.in(1), e.in(3), -1));
  e.outputs[0] = TRY(e.cast(TRY(e.op("MatMul", {a, b})), DType::i32));
  return {};
}

Status conv_integer(Expander& e) {
  const ValueId x = TRY(centred(e, e.in(0), e.in(2), 1)), w = TRY(centred(e, e.in(1), e.in(3), 0));
  e.outputs[0] = TRY(e.cast(TRY(e.op("Conv", {x, w}, e.attrs)), DType::i32));
  return {};
}

struct Scales {
  ValueId a, b, y, zero;  // zero: of y
};

// A scale per row or column of the result, on `axis`.
Result<ValueId> scale_of(Expander& e, ValueId scale, std::int64_t axis, std::size_t rank) {
  const ValueId wide = TRY(e.cast(scale, DType::f64));
  if (e.rank(wide) != 1 || e.shape(wide)[0] == 1) return wide;
  std::vector<std::int64_t> shape(rank, 1);
  shape[static_cast<std::size_t>(TRY(normalized_axis(axis, rank)))] = -1;
  return e.reshape(wide, shape);
}

Result<ValueId> requantized(Expander& e, ValueId sums, const Scales& s, std::int64_t a_axis,
                            std::int64_t b_axis, bool floats = false) {
  const std::size_t rank = e.rank(sums);
  const DType type = e.dtype(s.zero);
  const bool is_real = floats && is_float8(type);
  if (type != DType::i8 && type != DType::u8 && !is_real)
    return infer_error(std::string("the result is ") + dtype_name(type));
  const ValueId factor = TRY(e.op(
      "Div", {TRY(e.op("Mul", {TRY(scale_of(e, s.a, a_axis, rank)), TRY(scale_of(e, s.b, b_axis, rank))})),
              TRY(scale_of(e, s.y, a_axis, rank))}));
  const ValueId scaled = TRY(e.op("Mul", {sums, factor}));
  const ValueId rounded = is_real ? scaled : TRY(e.op("Round", {scaled}));
  const ValueId moved = TRY(e.op("Add", {rounded, TRY(scale_of(e, s.zero, a_axis, rank))}));
  if (is_real) return e.cast(moved, type);  // saturates
  const double low = type == DType::i8 ? -128 : 0, high = type == DType::i8 ? 127 : 255;
  return e.cast(TRY(e.op("Clip", {moved, e.scalar(DType::f64, low), e.scalar(DType::f64, high)})), type);
}

// Inputs: a, a_scale, a_zero_point, b, b_scale, b_zero_point, y_scale, y_zero_point.
Status qlinear_matmul(Expander& e) {
  const ValueId a = TRY(centred(e, e.in(0), e.in(2), -2, true)),
                b = TRY(centred(e, e.in(3), e.in(5), -1, true));
  const ValueId product = TRY(e.op("MatMul", {a, b}));
  e.outputs[0] = TRY(requantized(e, product, {e.in(1), e.in(4), e.in(6), e.in(7)}, -2, -1, true));
  return {};
}

// Inputs: x, x_scale, x_zero_point, w, w_scale, w_zero_point, y_scale, y_zero_point, bias (i32,
// of scale x_scale w_scale).
Status qlinear_conv(Expander& e) {
  const ValueId x = TRY(centred(e, e.in(0), e.in(2), 1)), w = TRY(centred(e, e.in(3), e.in(5), 0));
  std::vector<ValueId> inputs{x, w};
  if (e.has(8)) inputs.push_back(TRY(e.cast(e.in(8), DType::f64)));
  const ValueId sums = TRY(e.op("Conv", std::move(inputs), e.attrs));
  e.outputs[0] = TRY(requantized(e, sums, {e.in(1), e.in(4), e.in(6), e.in(7)}, 1, 1));
  return {};
}

}  // namespace

std::span<const Expansion> integer_expansions() {
  static const std::vector<Expansion> kTable = {
      {"MatMulInteger", "", 10, kNewest, 2, 4, 1, matmul_integer, {}},
      {"ConvInteger", "", 10, kNewest, 2, 4, 1, conv_integer, {}},
      {"QLinearMatMul", "", 10, kNewest, 8, 8, 1, qlinear_matmul, {}},
      {"QLinearConv", "", 10, kNewest, 8, 9, 1, qlinear_conv, {}},
  };
  return kTable;
}

}  // namespace gradloom
