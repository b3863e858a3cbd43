// BitCast(x), attribute to: the same bits as another type of the same size. Not to booleans, whose bytes are
// 0 and 1 here. Source: ONNX BitCast-26.
#include "engine/ops/elementwise/code.h"
#include "engine/ops/copies.h"
#include "engine/ops/costs.h"
#include "engine/ops/inference.h"
#include "engine/ops/samples.h"
#include "engine/ops/rows.h"

namespace gradloom {
namespace {

// The type of the same bits that has no bits above them in its byte.
DType unsigned_of(DType t) { return t == DType::i4 ? DType::u4 : t == DType::i2 ? DType::u2 : t; }

Status infer(InferContext& ctx) {
  TRY(require_inputs(ctx, 1));
  if (!ctx.attrs.has("to")) return infer_error("attribute 'to' is missing");
  const DType from = ctx.dtype(0), to = TRY(dtype_from_onnx(ctx.attrs.integer("to")));
  if (dtype_bytes(from) != dtype_bytes(to) || elements_per_byte(from) != elements_per_byte(to))
    return infer_error(std::string(dtype_name(from)) + " and " + dtype_name(to) + " differ in size");
  if (to == DType::boolean && from != to) return infer_error("bytes cannot be read as booleans");
  ctx.outputs[0] = {to, ctx.shape(0)};
  return {};
}

Result<Kernel> prepare(const NodeTypes& types) {
  const DType from = types.inputs[0].dtype, to = types.outputs[0].dtype;
  if (from != to &&
      (unsigned_of(from) != from || unsigned_of(to) != to)) {  // integers with a sign and without
    NodeTypes same_bits = types;
    if (unsigned_of(from) == from) same_bits.inputs[0].dtype = unsigned_of(to);
    same_bits.outputs[0].dtype = unsigned_of(to) == to ? unsigned_of(from) : to;
    elementwise_code::Code code(same_bits);
    return code.prepare(code.cast(code.in(0), same_bits.outputs[0].dtype));
  }
  const std::int64_t count = element_count(types.inputs[0].shape);
  return Kernel{"bit cast", 0, [dtype = types.inputs[0].dtype, count](const LaunchArgs& args) {
                  copy_elements(args.on, dtype, count, args.inputs[0], args.outputs[0]);
                }};
}

std::vector<Sample> samples() {
  const auto to = [](DType t) { return Attrs{{"to", onnx_from_dtype(t)}}; };
  return {sample_of("i32 as u32", to(DType::u32), {ints({2, 3}, -5, 5, DType::i32)}),
          sample_of("i64 as u64", to(DType::u64), {ints({5}, -5, 5)}),
          sample_of("i8 as u8", to(DType::u8), {ints({7}, -5, 5, DType::i8)}),
          sample_of("u16 as i16", to(DType::i16), {ints({3}, 0, 60000, DType::u16)}),
          sample_of("booleans as u8", to(DType::u8), {exact(DType::boolean, {3}, {1, 0, 1})}),
          sample_of("i4 as u4", to(DType::u4), {ints({7}, -8, 7, DType::i4)}),
          sample_of("f4e2m1 as i4", to(DType::i4), {ints({7}, -6, 6, DType::f4e2m1)}),
          sample_of("i2 as u2", to(DType::u2), {ints({5}, -2, 1, DType::i2)}),
          sample_of("u8 as f8e5m2", to(DType::f8e5m2), {ints({7}, 0, 100, DType::u8)})};
}

}  // namespace

const OpDef bit_cast_op = {.name = "BitCast",
                           .since = 26,
                           .summary = "The same bytes as another type",
                           .traits = kNoGradient,
                           .infer = infer,
                           .cost = copy_cost,
                           .cpu = prepare,
                           .gpu = prepare,
                           .samples = samples};

}  // namespace gradloom
