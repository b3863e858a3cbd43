// ArgMax, ArgMin: where the largest or smallest element along an axis is, the first or the last of equal ones.
// Source: ONNX ArgMax-1, 11, 12, 13.
#include "engine/ops/copies.h"
#include "engine/ops/costs.h"
#include "engine/ops/inference.h"
#include "engine/ops/preparation.h"
#include "engine/ops/samples.h"
#include "engine/ops/rows.h"
#include "kernels/launcher.h"

namespace gradloom {
namespace {

Status infer_arg(InferContext& ctx) {
  TRY(require_inputs(ctx, 1));
  Shape out = ctx.shape(0);
  const std::int64_t axis = TRY(normalized_axis(ctx.attrs.integer("axis"), out.size()));
  if (out[static_cast<std::size_t>(axis)] == 0)
    return infer_error("no largest or smallest element of an empty axis");
  if (ctx.attrs.integer("keepdims", 1) != 0)
    out[static_cast<std::size_t>(axis)] = 1;
  else
    out.erase(out.begin() + axis);
  ctx.outputs[0] = {DType::i64, out};
  return {};
}

template <bool largest>
Result<Kernel> prepare_arg(const NodeTypes& types) {
  const Type& in = types.inputs[0];
  if (is_small(in.dtype) || (is_half(in.dtype) && !kernels::computes_halves(types.target)))
    return no_kernel(std::string("no kernel searches ") + dtype_name(in.dtype));
  const AxisView v = axis_view(in.shape, TRY(normalized_axis(types.attrs.integer("axis"), in.shape.size())));
  const bool last = types.attrs.integer("select_last_index") != 0;
  const kernels::ArgExtremeArgs args{in.dtype, largest, last, v.outer, v.size, v.inner, nullptr, nullptr};
  Kernel kernel;
  kernel.name = largest ? "argmax" : "argmin";
  kernel.run = [args](const LaunchArgs& launch) {
    kernels::ArgExtremeArgs a = args;
    a.x = launch.inputs[0];
    a.y = static_cast<std::int64_t*>(launch.outputs[0]);
    launch.on.arg_extreme(a);
  };
  return kernel;
}

std::vector<Sample> arg_samples() {
  const std::int64_t yes = 1, no = 0;
  return {
      sample_of("first axis", {}, {floats({5, 3})}),
      sample_of("last axis", {{"axis", std::int64_t{-1}}, {"keepdims", no}}, {floats({3, 7})}),
      sample_of("last of equal", {{"axis", yes}, {"select_last_index", yes}}, {ints({4, 9}, 0, 2)}),
      sample_of("first of equal", {{"axis", yes}}, {ints({4, 9}, 0, 2)}),
      sample_of("long axis", {{"axis", yes}, {"select_last_index", yes}}, {ints({3, 500}, 0, 9, DType::i32)}),
      sample_of("bytes", {{"axis", yes}}, {ints({2, 100, 2}, 0, 9, DType::u8)})};
}

}  // namespace

const OpDef arg_max_op = {.name = "ArgMax",
                          .summary = "Index of the largest element along an axis",
                          .traits = kNoGradient,
                          .infer = infer_arg,
                          .cost = input_cost,
                          .cpu = prepare_arg<true>,
                          .gpu = prepare_arg<true>,
                          .samples = arg_samples};

const OpDef arg_min_op = {.name = "ArgMin",
                          .summary = "Index of the smallest element along an axis",
                          .traits = kNoGradient,
                          .infer = infer_arg,
                          .cost = input_cost,
                          .cpu = prepare_arg<false>,
                          .gpu = prepare_arg<false>,
                          .samples = arg_samples};

}  // namespace gradloom
