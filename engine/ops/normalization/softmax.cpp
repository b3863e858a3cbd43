// Softmax, LogSoftmax and their gradient row.
//   y = exp(x - max) / sum(exp(x - max)), or its logarithm, over n of x seen as [outer, n, inner]
//   opset 13: n is the dim `axis` (default -1).  opset 1..12: x is coerced to 2-d at `axis` (default 1), n is
//   the product of the dims from `axis` on and inner is 1. SoftmaxGrad(dy, y): dx = y * (dy - sum(dy * y));
//   with log: dx = dy - exp(y) * sum(dy)
//   safe (ours, of Softmax; passes/fuse_safe_softmax.cpp): of n times -inf y is 0, and so dx, not NaN
// Source: ONNX Softmax-11, Softmax-13.
#include "engine/ops/costs.h"
#include "engine/ops/dims.h"
#include "engine/ops/inference.h"
#include "engine/ops/preparation.h"
#include "engine/ops/samples.h"
#include "engine/ops/rows.h"
#include "kernels/launcher.h"

namespace gradloom {
namespace {

constexpr std::int64_t kOn = 1;

struct Layout {
  std::int64_t outer, n, inner;
};

Layout layout_of(const Shape& shape, std::int64_t axis, bool flatten) {
  const auto a = static_cast<std::size_t>(axis);
  if (flatten) return {dim_product(shape, 0, a), dim_product(shape, a, shape.size()), 1};
  return {dim_product(shape, 0, a), shape[a], dim_product(shape, a + 1, shape.size())};
}

// Opset 1..12 allow axis == rank in no case; a scalar has no axis at all.
Result<std::int64_t> axis_of(const Attrs& attrs, std::size_t rank, bool flatten) {
  auto axis = normalized_axis(attrs.integer("axis", flatten ? 1 : -1), rank);
  return axis;
}

template <bool flatten>
Status infer(InferContext& ctx) {
  TRY(require_inputs(ctx, 1));
  if (!is_float(ctx.dtype(0))) return infer_error(std::string("the input is ") + dtype_name(ctx.dtype(0)));
  TRY(axis_of(ctx.attrs, ctx.shape(0).size(), flatten));
  return set_outputs(ctx, {ctx.in(0)});
}

template <bool log, bool flatten>
Status grad(GradContext& ctx) {
  Attrs attrs{{"axis", TRY(axis_of(ctx.node.attrs, ctx.shape(ctx.in(0)).size(), flatten))}};
  if (log) attrs.set("log", kOn);
  if (flatten) attrs.set("flatten", kOn);
  ctx.set(0, ctx.b.op("SoftmaxGrad", {ctx.grad(), ctx.out(0)}, std::move(attrs)));
  return {};
}

// exp, subtraction, two reductions, division.
Cost cost(const NodeTypes& types) {
  return cost_of(types, 5.0 * static_cast<double>(element_count(types.outputs[0].shape)));
}

template <bool log, bool flatten>
Result<Kernel> prepare(const NodeTypes& types) {
  const Type& x = types.inputs[0];
  const Layout l = layout_of(x.shape, TRY(axis_of(types.attrs, x.shape.size(), flatten)), flatten);
  TRY(require_kernel_type(types.target, x.dtype, l.inner == 1));
  if (l.outer * l.n * l.inner == 0) return no_work("softmax");
  const bool safe = !log && types.attrs.integer("safe") != 0;
  return Kernel{log ? "log_softmax" : "softmax", 0, [dtype = x.dtype, l, safe](const LaunchArgs& args) {
                  args.on.softmax({dtype, log, l.outer, l.n, l.inner, args.inputs[0], args.outputs[0], safe});
                }};
}

Status infer_grad(InferContext& ctx) {
  TRY(require_inputs(ctx, 2));
  TRY(require_float(ctx, 1, "y"));
  TRY(axis_of(ctx.attrs, ctx.shape(0).size(), ctx.attrs.integer("flatten") != 0));
  return set_outputs(ctx, {ctx.in(0)});
}

Result<Kernel> prepare_grad(const NodeTypes& types) {
  const Type& dy = types.inputs[0];
  const bool flatten = types.attrs.integer("flatten") != 0, log = types.attrs.integer("log") != 0;
  const Layout l = layout_of(dy.shape, TRY(axis_of(types.attrs, dy.shape.size(), flatten)), flatten);
  TRY(require_kernel_type(types.target, dy.dtype, l.inner == 1));
  if (l.outer * l.n * l.inner == 0) return no_work("softmax_grad");
  return Kernel{log ? "log_softmax_grad" : "softmax_grad", 0,
                [dtype = dy.dtype, log, l](const LaunchArgs& args) {
                  args.on.softmax_grad(
                      {dtype, log, l.outer, l.n, l.inner, args.inputs[0], args.inputs[1], args.outputs[0]});
                }};
}

Attrs axis(std::int64_t value) { return {{"axis", value}}; }

std::vector<Sample> samples() {
  return {
      {.name = "last-axis", .attrs = axis(-1), .inputs = {floats({3, 7}, -4, 4)}},
      {.name = "inner-axis", .attrs = axis(1), .inputs = {floats({2, 5, 3}, -2, 2)}},
      {.name = "first-axis", .attrs = axis(0), .inputs = {floats({4, 3}, -2, 2)}},
      {.name = "default", .inputs = {floats({2, 3, 4}, -2, 2)}},
      {.name = "large", .inputs = {floats({2, 6}, 85, 95)}},
      {.name = "one-class", .inputs = {floats({4, 1})}},
      {.name = "safe", .attrs = {{"safe", kOn}}, .inputs = {floats({3, 5})}},
      {.name = "attention", .inputs = {floats({8, 8, 128, 128})}, .bench = true},
  };
}

std::vector<Sample> samples_grad() {
  return {
      {.name = "last-axis", .attrs = axis(-1), .inputs = {floats({3, 7}), floats({3, 7}, 0.01, 0.3)}},
      {.name = "inner-axis", .attrs = axis(1), .inputs = {floats({2, 5, 3}), floats({2, 5, 3}, 0.01, 0.3)}},
      {.name = "log",
       .attrs = {{"axis", std::int64_t{-1}}, {"log", kOn}},
       .inputs = {floats({3, 7}), floats({3, 7}, -3, -0.5)}},
      {.name = "flatten",
       .attrs = {{"axis", kOn}, {"flatten", kOn}},
       .inputs = {floats({2, 3, 4}), floats({2, 3, 4}, 0.01, 0.3)}},
      {.name = "attention",
       .inputs = {floats({8, 8, 128, 128}), floats({8, 8, 128, 128}, 0, 0.01)},
       .bench = true},
      {.name = "log-attention",
       .attrs = {{"axis", std::int64_t{-1}}, {"log", kOn}},
       .inputs = {floats({8, 8, 128, 128}), floats({8, 8, 128, 128}, -6, -4)},
       .bench = true},
  };
}

constexpr OpDef softmax_row(const char* name, int since, int until, const char* summary, InferFn infer_fn,
                            GradFn grad_fn, PrepareFn prepare_fn, Precision precision) {
  OpDef row{.name = name};
  row.since = since;
  row.until = until;
  row.summary = summary;
  row.infer = infer_fn;
  row.grad = grad_fn;
  row.cost = cost;
  row.cpu = prepare_fn;
  row.gpu = prepare_fn;
  row.samples = samples;
  row.precision = precision;
  row.inplace_input = 0;
  return row;
}

constexpr const char* kSoftmax = "Exponentials normalized to sum to one.";
constexpr const char* kLogSoftmax = "Logarithm of the softmax.";

}  // namespace

const OpDef softmax_1_op = softmax_row("Softmax", 1, 12, kSoftmax, infer<true>, grad<false, true>,
                                       prepare<false, true>, Precision::follow);
const OpDef softmax_13_op = softmax_row("Softmax", 13, 1000, kSoftmax, infer<false>, grad<false, false>,
                                        prepare<false, false>, Precision::follow);
const OpDef log_softmax_1_op = softmax_row("LogSoftmax", 1, 12, kLogSoftmax, infer<true>, grad<true, true>,
                                           prepare<true, true>, Precision::full);
const OpDef log_softmax_13_op = softmax_row("LogSoftmax", 13, 1000, kLogSoftmax, infer<false>,
                                            grad<true, false>, prepare<true, false>, Precision::full);

const OpDef softmax_grad_op = {
    .name = "SoftmaxGrad",
    .domain = "gradloom",
    .summary = "Gradient of Softmax and LogSoftmax from their result.",
    .min_inputs = 2,
    .max_inputs = 2,
    .max_outputs = 1,
    .infer = infer_grad,
    .cost = cost,
    .cpu = prepare_grad,
    .gpu = prepare_grad,
    .samples = samples_grad,
    .inplace_input = 0,
};

}  // namespace gradloom
