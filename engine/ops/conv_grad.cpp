// ConvGradData, ConvGradWeights (ours): gradients of Conv with respect to its input and its weight.
//   ConvGradData(dy: [n, k, oh, ow], w: [k, c / group, r, s]) -> dx of shape input_shape [n, c, h, w]
//   ConvGradWeights(dy, x: [n, c, h, w]) -> dw of shape weight_shape [k, c / group, r, s], summed over n, oh,
//   ow
// Attributes: kernel_shape, strides, dilations, pads (explicit), group, input_shape | weight_shape.
#include "engine/ops/convolution.h"
#include "engine/ops/nn.h"

namespace gradloom {
namespace {

Status infer_data(InferContext& ctx) {
  TRY(require_inputs(ctx, 2));
  Shape x = TRY(nn::shape_attribute(ctx.attrs, "input_shape", ctx.shape(0).size()));
  TRY(nn::require_float(ctx, 1, "weight"));
  return nn::set_outputs(ctx, {{ctx.dtype(0), std::move(x)}});
}

Status infer_weights(InferContext& ctx) {
  TRY(require_inputs(ctx, 2));
  Shape w = TRY(nn::shape_attribute(ctx.attrs, "weight_shape", ctx.shape(0).size()));
  TRY(nn::require_float(ctx, 1, "input"));
  return nn::set_outputs(ctx, {{ctx.dtype(0), std::move(w)}});
}

Cost cost_data(const NodeTypes& types) {
  return nn::cost_of(types, nn::convolution_flops(types.inputs[0].shape, types.inputs[1].shape));
}

Cost cost_weights(const NodeTypes& types) {
  return nn::cost_of(types, nn::convolution_flops(types.inputs[0].shape, types.outputs[0].shape));
}

Result<Kernel> prepare_data(const NodeTypes& types) {
  const Shape& dy = types.inputs[0].shape;
  const nn::Window window = TRY(nn::explicit_window(types.attrs, nn::spatial_of(dy)));
  return nn::prepare_convolution(
      types.target, kernels::ConvolutionKind::backward_data, types.inputs[0].dtype,
      {types.outputs[0].shape, types.inputs[1].shape, dy, window, types.attrs.integer("group", 1), false});
}

Result<Kernel> prepare_weights(const NodeTypes& types) {
  const Shape& dy = types.inputs[0].shape;
  const nn::Window window = TRY(nn::explicit_window(types.attrs, nn::spatial_of(dy)));
  return nn::prepare_convolution(
      types.target, kernels::ConvolutionKind::backward_weights, types.inputs[0].dtype,
      {types.inputs[1].shape, types.outputs[0].shape, dy, window, types.attrs.integer("group", 1), false});
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
      {.name = "resnet-block",
       .attrs = {{"kernel_shape", Ints{3, 3}},
                 {"pads", Ints{1, 1, 1, 1}},
                 {"input_shape", Ints{8, 64, 56, 56}}},
       .inputs = {floats({8, 64, 56, 56}), floats({64, 64, 3, 3})},
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
      {.name = "resnet-block",
       .attrs = {{"kernel_shape", Ints{3, 3}},
                 {"pads", Ints{1, 1, 1, 1}},
                 {"weight_shape", Ints{64, 64, 3, 3}}},
       .inputs = {floats({8, 64, 56, 56}), floats({8, 64, 56, 56})},
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
};

}  // namespace gradloom
