// RMSNormalization and its gradient row.
//   x seen as [rows, cols], cols = product of the dims from `axis` on:
//   inv_rms = 1 / sqrt(sum(x^2) / cols + epsilon), y = x * inv_rms * scale; scale: [cols]; output 1 (ours): inv_rms
//   RMSNormGrad(dy, x, scale, inv_rms) -> dx, dscale
// The kernels are LayerNormalization's without the mean. scale may be f32 where x is bf16; the statistic is
// f32 then. Source: ONNX RMSNormalization-23.
#include "engine/ops/costs.h"
#include "engine/ops/dims.h"
#include "engine/ops/gradient_rules.h"
#include "engine/ops/inference.h"
#include "engine/ops/preparation.h"
#include "engine/ops/samples.h"
#include "engine/ops/rows.h"
#include "kernels/launcher.h"

namespace gradloom {
namespace {

struct Layout {
  std::int64_t rows, cols;
};

Result<std::size_t> axis_of(const Attrs& attrs, const Shape& x) {
  return static_cast<std::size_t>(TRY(normalized_axis(attrs.integer("axis", -1), x.size())));
}

Result<Layout> layout_of(const Attrs& attrs, const Shape& x) {
  const std::size_t axis = TRY(axis_of(attrs, x));
  return Layout{dim_product(x, 0, axis), dim_product(x, axis, x.size())};
}

Status infer(InferContext& ctx) {
  TRY(require_inputs(ctx, 2));
  const Shape &x = ctx.shape(0), &scale = ctx.shape(1);
  const std::size_t axis = TRY(axis_of(ctx.attrs, x));
  TRY(require_parameter(ctx, 1, "scale"));
  if (all_static(x, axis, x.size()) && is_static(scale) &&
      element_count(scale) != dim_product(x, axis, x.size()))
    return infer_error("scale " + to_string(scale) + " does not fit the normalized dims of " + to_string(x));
  Shape rows = x;
  for (std::size_t i = axis; i < rows.size(); ++i) rows[i] = 1;
  return set_outputs(ctx, {ctx.in(0), {statistics_type(ctx.dtype(0)), rows}});
}

Status grad(GradContext& ctx) {
  const ValueId inv_std = ctx.require_out(1);
  ValueId through_statistic = kNone;
  if (const ValueId dinv_std = ctx.grad(1); ctx.wants(0) && dinv_std != kNone) {
    TRY(require_static(ctx, ctx.in(0)));
    const Layout l = TRY(layout_of(ctx.node.attrs, ctx.shape(ctx.in(0))));
    through_statistic =
        moments_gradient(ctx, ctx.in(0), kNone, kNone, moment_gradient(ctx, inv_std, dinv_std), l.cols);
    ctx.set(0, through_statistic);
  }
  if (ctx.grad() == kNone) return {};
  const auto grads = ctx.b.ops(op_by_name("RMSNormGrad"), {ctx.grad(), ctx.in(0), ctx.in(1), inv_std},
                               {{"axis", ctx.node.attrs.integer("axis", -1)}}, ctx.wants(1) ? 2 : 1);
  if (ctx.wants(0)) ctx.set(0, sum_of(ctx.b, grads[0], through_statistic));
  if (ctx.wants(1)) ctx.set(1, grads[1]);
  return {};
}

Cost cost(const NodeTypes& types) {
  return cost_of(types, 4.0 * static_cast<double>(element_count(types.inputs[0].shape)));
}
Cost cost_grad(const NodeTypes& types) {
  return cost_of(types, 10.0 * static_cast<double>(element_count(types.inputs[0].shape)));
}

Result<Kernel> prepare(const NodeTypes& types) {
  const Type& x = types.inputs[0];
  TRY(require_kernel_type(types.target, x.dtype));
  const Layout l = TRY(layout_of(types.attrs, x.shape));
  if (l.rows == 0 || l.cols == 0) return no_work("rms_norm");
  const bool wanted = types.wants(1);
  return Kernel{
      "rms_norm", 0,
      [dtype = x.dtype, parameters = types.inputs[1].dtype, l, wanted,
       epsilon = types.attrs.real("epsilon", 1e-5)](const LaunchArgs& args) {
        args.on.layer_norm({dtype, l.rows, l.cols, epsilon, args.inputs[0], args.inputs[1], nullptr,
                            args.outputs[0], nullptr, wanted ? args.outputs[1] : nullptr, false, parameters});
      }};
}

Status infer_grad(InferContext& ctx) {
  TRY(require_inputs(ctx, 4));
  TRY(require_float(ctx, 1, "x"));
  TRY(require_parameter(ctx, 2, "scale", 2));
  TRY(require_statistic(ctx, 3, "inv_rms"));
  TRY(axis_of(ctx.attrs, ctx.shape(0)));
  return set_outputs(ctx, {ctx.in(0), ctx.in(2)});
}

Result<Kernel> prepare_grad(const NodeTypes& types) {
  const Type& x = types.inputs[1];
  TRY(require_kernel_type(types.target, x.dtype));
  const Layout l = TRY(layout_of(types.attrs, x.shape));
  kernels::LayerNormGradArgs layout{};
  layout.dtype = x.dtype;
  layout.rows = l.rows;
  layout.cols = l.cols;
  layout.centered = false;
  layout.parameters = types.inputs[2].dtype;
  return Kernel{"rms_norm_grad", kernels::workspace_bytes(types.target, layout),
                [layout, scale = types.wants(1)](const LaunchArgs& args) {
                  kernels::LayerNormGradArgs a = layout;
                  a.dy = args.inputs[0];
                  a.x = args.inputs[1];
                  a.scale = args.inputs[2];
                  a.inv_std = args.inputs[3];
                  a.dx = args.outputs[0];
                  a.dscale = scale ? args.outputs[1] : nullptr;
                  a.workspace = args.workspace;
                  args.on.layer_norm_grad(a);
                }};
}

std::vector<Sample> samples() {
  return {
      {.name = "last-axis", .inputs = {floats({3, 7}, -2, 3), floats({7})}},
      {.name = "two-axes",
       .attrs = {{"axis", std::int64_t{1}}},
       .inputs = {floats({2, 3, 4}), floats({3, 4})}},
      {.name = "all-axes",
       .attrs = {{"axis", std::int64_t{-2}}, {"epsilon", 0.1}},
       .inputs = {floats({3, 4}), floats({3, 4})}},
      {.name = "statistic", .inputs = {floats({4, 6}), floats({6})}, .output_count = 2},
      {.name = "wide-scale", .inputs = {floats({5, 8}, -2, 3), statistic({8}, 0.5, 1.5)}},
      {.name = "transformer", .inputs = {floats({1024, 512}), floats({512})}, .bench = true},
  };
}

std::vector<Sample> samples_grad() {
  const Attrs last{{"axis", std::int64_t{-1}}};
  return {
      {.name = "last-axis",
       .attrs = last,
       .inputs = {floats({3, 7}), floats({3, 7}), floats({7}), statistic({3, 1}, 0.8, 1.2)},
       .output_count = 2},
      {.name = "input-only",
       .attrs = {{"axis", std::int64_t{1}}},
       .inputs = {floats({2, 3, 4}), floats({2, 3, 4}), floats({3, 4}), statistic({2, 1, 1}, 0.8, 1.2)}},
      {.name = "transformer",
       .attrs = last,
       .inputs = {floats({1024, 512}), floats({1024, 512}), floats({512}), statistic({1024, 1}, 0.8, 1.2)},
       .output_count = 2,
       .bench = true},
  };
}

}  // namespace

const OpDef rms_normalization_op = {
    .name = "RMSNormalization",
    .since = 23,
    .summary = "Divides each row by its root mean square, then scales.",
    .traits = kOptionalOutputs,
    .min_inputs = 2,
    .max_inputs = 2,
    .max_outputs = 2,
    .infer = infer,
    .grad = grad,
    .cost = cost,
    .cpu = prepare,
    .gpu = prepare,
    .samples = samples,
    .inplace_input = 0,
};

const OpDef rms_norm_grad_op = {
    .name = "RMSNormGrad",
    .domain = "gradloom",
    .summary = "Gradient of RMSNormalization from its saved statistic.",
    .min_inputs = 4,
    .max_inputs = 4,
    .max_outputs = 2,
    .infer = infer_grad,
    .cost = cost_grad,
    .cpu = prepare_grad,
    .gpu = prepare_grad,
    .samples = samples_grad,
    .inplace_input = 0,
};

}  // namespace gradloom
