// NegativeLogLikelihoodLoss and its gradient row.
//   log_prob: [n, classes, d..], labels: [n, d..], weight: [classes] or omitted
//   loss[i, j] = -weight[label] * log_prob[i, label, j]
//   reduction none | sum | mean (divides by the summed weights)
//   output 1 (ours): total weight, a scalar for the gradient; f32 where log_prob is bf16
//   NllLossGrad(dloss, labels, weight, total_weight) -> dlog_prob of shape input_shape:
//     -weight[label] * dloss (/ total_weight) at the label, 0 elsewhere
// Rows labelled ignore_index add nothing. Source: ONNX NegativeLogLikelihoodLoss-13.
#include "engine/ops/input_roles.h"
#include "engine/ops/losses/label_losses.h"
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

Status infer(InferContext& ctx) {
  TRY(require_inputs(ctx, 2));
  TRY(check_loss_inputs(ctx, 0, 1, 2, ctx.dtype(0)));
  const auto reduction = TRY(loss_reduction(ctx.attrs));
  return set_outputs(
      ctx, {{ctx.dtype(0), loss_shape(reduction, ctx.shape(1))}, {statistics_type(ctx.dtype(0)), {}}});
}

Status grad(GradContext& ctx) {
  TRY(require_first_output_only(ctx));
  TRY(require_static(ctx, ctx.in(0)));
  Attrs attrs = loss_attrs(ctx.node.attrs);
  attrs.set("input_shape", ctx.shape(ctx.in(0)));
  const ValueId total = ctx.require_out(1);
  if (ctx.wants(0))
    ctx.set(0, ctx.b.op("NllLossGrad", {ctx.grad(), ctx.in(1), ctx.in(2), total}, std::move(attrs)));
  if (ctx.wants(2)) ctx.set(2, TRY(class_weight_gradient(ctx, 1)));
  return {};
}

Cost cost(const NodeTypes& types) {
  Cost c = default_cost(types);
  c.flops = 3.0 * static_cast<double>(element_count(types.inputs[1].shape));
  return c;
}

Result<Kernel> prepare(const NodeTypes& types) {
  const Type& x = types.inputs[0];
  TRY(require_kernel_type(types.target, x.dtype));
  const LossLayout l = TRY(loss_layout(types.attrs, x.shape));
  kernels::NllLossArgs layout{};
  layout.dtype = x.dtype;
  layout.label_dtype = types.inputs[1].dtype;
  layout.reduction = l.reduction;
  layout.outer = l.outer;
  layout.n = l.n;
  layout.inner = l.inner;
  layout.has_ignore = l.has_ignore;
  layout.ignore_index = l.ignore_index;
  const bool weight = types.has(2), total = types.wants(1);
  return Kernel{"nll_loss", kernels::workspace_bytes(types.target, layout),
                [layout, weight, total](const LaunchArgs& args) {
                  kernels::NllLossArgs a = layout;
                  a.log_prob = args.inputs[0];
                  a.labels = args.inputs[1];
                  a.weight = weight ? args.inputs[2] : nullptr;
                  a.loss = args.outputs[0];
                  a.total_weight = total ? args.outputs[1] : nullptr;
                  a.workspace = args.workspace;
                  args.on.nll_loss(a);
                }};
}

Status infer_grad(InferContext& ctx) {
  TRY(require_inputs(ctx, 2));
  Shape x = ctx.attrs.integers("input_shape");
  const Shape& labels = ctx.shape(1);
  if (x.size() < 2 || !is_static(x) || labels.size() + 1 != x.size() || dims_differ(labels[0], x[0]))
    return infer_error("input_shape " + to_string(x) + " does not fit labels " + to_string(labels));
  TRY(loss_reduction(ctx.attrs));
  if (ctx.has(3)) TRY(require_statistic(ctx, 3, "the total weight"));
  return set_outputs(ctx, {{ctx.dtype(0), std::move(x)}});
}

Cost cost_grad(const NodeTypes& types) {
  return cost_of(types, 2.0 * static_cast<double>(element_count(types.inputs[1].shape)));
}

Result<Kernel> prepare_grad(const NodeTypes& types) {
  const DType dtype = types.inputs[0].dtype;
  TRY(require_kernel_type(types.target, dtype));
  const LossLayout l = TRY(loss_layout(types.attrs, types.outputs[0].shape));
  return Kernel{"nll_loss_grad", 0,
                [dtype, label = types.inputs[1].dtype, l, weight = types.has(2)](const LaunchArgs& args) {
                  args.on.nll_loss_grad({dtype, label, l.reduction, l.outer, l.n, l.inner, l.has_ignore,
                                         l.ignore_index, args.inputs[0], args.inputs[1],
                                         weight ? args.inputs[2] : nullptr, args.inputs[3], args.outputs[0]});
                }};
}

const std::string kNoneText = "none", kSum = "sum", kMean = "mean";

std::vector<Sample> samples() {
  const SampleInput labels = exact(DType::i64, {5}, {2, 0, 1, 2, 2});
  const SampleInput labels_2d = exact(DType::i32, {2, 3}, {0, 3, 1, 2, -1, 3});
  return {
      {.name = "mean", .inputs = {floats({5, 3}), labels}},
      {.name = "sum-weight",
       .attrs = {{"reduction", kSum}},
       .inputs = {floats({5, 3}), labels, floats({3}, 0.5, 2)}},
      {.name = "none-ignore",
       .attrs = {{"reduction", kNoneText}, {"ignore_index", std::int64_t{-1}}},
       .inputs = {floats({2, 4, 3}), labels_2d}},
      {.name = "mean-weight-ignore",
       .attrs = {{"reduction", kMean}, {"ignore_index", std::int64_t{-1}}},
       .inputs = {floats({2, 4, 3}), labels_2d, floats({4}, 0.5, 2)}},
      {.name = "total-weight", .inputs = {floats({5, 3}), labels, floats({3}, 0.5, 2)}, .output_count = 2},
  };
}

std::vector<Sample> samples_grad() {
  const SampleInput labels = exact(DType::i64, {5}, {2, 0, 1, 2, 2});
  return {
      {.name = "mean",
       .attrs = {{"input_shape", std::vector<std::int64_t>{5, 3}}},
       .inputs = {floats({}), labels, omitted(), statistic({}, 5, 5)}},
      {.name = "none-weight",
       .attrs = {{"reduction", kNoneText}, {"input_shape", std::vector<std::int64_t>{5, 3}}},
       .inputs = {floats({5}), labels, floats({3}, 0.5, 2), statistic({}, 5, 5)}},
  };
}

}  // namespace

const OpDef negative_log_likelihood_loss_op = {
    .name = "NegativeLogLikelihoodLoss",
    .since = 12,
    .summary = "Negative log-probability of the label, averaged or summed.",
    .traits = kOptionalOutputs,
    .min_inputs = 2,
    .max_inputs = 3,
    .max_outputs = 2,
    .infer = infer,
    .grad = grad,
    .cost = cost,
    .cpu = prepare,
    .gpu = prepare,
    .samples = samples,
    .precision = Precision::full,
    .roles = kLabelsSecond,
};

const OpDef nll_loss_grad_op = {
    .name = "NllLossGrad",
    .domain = "gradloom",
    .summary = "Gradient of NegativeLogLikelihoodLoss.",
    .min_inputs = 4,
    .max_inputs = 4,
    .infer = infer_grad,
    .cost = cost_grad,
    .cpu = prepare_grad,
    .gpu = prepare_grad,
    .samples = samples_grad,
};

}  // namespace gradloom
