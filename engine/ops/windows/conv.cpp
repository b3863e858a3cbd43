// Conv: cross-correlation of an image batch with a filter bank, groups and dilations.
//   x: [n, c, h, w], w: [k, c / group, r, s], bias: [k] or omitted, y: [n, k, oh, ow]
//   y[n, o, i, j] = bias[o] + sum over c', u, v of x[n, c', i*stride - pad + u*dilation, ...] * w[o, c', u,
//   v] dx: ConvGradData(dy, w), dw: ConvGradWeights(dy, x), dbias: dy summed over n, oh, ow
// One to three spatial dims: [n, c, w] runs as an image of height 1. Source: ONNX Conv-11.
// Attributes x_block, y_block (ours), of the gradient rows too: x or y have their channels in
// blocks (channel_blocks.h).
#include "engine/ops/windows/conv_shapes.h"

#include "engine/ops/costs.h"
#include "engine/ops/dims.h"
#include "engine/ops/gradient_rules.h"
#include "engine/ops/inference.h"
#include "engine/ops/samples.h"
#include "engine/ops/rows.h"
#include "kernels/launcher.h"

namespace gradloom {
namespace {

// The window of the node; dims unknown before binding stay symbolic.
Result<SlidingWindow> window_of(const Attrs& attrs, const Shape& x, const Shape& w) {
  const std::vector<std::int64_t> kernel = spatial_of(w), declared = attrs.integers("kernel_shape");
  if (!declared.empty() && declared != kernel)
    return infer_error("kernel_shape is " + to_string(declared) + ", the weight has " + to_string(kernel));
  return resolve_window(attrs, spatial_of(x), kernel);
}

Status check_channels(const Shape& x, const Shape& w, std::int64_t groups) {
  if (groups < 1) return infer_error("group is " + std::to_string(groups));
  if (w[0] >= 0 && w[0] % groups != 0)
    return infer_error("weight has " + std::to_string(w[0]) + " output channels, not divisible by " +
                       std::to_string(groups) + " groups");
  const bool known = x[1] >= 0 && w[1] >= 0;
  if (known && (x[1] % groups != 0 || x[1] / groups != w[1]))
    return infer_error("weight has " + std::to_string(w[1]) + " input channels, input has " +
                       std::to_string(x[1]) + " (groups " + std::to_string(groups) + ")");
  return {};
}

Status infer(InferContext& ctx) {
  TRY(require_inputs(ctx, 2));
  const Shape& w = ctx.shape(1);
  const Shape x = plain_shape(ctx.shape(0), TRY(block_of(ctx.attrs, "x_block", ctx.shape(0), "input")));
  if (x.size() < 3 || w.size() != x.size())
    return infer_error("input " + to_string(x) + " and weight " + to_string(w) +
                       " must have the same 3 or more dims");
  if (!all_static(w, 2, w.size()))
    return infer_error("the kernel dims of weight " + to_string(w) + " must be known");
  TRY(require_float(ctx, 1, "weight"));
  TRY(check_channels(x, w, ctx.attrs.integer("group", 1)));
  if (ctx.has(2)) {
    TRY(require_float(ctx, 2, "bias"));
    if (ctx.shape(2).size() != 1 || dims_differ(ctx.shape(2)[0], w[0]))
      return infer_error("bias " + to_string(ctx.shape(2)) + " does not fit " + std::to_string(w[0]) +
                         " output channels");
  }
  const SlidingWindow window = TRY(window_of(ctx.attrs, x, w));
  Shape y{x[0], w[0]};
  y.insert(y.end(), window.out.begin(), window.out.end());
  const std::int64_t y_block = ctx.attrs.integer("y_block", 1);
  if (y_block < 1) return infer_error("y_block is " + std::to_string(y_block));
  return set_outputs(ctx, {{ctx.dtype(0), TRY(blocked_shape(std::move(y), y_block))}});
}

Status grad(GradContext& ctx) {
  const ValueId x = ctx.in(0), w = ctx.in(1), dy = ctx.grad();
  TRY(require_static(ctx, x));
  const Shape plain_x = plain_shape(ctx.shape(x), ctx.node.attrs.integer("x_block", 1));
  Attrs attrs = window_attrs(TRY(window_of(ctx.node.attrs, plain_x, ctx.shape(w))));
  attrs.set("group", ctx.node.attrs.integer("group", 1));
  copy_blocks(ctx.node.attrs, attrs);
  if (ctx.wants(0)) {
    Attrs data = attrs;
    data.set("input_shape", plain_x);
    ctx.set(0, ctx.b.op("ConvGradData", {dy, w}, std::move(data)));
  }
  if (ctx.wants(1)) {
    attrs.set("weight_shape", ctx.shape(w));
    ctx.set(1, ctx.b.op("ConvGradWeights", {dy, x}, std::move(attrs)));
  }
  if (!ctx.wants(2)) return {};
  const bool blocks = ctx.node.attrs.integer("y_block", 1) > 1;
  std::vector<std::int64_t> axes{0};
  for (std::size_t i = 2; i < ctx.shape(dy).size() - (blocks ? 1 : 0); ++i) axes.push_back(as_dim(i));
  ValueId sum = ctx.b.op("ReduceSum", {dy, ctx.b.i64s(axes)}, {{"keepdims", std::int64_t{0}}});
  if (blocks) sum = ctx.b.reshape(sum, ctx.shape(ctx.in(2)));
  ctx.set(2, sum);
  return {};
}

Cost cost(const NodeTypes& types) {
  const double bias = types.has(2) ? static_cast<double>(element_count(types.outputs[0].shape)) : 0;
  return cost_of(types, convolution_flops(types.outputs[0].shape, types.inputs[1].shape) + bias);
}

Result<Kernel> prepare(const NodeTypes& types) {
  const std::int64_t x_block = types.attrs.integer("x_block", 1), y_block = types.attrs.integer("y_block", 1);
  const Shape x = plain_shape(types.inputs[0].shape, x_block), &w = types.inputs[1].shape,
              y = plain_shape(types.outputs[0].shape, y_block);
  const SlidingWindow window = TRY(window_of(types.attrs, x, w));
  return prepare_convolution(
      types, kernels::ConvolutionKind::forward,
      {x, w, y, window, types.attrs.integer("group", 1), types.has(2), x_block, y_block});
}

using Ints = std::vector<std::int64_t>;

std::vector<Sample> plain_samples() {
  return {
      {.name = "plain", .inputs = {floats({2, 3, 5, 6}), floats({4, 3, 3, 2})}},
      {.name = "bias-pads",
       .attrs = {{"pads", Ints{1, 0, 2, 1}}},
       .inputs = {floats({2, 2, 5, 4}), floats({3, 2, 3, 3}), floats({3})}},
      {.name = "strides",
       .attrs = {{"strides", Ints{2, 3}}, {"pads", Ints{1, 1, 1, 1}}},
       .inputs = {floats({1, 2, 7, 8}), floats({3, 2, 3, 3}), floats({3})}},
      {.name = "dilations",
       .attrs = {{"dilations", Ints{2, 1}}, {"pads", Ints{2, 0, 2, 0}}},
       .inputs = {floats({1, 2, 6, 5}), floats({2, 2, 3, 3})}},
      {.name = "groups",
       .attrs = {{"group", std::int64_t{2}}},
       .inputs = {floats({2, 4, 4, 4}), floats({6, 2, 3, 3}), floats({6})}},
      {.name = "depthwise",
       .attrs = {{"group", std::int64_t{3}}, {"pads", Ints{1, 1, 1, 1}}},
       .inputs = {floats({2, 3, 4, 5}), floats({3, 1, 3, 3})}},
      {.name = "same-upper",
       .attrs = {{"auto_pad", std::string("SAME_UPPER")}, {"strides", Ints{2, 2}}},
       .inputs = {floats({1, 1, 5, 6}), floats({2, 1, 3, 3})}},
      {.name = "same-lower",
       .attrs = {{"auto_pad", std::string("SAME_LOWER")}},
       .inputs = {floats({1, 1, 4, 4}), floats({2, 1, 2, 2})}},
      {.name = "one-by-one", .inputs = {floats({2, 5, 3, 3}), floats({4, 5, 1, 1}), floats({4})}},
      {.name = "one-dim",
       .attrs = {{"pads", Ints{1, 1}}, {"strides", Ints{2}}},
       .inputs = {floats({2, 3, 7}), floats({2, 3, 3}), floats({2})}},
      {.name = "one-dim-dilations",
       .attrs = {{"dilations", Ints{2}}, {"group", std::int64_t{3}}},
       .inputs = {floats({1, 3, 8}), floats({3, 1, 3})}},
      {.name = "three-dims", .inputs = {floats({2, 3, 4, 3, 5}), floats({4, 3, 2, 3, 2}), floats({4})}},
      {.name = "three-dims-all",
       .attrs = {{"strides", Ints{2, 1, 3}},
                 {"pads", Ints{1, 0, 2, 0, 1, 1}},
                 {"dilations", Ints{1, 2, 1}},
                 {"group", std::int64_t{2}}},
       .inputs = {floats({1, 4, 5, 5, 6}), floats({2, 2, 3, 2, 3}), floats({2})}},
      {.name = "three-dims-same",
       .attrs = {{"auto_pad", std::string("SAME_UPPER")}, {"strides", Ints{1, 2, 2}}},
       .inputs = {floats({1, 2, 3, 4, 3}), floats({2, 2, 2, 3, 3})}},
  };
}

// Channels in blocks, on one side or both.
std::vector<Sample> block_samples() {
  return {
      {.name = "blocks",
       .attrs = {{"pads", Ints{1, 1, 1, 1}}, {"x_block", std::int64_t{16}}, {"y_block", std::int64_t{16}}},
       .inputs = {floats({2, 2, 4, 5, 16}), floats({16, 32, 3, 3}), floats({16})}},
      {.name = "blocks-of-results",
       .attrs = {{"strides", Ints{2, 2}}, {"y_block", std::int64_t{16}}},
       .inputs = {floats({2, 3, 7, 6}), floats({32, 3, 3, 2}), floats({32})}},
      {.name = "blocks-of-images",
       .attrs = {{"x_block", std::int64_t{8}}},
       .inputs = {floats({1, 2, 4, 3, 8}), floats({5, 16, 2, 3})}},
      {.name = "blocks-depthwise",
       .attrs = {{"group", std::int64_t{32}},
                 {"pads", Ints{1, 1, 1, 1}},
                 {"x_block", std::int64_t{16}},
                 {"y_block", std::int64_t{16}}},
       .inputs = {floats({2, 2, 4, 5, 16}), floats({32, 1, 3, 3})}},
      {.name = "blocks-three-dims",
       .attrs = {{"x_block", std::int64_t{16}}, {"y_block", std::int64_t{4}}},
       .inputs = {floats({1, 1, 3, 3, 4, 16}), floats({8, 16, 2, 2, 3})}},
      {.name = "channels-last",
       .attrs = {{"pads", Ints{1, 1, 1, 1}}, {"x_block", std::int64_t{6}}, {"y_block", std::int64_t{10}}},
       .inputs = {floats({2, 1, 4, 3, 6}), floats({10, 6, 3, 3}), floats({10})}},
  };
}

std::vector<Sample> bench_samples() {
  return {
      {.name = "resnet-block",
       .attrs = {{"pads", Ints{1, 1, 1, 1}}},
       .inputs = {floats({8, 64, 56, 56}), floats({64, 64, 3, 3})},
       .bench = true},
      {.name = "resnet-block-blocks",
       .attrs = {{"pads", Ints{1, 1, 1, 1}}, {"x_block", std::int64_t{16}}, {"y_block", std::int64_t{16}}},
       .inputs = {floats({8, 4, 56, 56, 16}), floats({64, 64, 3, 3})},
       .bench = true},
      {.name = "resnet-stem",
       .attrs = {{"pads", Ints{3, 3, 3, 3}}, {"strides", Ints{2, 2}}},
       .inputs = {floats({8, 3, 224, 224}), floats({64, 3, 7, 7})},
       .bench = true},
      {.name = "resnet-stem-blocks",
       .attrs = {{"pads", Ints{3, 3, 3, 3}}, {"strides", Ints{2, 2}}, {"y_block", std::int64_t{16}}},
       .inputs = {floats({8, 3, 224, 224}), floats({64, 3, 7, 7})},
       .bench = true},
      {.name = "resnet-narrow", .inputs = {floats({8, 256, 56, 56}), floats({64, 256, 1, 1})}, .bench = true},
      {.name = "resnet-narrow-blocks",
       .attrs = {{"x_block", std::int64_t{16}}, {"y_block", std::int64_t{16}}},
       .inputs = {floats({8, 16, 56, 56, 16}), floats({64, 256, 1, 1})},
       .bench = true},
      {.name = "resnet-shortcut",
       .attrs = {{"strides", Ints{2, 2}}},
       .inputs = {floats({8, 256, 56, 56}), floats({512, 256, 1, 1})},
       .bench = true},
      {.name = "resnet-shortcut-blocks",
       .attrs = {{"strides", Ints{2, 2}}, {"x_block", std::int64_t{16}}, {"y_block", std::int64_t{16}}},
       .inputs = {floats({8, 16, 56, 56, 16}), floats({512, 256, 1, 1})},
       .bench = true},
      {.name = "resnet-14",
       .attrs = {{"pads", Ints{1, 1, 1, 1}}},
       .inputs = {floats({8, 256, 14, 14}), floats({256, 256, 3, 3})},
       .bench = true},
      {.name = "resnet-7",
       .attrs = {{"pads", Ints{1, 1, 1, 1}}},
       .inputs = {floats({8, 512, 7, 7}), floats({512, 512, 3, 3})},
       .bench = true},
  };
}

std::vector<Sample> samples() {
  std::vector<Sample> list = plain_samples();
  for (const auto& more : {block_samples(), bench_samples()})
    list.insert(list.end(), more.begin(), more.end());
  return list;
}

}  // namespace

const OpDef conv_op = {
    .name = "Conv",
    .since = 1,
    .summary = "Convolution with groups, dilations and padding.",
    .min_inputs = 2,
    .max_inputs = 3,
    .max_outputs = 1,
    .infer = infer,
    .grad = grad,
    .cost = cost,
    .cpu = prepare,
    .gpu = prepare,
    .samples = samples,
    .precision = Precision::low,
    .channel_blocks = ChannelBlocks::sides,
    .arithmetic = Arithmetic::convolutions,
};

}  // namespace gradloom
