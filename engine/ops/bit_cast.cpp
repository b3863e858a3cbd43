// BitCast(x), attribute to: the same bytes as another type of the same size. Not to booleans, whose bytes are
// 0 and 1 here. Source: ONNX BitCast-26.
#include "engine/ops/nn.h"

namespace gradloom {
namespace {

Status infer(InferContext& ctx) {
  TRY(require_inputs(ctx, 1));
  if (!ctx.attrs.has("to")) return infer_error("attribute 'to' is missing");
  const DType from = ctx.dtype(0), to = TRY(dtype_from_onnx(ctx.attrs.integer("to")));
  if (dtype_bytes(from) != dtype_bytes(to))
    return infer_error(std::string(dtype_name(from)) + " and " + dtype_name(to) + " differ in size");
  if (to == DType::boolean && from != to) return infer_error("bytes cannot be read as booleans");
  ctx.outputs[0] = {to, ctx.shape(0)};
  return {};
}

Result<Kernel> prepare(const NodeTypes& types) {
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
          sample_of("booleans as u8", to(DType::u8), {exact(DType::boolean, {3}, {1, 0, 1})})};
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
