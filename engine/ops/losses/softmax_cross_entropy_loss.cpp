// SoftmaxCrossEntropyLoss and its gradient row.
//   logits: [n, classes, d..], labels: [n, d..], weight: [classes] or omitted
//   loss[i, j] = weight[label] * (log_sum_exp(logits[i, :, j]) - logits[i, label, j])
//   reduction none | sum | mean (divides by the summed weights)
//   output 1: log-softmax of the logits
//   outputs 2, 3 (ours): log_sum_exp [n, d..] and total weight (scalar), for the gradient
//   SoftmaxCrossEntropyGrad(dloss, logits, labels, weight, log_sum_exp, total_weight) ->
//     dlogits = (softmax - onehot) * weight[label] * dloss (/ total_weight)
// Attribute wide (ours): loss and weight are f32 where the logits are bf16, as outputs 2 and 3 always are.
// Rows labelled ignore_index add nothing. Source: ONNX SoftmaxCrossEntropyLoss-13.
#include "engine/ops/input_roles.h"
#include "engine/ops/losses/label_losses.h"
#include "engine/ops/costs.h"
#include "engine/ops/inference.h"
#include "engine/ops/preparation.h"
#include "engine/ops/samples.h"
#include "engine/ops/rows.h"
#include "kernels/launcher.h"

namespace gradloom {
namespace {

Status infer(InferContext& ctx) {
  TRY(require_inputs(ctx, 2));
  const DType statistic = statistics_type(ctx.dtype(0));
  const DType losses = ctx.attrs.integer("wide") != 0 ? statistic : ctx.dtype(0);
  TRY(check_loss_inputs(ctx, 0, 1, 2, losses));
  const auto reduction = TRY(loss_reduction(ctx.attrs));
  return set_outputs(
      ctx,
      {{losses, loss_shape(reduction, ctx.shape(1))}, ctx.in(0), {statistic, ctx.shape(1)}, {statistic, {}}});
}

Status grad(GradContext& ctx) {
  if (ctx.wants(2) && ctx.grad(0) != kNone) ctx.set(2, TRY(class_weight_gradient(ctx, 3)));
  if (!ctx.wants(0)) return {};
  ValueId dlogits = kNone;
  if (ctx.grad(0) != kNone) {
    const ValueId log_sum_exp = ctx.require_out(2), total = ctx.require_out(3);
    dlogits = ctx.b.op("SoftmaxCrossEntropyGrad",
                       {ctx.grad(0), ctx.in(0), ctx.in(1), ctx.in(2), log_sum_exp, total},
                       loss_attrs(ctx.node.attrs));
  }
  if (ctx.grad(1) != kNone) {  // the loss also depends on the log-probabilities
    const ValueId through = ctx.b.op("SoftmaxGrad", {ctx.grad(1), ctx.out(1)},
                                     {{"axis", std::int64_t{1}}, {"log", std::int64_t{1}}});
    dlogits = dlogits == kNone ? through : ctx.b.op("Add", {dlogits, through});
  }
  for (std::size_t i = 2; i < ctx.out_grads.size(); ++i)
    if (ctx.grad(i) != kNone)
      return Error{Errc::bad_input, "no gradient through output " + std::to_string(i)};
  ctx.set(0, dlogits);
  return {};
}

Cost cost(const NodeTypes& types) {
  return cost_of(types, 4.0 * static_cast<double>(element_count(types.inputs[0].shape)));
}
Cost cost_grad(const NodeTypes& types) {
  return cost_of(types, 4.0 * static_cast<double>(element_count(types.inputs[1].shape)));
}

// The CPU takes bf16 logits where the losses and the weights are f32.
bool all_else_is_f32(const NodeTypes& types, DType losses, std::size_t weight) {
  return losses == DType::f32 && (!types.has(weight) || types.inputs[weight].dtype == losses);
}

Result<Kernel> prepare(const NodeTypes& types) {
  const Type& x = types.inputs[0];
  TRY(require_kernel_type(types.target, x.dtype,
                          !types.wants(1) && all_else_is_f32(types, types.outputs[0].dtype, 2)));
  const LossLayout l = TRY(loss_layout(types.attrs, x.shape));
  kernels::SoftmaxCrossEntropyArgs layout{};
  layout.dtype = x.dtype;
  layout.label_dtype = types.inputs[1].dtype;
  layout.reduction = l.reduction;
  layout.outer = l.outer;
  layout.n = l.n;
  layout.inner = l.inner;
  layout.has_ignore = l.has_ignore;
  layout.ignore_index = l.ignore_index;
  layout.losses = types.outputs[0].dtype;
  // Workspace: the kernel's, then the outputs that nobody asked for.
  const std::size_t own = aligned_bytes(kernels::workspace_bytes(types.target, layout));
  const std::size_t rows = aligned_bytes(statistics_type(x.dtype), l.outer * l.inner);
  const bool weight = types.has(2), log_prob = types.wants(1), lse = types.wants(2), total = types.wants(3);
  return Kernel{log_prob ? "softmax_cross_entropy + log_softmax" : "softmax_cross_entropy", own + rows + 64,
                [layout, own, rows, weight, log_prob, lse, total](const LaunchArgs& args) {
                  auto* spare = static_cast<std::byte*>(args.workspace) + own;
                  kernels::SoftmaxCrossEntropyArgs a = layout;
                  a.logits = args.inputs[0];
                  a.labels = args.inputs[1];
                  a.weight = weight ? args.inputs[2] : nullptr;
                  a.loss = args.outputs[0];
                  a.log_sum_exp = lse ? args.outputs[2] : spare;
                  a.total_weight = total ? args.outputs[3] : spare + rows;
                  a.workspace = args.workspace;
                  args.on.softmax_cross_entropy(a);
                  if (log_prob)
                    args.on.softmax({a.dtype, true, a.outer, a.n, a.inner, a.logits, args.outputs[1]});
                }};
}

Status infer_grad(InferContext& ctx) {
  TRY(require_inputs(ctx, 3));
  TRY(check_loss_inputs(ctx, 1, 2, 3, ctx.dtype(0)));
  const DType statistic = statistics_type(ctx.dtype(1));
  if (ctx.dtype(0) != ctx.dtype(1) && ctx.dtype(0) != statistic)
    return infer_error(std::string("the gradient of the loss is ") + dtype_name(ctx.dtype(0)) +
                       ", the logits are " + dtype_name(ctx.dtype(1)));
  for (std::size_t i : {4u, 5u})
    if (ctx.has(i) && ctx.dtype(i) != statistic)
      return infer_error(std::string("log_sum_exp and total_weight must be ") + dtype_name(statistic));
  TRY(loss_reduction(ctx.attrs));
  return set_outputs(ctx, {ctx.in(1)});
}

Result<Kernel> prepare_grad(const NodeTypes& types) {
  const Type& x = types.inputs[1];
  TRY(require_kernel_type(types.target, x.dtype, all_else_is_f32(types, types.inputs[0].dtype, 3)));
  const LossLayout l = TRY(loss_layout(types.attrs, x.shape));
  return Kernel{"softmax_cross_entropy_grad", 0,
                [dtype = x.dtype, losses = types.inputs[0].dtype, label = types.inputs[2].dtype, l,
                 weight = types.has(3)](const LaunchArgs& args) {
                  args.on.softmax_cross_entropy_grad(
                      {dtype, label, l.reduction, l.outer, l.n, l.inner, l.has_ignore, l.ignore_index,
                       args.inputs[0], args.inputs[1], args.inputs[2], weight ? args.inputs[3] : nullptr,
                       args.inputs[4], args.inputs[5], args.outputs[0], losses});
                }};
}

const std::string kNoneText = "none", kSum = "sum";

std::vector<Sample> samples() {
  const SampleInput labels = exact(DType::i64, {5}, {2, 0, 1, 2, 2});
  const SampleInput labels_2d = exact(DType::i32, {2, 3}, {0, 3, 1, 2, -100, 3});
  const Attrs ignore{{"ignore_index", std::int64_t{-100}}};
  Attrs none = ignore;
  none.set("reduction", kNoneText);
  return {
      {.name = "mean", .inputs = {floats({5, 3}, -3, 3), labels}},
      {.name = "sum-weight",
       .attrs = {{"reduction", kSum}},
       .inputs = {floats({5, 3}, -3, 3), labels, floats({3}, 0.5, 2)}},
      {.name = "none-ignore", .attrs = none, .inputs = {floats({2, 4, 3}), labels_2d}},
      {.name = "mean-weight-ignore",
       .attrs = ignore,
       .inputs = {floats({2, 4, 3}), labels_2d, floats({4}, 0.5, 2)}},
      {.name = "wide",
       .attrs = {{"wide", std::int64_t{1}}},
       .inputs = {floats({5, 3}, -3, 3), labels, statistic({3}, 0.5, 2)}},
      {.name = "log-prob", .inputs = {floats({5, 3}, -3, 3), labels}, .output_count = 2},
      {.name = "all-outputs", .attrs = ignore, .inputs = {floats({2, 4, 3}), labels_2d}, .output_count = 4},
      {.name = "vocabulary", .inputs = {floats({1024, 8192}, -3, 3), ints({1024}, 0, 8191)}, .bench = true},
      {.name = "pixels",
       .inputs = {floats({4, 21, 128, 128}, -3, 3), ints({4, 128, 128}, 0, 20)},
       .bench = true},
  };
}

std::vector<Sample> samples_grad() {
  const SampleInput labels = exact(DType::i64, {5}, {2, 0, 1, -1, 2});
  const Attrs ignore{{"ignore_index", std::int64_t{-1}}};
  Attrs none = ignore;
  none.set("reduction", kNoneText);
  return {
      {.name = "mean",
       .attrs = ignore,
       .inputs = {floats({}), floats({5, 3}), labels, omitted(), statistic({5}, 0.9, 1.2),
                  statistic({}, 4, 4)}},
      {.name = "none-weight",
       .attrs = none,
       .inputs = {floats({5}), floats({5, 3}), labels, floats({3}, 0.5, 2), statistic({5}, 0.9, 1.2),
                  statistic({}, 4, 4)}},
      {.name = "wide",
       .attrs = ignore,
       .inputs = {statistic({}, -1, 1), floats({5, 3}), labels, statistic({3}, 0.5, 2),
                  statistic({5}, 0.9, 1.2), statistic({}, 4, 4)}},
      {.name = "vocabulary",
       .inputs = {floats({}), floats({1024, 8192}, -3, 3), ints({1024}, 0, 8191), omitted(),
                  statistic({1024}, 9, 10), statistic({}, 1024, 1024)},
       .bench = true},
  };
}

}  // namespace

const OpDef softmax_cross_entropy_loss_op = {
    .name = "SoftmaxCrossEntropyLoss",
    .since = 12,
    .summary = "Cross-entropy of the label under the softmax of the logits.",
    .traits = kOptionalOutputs,
    .min_inputs = 2,
    .max_inputs = 3,
    .max_outputs = 4,
    .infer = infer,
    .grad = grad,
    .cost = cost,
    .cpu = prepare,
    .gpu = prepare,
    .samples = samples,
    .precision = Precision::wide,
    .roles = kLabelsSecond,
};

const OpDef softmax_cross_entropy_grad_op = {
    .name = "SoftmaxCrossEntropyGrad",
    .domain = "gradloom",
    .summary = "Gradient of SoftmaxCrossEntropyLoss from the logits and their log-sum-exp.",
    .min_inputs = 6,
    .max_inputs = 6,
    .infer = infer_grad,
    .cost = cost_grad,
    .cpu = prepare_grad,
    .gpu = prepare_grad,
    .samples = samples_grad,
    .inplace_input = 1,
};

}  // namespace gradloom
