// ConvTranspose: the gradient of Conv with respect to its input, as an operator of its own.
//   x: [n, c, in..], w: [c, k / group, kernel..], bias: [k] or omitted, y: [n, k, out..], one to three spatial dims
//   out = stride * (in - 1) + output_padding + (kernel - 1) * dilation + 1 - pad_begin - pad_end
//   dx: Conv(dy, w), dw: ConvGradWeights(x, dy), dbias: dy summed over n and the spatial dims
// output_shape gives `out` instead, and auto_pad SAME_* out = in * stride; the pads follow.
// Source: ONNX ConvTranspose-11.
#include <algorithm>

#include "engine/ops/windows/conv_shapes.h"
#include "engine/ops/elementwise/code.h"
#include "engine/ops/costs.h"
#include "engine/ops/dims.h"
#include "engine/ops/gradient_rules.h"
#include "engine/ops/inference.h"
#include "engine/ops/samples.h"
#include "engine/ops/rows.h"
#include "kernels/launcher.h"

namespace gradloom {
namespace {

using Ints = std::vector<std::int64_t>;

// The window as the convolution from y to x has it; `y`: the spatial dims of the result (symbolic where those
// of x are).
struct Transposed {
  SlidingWindow window;
  Shape y;
};

// Pads of `total`; SAME_UPPER puts the odd one at the end, everything else at the begin.
void split_pads(SlidingWindow& w, std::size_t i, std::int64_t total, bool upper) {
  total = std::max<std::int64_t>(total, 0);
  w.pad_begin[i] = upper ? total / 2 : total - total / 2;
  w.pad_end[i] = total - w.pad_begin[i];
}

Status check_size(std::int64_t out) {
  if (out >= 1 && out <= std::int64_t{1} << 31) return {};
  return infer_error("output dim " + std::to_string(out) + " is out of range");
}

Result<Transposed> transposed(const Attrs& attrs, const Shape& x, const Shape& w) {
  const Ints kernel = spatial_of(w), declared = attrs.integers("kernel_shape");
  if (!declared.empty() && declared != kernel)
    return infer_error("kernel_shape is " + to_string(declared) + ", the weight has " + to_string(kernel));
  Attrs window = attrs;
  window.set("kernel_shape", kernel);
  Transposed t;
  t.window = TRY(explicit_window(window, spatial_of(x)));
  const std::size_t rank = kernel.size();
  const Ints shape = attrs.integers("output_shape");
  Ints extra = attrs.integers("output_padding");
  if (extra.empty()) extra.assign(rank, 0);
  if (extra.size() != rank || (!shape.empty() && shape.size() != rank))
    return infer_error("output_padding and output_shape need " + std::to_string(rank) + " entries");
  const std::string auto_pad = attrs.text("auto_pad", "NOTSET");
  const bool upper = auto_pad == "SAME_UPPER", same = upper || auto_pad == "SAME_LOWER";
  for (std::size_t i = 0; i < rank; ++i) {
    const std::int64_t stride = t.window.stride[i], dilation = t.window.dilation[i], in = t.window.out[i];
    if (extra[i] < 0 || extra[i] >= std::max(stride, dilation))
      return infer_error("output_padding " + std::to_string(extra[i]) +
                         " must be smaller than the stride or the dilation");
    if (!shape.empty()) TRY(check_size(shape[i]));
    if (auto_pad == "VALID") t.window.pad_begin[i] = t.window.pad_end[i] = 0;
    if (in < 0) {
      t.y.push_back(!shape.empty()
                        ? shape[i]
                        : derived_dim("transposed " + std::to_string(in) + " " + to_string(attrs)));
      continue;
    }
    const std::int64_t full = stride * (in - 1) + extra[i] + (t.window.kernel[i] - 1) * dilation + 1;
    std::int64_t out = full - t.window.pad_begin[i] - t.window.pad_end[i];
    if (!shape.empty() || same) {
      out = !shape.empty() ? shape[i] : in * stride;
      split_pads(t.window, i, full - out, upper);
    }
    TRY(check_size(out));
    t.y.push_back(out);
  }
  return t;
}

Status check_channels(const Shape& x, const Shape& w, std::int64_t groups) {
  if (groups < 1) return infer_error("group is " + std::to_string(groups));
  if (dims_differ(x[1], w[0]))
    return infer_error("weight " + to_string(w) + " does not fit the channels of " + to_string(x));
  if (x[1] >= 0 && x[1] % groups != 0)
    return infer_error(std::to_string(x[1]) + " input channels are not divisible by " +
                       std::to_string(groups) + " groups");
  return {};
}

Status infer(InferContext& ctx) {
  TRY(require_inputs(ctx, 2));
  const Shape &x = ctx.shape(0), &w = ctx.shape(1);
  if (x.size() < 3 || w.size() != x.size())
    return infer_error("input " + to_string(x) + " and weight " + to_string(w) +
                       " must have the same 3 or more dims");
  if (!all_static(w, 1, w.size()))
    return infer_error("the dims of weight " + to_string(w) + " must be known");
  TRY(require_float(ctx, 1, "weight"));
  const std::int64_t groups = ctx.attrs.integer("group", 1);
  TRY(check_channels(x, w, groups));
  const std::int64_t channels = TRY(multiply_dims({w[1], groups}));
  if (ctx.has(2)) {
    TRY(require_float(ctx, 2, "bias"));
    if (ctx.shape(2).size() != 1 || dims_differ(ctx.shape(2)[0], channels))
      return infer_error("bias " + to_string(ctx.shape(2)) + " does not fit " + std::to_string(channels) +
                         " output channels");
  }
  const Transposed t = TRY(transposed(ctx.attrs, x, w));
  Shape y{x[0], channels};
  y.insert(y.end(), t.y.begin(), t.y.end());
  return set_outputs(ctx, {{ctx.dtype(0), std::move(y)}});
}

// dx: what the convolution of dy gives, which may see columns of dy that no tap of w
// reaches: they are cut off.
Result<ValueId> grad_data(GradContext& ctx, const SlidingWindow& window, const Shape& x) {
  SlidingWindow w = window;
  ValueId dy = ctx.grad();
  const Shape y = ctx.shape(dy);
  Ints ends(y.begin() + 2, y.end()), axes;
  bool cut = false;
  for (std::size_t i = 0; i < w.rank(); ++i) {
    const std::int64_t seen =
        (x[i + 2] - 1) * w.stride[i] + (w.kernel[i] - 1) * w.dilation[i] + 1 - w.pad_begin[i];
    w.pad_end[i] = std::max<std::int64_t>(0, seen - y[i + 2]);
    cut = cut || seen < y[i + 2];
    ends[i] = std::min(ends[i], seen);
    axes.push_back(as_dim(i) + 2);
  }
  GraphBuilder& b = ctx.b;
  if (cut) dy = b.op("Slice", {dy, b.i64s(Ints(axes.size(), 0)), b.i64s(ends), b.i64s(axes)});
  Attrs attrs = window_attrs(w);
  attrs.set("group", ctx.node.attrs.integer("group", 1));
  return b.op("Conv", {dy, ctx.in(1)}, std::move(attrs));
}

Status grad(GradContext& ctx) {
  const ValueId x = ctx.in(0), w = ctx.in(1), dy = ctx.grad();
  TRY(require_static(ctx, x));
  if (element_count(ctx.shape(x)) == 0 || element_count(ctx.shape(w)) == 0)
    return Error{Errc::bad_input, "no gradient of empty operands"};
  const Transposed t = TRY(transposed(ctx.node.attrs, ctx.shape(x), ctx.shape(w)));
  if (ctx.wants(0)) ctx.set(0, TRY(grad_data(ctx, t.window, ctx.shape(x))));
  if (ctx.wants(1)) {
    Attrs attrs = window_attrs(t.window);
    attrs.set("group", ctx.node.attrs.integer("group", 1));
    attrs.set("weight_shape", ctx.shape(w));
    ctx.set(1, ctx.b.op("ConvGradWeights", {x, dy}, std::move(attrs)));
  }
  if (!ctx.wants(2)) return {};
  Ints axes{0};
  for (std::size_t i = 2; i < ctx.shape(dy).size(); ++i) axes.push_back(as_dim(i));
  ctx.set(2, ctx.b.op("ReduceSum", {dy, ctx.b.i64s(axes)}, {{"keepdims", std::int64_t{0}}}));
  return {};
}

Cost cost(const NodeTypes& types) {
  const double bias = types.has(2) ? static_cast<double>(element_count(types.outputs[0].shape)) : 0;
  return cost_of(types, convolution_flops(types.inputs[0].shape, types.inputs[1].shape) + bias);
}

// y + bias: a kernel whose inputs are y, in place, and the bias.
Result<Kernel> prepare_bias(const NodeTypes& types) {
  const Type& y = types.outputs[0];
  Shape channels(y.shape.size() - 1, 1);
  channels[0] = y.shape[1];
  NodeTypes sum;
  sum.inputs = {y, {types.inputs[2].dtype, channels}};
  sum.input_present = {true, true};
  sum.outputs = {y};
  sum.output_present = {true};
  sum.constants = {nullptr, nullptr};
  sum.target = types.target;
  elementwise_code::Code code(sum);
  return code.prepare(code.op(kernels::EwOp::Add, {code.in(0), code.in(1)}));
}

Result<Kernel> prepare(const NodeTypes& types) {
  const Shape &x = types.inputs[0].shape, &w = types.inputs[1].shape, &y = types.outputs[0].shape;
  const Transposed t = TRY(transposed(types.attrs, x, w));
  Kernel kernel = TRY(prepare_convolution(types, kernels::ConvolutionKind::backward_data,
                                          {y, w, x, t.window, types.attrs.integer("group", 1), false}));
  if (!types.has(2) || element_count(y) == 0) return kernel;
  Kernel bias = TRY(prepare_bias(types));
  kernel.programs.insert(kernel.programs.end(), bias.programs.begin(), bias.programs.end());
  kernel.run = [convolve = std::move(kernel.run), add = std::move(bias.run)](const LaunchArgs& args) {
    convolve(args);
    const void* inputs[] = {args.outputs[0], args.inputs[2]};
    add({inputs, args.outputs, args.workspace, args.random, args.on});
  };
  return kernel;
}

std::vector<Sample> samples() {
  return {
      {.name = "plain", .inputs = {floats({2, 3, 3, 4}), floats({3, 2, 3, 2})}},
      {.name = "bias-pads-strides",
       .attrs = {{"strides", Ints{3, 2}}, {"pads", Ints{1, 0, 2, 1}}},
       .inputs = {floats({1, 2, 3, 4}), floats({2, 3, 4, 3}), floats({3})}},
      {.name = "output-padding",
       .attrs = {{"strides", Ints{3, 2}}, {"output_padding", Ints{2, 1}}, {"pads", Ints{1, 1, 1, 1}}},
       .inputs = {floats({2, 2, 3, 3}), floats({2, 2, 3, 3}), floats({2})}},
      {.name = "dilations",
       .attrs = {{"dilations", Ints{2, 1}}, {"pads", Ints{1, 0, 1, 0}}},
       .inputs = {floats({1, 2, 4, 3}), floats({2, 2, 2, 3})}},
      {.name = "groups",
       .attrs = {{"group", std::int64_t{2}}, {"strides", Ints{2, 1}}},
       .inputs = {floats({2, 4, 3, 3}), floats({4, 3, 2, 2}), floats({6})}},
      {.name = "output-shape",
       .attrs = {{"output_shape", Ints{8, 7}}, {"strides", Ints{2, 2}}},
       .inputs = {floats({1, 1, 3, 3}), floats({1, 2, 3, 3})}},
      {.name = "same-upper",
       .attrs = {{"auto_pad", std::string("SAME_UPPER")}, {"strides", Ints{2, 2}}},
       .inputs = {floats({1, 1, 3, 3}), floats({1, 2, 3, 3})}},
      {.name = "same-lower",
       .attrs = {{"auto_pad", std::string("SAME_LOWER")}, {"strides", Ints{2, 1}}},
       .inputs = {floats({1, 1, 3, 3}), floats({1, 2, 3, 3})}},
      {.name = "one-dim",
       .attrs = {{"strides", Ints{2}}},
       .inputs = {floats({2, 3, 5}), floats({3, 2, 3}), floats({2})}},
      {.name = "three-dims",
       .attrs = {{"strides", Ints{1, 2, 2}}, {"pads", Ints{0, 1, 0, 1, 0, 1}}},
       .inputs = {floats({1, 2, 2, 3, 2}), floats({2, 2, 2, 3, 3}), floats({2})}},
      {.name = "decoder",
       .attrs = {{"strides", Ints{2, 2}}, {"pads", Ints{1, 1, 1, 1}}},
       .inputs = {floats({8, 128, 28, 28}), floats({128, 64, 4, 4}), floats({64})},
       .bench = true},
  };
}

}  // namespace

const OpDef conv_transpose_op = {
    .name = "ConvTranspose",
    .since = 1,
    .summary = "Transposed convolution: each input value adds a scaled copy of the filter.",
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
    .arithmetic = Arithmetic::convolutions,
};

}  // namespace gradloom
