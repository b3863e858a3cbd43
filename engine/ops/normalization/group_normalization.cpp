// GroupNormalization, InstanceNormalization and their gradient row.
//   x, y: [n, c, spatial..], the c channels in `groups` equal groups (InstanceNormalization: one channel each)
//   mean, inv_std = 1 / sqrt(variance + epsilon) of every group of every image, y = (x - mean) * inv_std * scale + bias
//   scale, bias: [c], before opset 21 GroupNormalization's are [groups]. Outputs 1, 2 (ours): mean, inv_std [n, groups]
//   GroupNormGrad(dy, x, scale [c], mean, inv_std) -> dx, dscale [c], dbias [c]
// Source: ONNX GroupNormalization-18 and -21, InstanceNormalization-6. scale and bias may be f32 where x is
// bf16; the statistics are f32 then.
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

enum class Form { instance, scale_per_group, scale_per_channel };

std::int64_t groups_of(Form form, const Attrs& attrs, const Shape& x) {
  return form == Form::instance ? x[1] : attrs.integer("num_groups");
}

template <Form form>
Status infer(InferContext& ctx) {
  TRY(require_inputs(ctx, 3));
  const Shape& x = ctx.shape(0);
  if (x.size() < 3 && (form == Form::instance || x.size() < 2))
    return infer_error("input " + to_string(x) + " must have 3 or more dims");
  const std::int64_t groups = groups_of(form, ctx.attrs, x);
  if (form != Form::instance && (groups < 1 || (x[1] >= 0 && x[1] % groups != 0)))
    return infer_error("num_groups " + std::to_string(groups) + " does not divide the channels of " +
                       to_string(x));
  const std::int64_t values = form == Form::scale_per_group ? groups : x[1];
  for (std::size_t i : {1u, 2u}) {
    const char* what = i == 1 ? "scale" : "bias";
    TRY(require_parameter(ctx, i, what));
    if (ctx.shape(i).size() != 1 || dims_differ(ctx.shape(i)[0], values))
      return infer_error(std::string(what) + " " + to_string(ctx.shape(i)) + " does not fit " + to_string(x));
  }
  const Type statistic{statistics_type(ctx.dtype(0)), {x[0], groups}};
  return set_outputs(ctx, {ctx.in(0), statistic, statistic});
}

// scale or bias of [groups] as one of every channel.
ValueId per_channel(GradContext& ctx, ValueId values, std::int64_t groups, std::int64_t channels) {
  GraphBuilder& b = ctx.b;
  const ValueId spread =
      b.op("Expand", {b.reshape(values, {groups, 1}), b.i64s({groups, channels / groups})});
  return b.reshape(spread, {channels});
}

template <Form form>
Status grad(GradContext& ctx) {
  TRY(require_first_output_only(ctx));
  const Shape x = ctx.shape(ctx.in(0));
  const bool grouped = form == Form::scale_per_group;
  if (grouped && x[1] < 0) TRY(require_static(ctx, ctx.in(0)));
  const std::int64_t groups = groups_of(form, ctx.node.attrs, x);
  const ValueId mean = ctx.require_out(1), inv_std = ctx.require_out(2);
  const ValueId scale = grouped ? per_channel(ctx, ctx.in(1), groups, x[1]) : ctx.in(1);
  const auto grads = ctx.b.ops(op_by_name("GroupNormGrad"), {ctx.grad(), ctx.in(0), scale, mean, inv_std}, {},
                               ctx.wants(1) || ctx.wants(2) ? 3 : 1);
  if (ctx.wants(0)) ctx.set(0, grads[0]);
  for (std::size_t i : {1u, 2u}) {
    if (!ctx.wants(i)) continue;
    ValueId g = grads[i];
    if (grouped) {
      g = ctx.b.op("Reshape", {g, ctx.b.i64s({groups, -1})});
      g = ctx.b.op("ReduceSum", {g, ctx.b.i64s({1})}, {{"keepdims", std::int64_t{0}}});
    }
    ctx.set(i, g);
  }
  return {};
}

Cost cost(const NodeTypes& types) {
  return cost_of(types, 8.0 * static_cast<double>(element_count(types.inputs[0].shape)));
}
Cost cost_grad(const NodeTypes& types) {
  return cost_of(types, 14.0 * static_cast<double>(element_count(types.inputs[0].shape)));
}

// values [groups] -> [channels], each as often as a group has channels.
kernels::StridedCopyArgs spread_args(DType dtype, std::int64_t groups, std::int64_t channels) {
  kernels::StridedCopyArgs copy{};
  copy.element_bytes = dtype_bytes(dtype);
  copy.rank = 2;
  copy.dims[0] = groups;
  copy.dims[1] = channels;
  copy.in_strides[0] = 1;
  copy.out_strides[0] = channels;
  copy.out_strides[1] = 1;
  return copy;
}

template <Form form>
Result<Kernel> prepare(const NodeTypes& types) {
  const Type& x = types.inputs[0];
  TRY(require_kernel_type(types.target, x.dtype));
  if (element_count(x.shape) == 0) return no_work("group_norm");
  kernels::GroupNormArgs layout{};
  layout.dtype = x.dtype;
  layout.n = x.shape[0];
  layout.groups = groups_of(form, types.attrs, x.shape);
  layout.channels = x.shape[1] / layout.groups;
  layout.spatial = dim_product(x.shape, 2, x.shape.size());
  layout.epsilon = types.attrs.real("epsilon", 1e-5);
  layout.parameters = types.inputs[1].dtype;
  // The workspace takes scale and bias of every channel.
  const bool mean = types.wants(1), inv_std = types.wants(2), grouped = form == Form::scale_per_group;
  const std::size_t values = aligned_bytes(layout.parameters, x.shape[1]);
  return Kernel{form == Form::instance ? "instance_norm" : "group_norm", grouped ? 2 * values : 0,
                [layout, mean, inv_std, grouped, values](const LaunchArgs& args) {
                  kernels::GroupNormArgs a = layout;
                  auto* spare = static_cast<std::byte*>(args.workspace);
                  a.x = args.inputs[0];
                  a.scale = args.inputs[1];
                  a.bias = args.inputs[2];
                  a.y = args.outputs[0];
                  a.mean = mean ? args.outputs[1] : nullptr;
                  a.inv_std = inv_std ? args.outputs[2] : nullptr;
                  if (grouped) {
                    kernels::StridedCopyArgs copy = spread_args(a.parameters, a.groups, a.channels);
                    for (const void** value : {&a.scale, &a.bias}) {
                      copy.in = *value;
                      *value = copy.out = spare + (value == &a.bias ? values : 0);
                      args.on.strided_copy(copy);
                    }
                  }
                  args.on.group_norm(a);
                }};
}

Status infer_grad(InferContext& ctx) {
  TRY(require_inputs(ctx, 5));
  TRY(require_float(ctx, 1, "x"));
  TRY(require_parameter(ctx, 2, "scale", 2));
  for (std::size_t i : {3u, 4u}) TRY(require_statistic(ctx, i, "mean and inv_std"));
  if (ctx.shape(0).size() < 2 || ctx.shape(3).size() != 2)
    return infer_error("dy " + to_string(ctx.shape(0)) + " and mean " + to_string(ctx.shape(3)) +
                       " must be [n, c, ..] and [n, groups]");
  return set_outputs(ctx, {ctx.in(0), ctx.in(2), ctx.in(2)});
}

Result<Kernel> prepare_grad(const NodeTypes& types) {
  const Type& x = types.inputs[1];
  TRY(require_kernel_type(types.target, x.dtype));
  if (element_count(x.shape) == 0) return no_kernel("no kernel for an empty batch");
  kernels::GroupNormGradArgs layout{};
  layout.dtype = x.dtype;
  layout.n = x.shape[0];
  layout.groups = types.inputs[3].shape[1];
  layout.channels = x.shape[1] / layout.groups;
  layout.spatial = dim_product(x.shape, 2, x.shape.size());
  layout.parameters = types.inputs[2].dtype;
  const bool scale = types.wants(1), bias = types.wants(2);
  return Kernel{"group_norm_grad", kernels::workspace_bytes(types.target, layout),
                [layout, scale, bias](const LaunchArgs& args) {
                  kernels::GroupNormGradArgs a = layout;
                  a.dy = args.inputs[0];
                  a.x = args.inputs[1];
                  a.scale = args.inputs[2];
                  a.mean = args.inputs[3];
                  a.inv_std = args.inputs[4];
                  a.dx = args.outputs[0];
                  a.dscale = scale ? args.outputs[1] : nullptr;
                  a.dbias = bias ? args.outputs[2] : nullptr;
                  a.workspace = args.workspace;
                  args.on.group_norm_grad(a);
                }};
}

Attrs groups(std::int64_t count) { return {{"num_groups", count}}; }

template <Form form>
std::vector<Sample> samples() {
  const auto inputs = [](Shape x, std::int64_t values) {
    return std::vector<SampleInput>{floats(std::move(x), -2, 3), floats({values}, 0.5, 1.5),
                                    floats({values})};
  };
  if (form == Form::instance)
    return {
        {.name = "plain", .inputs = inputs({2, 3, 4, 5}, 3)},
        {.name = "one-dim", .attrs = {{"epsilon", 0.1}}, .inputs = inputs({3, 2, 7}, 2)},
        {.name = "statistics", .inputs = inputs({2, 2, 3, 2, 2}, 2), .output_count = 3},
        {.name = "style", .inputs = inputs({4, 64, 128, 128}, 64), .bench = true},
    };
  const bool grouped = form == Form::scale_per_group;
  return {
      {.name = "plain", .attrs = groups(2), .inputs = inputs({2, 6, 3, 4}, grouped ? 2 : 6)},
      {.name = "one-group",
       .attrs = {{"num_groups", std::int64_t{1}}, {"epsilon", 0.1}},
       .inputs = inputs({3, 4, 5}, grouped ? 1 : 4)},
      {.name = "group-per-channel", .attrs = groups(3), .inputs = inputs({2, 3, 2, 2, 3}, 3)},
      {.name = "no-spatial-dims", .attrs = groups(2), .inputs = inputs({3, 8}, grouped ? 2 : 8)},
      {.name = "statistics",
       .attrs = groups(3),
       .inputs = inputs({2, 6, 5}, grouped ? 3 : 6),
       .output_count = 3},
      {.name = "wide-parameters",
       .attrs = groups(2),
       .inputs = {floats({2, 6, 4}, -2, 3), statistic({grouped ? 2 : 6}, 0.5, 1.5),
                  statistic({grouped ? 2 : 6}, -1, 1)}},
      {.name = "unet",
       .attrs = groups(32),
       .inputs = inputs({4, 256, 32, 32}, grouped ? 32 : 256),
       .bench = true},
  };
}

std::vector<Sample> samples_grad() {
  const auto inputs = [](const Shape& x, std::int64_t count) {
    return std::vector<SampleInput>{floats(x), floats(x), floats({x[1]}, 0.5, 1.5),
                                    statistic({x[0], count}, -0.1, 0.1), statistic({x[0], count}, 0.8, 1.3)};
  };
  return {
      {.name = "plain", .inputs = inputs({2, 6, 3, 4}, 2), .output_count = 3},
      {.name = "input-only", .inputs = inputs({3, 4, 5}, 4)},
      {.name = "unet", .inputs = inputs({4, 256, 32, 32}, 32), .output_count = 3, .bench = true},
  };
}

template <Form form>
constexpr OpDef row(const char* name, int since, int until, const char* summary) {
  OpDef r{.name = name};
  r.since = since;
  r.until = until;
  r.summary = summary;
  r.traits = kOptionalOutputs;
  r.min_inputs = r.max_inputs = 3;
  r.max_outputs = 3;
  r.infer = infer<form>;
  r.grad = grad<form>;
  r.cost = cost;
  r.cpu = prepare<form>;
  r.gpu = prepare<form>;
  r.samples = samples<form>;
  r.inplace_input = 0;
  return r;
}

}  // namespace

const OpDef instance_normalization_op = row<Form::instance>(
    "InstanceNormalization", 6, 1000, "Normalizes each channel of each image, then scales and shifts.");
const OpDef group_normalization_18_op = row<Form::scale_per_group>(
    "GroupNormalization", 18, 20,
    "Normalizes groups of channels of each image, then scales and shifts each group.");
const OpDef group_normalization_21_op = row<Form::scale_per_channel>(
    "GroupNormalization", 21, 1000,
    "Normalizes groups of channels of each image, then scales and shifts each channel.");

const OpDef group_norm_grad_op = {
    .name = "GroupNormGrad",
    .domain = "gradloom",
    .summary = "Gradient of GroupNormalization from its saved statistics.",
    .min_inputs = 5,
    .max_inputs = 5,
    .max_outputs = 3,
    .infer = infer_grad,
    .cost = cost_grad,
    .cpu = prepare_grad,
    .gpu = prepare_grad,
    .samples = samples_grad,
    .inplace_input = 0,
};

}  // namespace gradloom
