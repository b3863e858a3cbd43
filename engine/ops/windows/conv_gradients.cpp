// ConvGradData, ConvGradWeights (ours): gradients of Conv with respect to its input and its weight.
//   ConvGradData(dy: [n, k, oh, ow], w: [k, c / group, r, s]) -> dx of shape input_shape [n, c, h, w]
//   ConvGradWeights(dy, x: [n, c, h, w]) -> dw of shape weight_shape [k, c / group, r, s], summed over n, oh,
//   ow
// Attributes: kernel_shape, strides, dilations, pads (explicit), group, input_shape | weight_shape (plain),
// x_block, y_block: x and dx, or dy have their channels in blocks (channel_blocks.h).
#include "engine/ops/windows/conv_shapes.h"
#include "engine/ops/costs.h"
#include "engine/ops/inference.h"
#include "engine/ops/samples.h"
#include "engine/ops/rows.h"
#include "kernels/launcher.h"

namespace gradloom {
namespace {

// Dims of dy without those of a block.
Result<std::size_t> rank_of(const InferContext& ctx) {
  const bool blocks = TRY(block_of(ctx.attrs, "y_block", ctx.shape(0), "dy")) > 1;
  return ctx.shape(0).size() - (blocks ? 1 : 0);
}

Status infer_data(InferContext& ctx) {
  TRY(require_inputs(ctx, 2));
  Shape x = TRY(shape_attribute(ctx.attrs, "input_shape", TRY(rank_of(ctx))));
  TRY(require_float(ctx, 1, "weight"));
  const std::int64_t block = ctx.attrs.integer("x_block", 1);
  if (block < 1) return infer_error("x_block is " + std::to_string(block));
  return set_outputs(ctx, {{ctx.dtype(0), TRY(blocked_shape(std::move(x), block))}});
}

Status infer_weights(InferContext& ctx) {
  TRY(require_inputs(ctx, 2));
  Shape w = TRY(shape_attribute(ctx.attrs, "weight_shape", TRY(rank_of(ctx))));
  TRY(require_float(ctx, 1, "input"));
  TRY(block_of(ctx.attrs, "x_block", ctx.shape(1), "input"));
  return set_outputs(ctx, {{ctx.dtype(0), std::move(w)}});
}

Cost cost_data(const NodeTypes& types) {
  return cost_of(types, convolution_flops(types.inputs[0].shape, types.inputs[1].shape));
}

Cost cost_weights(const NodeTypes& types) {
  return cost_of(types, convolution_flops(types.inputs[0].shape, types.outputs[0].shape));
}

Result<Kernel> prepare_data(const NodeTypes& types) {
  const std::int64_t x_block = types.attrs.integer("x_block", 1), y_block = types.attrs.integer("y_block", 1);
  const Shape dy = plain_shape(types.inputs[0].shape, y_block);
  const SlidingWindow window = TRY(explicit_window(types.attrs, spatial_of(dy)));
  return prepare_convolution(types, kernels::ConvolutionKind::backward_data,
                             {plain_shape(types.outputs[0].shape, x_block), types.inputs[1].shape, dy, window,
                              types.attrs.integer("group", 1), false, x_block, y_block});
}

Result<Kernel> prepare_weights(const NodeTypes& types) {
  const std::int64_t x_block = types.attrs.integer("x_block", 1), y_block = types.attrs.integer("y_block", 1);
  const Shape dy = plain_shape(types.inputs[0].shape, y_block);
  const SlidingWindow window = TRY(explicit_window(types.attrs, spatial_of(dy)));
  return prepare_convolution(types, kernels::ConvolutionKind::backward_weights,
                             {plain_shape(types.inputs[1].shape, x_block), types.outputs[0].shape, dy, window,
                              types.attrs.integer("group", 1), false, x_block, y_block});
}

using Ints = std::vector<std::int64_t>;

std::vector<Sample> samples_data() {
  return {
      {.name = "plain",
       .attrs = {{"kernel_shape", Ints{3, 2}}, {"input_shape", Ints{2, 3, 5, 6}}},
       .inputs = {floats({2, 4, 3, 5}), floats({4, 3, 3, 2})}},
      {.name = "strides-groups",
       .attrs = {{"kernel_shape", Ints{3, 3}},
                 {"strides", Ints{2, 2}},
                 {"pads", Ints{1, 1, 0, 1}},
                 {"group", std::int64_t{2}},
                 {"input_shape", Ints{1, 4, 6, 5}}},
       .inputs = {floats({1, 2, 3, 3}), floats({2, 2, 3, 3})}},
      {.name = "dilations",
       .attrs = {{"kernel_shape", Ints{2, 3}}, {"dilations", Ints{3, 1}}, {"input_shape", Ints{2, 1, 6, 5}}},
       .inputs = {floats({2, 2, 3, 3}), floats({2, 1, 2, 3})}},
      {.name = "three-dims",
       .attrs = {{"kernel_shape", Ints{2, 3, 2}},
                 {"strides", Ints{2, 1, 2}},
                 {"pads", Ints{0, 1, 0, 1, 1, 1}},
                 {"input_shape", Ints{2, 2, 4, 3, 5}}},
       .inputs = {floats({2, 3, 2, 3, 3}), floats({3, 2, 2, 3, 2})}},
      {.name = "blocks",
       .attrs = {{"kernel_shape", Ints{3, 3}},
                 {"pads", Ints{1, 1, 1, 1}},
                 {"input_shape", Ints{2, 32, 4, 5}},
                 {"x_block", std::int64_t{16}},
                 {"y_block", std::int64_t{16}}},
       .inputs = {floats({2, 1, 4, 5, 16}), floats({16, 32, 3, 3})}},
      {.name = "resnet-block",
       .attrs = {{"kernel_shape", Ints{3, 3}},
                 {"pads", Ints{1, 1, 1, 1}},
                 {"input_shape", Ints{8, 64, 56, 56}}},
       .inputs = {floats({8, 64, 56, 56}), floats({64, 64, 3, 3})},
       .bench = true},
      {.name = "resnet-block-blocks",
       .attrs = {{"kernel_shape", Ints{3, 3}},
                 {"pads", Ints{1, 1, 1, 1}},
                 {"input_shape", Ints{8, 64, 56, 56}},
                 {"x_block", std::int64_t{16}},
                 {"y_block", std::int64_t{16}}},
       .inputs = {floats({8, 4, 56, 56, 16}), floats({64, 64, 3, 3})},
       .bench = true},
  };
}

std::vector<Sample> samples_weights() {
  return {
      {.name = "plain",
       .attrs = {{"kernel_shape", Ints{3, 2}}, {"weight_shape", Ints{4, 3, 3, 2}}},
       .inputs = {floats({2, 4, 3, 5}), floats({2, 3, 5, 6})}},
      {.name = "strides-groups",
       .attrs = {{"kernel_shape", Ints{3, 3}},
                 {"strides", Ints{2, 2}},
                 {"pads", Ints{1, 1, 0, 1}},
                 {"group", std::int64_t{2}},
                 {"weight_shape", Ints{2, 2, 3, 3}}},
       .inputs = {floats({1, 2, 3, 3}), floats({1, 4, 6, 5})}},
      {.name = "dilations",
       .attrs = {{"kernel_shape", Ints{2, 3}}, {"dilations", Ints{3, 1}}, {"weight_shape", Ints{2, 1, 2, 3}}},
       .inputs = {floats({2, 2, 3, 3}), floats({2, 1, 6, 5})}},
      {.name = "three-dims",
       .attrs = {{"kernel_shape", Ints{2, 3, 2}},
                 {"strides", Ints{2, 1, 2}},
                 {"pads", Ints{0, 1, 0, 1, 1, 1}},
                 {"weight_shape", Ints{3, 2, 2, 3, 2}}},
       .inputs = {floats({2, 3, 2, 3, 3}), floats({2, 2, 4, 3, 5})}},
      {.name = "blocks",
       .attrs = {{"kernel_shape", Ints{3, 3}},
                 {"pads", Ints{1, 1, 1, 1}},
                 {"weight_shape", Ints{16, 32, 3, 3}},
                 {"x_block", std::int64_t{16}},
                 {"y_block", std::int64_t{16}}},
       .inputs = {floats({2, 1, 4, 5, 16}), floats({2, 2, 4, 5, 16})}},
      {.name = "resnet-block",
       .attrs = {{"kernel_shape", Ints{3, 3}},
                 {"pads", Ints{1, 1, 1, 1}},
                 {"weight_shape", Ints{64, 64, 3, 3}}},
       .inputs = {floats({8, 64, 56, 56}), floats({8, 64, 56, 56})},
       .bench = true},
      {.name = "resnet-block-blocks",
       .attrs = {{"kernel_shape", Ints{3, 3}},
                 {"pads", Ints{1, 1, 1, 1}},
                 {"weight_shape", Ints{64, 64, 3, 3}},
                 {"x_block", std::int64_t{16}},
                 {"y_block", std::int64_t{16}}},
       .inputs = {floats({8, 4, 56, 56, 16}), floats({8, 4, 56, 56, 16})},
       .bench = true},
  };
}

}  // namespace

const OpDef conv_grad_data_op = {
    .name = "ConvGradData",
    .domain = "gradloom",
    .summary = "Gradient of Conv with respect to its input.",
    .min_inputs = 2,
    .max_inputs = 2,
    .max_outputs = 1,
    .infer = infer_data,
    .cost = cost_data,
    .cpu = prepare_data,
    .gpu = prepare_data,
    .samples = samples_data,
    .arithmetic = Arithmetic::convolutions,
};

const OpDef conv_grad_weights_op = {
    .name = "ConvGradWeights",
    .domain = "gradloom",
    .summary = "Gradient of Conv with respect to its weight.",
    .min_inputs = 2,
    .max_inputs = 2,
    .max_outputs = 1,
    .infer = infer_weights,
    .cost = cost_weights,
    .cpu = prepare_weights,
    .gpu = prepare_weights,
    .samples = samples_weights,
    .arithmetic = Arithmetic::convolutions,
};

}  // namespace gradloom
