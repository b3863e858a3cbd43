// CumSum(x, axis), attributes exclusive, reverse: running sums along an axis. Source: ONNX CumSum-11.
#include "engine/ops/input_roles.h"
#include "engine/ops/copies.h"
#include "engine/ops/costs.h"
#include "engine/ops/inference.h"
#include "engine/ops/preparation.h"
#include "engine/ops/samples.h"
#include "engine/ops/rows.h"
#include "kernels/launcher.h"

namespace gradloom {
namespace {

Status infer_cum_sum(InferContext& ctx) {
  TRY(require_inputs(ctx, 2));
  if (ctx.shape(0).empty()) return infer_error("CumSum of a scalar");
  if (ctx.dtype(1) != DType::i32 && ctx.dtype(1) != DType::i64)
    return infer_error("CumSum: the axis must be an integer");
  if (!is_static(ctx.shape(1)) || element_count(ctx.shape(1)) != 1)
    return infer_error("CumSum: the axis must be one number");
  if (const Tensor* axis = ctx.constant(1)) TRY(normalized_axis(axis->int_at(0), ctx.shape(0).size()));
  ctx.outputs[0] = ctx.in(0);
  return {};
}

std::int64_t axis_at(DType type, const void* axis) {
  return type == DType::i32 ? *static_cast<const std::int32_t*>(axis)
                            : *static_cast<const std::int64_t*>(axis);
}

// An axis that is only known when running is read then, on the CPU; out of range, where a kernel cannot fail,
// it counts as the last one.
Result<Kernel> prepare_cum_sum(const NodeTypes& types) {
  const DType given = types.inputs[0].dtype, axis_type = types.inputs[1].dtype;
  // Sums modulo 2^32 or 2^64 have the same bits with a sign.
  const DType dtype = given == DType::u32 ? DType::i32 : given == DType::u64 ? DType::i64 : given;
  const bool gpu = types.target == kernels::Target::gpu;
  if (dtype != DType::f32 && dtype != DType::f64 && dtype != DType::i32 && dtype != DType::i64 &&
      !(gpu && is_half(dtype)))
    return no_kernel(std::string("no kernel sums ") + dtype_name(dtype) + " cumulatively");
  const Tensor* known = types.constants[1];
  if (gpu && known == nullptr) return no_kernel("no GPU kernel for an axis that is not known when planning");
  const kernels::CumSumArgs args{
      dtype,  types.attrs.integer("exclusive") != 0, types.attrs.integer("reverse") != 0, 1, 1, 1, nullptr,
      nullptr};
  Kernel kernel;
  kernel.name = "cumulative sum";
  kernel.run = [args, axis_type, shape = types.inputs[0].shape,
                axis_known = known == nullptr ? std::optional<std::int64_t>()
                                              : known->int_at(0)](const LaunchArgs& launch) {
    const auto rank = static_cast<std::int64_t>(shape.size());
    std::int64_t axis = axis_known ? *axis_known : axis_at(axis_type, launch.inputs[1]);
    if (axis < 0) axis += rank;
    const AxisView v = axis_view(shape, axis < 0 || axis >= rank ? rank - 1 : axis);
    kernels::CumSumArgs a = args;
    a.outer = v.outer;
    a.n = v.size;
    a.inner = v.inner;
    a.x = launch.inputs[0];
    a.y = launch.outputs[0];
    launch.on.cum_sum(a);
  };
  return kernel;
}

Status grad_cum_sum(GradContext& ctx) {
  Attrs attrs = ctx.node.attrs;
  attrs.set("reverse", std::int64_t{attrs.integer("reverse") == 0});
  if (ctx.wants(0)) ctx.set(0, ctx.b.op("CumSum", {ctx.grad(), ctx.in(1)}, attrs));
  return {};
}

std::vector<Sample> cum_sum_samples() {
  const std::int64_t yes = 1;
  return {sample_of("last axis", {}, {floats({3, 7}), known_scalar(DType::i64, -1)}),
          sample_of("exclusive", {{"exclusive", yes}}, {floats({5, 3}), known_scalar(DType::i64, 0)}),
          sample_of("reverse", {{"reverse", yes}}, {floats({2, 5, 3}), known_scalar(DType::i32, 1)}),
          sample_of("both", {{"exclusive", yes}, {"reverse", yes}},
                    {ints({9}, -9, 9), known_scalar(DType::i64, 0)}),
          sample_of("unsigned", {}, {ints({2, 3}, 0, 9, DType::u64), known_scalar(DType::i64, 1)}),
          sample_of("unsigned, 32 bits", {{"exclusive", yes}},
                    {ints({5}, 0, 9, DType::u32), known_scalar(DType::i64, 0)}),
          sample_of("long axis", {{"exclusive", yes}, {"reverse", yes}},
                    {floats({2, 300}), known_scalar(DType::i64, 1)})};
}

}  // namespace

const OpDef cum_sum_op = {.name = "CumSum",
                          .since = 11,
                          .summary = "Running sum along an axis",
                          .min_inputs = 2,
                          .max_inputs = 2,
                          .infer = infer_cum_sum,
                          .grad = grad_cum_sum,
                          .cpu = prepare_cum_sum,
                          .gpu = prepare_cum_sum,
                          .samples = cum_sum_samples,
                          .precision = Precision::full,
                          .roles = kSizesSecond};

}  // namespace gradloom
