// BatchNormalization and its gradient row.
//   x, y: [n, c, spatial..]; scale, bias, running mean, running variance: [c]
//   y = (x - mean) * inv_std * scale + bias
//   training:  mean and inv_std are the batch's (biased variance); outputs 1, 2 are the new running ones,
//              running * momentum + batch * (1 - momentum); outputs 3, 4 (ours) the batch's mean and inv_std
//   inference: mean and variance are the running ones, which the gradient takes as constants
//   BatchNormGrad(dy, x, scale, mean, inv_std) -> dx, dscale, dbias
// Attribute training_mode chooses from opset 14 on; before, a node trains when it has more than one output.
// scale, bias and the running statistics may be f32 where x is bf16; the batch statistics are f32 then.
// Attribute unbiased (ours): the running variance takes n / (n - 1) of the batch's, n numbers in a channel, as PyTorch's.
// Attribute block (ours), of both rows: x, y and their gradients have their channels in blocks (channel_blocks.h).
//   FusedBatchNorm(x, scale, bias, running mean, running variance, added or nothing) -> as BatchNormalization-14;
//       y = activation((x - mean) * inv_std * scale + bias + added), added like x
//   FusedBatchNormGrad(dy, x, scale, mean, inv_std, bias) -> dx, dscale, dbias, where nothing was added
// Attribute activation of these: none | relu | clip, which is min(max(.., low), high) with attributes low and high (none: no bound).
// They equal BatchNormalization, Add and the activation to the bit (passes/fuse_batch_norm.cpp makes them).
// Source: ONNX BatchNormalization-9, -14, -15.
#include <algorithm>
#include <limits>
#include <string_view>

#include "engine/ops/costs.h"
#include "engine/ops/dims.h"
#include "engine/ops/gradient_rules.h"
#include "engine/ops/inference.h"
#include "engine/ops/preparation.h"
#include "engine/ops/samples.h"
#include "engine/ops/channel_blocks.h"
#include "engine/ops/rows.h"
#include "kernels/launcher.h"

namespace gradloom {
namespace {

using kernels::NormActivation;

constexpr double kEpsilon = 1e-5, kMomentum = 0.9, kUnbounded = std::numeric_limits<double>::infinity();

struct Layout {
  std::int64_t n, c, spatial, block;
};

Layout layout_of(const Attrs& attrs, const Shape& shape) {
  const std::int64_t block = attrs.integer("block", 1);
  const Shape x = plain_shape(shape, block);
  return {x[0], x.size() < 2 ? 1 : x[1], dim_product(x, std::min<std::size_t>(2, x.size()), x.size()), block};
}

// By which the batch's variance is multiplied on its way into the running one.
double unbias(const Attrs& attrs, const Layout& l) {
  const auto n = static_cast<double>(l.n * l.spatial);
  return attrs.integer("unbiased", 0) != 0 && n > 1 ? n / (n - 1) : 1;
}

template <bool by_outputs>
bool training(const Attrs& attrs, int output_count) {
  return by_outputs ? output_count > 1 : attrs.integer("training_mode") != 0;
}

template <bool by_outputs>
Status infer(InferContext& ctx) {
  TRY(require_inputs(ctx, 5));
  if (ctx.shape(0).size() < 2)
    return infer_error("input " + to_string(ctx.shape(0)) + " must have 2 or more dims");
  const Shape x = plain_shape(ctx.shape(0), TRY(block_of(ctx.attrs, "block", ctx.shape(0), "input")));
  if (!is_float(ctx.dtype(0))) return infer_error(std::string("the input is ") + dtype_name(ctx.dtype(0)));
  if (ctx.attrs.integer("spatial", 1) == 0) return infer_error("spatial=0 (opset 7) is not supported");
  const char* what[] = {"", "scale", "bias", "mean", "variance"};
  for (std::size_t i = 1; i < 5; ++i) {
    TRY(require_parameter(ctx, i, what[i]));
    if (ctx.shape(i).size() != 1 || dims_differ(ctx.shape(i)[0], x[1]))
      return infer_error(std::string(what[i]) + " " + to_string(ctx.shape(i)) + " does not fit " +
                         to_string(x));
  }
  if (ctx.output_count > 1 && !training<by_outputs>(ctx.attrs, ctx.output_count))
    return infer_error("running statistics are outputs in training mode only");
  const Type running{ctx.dtype(3), {x[1]}}, batch{statistics_type(ctx.dtype(0)), {x[1]}};
  return set_outputs(ctx, {ctx.in(0), running, running, batch, batch});
}

Result<NormActivation> activation_of(const Attrs& attrs) {
  const std::string name = attrs.text("activation", "none");
  if (name == "none") return NormActivation::none;
  if (name == "relu") return NormActivation::relu;
  if (name == "clip") return NormActivation::clip;
  return infer_error("activation is '" + name + "', not none, relu or clip");
}

Status infer_fused(InferContext& ctx) {
  TRY(activation_of(ctx.attrs));
  TRY(infer<false>(ctx));
  if (ctx.has(5) && ctx.in(5) != ctx.in(0))
    return infer_error("what is added " + to_string(ctx.shape(5)) + " is not like the input");
  return {};
}

// The gradient that reaches x through the statistics of the batch, and that of the running ones. Statistics
// are [c]; against x they stand as [1, c, 1..].
Status grad_through_statistics(GradContext& ctx, ValueId mean, ValueId inv_std) {
  GraphBuilder& b = ctx.b;
  const double momentum = ctx.node.attrs.real("momentum", kMomentum);
  const DType type = ctx.dtype(mean);
  const auto part = [&](ValueId of, double factor) {
    return of == kNone ? kNone : b.op("Mul", {cast_to(b, of, type), b.scalar(type, factor)});
  };
  for (std::size_t i = 0; i < 2; ++i)
    if (ctx.wants(3 + i) && ctx.grad(1 + i) != kNone)
      ctx.set(3 + i, cast_to(b, part(ctx.grad(1 + i), momentum), ctx.dtype(ctx.in(3 + i))));
  if (!ctx.wants(0) ||
      (ctx.grad(1) == kNone && ctx.grad(2) == kNone && ctx.grad(3) == kNone && ctx.grad(4) == kNone))
    return {};
  TRY(require_static(ctx, ctx.in(0)));
  const Layout l = layout_of(ctx.node.attrs, ctx.shape(ctx.in(0)));
  const ValueId dmean = sum_of(b, part(ctx.grad(1), 1 - momentum), ctx.grad(3)),
                dvariance = sum_of(b, part(ctx.grad(2), (1 - momentum) * unbias(ctx.node.attrs, l)),
                                   moment_gradient(ctx, inv_std, ctx.grad(4)));
  Shape stands(ctx.shape(ctx.in(0)).size(), 1);
  stands[1] = l.c / l.block;
  if (l.block > 1) stands.back() = l.block;
  const auto across = [&](ValueId of) { return of == kNone ? kNone : b.reshape(of, stands); };
  ctx.set(0,
          moments_gradient(ctx, ctx.in(0), across(mean), across(dmean), across(dvariance), l.n * l.spatial));
  return {};
}

template <bool by_outputs>
Status grad(GradContext& ctx) {
  const bool trains = training<by_outputs>(ctx.node.attrs, static_cast<int>(ctx.node.outputs.size()));
  ValueId mean, inv_std;
  if (trains) {
    mean = ctx.require_out(3);
    inv_std = ctx.require_out(4);
    TRY(grad_through_statistics(ctx, mean, inv_std));
    if (ctx.grad() == kNone) return {};
  } else {
    const DType type = statistics_type(ctx.dtype(ctx.in(0)));
    mean = cast_to(ctx.b, ctx.in(3), type);
    const ValueId variance = cast_to(ctx.b, ctx.in(4), type);
    const ValueId epsilon = ctx.b.scalar(ctx.dtype(variance), ctx.node.attrs.real("epsilon", kEpsilon));
    inv_std = ctx.b.op("Reciprocal", {ctx.b.op("Sqrt", {ctx.b.op("Add", {variance, epsilon})})});
  }
  Attrs attrs{{"training", std::int64_t{trains}}};
  if (ctx.node.attrs.has("block")) attrs.set("block", ctx.node.attrs.integer("block"));
  const auto grads = ctx.b.ops(op_by_name("BatchNormGrad"), {ctx.grad(), ctx.in(0), ctx.in(1), mean, inv_std},
                               std::move(attrs), 3);
  for (std::size_t i = 0; i < 3; ++i)
    if (ctx.wants(i)) ctx.set(i, sum_of(ctx.b, grads[i], ctx.in_grads[i]));
  if (trains) return {};  // y does not depend on the running statistics
  // From y = (x - mean) * inv_std * scale + bias:
  //   dmean = -dbias * scale * inv_std, dvariance = -dscale * scale * inv_std^2 / 2
  if (!ctx.wants(3) && !ctx.wants(4)) return {};
  GraphBuilder& b = ctx.b;
  inv_std = cast_to(b, inv_std, ctx.dtype(ctx.in(1)));
  const ValueId slope = b.op("Mul", {ctx.in(1), inv_std});
  if (ctx.wants(3)) ctx.set(3, b.op("Neg", {b.op("Mul", {grads[2], slope})}));
  if (!ctx.wants(4)) return {};
  const ValueId product = b.op("Mul", {b.op("Mul", {grads[1], slope}), inv_std});
  ctx.set(4, b.op("Mul", {product, b.scalar(ctx.dtype(product), -0.5)}));
  return {};
}

Cost cost(const NodeTypes& types) {
  return cost_of(types, 8.0 * static_cast<double>(element_count(types.inputs[0].shape)));
}
Cost cost_grad(const NodeTypes& types) {
  return cost_of(types, 14.0 * static_cast<double>(element_count(types.inputs[0].shape)));
}

template <class Args>
Status set_activation(const NodeTypes& types, Args& args) {
  args.activation = TRY(activation_of(types.attrs));
  args.low = types.attrs.real("low", -kUnbounded);
  args.high = types.attrs.real("high", kUnbounded);
  return {};
}

// The CPU takes bf16 in blocks, where all that belongs to a channel (inputs from `channels` on) is f32.
Status require_type(const NodeTypes& types, std::int64_t block, std::ptrdiff_t channels) {
  const bool wide = std::all_of(types.inputs.begin() + channels, types.inputs.begin() + 5,
                                [](const Type& type) { return type.dtype == DType::f32; });
  return require_kernel_type(types.target, types.inputs[0].dtype, block > 1 && wide);
}

template <bool by_outputs, bool fused = false>
Result<Kernel> prepare(const NodeTypes& types) {
  const Type& x = types.inputs[0];
  const Layout l = layout_of(types.attrs, x.shape);
  TRY(require_type(types, l.block, 1));
  TRY(require_layout(types.target, l.block));
  kernels::BatchNormArgs layout{};
  if constexpr (fused) TRY(set_activation(types, layout));
  layout.block = l.block;
  layout.dtype = x.dtype;
  layout.training = training<by_outputs>(types.attrs, static_cast<int>(types.outputs.size()));
  layout.n = l.n;
  layout.c = l.c;
  layout.spatial = l.spatial;
  layout.epsilon = types.attrs.real("epsilon", kEpsilon);
  layout.momentum = types.attrs.real("momentum", kMomentum);
  layout.unbias = unbias(types.attrs, l);
  layout.parameters = types.inputs[1].dtype;
  if (l.n * l.c * l.spatial == 0) return no_kernel("no kernel for an empty batch");
  // In training the kernel writes every statistic; the workspace takes those that nobody asked for.
  const std::size_t bytes = aligned_bytes(statistics_type(x.dtype), l.c);
  std::vector<bool> wanted;
  for (std::size_t i = 0; i < 5; ++i) wanted.push_back(types.wants(i));
  const std::size_t spare_bytes = layout.training ? 4 * bytes : 0;
  const bool adds = types.has(5);
  return Kernel{
      layout.training ? "batch_norm training" : "batch_norm",
      spare_bytes + kernels::workspace_bytes(types.target, layout),
      [layout, bytes, spare_bytes, wanted, adds](const LaunchArgs& args) {
        kernels::BatchNormArgs a = layout;
        a.x = args.inputs[0];
        a.scale = args.inputs[1];
        a.bias = args.inputs[2];
        a.running_mean = args.inputs[3];
        a.running_var = args.inputs[4];
        if (adds) a.added = args.inputs[5];
        a.y = args.outputs[0];
        auto* spare = static_cast<std::byte*>(args.workspace);
        a.workspace = spare + spare_bytes;
        if (layout.training) {
          void** const targets[] = {&a.running_mean_out, &a.running_var_out, &a.saved_mean, &a.saved_inv_std};
          for (std::size_t i = 0; i < 4; ++i)
            *targets[i] = wanted[i + 1] ? args.outputs[i + 1] : spare + i * bytes;
        }
        args.on.batch_norm(a);
      }};
}

Status infer_grad(InferContext& ctx) {
  TRY(require_inputs(ctx, 5));
  TRY(require_float(ctx, 1, "x"));
  TRY(require_parameter(ctx, 2, "scale", 2));
  if (ctx.has(5)) {
    TRY(activation_of(ctx.attrs));
    TRY(require_parameter(ctx, 5, "bias", 2));
  }
  for (std::size_t i : {3u, 4u}) TRY(require_statistic(ctx, i, "mean and inv_std"));
  if (ctx.shape(0).size() < 2)
    return infer_error("dy " + to_string(ctx.shape(0)) + " must have 2 or more dims");
  TRY(block_of(ctx.attrs, "block", ctx.shape(0), "dy"));
  return set_outputs(ctx, {ctx.in(0), ctx.in(2), ctx.in(2)});
}

template <bool fused>
Result<Kernel> prepare_grad(const NodeTypes& types) {
  const Type& x = types.inputs[1];
  const Layout l = layout_of(types.attrs, x.shape);
  TRY(require_type(types, l.block, 2));
  TRY(require_layout(types.target, l.block));
  kernels::BatchNormGradArgs layout{};
  if constexpr (fused) TRY(set_activation(types, layout));
  layout.block = l.block;
  layout.dtype = x.dtype;
  layout.training = types.attrs.integer("training", 1) != 0;
  layout.parameters = types.inputs[2].dtype;
  layout.n = l.n;
  layout.c = l.c;
  layout.spatial = l.spatial;
  if (l.n * l.c * l.spatial == 0) return no_kernel("no kernel for an empty batch");
  const std::size_t bytes = aligned_bytes(layout.parameters, l.c);
  const bool scale = types.wants(1), bias = types.wants(2);
  const std::size_t spare_bytes = (scale ? 0 : bytes) + (bias ? 0 : bytes);
  return Kernel{"batch_norm_grad", spare_bytes + kernels::workspace_bytes(types.target, layout),
                [layout, bytes, spare_bytes, scale, bias](const LaunchArgs& args) {
                  kernels::BatchNormGradArgs a = layout;
                  auto* spare = static_cast<std::byte*>(args.workspace);
                  a.dy = args.inputs[0];
                  a.x = args.inputs[1];
                  a.scale = args.inputs[2];
                  a.saved_mean = args.inputs[3];
                  a.saved_inv_std = args.inputs[4];
                  if constexpr (fused) a.bias = args.inputs[5];
                  a.dx = args.outputs[0];
                  a.dscale = scale ? args.outputs[1] : spare;
                  a.dbias = bias ? args.outputs[2] : spare + (scale ? 0 : bytes);
                  a.workspace = spare + spare_bytes;
                  args.on.batch_norm_grad(a);
                }};
}

// The new running statistics replace the old ones where they are: the kernel reads a
// channel's before it writes them.
std::vector<std::pair<int, int>> aliases(const Node& node) {
  if (node.outputs.size() < 3) return {};
  return {{1, 3}, {2, 4}};
}

std::vector<SampleInput> inputs(Shape x) {
  const Shape c{x[1]};
  return {floats(std::move(x), -2, 3), floats(c, 0.5, 1.5), floats(c), floats(c), floats(c, 0.5, 2)};
}
std::vector<SampleInput> blocked_inputs(const Shape& x, std::int64_t block) {
  std::vector<SampleInput> all = inputs(plain_shape(x, block));
  all[0].type.shape = x;
  return all;
}

template <bool by_outputs>
std::vector<Sample> samples() {
  Attrs train;
  if (!by_outputs) train.set("training_mode", std::int64_t{1});
  Attrs train_momentum = train;
  train_momentum.set("momentum", 0.7);
  train_momentum.set("epsilon", 0.01);
  Attrs train_blocks = train_momentum, blocks{{"block", std::int64_t{4}}}, wide_blocks = train;
  Attrs unbiased = train_momentum;
  if (!by_outputs) unbiased.set("unbiased", std::int64_t{1});  // nobody writes the older operator so
  train_blocks.set("block", std::int64_t{3});
  wide_blocks.set("block", std::int64_t{16});
  return {
      {.name = "inference", .inputs = inputs({2, 3, 4, 5})},
      {.name = "inference-2d", .attrs = {{"epsilon", 0.01}}, .inputs = inputs({4, 3})},
      {.name = "training", .attrs = train, .inputs = inputs({3, 2, 3, 5}), .output_count = 3},
      {.name = "training-2d", .attrs = train_momentum, .inputs = inputs({6, 4}), .output_count = 3},
      {.name = "training-unbiased", .attrs = unbiased, .inputs = inputs({3, 2, 2, 2}), .output_count = 3},
      {.name = "training-saved", .attrs = train_momentum, .inputs = inputs({2, 3, 7}), .output_count = 5},
      {.name = "wide-parameters",
       .attrs = train,
       .inputs = {floats({3, 2, 8}, -2, 3), statistic({2}, 0.5, 1.5), statistic({2}, -1, 1),
                  statistic({2}, -1, 1), statistic({2}, 0.5, 2)},
       .output_count = 5},
      {.name = "blocks", .attrs = blocks, .inputs = blocked_inputs({2, 2, 5, 4}, 4)},
      {.name = "training-blocks",
       .attrs = train_blocks,
       .inputs = blocked_inputs({3, 2, 2, 5, 3}, 3),
       .output_count = 5},
      {.name = "resnet", .attrs = train, .inputs = inputs({8, 64, 56, 56}), .output_count = 3, .bench = true},
      {.name = "rows", .attrs = train, .inputs = inputs({8192, 64}), .output_count = 3, .bench = true},
      {.name = "resnet-blocks",
       .attrs = wide_blocks,
       .inputs = blocked_inputs({8, 4, 56, 56, 16}, 16),
       .output_count = 3,
       .bench = true},
  };
}

std::vector<Sample> samples_grad() {
  const auto grad_inputs = [](const Shape& x, std::int64_t block = 1) {
    const Shape c{x[1] * block};
    return std::vector<SampleInput>{floats(x), floats(x), floats(c, 0.5, 1.5), statistic(c, -0.1, 0.1),
                                    statistic(c, 0.8, 1.3)};
  };
  return {
      {.name = "training", .inputs = grad_inputs({3, 2, 3, 5}), .output_count = 3},
      {.name = "inference",
       .attrs = {{"training", std::int64_t{0}}},
       .inputs = grad_inputs({2, 3, 4}),
       .output_count = 3},
      {.name = "input-only", .inputs = grad_inputs({4, 3})},
      {.name = "blocks",
       .attrs = {{"block", std::int64_t{8}}},
       .inputs = grad_inputs({3, 2, 5, 8}, 8),
       .output_count = 3},
      {.name = "inference-blocks",
       .attrs = {{"training", std::int64_t{0}}, {"block", std::int64_t{3}}},
       .inputs = grad_inputs({2, 2, 4, 3}, 3),
       .output_count = 3},
      {.name = "resnet", .inputs = grad_inputs({8, 64, 56, 56}), .output_count = 3, .bench = true},
      {.name = "rows", .inputs = grad_inputs({8192, 64}), .output_count = 3, .bench = true},
      {.name = "resnet-blocks",
       .attrs = {{"block", std::int64_t{16}}},
       .inputs = grad_inputs({8, 4, 56, 56, 16}, 16),
       .output_count = 3,
       .bench = true},
  };
}

// BatchNormalization's and its gradient's, with what the fused rows take behind the other inputs.
std::vector<Sample> fused_samples() {
  const std::int64_t train = 1;
  const auto with = [](std::vector<SampleInput> inputs, SampleInput last) {
    inputs.push_back(std::move(last));
    return inputs;
  };
  const Shape plain{3, 2, 3, 5}, blocks{3, 2, 2, 5, 4};
  const Attrs relu{{"activation", std::string("relu")}, {"training_mode", train}};
  Attrs relu_blocks = relu;
  relu_blocks.set("block", std::int64_t{4});
  Attrs wide = relu;
  wide.set("block", std::int64_t{16});
  return {
      {.name = "relu", .attrs = relu, .inputs = inputs(plain), .output_count = 5},
      {.name = "clip",
       .attrs = {{"activation", std::string("clip")},
                 {"low", 0.0},
                 {"high", 0.5},
                 {"training_mode", train},
                 {"momentum", 0.7}},
       .inputs = inputs(plain),
       .output_count = 3},
      {.name = "relu of a sum",
       .attrs = relu,
       .inputs = with(inputs(plain), floats(plain)),
       .output_count = 5},
      {.name = "sum, inference", .inputs = with(inputs({4, 3}), floats({4, 3}))},
      {.name = "blocks", .attrs = relu_blocks, .inputs = blocked_inputs(blocks, 4), .output_count = 5},
      {.name = "blocks of a sum",
       .attrs = relu_blocks,
       .inputs = with(blocked_inputs(blocks, 4), floats(blocks)),
       .output_count = 5},
      {.name = "resnet-blocks",
       .attrs = wide,
       .inputs = blocked_inputs({8, 4, 56, 56, 16}, 16),
       .output_count = 5,
       .bench = true},
  };
}

std::vector<Sample> fused_samples_grad() {
  std::vector<Sample> samples = samples_grad();
  for (std::size_t i = 0; i < samples.size(); ++i) {
    const bool clip = i % 2 == 1;
    samples[i].attrs.set("activation", std::string(clip ? "clip" : "relu"));
    if (clip) samples[i].attrs.set("high", 0.5);
    samples[i].inputs.push_back(floats(samples[i].inputs[2].type.shape));
  }
  return samples;
}

template <bool by_outputs>
constexpr OpDef row(int since, int until) {
  OpDef r{.name = "BatchNormalization"};
  r.since = since;
  r.until = until;
  r.summary = "Normalizes each channel by batch or running statistics, then scales and shifts.";
  r.min_inputs = r.max_inputs = 5;
  r.max_outputs = 5;
  r.infer = infer<by_outputs>;
  r.grad = grad<by_outputs>;
  r.cost = cost;
  r.cpu = prepare<by_outputs>;
  r.gpu = prepare<by_outputs>;
  r.samples = samples<by_outputs>;
  r.inplace_input = 0;
  r.aliases = aliases;
  r.channel_blocks = ChannelBlocks::attribute;
  return r;
}

}  // namespace

const OpDef batch_normalization_7_op = row<true>(7, 13);
const OpDef batch_normalization_14_op = row<false>(14, 1000);

const OpDef batch_norm_grad_op = {
    .name = "BatchNormGrad",
    .domain = "gradloom",
    .summary = "Gradient of BatchNormalization from batch or running statistics.",
    .min_inputs = 5,
    .max_inputs = 5,
    .max_outputs = 3,
    .infer = infer_grad,
    .cost = cost_grad,
    .cpu = prepare_grad<false>,
    .gpu = prepare_grad<false>,
    .samples = samples_grad,
    .inplace_input = 0,
};

const OpDef fused_batch_norm_op = {
    .name = "FusedBatchNorm",
    .domain = "gradloom",
    .summary = "BatchNormalization, plus another tensor, then Relu or Clip, in one pass over memory.",
    .min_inputs = 5,
    .max_inputs = 6,
    .max_outputs = 5,
    .infer = infer_fused,
    .cost = cost,
    .cpu = prepare<false, true>,
    .gpu = prepare<false, true>,
    .samples = fused_samples,
    .inplace_input = 0,
    .aliases = aliases,
};
const OpDef fused_batch_norm_grad_op = {
    .name = "FusedBatchNormGrad",
    .domain = "gradloom",
    .summary = "Gradient of BatchNormalization with an activation, from the gradient of what that gives.",
    .min_inputs = 6,
    .max_inputs = 6,
    .max_outputs = 3,
    .infer = infer_grad,
    .cost = cost_grad,
    .cpu = prepare_grad<true>,
    .gpu = prepare_grad<true>,
    .samples = fused_samples_grad,
    .inplace_input = 0,
};

}  // namespace gradloom
