// What happens to gradients between backward pass and optimizer (ours):
//   GlobalNorm(g0, g1, ..) = sqrt(sum over all of sum(g^2)), a scalar of the type of those that are not of 16 bits;
//   without such ones of the type of all, or f32 with attribute full=1
//   ClipScale(norm) = min(1, max_norm / (norm + 1e-6)): the factor of torch.nn.utils.clip_grad_norm_ (1.13)
//   Accumulate(acc0, acc1, .., g0, g1, .., micro) = (micro == 0 ? 0 : acc) + g / count of each, written over acc, of all in one
//   kernel; micro: i64 scalar, number of the micro-batch. The accumulators have one type, a g may be f16 or bf16 where that is not
//   LossScale: what a step in f16 does with gradients of a loss that was multiplied by `scale`, by the rule of
//   torch.cuda.amp.GradScaler (1.13; _amp_update_scale_): where their norm is not finite the step is skipped and
//   the scale multiplied by `backoff`; after `interval` steps in a row that were made it is multiplied by
//   `growth`, if the product is finite. hysteresis: it falls from the so manieth step on that is skipped in a row; least, most:
//   where it ends to fall and to grow (0: nowhere).
//     inputs:  norm (of the scaled gradients), scale, good (steps made since the scale changed), skipped (in a
//              row), steps (made)
//     outputs: apply (was this step made?), factor for the gradients (1 / scale, with max_norm times ClipScale of
//              the true norm), the true norm; then the next scale, good, skipped and steps, over their inputs
#include "engine/ops/elementwise/code.h"
#include "engine/ops/costs.h"
#include "engine/ops/dims.h"
#include "engine/ops/inference.h"
#include "engine/ops/micro_batches.h"
#include "engine/ops/preparation.h"
#include "engine/ops/samples.h"
#include "engine/ops/rows.h"
#include "kernels/launcher.h"

#include <limits>
#include <optional>

namespace gradloom {
namespace {

using elementwise_code::Code;
using kernels::EwOp;

// ---- GlobalNorm -------------------------------------------------------------------------------------------

// The type of those that are not of 16 bits, f32 with attribute full, else what all are.
Status infer_norm(InferContext& ctx) {
  std::optional<DType> type;
  if (ctx.attrs.integer("full", 0) != 0) type = DType::f32;
  for (std::size_t i = 0; i < ctx.inputs.size(); ++i) {
    if (!ctx.has(i)) return infer_error("input " + std::to_string(i) + " is missing");
    if (!is_float(ctx.dtype(i)))
      return infer_error("input " + std::to_string(i) + " is " + to_string(ctx.in(i)));
    if (!is_half(ctx.dtype(i))) type = ctx.dtype(i);
  }
  for (std::size_t i = 0; i < ctx.inputs.size(); ++i)
    if (ctx.dtype(i) != type.value_or(ctx.dtype(0)) && !(type && is_half(ctx.dtype(i))))
      return infer_error("input " + std::to_string(i) + " is " + to_string(ctx.in(i)));
  return set_outputs(ctx, {{type.value_or(ctx.dtype(0)), {}}});
}

Cost cost_norm(const NodeTypes& types) {
  double elements = 0;
  for (const Type& type : types.inputs) elements += static_cast<double>(element_count(type.shape));
  return cost_of(types, 2 * elements);
}

Result<Kernel> prepare_norm(const NodeTypes& types) {
  TRY(require_kernel_type(types.target, types.outputs[0].dtype));
  std::vector<std::int64_t> sizes;
  std::vector<DType> dtypes;
  for (const Type& type : types.inputs) {
    sizes.push_back(element_count(type.shape));
    dtypes.push_back(type.dtype);
  }
  kernels::GlobalNormArgs layout{};
  layout.dtype = types.outputs[0].dtype;
  layout.count = as_dim(sizes.size());
  layout.sizes = sizes.data();
  const std::size_t workspace = kernels::workspace_bytes(types.target, layout);
  return Kernel{"global_norm", workspace, [layout, sizes, dtypes](const LaunchArgs& args) {
                  kernels::GlobalNormArgs a = layout;
                  a.sizes = sizes.data();
                  a.types = dtypes.data();
                  a.tensors = args.inputs;
                  a.out = args.outputs[0];
                  a.workspace = args.workspace;
                  args.on.global_norm(a);
                }};
}

SampleInput low(DType type, Shape shape) {
  SampleInput input = floats(std::move(shape));
  input.type.dtype = type;
  return input;
}

std::vector<Sample> samples_norm() {
  return {
      {.name = "one", .inputs = {floats({3, 5})}},
      {.name = "three", .inputs = {floats({3, 5}), floats({}), floats({70})}},
      {.name = "bf16 beside f32",
       .inputs = {statistic({3, 5}, -1, 1), low(DType::bf16, {70}), low(DType::f16, {9})}},
      {.name = "bf16 to f32", .attrs = {{"full", std::int64_t{1}}}, .inputs = {low(DType::bf16, {70})}},
      {.name = "layer", .inputs = {floats({2048, 512}), floats({2048})}, .bench = true},
  };
}

// ---- ClipScale --------------------------------------------------------------------------------------------

Status infer_clip(InferContext& ctx) {
  TRY(require_inputs(ctx, 1));
  if (!ctx.shape(0).empty() || !is_float(ctx.dtype(0)))
    return infer_error("the norm is " + to_string(ctx.in(0)));
  if (!(ctx.attrs.real("max_norm") > 0)) return infer_error("max_norm must be positive");
  return set_outputs(ctx, {ctx.in(0)});
}

// min(1, most / (norm + 1e-6))
FusedOperand clip_factor(Code& c, FusedOperand norm, double most) {
  const FusedOperand ratio = c.op(EwOp::Div, {c.scalar(most), c.op(EwOp::Add, {norm, c.scalar(1e-6)})});
  return c.op(EwOp::Min, {ratio, c.scalar(1)});
}

Result<Kernel> prepare_clip(const NodeTypes& types) {
  TRY(require_kernel_type(types.target, types.inputs[0].dtype));
  Code c(types);
  Kernel kernel = TRY(c.prepare(clip_factor(c, c.in(0), types.attrs.real("max_norm"))));
  kernel.name = "elementwise clip_scale";
  return kernel;
}

std::vector<Sample> samples_clip() {
  return {
      {.name = "clips", .attrs = {{"max_norm", 1.0}}, .inputs = {floats({}, 2, 5)}},
      {.name = "keeps", .attrs = {{"max_norm", 2.5}}, .inputs = {floats({}, 0.5, 1)}},
  };
}

// ---- Accumulate -------------------------------------------------------------------------------------------

// How many tensors an Accumulate of so many inputs adds to.
std::size_t accumulated(std::size_t inputs) { return inputs / 2; }

Status infer_accumulate(InferContext& ctx) {
  TRY(require_inputs(ctx, ctx.inputs.size()));
  const std::size_t n = accumulated(ctx.inputs.size());
  if (ctx.inputs.size() != 2 * n + 1) return infer_error("not every accumulator has a gradient");
  std::vector<Type> sums;
  for (std::size_t i = 0; i < n; ++i) {
    const bool widened = !is_half(ctx.dtype(i)) && is_half(ctx.dtype(n + i));
    if (ctx.shape(i) != ctx.shape(n + i) || (ctx.dtype(i) != ctx.dtype(n + i) && !widened))
      return infer_error("accumulator " + to_string(ctx.in(i)) + ", gradient " + to_string(ctx.in(n + i)));
    if (ctx.dtype(i) != ctx.dtype(0)) return infer_error("accumulators have different types");
    sums.push_back(ctx.in(i));
  }
  TRY(check_micro(ctx, 2 * n));
  return set_outputs(ctx, std::move(sums));
}

Result<Kernel> prepare_accumulate(const NodeTypes& types) {
  const std::size_t n = accumulated(types.inputs.size());
  kernels::AccumulateArgs layout{};
  layout.dtype = types.inputs[0].dtype;
  TRY(require_kernel_type(types.target, layout.dtype));
  layout.count = as_dim(n);
  layout.divisor = static_cast<double>(types.attrs.integer("count", 1));
  std::vector<std::int64_t> sizes;
  std::vector<DType> dtypes;
  for (std::size_t i = 0; i < n; ++i) {
    sizes.push_back(element_count(types.inputs[i].shape));
    dtypes.push_back(types.inputs[n + i].dtype);
  }
  return Kernel{n == 1 ? "accumulate" : "accumulate " + std::to_string(n), 0,
                [layout, n, sizes, dtypes](const LaunchArgs& args) {
                  kernels::AccumulateArgs a = layout;
                  a.sizes = sizes.data();
                  a.part_types = dtypes.data();
                  a.sums = args.inputs;
                  a.parts = args.inputs + n;
                  a.micro = static_cast<const std::int64_t*>(args.inputs[2 * n]);
                  a.out = args.outputs;
                  args.on.accumulate(a);
                }};
}

Cost cost_accumulate(const NodeTypes& types) {
  double elements = 0;
  for (const Type& type : types.outputs) elements += static_cast<double>(element_count(type.shape));
  return cost_of(types, 2 * elements);
}

std::vector<std::pair<int, int>> aliases_accumulate(const Node& node) {
  std::vector<std::pair<int, int>> pairs;
  for (std::size_t i = 0; i < accumulated(node.inputs.size()); ++i)
    pairs.emplace_back(static_cast<int>(i), static_cast<int>(i));
  return pairs;
}

std::vector<Sample> samples_accumulate() {
  const Attrs four{{"count", std::int64_t{4}}};
  return {
      {.name = "first",
       .attrs = four,
       .inputs = {floats({3, 5}), floats({3, 5}), exact(DType::i64, {}, {0})}},
      {.name = "later",
       .attrs = four,
       .inputs = {floats({3, 5}), floats({3, 5}), exact(DType::i64, {}, {2})}},
      {.name = "scalar", .attrs = four, .inputs = {floats({}), floats({}), exact(DType::i64, {}, {1})}},
      {.name = "bf16",
       .attrs = four,
       .inputs = {statistic({3, 5}, -1, 1), low(DType::bf16, {3, 5}), exact(DType::i64, {}, {2})}},
      {.name = "three",
       .attrs = four,
       .inputs = {floats({3, 5}), floats({}), floats({70}), floats({3, 5}), floats({}), floats({70}),
                  exact(DType::i64, {}, {1})},
       .output_count = 3},
      {.name = "biases",
       .attrs = four,
       .inputs = {floats({768}), floats({3072}), floats({768}), floats({3072}), exact(DType::i64, {}, {1})},
       .output_count = 2,
       .bench = true},
  };
}

// ---- LossScale --------------------------------------------------------------------------------------------

Status infer_loss_scale(InferContext& ctx) {
  TRY(require_inputs(ctx, 5));
  if (!ctx.shape(0).empty() || !is_float(ctx.dtype(0)))
    return infer_error("the norm is " + to_string(ctx.in(0)));
  if (ctx.in(1) != ctx.in(0)) return infer_error("the scale is " + to_string(ctx.in(1)));
  const Type counter{DType::i64, {}};
  for (std::size_t i = 2; i < 5; ++i)
    if (ctx.in(i) != counter) return infer_error("a counter is " + to_string(ctx.in(i)));
  if (ctx.attrs.integer("interval", 1) < 1) return infer_error("interval must be positive");
  if (ctx.attrs.integer("hysteresis", 1) < 1) return infer_error("hysteresis must be positive");
  return set_outputs(ctx, {{DType::boolean, {}}, ctx.in(0), ctx.in(0), ctx.in(0), counter, counter, counter});
}

FusedOperand bounded(Code& c, EwOp bound, FusedOperand scale, double limit) {
  return limit > 0 ? c.op(bound, {scale, c.scalar(limit)}) : scale;
}

// The scale after a step that was skipped.
FusedOperand fallen_scale(Code& c, const Attrs& attrs, FusedOperand scale, FusedOperand skipped) {
  const FusedOperand product = c.op(EwOp::Mul, {scale, c.scalar(attrs.real("backoff", 0.5))}),
                     shrunk = bounded(c, EwOp::Max, product, attrs.real("least"));
  const std::int64_t hysteresis = attrs.integer("hysteresis", 1);
  if (hysteresis == 1) return shrunk;
  const FusedOperand waits =
      c.op(EwOp::Less, {skipped, c.scalar(DType::i64, static_cast<double>(hysteresis - 1))});
  return c.op(EwOp::Where, {waits, scale, shrunk});
}

Result<Kernel> prepare_loss_scale(const NodeTypes& types) {
  const DType t = types.inputs[0].dtype;
  TRY(require_kernel_type(types.target, t));
  Code c(types);
  const FusedOperand norm = c.in(0), scale = c.in(1), good = c.in(2), skipped = c.in(3), steps = c.in(4),
                     zero = c.scalar(DType::i64, 0), one = c.scalar(DType::i64, 1);
  const auto finite = [&](FusedOperand x) {
    return c.op(EwOp::Equal, {c.op(EwOp::Sub, {x, x}), c.scalar(0)});
  };
  const FusedOperand apply = finite(norm), longer = c.op(EwOp::Add, {good, one}),
                     due = c.op(EwOp::Equal,
                                {longer, c.scalar(DType::i64,
                                                  static_cast<double>(types.attrs.integer("interval", 1)))}),
                     product = c.op(EwOp::Mul, {scale, c.scalar(types.attrs.real("growth", 2))}),
                     grown = bounded(c, EwOp::Min, product, types.attrs.real("most")),
                     shrunk = fallen_scale(c, types.attrs, scale, skipped),
                     grows = c.op(EwOp::And, {due, finite(grown)}),
                     true_norm = c.op(EwOp::Div, {norm, scale});
  FusedOperand factor = c.op(EwOp::Reciprocal, {scale});
  if (const double most = types.attrs.real("max_norm"); most > 0)
    factor = c.op(EwOp::Mul, {factor, clip_factor(c, true_norm, most)});
  const FusedOperand goes_on = c.op(EwOp::And, {apply, c.op(EwOp::Not, {due})});
  Kernel kernel = TRY(c.prepare_results(
      {apply, factor, true_norm, c.op(EwOp::Where, {apply, c.op(EwOp::Where, {grows, grown, scale}), shrunk}),
       c.op(EwOp::Where, {goes_on, longer, zero}),
       c.op(EwOp::Where, {apply, zero, c.op(EwOp::Add, {skipped, one})}),
       c.op(EwOp::Where, {apply, c.op(EwOp::Add, {steps, one}), steps})}));
  kernel.name = "elementwise loss_scale";
  return kernel;
}

std::vector<std::pair<int, int>> aliases_loss_scale(const Node&) { return {{3, 1}, {4, 2}, {5, 3}, {6, 4}}; }

std::vector<Sample> samples_loss_scale() {
  const auto made = [](const char* name, Attrs attrs, SampleInput norm, double good, double skipped) {
    const auto counter = [](double n) { return exact(DType::i64, {}, {n}); };
    Sample s{.name = name, .attrs = std::move(attrs)};
    s.inputs = {std::move(norm), exact(DType::f32, {}, {1024}), counter(good), counter(skipped), counter(41)};
    s.output_count = 7;
    return s;
  };
  constexpr double kInfinite = std::numeric_limits<double>::infinity(),
                   kNaN = std::numeric_limits<double>::quiet_NaN();
  const Attrs rule{{"growth", 2.0}, {"backoff", 0.5}, {"interval", std::int64_t{20}}};
  Attrs clipped = rule;
  clipped.set("max_norm", 0.25);
  Attrs bounds = rule;
  bounds.set("hysteresis", std::int64_t{3});
  bounds.set("least", 1000.0);
  bounds.set("most", 1500.0);
  return {
      made("keeps", rule, floats({}, 500, 900), 3, 2),
      made("grows", rule, floats({}, 500, 900), 19, 0),
      made("infinite", rule, exact(DType::f32, {}, {kInfinite}), 3, 0),
      made("not a number", rule, exact(DType::f32, {}, {kNaN}), 19, 6),
      made("clips", clipped, floats({}, 500, 900), 3, 0),
      made("clips nothing", clipped, floats({}, 50, 90), 3, 0),
      made("waits", bounds, exact(DType::f32, {}, {kInfinite}), 0, 1),
      made("falls to the least", bounds, exact(DType::f32, {}, {kInfinite}), 0, 2),
      made("grows to the most", bounds, floats({}, 500, 900), 19, 0),
  };
}

}  // namespace

const OpDef global_norm_op = {
    .name = "GlobalNorm",
    .domain = "gradloom",
    .summary = "Euclidean norm of all gradients together.",
    .traits = kNoGradient,
    .max_inputs = 1 << 20,
    .infer = infer_norm,
    .cost = cost_norm,
    .cpu = prepare_norm,
    .gpu = prepare_norm,
    .samples = samples_norm,
};

const OpDef clip_scale_op = {
    .name = "ClipScale",
    .domain = "gradloom",
    .summary = "Factor that brings a gradient norm down to max_norm.",
    .traits = kNoGradient,
    .infer = infer_clip,
    .cpu = prepare_clip,
    .gpu = prepare_clip,
    .samples = samples_clip,
};

const OpDef loss_scale_op = {
    .name = "LossScale",
    .domain = "gradloom",
    .summary = "Decides whether a step with a scaled loss is made, and the next scale.",
    .traits = kNoGradient | kMustAlias,
    .min_inputs = 5,
    .max_inputs = 5,
    .max_outputs = 7,
    .infer = infer_loss_scale,
    .cpu = prepare_loss_scale,
    .gpu = prepare_loss_scale,
    .samples = samples_loss_scale,
    .aliases = aliases_loss_scale,
};

const OpDef accumulate_op = {
    .name = "Accumulate",
    .domain = "gradloom",
    .summary = "Adds a micro-batch's shares to accumulators.",
    .traits = kNoGradient | kMustAlias | kAccumulates,
    .min_inputs = 3,
    .max_inputs = (1 << 21) + 1,
    .max_outputs = 1 << 20,
    .infer = infer_accumulate,
    .cost = cost_accumulate,
    .cpu = prepare_accumulate,
    .gpu = prepare_accumulate,
    .samples = samples_accumulate,
    .aliases = aliases_accumulate,
};

}  // namespace gradloom
