// LayerNormalization and its gradient row.
//   x seen as [rows, cols], cols = product of the dims from `axis` on:
//   mean = sum(x) / cols, inv_std = 1 / sqrt(sum((x - mean)^2) / cols + epsilon)
//   y = (x - mean) * inv_std * scale + bias
//   scale, bias: [cols]; outputs 1, 2: mean, inv_std of shape [dims before axis.., 1..]
//   LayerNormGrad(dy, x, scale, mean, inv_std, added) -> dx, dscale, dbias; added, of dx's type: dx is that much more, or omitted
// scale and bias may be f32 where x is bf16; the statistics are f32 then (f64 where x is, whatever stash_type
// says). Source: ONNX LayerNormalization-17.
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
  auto axis = normalized_axis(attrs.integer("axis", -1), x.size());
  if (!axis.ok()) return axis.error();
  return static_cast<std::size_t>(axis.value());
}

Layout layout_of(const Shape& x, std::size_t axis) {
  return {dim_product(x, 0, axis), dim_product(x, axis, x.size())};
}

// One value per column: REQUIRES nothing of symbolic dims.
Status check_columns(const char* what, const Shape& x, std::size_t axis, const Shape& given) {
  if (!all_static(x, axis, x.size()) || !is_static(given)) return {};
  const std::int64_t cols = dim_product(x, axis, x.size());
  if (element_count(given) == cols) return {};
  return infer_error(std::string(what) + " has " + std::to_string(element_count(given)) +
                     " elements, the normalized dims of " + to_string(x) + " have " + std::to_string(cols));
}

Status infer(InferContext& ctx) {
  TRY(require_inputs(ctx, 2));
  const Shape& x = ctx.shape(0);
  const std::size_t axis = TRY(axis_of(ctx.attrs, x));
  TRY(require_parameter(ctx, 1, "scale"));
  TRY(check_columns("scale", x, axis, ctx.shape(1)));
  if (ctx.has(2)) {
    TRY(require_parameter(ctx, 2, "bias"));
    TRY(check_columns("bias", x, axis, ctx.shape(2)));
  }
  Shape rows = x;
  for (std::size_t i = axis; i < rows.size(); ++i) rows[i] = 1;
  const Type statistic{statistics_type(ctx.dtype(0)), rows};
  return set_outputs(ctx, {ctx.in(0), statistic, statistic});
}

Status grad(GradContext& ctx) {
  const Shape x = ctx.shape(ctx.in(0));
  const std::size_t axis = TRY(axis_of(ctx.node.attrs, x));
  const ValueId mean = ctx.require_out(1), inv_std = ctx.require_out(2);
  const ValueId dmean = ctx.grad(1), dinv_std = ctx.grad(2);
  ValueId through_statistics = kNone;
  if (ctx.wants(0) && (dmean != kNone || dinv_std != kNone)) {
    TRY(require_static(ctx, ctx.in(0)));
    through_statistics = moments_gradient(ctx, ctx.in(0), mean, dmean,
                                          moment_gradient(ctx, inv_std, dinv_std), layout_of(x, axis).cols);
    ctx.set(0, through_statistics);
  }
  if (ctx.grad() == kNone) return {};
  const bool parameters = ctx.wants(1) || ctx.wants(2);
  const auto grads = ctx.b.ops(op_by_name("LayerNormGrad"), {ctx.grad(), ctx.in(0), ctx.in(1), mean, inv_std},
                               {{"axis", as_dim(axis)}}, parameters ? 3 : 1);
  if (ctx.wants(0)) ctx.set(0, sum_of(ctx.b, grads[0], through_statistics));
  if (ctx.wants(1)) ctx.set(1, grads[1]);
  if (!ctx.wants(2)) return {};
  const Shape bias = ctx.shape(ctx.in(2));
  const bool same = bias == ctx.shape(grads[2]) || !is_static(bias);
  ctx.set(2, same ? grads[2] : ctx.b.reshape(grads[2], bias));
  return {};
}

Cost cost(const NodeTypes& types) {
  return cost_of(types, 8.0 * static_cast<double>(element_count(types.inputs[0].shape)));
}
Cost cost_grad(const NodeTypes& types) {
  return cost_of(types, 14.0 * static_cast<double>(element_count(types.inputs[0].shape)));
}

Result<Kernel> prepare(const NodeTypes& types) {
  const Type& x = types.inputs[0];
  TRY(require_kernel_type(types.target, x.dtype));
  const Layout l = layout_of(x.shape, TRY(axis_of(types.attrs, x.shape)));
  if (l.rows == 0 || l.cols == 0) return no_work("layer_norm");
  const double epsilon = types.attrs.real("epsilon", 1e-5);
  const bool mean = types.wants(1), inv_std = types.wants(2), bias = types.has(2);
  return Kernel{"layer_norm", 0,
                [dtype = x.dtype, parameters = types.inputs[1].dtype, l, epsilon, mean, inv_std,
                 bias](const LaunchArgs& args) {
                  args.on.layer_norm({dtype, l.rows, l.cols, epsilon, args.inputs[0], args.inputs[1],
                                      bias ? args.inputs[2] : nullptr, args.outputs[0],
                                      mean ? args.outputs[1] : nullptr, inv_std ? args.outputs[2] : nullptr,
                                      true, parameters});
                }};
}

Status infer_grad(InferContext& ctx) {
  TRY(require_inputs(ctx, 5));
  TRY(require_float(ctx, 1, "x"));
  TRY(require_parameter(ctx, 2, "scale", 2));
  for (std::size_t i : {3u, 4u}) TRY(require_statistic(ctx, i, "mean and inv_std"));
  TRY(axis_of(ctx.attrs, ctx.shape(0)));
  if (ctx.has(5) && ctx.in(5) != ctx.in(0))
    return infer_error("added must be " + to_string(ctx.in(0)) + ", it is " + to_string(ctx.in(5)));
  return set_outputs(ctx, {ctx.in(0), ctx.in(2), ctx.in(2)});
}

Result<Kernel> prepare_grad(const NodeTypes& types) {
  const Type& x = types.inputs[1];
  TRY(require_kernel_type(types.target, x.dtype));
  const Layout l = layout_of(x.shape, TRY(axis_of(types.attrs, x.shape)));
  kernels::LayerNormGradArgs layout{};
  layout.dtype = x.dtype;
  layout.rows = l.rows;
  layout.cols = l.cols;
  layout.parameters = types.inputs[2].dtype;
  const bool scale = types.wants(1), bias = types.wants(2), added = types.has(5);
  return Kernel{"layer_norm_grad", kernels::workspace_bytes(types.target, layout),
                [layout, scale, bias, added](const LaunchArgs& args) {
                  kernels::LayerNormGradArgs a = layout;
                  a.dy = args.inputs[0];
                  a.x = args.inputs[1];
                  a.scale = args.inputs[2];
                  a.mean = args.inputs[3];
                  a.inv_std = args.inputs[4];
                  a.dx = args.outputs[0];
                  a.dscale = scale ? args.outputs[1] : nullptr;
                  a.dbias = bias ? args.outputs[2] : nullptr;
                  a.workspace = args.workspace;
                  a.added = added ? args.inputs[5] : nullptr;
                  args.on.layer_norm_grad(a);
                }};
}

Attrs axis(std::int64_t value) { return {{"axis", value}}; }

std::vector<Sample> samples() {
  return {
      {.name = "last-axis", .inputs = {floats({3, 7}, -2, 3), floats({7}), floats({7})}},
      {.name = "no-bias", .inputs = {floats({2, 3, 5}), floats({5})}},
      {.name = "two-axes", .attrs = axis(1), .inputs = {floats({2, 3, 4}), floats({3, 4}), floats({3, 4})}},
      {.name = "all-axes",
       .attrs = {{"axis", std::int64_t{-2}}, {"epsilon", 0.1}},
       .inputs = {floats({3, 4}), floats({3, 4}), floats({3, 4})}},
      {.name = "statistics",
       .attrs = axis(-1),
       .inputs = {floats({4, 6}), floats({6}), floats({6})},
       .output_count = 3},
      {.name = "wide-parameters",
       .inputs = {floats({5, 8}, -2, 3), statistic({8}, 0.5, 1.5), statistic({8}, -1, 1)}},
      {.name = "transformer", .inputs = {floats({1024, 512}), floats({512}), floats({512})}, .bench = true},
  };
}

std::vector<Sample> samples_grad() {
  return {
      {.name = "last-axis",
       .attrs = axis(-1),
       .inputs = {floats({3, 7}), floats({3, 7}), floats({7}), statistic({3, 1}, -0.1, 0.1),
                  statistic({3, 1}, 0.8, 1.2)},
       .output_count = 3},
      {.name = "input-only",
       .attrs = axis(1),
       .inputs = {floats({2, 3, 4}), floats({2, 3, 4}), floats({3, 4}), statistic({2, 1, 1}, -0.1, 0.1),
                  statistic({2, 1, 1}, 0.8, 1.2)}},
      {.name = "wide-parameters",
       .attrs = axis(-1),
       .inputs = {floats({5, 8}), floats({5, 8}), statistic({8}, 0.5, 1.5), statistic({5, 1}, -0.1, 0.1),
                  statistic({5, 1}, 0.8, 1.2)},
       .output_count = 3},
      {.name = "residual",
       .attrs = axis(-1),
       .inputs = {floats({5, 8}), floats({5, 8}), statistic({8}, 0.5, 1.5), statistic({5, 1}, -0.1, 0.1),
                  statistic({5, 1}, 0.8, 1.2), floats({5, 8})},
       .output_count = 3},
      {.name = "transformer",
       .attrs = axis(-1),
       .inputs = {floats({1024, 512}), floats({1024, 512}), floats({512}), statistic({1024, 1}, -0.1, 0.1),
                  statistic({1024, 1}, 0.8, 1.2)},
       .output_count = 3,
       .bench = true},
  };
}

}  // namespace

const OpDef layer_normalization_op = {
    .name = "LayerNormalization",
    .since = 17,
    .summary = "Normalizes each row to mean 0 and variance 1, then scales and shifts.",
    .traits = kOptionalOutputs,
    .min_inputs = 2,
    .max_inputs = 3,
    .max_outputs = 3,
    .infer = infer,
    .grad = grad,
    .cost = cost,
    .cpu = prepare,
    .gpu = prepare,
    .samples = samples,
    .inplace_input = 0,
};

const OpDef layer_norm_grad_op = {
    .name = "LayerNormGrad",
    .domain = "gradloom",
    .summary = "Gradient of LayerNormalization from its saved statistics.",
    .min_inputs = 5,
    .max_inputs = 6,
    .max_outputs = 3,
    .infer = infer_grad,
    .cost = cost_grad,
    .cpu = prepare_grad,
    .gpu = prepare_grad,
    .samples = samples_grad,
    .inplace_input = 0,
};

}  // namespace gradloom
