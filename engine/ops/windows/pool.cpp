// MaxPool, AveragePool, GlobalAveragePool and the gradient rows of the first two.
//   x: [n, c, spatial..], y: [n, c, windows..], one to three spatial dims
//   MaxPool: largest value of each window, padding never wins. Output 1, Indices: i64 into the whole of x,
//   row-major or (storage_order 1) column-major within a plane. Output 2 (ours): i64 into the plane,
//   row-major, which the gradient scatters along. AveragePool: sum over the window / its elements (those
//   inside x, or with count_include_pad those inside x and its pads; ours, sum: / 1). GlobalAveragePool: mean
//   over the spatial dims.
//   Attribute block (ours): x, y and positions have their channels in blocks (channel_blocks.h); Indices stay those of the plain x.
// Source: ONNX MaxPool-12, AveragePool-19, GlobalAveragePool-1.
#include "engine/ops/kernel_sequence.h"
#include "engine/ops/costs.h"
#include "engine/ops/dims.h"
#include "engine/ops/gradient_rules.h"
#include "engine/ops/inference.h"
#include "engine/ops/preparation.h"
#include "engine/ops/samples.h"
#include "engine/ops/windows/sliding_window.h"
#include "engine/ops/rows.h"
#include "kernels/launcher.h"

namespace gradloom {
namespace {

Result<Shape> pooled_shape(const InferContext& ctx) {
  const Shape& x = ctx.shape(0);
  if (x.size() < 3) return infer_error("input " + to_string(x) + " must have 3 or more dims");
  const std::int64_t block = TRY(block_of(ctx.attrs, "block", x, "input"));
  const SlidingWindow window = TRY(resolve_pooling_window(ctx.attrs, spatial_of(x, block)));
  Shape y{x[0], x[1]};
  y.insert(y.end(), window.out.begin(), window.out.end());
  if (block > 1) y.push_back(block);
  return y;
}

// Explicit window and input shape: the attributes of a gradient row.
Result<Attrs> grad_attrs(const GradContext& ctx) {
  TRY(require_static(ctx, ctx.in(0)));
  const Shape& x = ctx.shape(ctx.in(0));
  const std::int64_t block = ctx.node.attrs.integer("block", 1);
  Attrs attrs = window_attrs(TRY(resolve_pooling_window(ctx.node.attrs, spatial_of(x, block))));
  attrs.set("input_shape", x);
  if (block > 1) attrs.set("block", block);
  return attrs;
}

Status infer_from_input_shape(InferContext& ctx) {
  const Shape& dy = ctx.shape(0);
  Shape x = ctx.attrs.integers("input_shape");
  if (x.size() < 3 || x.size() != dy.size() || !is_static(x))
    return infer_error("input_shape " + to_string(x) + " does not fit dy " + to_string(dy));
  TRY(block_of(ctx.attrs, "block", dy, "dy"));
  TRY(block_of(ctx.attrs, "block", x, "input_shape"));
  return set_outputs(ctx, {{ctx.dtype(0), std::move(x)}});
}

double window_size(const NodeTypes& types) {
  double size = 1;
  for (std::int64_t k : types.attrs.integers("kernel_shape")) size *= static_cast<double>(k);
  return size;
}

// One comparison or addition per element of each window.
Cost cost_pool(const NodeTypes& types) {
  return cost_of(types, window_size(types) * static_cast<double>(element_count(types.outputs[0].shape)));
}
Cost cost_average_grad(const NodeTypes& types) {
  return cost_of(types, window_size(types) * static_cast<double>(element_count(types.inputs[0].shape)));
}
Cost cost_max_grad(const NodeTypes& types) {
  return cost_of(types, static_cast<double>(element_count(types.inputs[0].shape)));
}

// ---- MaxPool ----------------------------------------------------------------------------------------------

Status infer_max(InferContext& ctx) {
  TRY(require_inputs(ctx, 1));
  const Shape y = TRY(pooled_shape(ctx));
  return set_outputs(ctx, {{ctx.dtype(0), y}, {DType::i64, y}, {DType::i64, y}});
}

Status grad_max(GradContext& ctx) {
  TRY(require_first_output_only(ctx));
  const Attrs all = TRY(grad_attrs(ctx));
  Attrs attrs{{"input_shape", all.integers("input_shape")}};
  if (all.has("block")) attrs.set("block", all.integer("block"));
  const ValueId argmax = ctx.require_out(2);
  ctx.set(0, ctx.b.op("MaxPoolGrad", {ctx.grad(), argmax}, std::move(attrs)));
  return {};
}

// The windows of a forward row.
Result<kernels::PoolShape> windows_of(const NodeTypes& types) {
  const Shape& x = types.inputs[0].shape;
  const std::int64_t block = types.attrs.integer("block", 1);
  TRY(require_layout(types.target, block));
  return pool_shape(x, TRY(resolve_pooling_window(types.attrs, spatial_of(x, block))), block);
}

// 8-bit integers are f32 numbers.
Result<Kernel> prepare_max_integers(const NodeTypes& types) {
  KernelSequence s(types);
  const DType dtype = types.inputs[0].dtype;
  auto results = s.b().ops(op_by_name("MaxPool"), {s.cast(s.in(0), DType::f32)}, types.attrs,
                           static_cast<int>(types.outputs.size()));
  results[0] = s.cast(results[0], dtype);
  return s.prepare("max_pool", results);
}

Result<Kernel> prepare_max(const NodeTypes& types) {
  const Type& x = types.inputs[0];
  if (x.dtype == DType::u8 || x.dtype == DType::i8) return prepare_max_integers(types);
  TRY(require_kernel_type(types.target, x.dtype));
  kernels::MaxPoolArgs layout{};
  layout.dtype = x.dtype;
  layout.shape = TRY(windows_of(types));
  layout.column_major = types.attrs.integer("storage_order") != 0;
  if (element_count(types.outputs[0].shape) == 0) return no_work("max_pool");
  const bool indices = types.wants(1), argmax = types.wants(2);
  return Kernel{"max_pool", 0, [layout, indices, argmax](const LaunchArgs& args) {
                  kernels::MaxPoolArgs a = layout;
                  a.x = args.inputs[0];
                  a.y = args.outputs[0];
                  a.indices = indices ? static_cast<std::int64_t*>(args.outputs[1]) : nullptr;
                  a.argmax = argmax ? static_cast<std::int64_t*>(args.outputs[2]) : nullptr;
                  args.on.max_pool(a);
                }};
}

Status infer_max_grad(InferContext& ctx) {
  TRY(require_inputs(ctx, 2));
  if (ctx.dtype(1) != DType::i64) return infer_error("positions must be i64");
  return infer_from_input_shape(ctx);
}

Result<Kernel> prepare_max_grad(const NodeTypes& types) {
  const Type& dy = types.inputs[0];
  TRY(require_kernel_type(types.target, dy.dtype));
  const std::int64_t block = types.attrs.integer("block", 1);
  TRY(require_layout(types.target, block));
  const Shape in = spatial_3d(spatial_of(types.outputs[0].shape, block)),
              out = spatial_3d(spatial_of(dy.shape, block));
  if (in.size() != 3) return no_kernel("no kernel for " + std::to_string(in.size()) + "-d windows");
  return Kernel{
      "max_pool_grad", 0,
      [dtype = dy.dtype, in, out, block, planes = dy.shape[0] * dy.shape[1]](const LaunchArgs& args) {
        args.on.max_pool_grad({dtype, planes, in[0] * in[1], in[2], out[0] * out[1], out[2], args.inputs[0],
                               static_cast<const std::int64_t*>(args.inputs[1]), args.outputs[0], block});
      }};
}

// ---- AveragePool ------------------------------------------------------------------------------------------

Status infer_average(InferContext& ctx) {
  TRY(require_inputs(ctx, 1));
  if (!is_float(ctx.dtype(0))) return infer_error(std::string("the input is ") + dtype_name(ctx.dtype(0)));
  const Shape y = TRY(pooled_shape(ctx));
  return set_outputs(ctx, {{ctx.dtype(0), y}});
}

Status grad_average(GradContext& ctx) {
  Attrs attrs = TRY(grad_attrs(ctx));
  for (const char* name : {"count_include_pad", "sum"}) attrs.set(name, ctx.node.attrs.integer(name));
  ctx.set(0, ctx.b.op("AveragePoolGrad", {ctx.grad()}, std::move(attrs)));
  return {};
}

kernels::PoolDivisor divisor_of(const Attrs& attrs) {
  if (attrs.integer("sum") != 0) return kernels::PoolDivisor::one;
  return attrs.integer("count_include_pad") != 0 ? kernels::PoolDivisor::padded
                                                 : kernels::PoolDivisor::inside;
}

Result<Kernel> prepare_average(const NodeTypes& types) {
  const Type& x = types.inputs[0];
  TRY(require_kernel_type(types.target, x.dtype));
  kernels::AveragePoolArgs layout{};
  layout.dtype = x.dtype;
  layout.shape = TRY(windows_of(types));
  layout.divisor = divisor_of(types.attrs);
  return Kernel{"average_pool", 0, [layout](const LaunchArgs& args) {
                  kernels::AveragePoolArgs a = layout;
                  a.x = args.inputs[0];
                  a.y = args.outputs[0];
                  args.on.average_pool(a);
                }};
}

Status infer_average_grad(InferContext& ctx) {
  TRY(require_inputs(ctx, 1));
  return infer_from_input_shape(ctx);
}

Result<Kernel> prepare_average_grad(const NodeTypes& types) {
  const Type& dy = types.inputs[0];
  TRY(require_kernel_type(types.target, dy.dtype));
  const std::int64_t block = types.attrs.integer("block", 1);
  TRY(require_layout(types.target, block));
  const SlidingWindow window = TRY(explicit_window(types.attrs, spatial_of(dy.shape, block)));
  kernels::AveragePoolGradArgs layout{};
  layout.dtype = dy.dtype;
  layout.shape = TRY(pool_shape(types.outputs[0].shape, window, block));
  layout.divisor = divisor_of(types.attrs);
  return Kernel{"average_pool_grad", 0, [layout](const LaunchArgs& args) {
                  kernels::AveragePoolGradArgs a = layout;
                  a.dy = args.inputs[0];
                  a.dx = args.outputs[0];
                  args.on.average_pool_grad(a);
                }};
}

// ---- GlobalAveragePool ------------------------------------------------------------------------------------

Status infer_global(InferContext& ctx) {
  TRY(require_inputs(ctx, 1));
  Shape y = ctx.shape(0);
  if (y.size() < 3) return infer_error("input " + to_string(y) + " must have 3 or more dims");
  if (!is_float(ctx.dtype(0))) return infer_error(std::string("the input is ") + dtype_name(ctx.dtype(0)));
  for (std::size_t i = 2; i < y.size(); ++i) y[i] = 1;
  return set_outputs(ctx, {{ctx.dtype(0), std::move(y)}});
}

Status grad_global(GradContext& ctx) {
  TRY(require_static(ctx, ctx.in(0)));
  const Shape x = ctx.shape(ctx.in(0));
  const double count = static_cast<double>(dim_product(x, 2, x.size()));
  const ValueId scaled = divided_by_count(ctx.b, ctx.grad(), count);
  ctx.set(0, ctx.b.op("Expand", {scaled, ctx.b.i64s(x)}));
  return {};
}

Result<Kernel> prepare_global(const NodeTypes& types) {
  const Type& x = types.inputs[0];
  TRY(require_kernel_type(types.target, x.dtype));
  kernels::ReduceArgs layout{};
  layout.dtype = x.dtype;
  layout.op = kernels::Reduction::mean;
  layout.outer = x.shape[0] * x.shape[1];
  layout.n = dim_product(x.shape, 2, x.shape.size());
  layout.inner = 1;
  return Kernel{"reduce mean", kernels::workspace_bytes(types.target, layout),
                [layout](const LaunchArgs& args) {
                  kernels::ReduceArgs a = layout;
                  a.in = args.inputs[0];
                  a.out = args.outputs[0];
                  a.workspace = args.workspace;
                  args.on.reduce(a);
                }};
}

// ---- samples ----------------------------------------------------------------------------------------------

using Ints = std::vector<std::int64_t>;
constexpr std::int64_t kOn = 1;

// Of convolutional networks, for maxima and averages.
std::vector<Sample> bench_samples() {
  return {
      {.name = "stem",
       .attrs = {{"kernel_shape", Ints{3, 3}}, {"strides", Ints{2, 2}}, {"pads", Ints{1, 1, 1, 1}}},
       .inputs = {floats({8, 64, 112, 112})},
       .bench = true},
      {.name = "stem-blocks",
       .attrs = {{"kernel_shape", Ints{3, 3}},
                 {"strides", Ints{2, 2}},
                 {"pads", Ints{1, 1, 1, 1}},
                 {"block", std::int64_t{16}}},
       .inputs = {floats({8, 4, 112, 112, 16})},
       .bench = true},
      {.name = "inception",
       .attrs = {{"kernel_shape", Ints{3, 3}}, {"pads", Ints{1, 1, 1, 1}}},
       .inputs = {floats({8, 288, 35, 35})},
       .bench = true},
      {.name = "halve",
       .attrs = {{"kernel_shape", Ints{2, 2}}, {"strides", Ints{2, 2}}},
       .inputs = {floats({8, 64, 112, 112})},
       .bench = true},
      {.name = "halve-blocks",
       .attrs = {{"kernel_shape", Ints{2, 2}}, {"strides", Ints{2, 2}}, {"block", std::int64_t{16}}},
       .inputs = {floats({8, 4, 112, 112, 16})},
       .bench = true},
  };
}

std::vector<Sample> samples_max() {
  const Attrs plain{{"kernel_shape", Ints{2, 2}}};
  std::vector<Sample> list = {
      {.name = "plain", .attrs = plain, .inputs = {distinct_floats({2, 2, 4, 5})}},
      {.name = "strides-pads",
       .attrs = {{"kernel_shape", Ints{3, 3}}, {"strides", Ints{2, 2}}, {"pads", Ints{1, 1, 1, 1}}},
       .inputs = {distinct_floats({1, 3, 5, 6})}},
      {.name = "ceil",
       .attrs = {{"kernel_shape", Ints{3, 3}}, {"strides", Ints{2, 2}}, {"ceil_mode", kOn}},
       .inputs = {distinct_floats({1, 2, 6, 4})}},
      {.name = "ceil-larger-than-input",
       .attrs = {{"kernel_shape", Ints{8, 4}}, {"strides", Ints{8, 3}}, {"ceil_mode", kOn}},
       .inputs = {distinct_floats({2, 2, 3, 6})}},
      {.name = "dilations",
       .attrs = {{"kernel_shape", Ints{2, 2}}, {"dilations", Ints{2, 2}}},
       .inputs = {distinct_floats({1, 2, 5, 4})}},
      {.name = "same-upper",
       .attrs = {{"kernel_shape", Ints{3, 2}},
                 {"strides", Ints{2, 2}},
                 {"auto_pad", std::string("SAME_UPPER")}},
       .inputs = {distinct_floats({1, 2, 5, 5})}},
      {.name = "one-dim",
       .attrs = {{"kernel_shape", Ints{3}}, {"strides", Ints{2}}},
       .inputs = {distinct_floats({2, 3, 9})}},
      {.name = "three-dims",
       .attrs = {{"kernel_shape", Ints{2, 3, 2}},
                 {"strides", Ints{1, 2, 2}},
                 {"pads", Ints{1, 0, 0, 0, 1, 1}},
                 {"dilations", Ints{2, 1, 1}}},
       .inputs = {distinct_floats({1, 2, 4, 5, 4})}},
      {.name = "three-dims-columns",
       .attrs = {{"kernel_shape", Ints{2, 2, 2}},
                 {"storage_order", kOn},
                 {"ceil_mode", kOn},
                 {"strides", Ints{2, 2, 2}}},
       .inputs = {distinct_floats({2, 1, 3, 4, 5})},
       .output_count = 2},
      {.name = "indices", .attrs = plain, .inputs = {distinct_floats({2, 2, 4, 5})}, .output_count = 2},
      {.name = "bytes", .attrs = plain, .inputs = {ints({1, 2, 5, 4}, 0, 255, DType::u8)}, .output_count = 2},
      {.name = "signed-bytes",
       .attrs = {{"kernel_shape", Ints{2, 2}}, {"pads", Ints{1, 1, 1, 1}}},
       .inputs = {ints({1, 2, 5, 4}, -128, -3, DType::i8)}},
      {.name = "indices-columns",
       .attrs = {{"kernel_shape", Ints{2, 2}}, {"strides", Ints{2, 1}}, {"storage_order", kOn}},
       .inputs = {distinct_floats({1, 2, 4, 5})},
       .output_count = 3},
      {.name = "blocks",
       .attrs = {{"kernel_shape", Ints{3, 2}},
                 {"strides", Ints{2, 1}},
                 {"pads", Ints{1, 0, 0, 1}},
                 {"block", std::int64_t{8}}},
       .inputs = {distinct_floats({2, 1, 5, 4, 8})},
       .output_count = 3},
      {.name = "blocks-three-dims",
       .attrs = {{"kernel_shape", Ints{2, 2, 2}}, {"dilations", Ints{1, 2, 1}}, {"block", std::int64_t{3}}},
       .inputs = {distinct_floats({1, 2, 3, 4, 2, 3})}},
  };
  for (Sample& sample : bench_samples()) list.push_back(std::move(sample));
  return list;
}

std::vector<Sample> samples_max_grad() {
  return {
      {.name = "plain",
       .attrs = {{"input_shape", Ints{1, 2, 3, 3}}},
       .inputs = {floats({1, 2, 2, 2}), exact(DType::i64, {1, 2, 2, 2}, {1, 1, 4, 8, 0, 2, 6, 8})}},
      {.name = "blocks",
       .attrs = {{"input_shape", Ints{1, 1, 3, 3, 2}}, {"block", std::int64_t{2}}},
       .inputs = {floats({1, 1, 2, 2, 2}), exact(DType::i64, {1, 1, 2, 2, 2}, {1, 0, 1, 2, 4, 6, 8, 8})}},
  };
}

std::vector<Sample> samples_average() {
  std::vector<Sample> list = {
      {.name = "plain", .attrs = {{"kernel_shape", Ints{2, 3}}}, .inputs = {floats({2, 2, 4, 5})}},
      {.name = "pads",
       .attrs = {{"kernel_shape", Ints{3, 3}}, {"strides", Ints{2, 2}}, {"pads", Ints{1, 1, 1, 1}}},
       .inputs = {floats({1, 3, 5, 6})}},
      {.name = "include-pad",
       .attrs = {{"kernel_shape", Ints{3, 3}}, {"pads", Ints{1, 0, 2, 1}}, {"count_include_pad", kOn}},
       .inputs = {floats({1, 2, 4, 4})}},
      {.name = "ceil",
       .attrs = {{"kernel_shape", Ints{3, 3}}, {"strides", Ints{2, 2}}, {"ceil_mode", kOn}},
       .inputs = {floats({1, 2, 6, 4})}},
      {.name = "ceil-larger-than-input",
       .attrs = {{"kernel_shape", Ints{8, 4}},
                 {"strides", Ints{8, 3}},
                 {"pads", Ints{0, 1, 1, 0}},
                 {"ceil_mode", kOn},
                 {"count_include_pad", kOn}},
       .inputs = {floats({2, 2, 3, 6})}},
      {.name = "ceil-include-pad",
       .attrs = {{"kernel_shape", Ints{3, 3}},
                 {"strides", Ints{2, 2}},
                 {"pads", Ints{1, 1, 0, 1}},
                 {"ceil_mode", kOn},
                 {"count_include_pad", kOn}},
       .inputs = {floats({1, 2, 5, 6})}},
      {.name = "same-lower",
       .attrs = {{"kernel_shape", Ints{2, 2}}, {"auto_pad", std::string("SAME_LOWER")}},
       .inputs = {floats({1, 1, 4, 4})}},
      {.name = "dilations",
       .attrs = {{"kernel_shape", Ints{2, 3}}, {"dilations", Ints{3, 2}}, {"pads", Ints{1, 2, 0, 1}}},
       .inputs = {floats({2, 1, 6, 5})}},
      {.name = "dilations-include-pad",
       .attrs = {{"kernel_shape", Ints{2, 2}},
                 {"dilations", Ints{2, 3}},
                 {"strides", Ints{2, 1}},
                 {"pads", Ints{1, 2, 1, 0}},
                 {"count_include_pad", kOn}},
       .inputs = {floats({1, 2, 5, 4})}},
      {.name = "three-dims",
       .attrs = {{"kernel_shape", Ints{2, 3, 2}},
                 {"strides", Ints{2, 1, 2}},
                 {"pads", Ints{1, 0, 1, 0, 1, 0}}},
       .inputs = {floats({1, 2, 4, 4, 5})}},
      {.name = "sum", .attrs = {{"kernel_shape", Ints{2}}, {"sum", kOn}}, .inputs = {floats({1, 2, 5})}},
      {.name = "one-dim", .attrs = {{"kernel_shape", Ints{2}}}, .inputs = {floats({2, 3, 6})}},
      {.name = "blocks",
       .attrs = {{"kernel_shape", Ints{3, 2}},
                 {"strides", Ints{2, 1}},
                 {"pads", Ints{1, 0, 1, 1}},
                 {"count_include_pad", kOn},
                 {"block", std::int64_t{4}}},
       .inputs = {floats({2, 2, 5, 4, 4})}},
      {.name = "blocks-ceil",
       .attrs = {{"kernel_shape", Ints{3, 3}},
                 {"strides", Ints{2, 2}},
                 {"ceil_mode", kOn},
                 {"block", std::int64_t{3}}},
       .inputs = {floats({1, 1, 6, 4, 3})}},
  };
  list.push_back({.name = "head",
                  .attrs = {{"kernel_shape", Ints{7, 7}}},
                  .inputs = {floats({8, 2048, 7, 7})},
                  .bench = true});
  for (Sample& sample : bench_samples()) list.push_back(std::move(sample));
  return list;
}

std::vector<Sample> samples_average_grad() {
  return {
      {.name = "plain",
       .attrs = {{"kernel_shape", Ints{2, 3}}, {"input_shape", Ints{2, 2, 4, 5}}},
       .inputs = {floats({2, 2, 3, 3})}},
      {.name = "pads",
       .attrs = {{"kernel_shape", Ints{3, 3}},
                 {"strides", Ints{2, 2}},
                 {"pads", Ints{1, 1, 1, 1}},
                 {"input_shape", Ints{1, 3, 5, 6}}},
       .inputs = {floats({1, 3, 3, 3})}},
      {.name = "blocks",
       .attrs = {{"kernel_shape", Ints{2, 2}},
                 {"strides", Ints{2, 1}},
                 {"input_shape", Ints{2, 1, 4, 3, 16}},
                 {"block", std::int64_t{16}}},
       .inputs = {floats({2, 1, 2, 2, 16})}},
  };
}

std::vector<Sample> samples_global() {
  return {
      {.name = "plain", .inputs = {floats({2, 3, 4, 5})}},
      {.name = "one-dim", .inputs = {floats({2, 3, 7})}},
      {.name = "resnet", .inputs = {floats({8, 2048, 7, 7})}, .bench = true},
  };
}

}  // namespace

const OpDef max_pool_op = {
    .name = "MaxPool",
    .summary = "Largest value of each window.",
    .traits = kOptionalOutputs,
    .max_outputs = 3,
    .infer = infer_max,
    .grad = grad_max,
    .cost = cost_pool,
    .cpu = prepare_max,
    .gpu = prepare_max,
    .samples = samples_max,
    .channel_blocks = ChannelBlocks::attribute,
};

const OpDef max_pool_grad_op = {
    .name = "MaxPoolGrad",
    .domain = "gradloom",
    .summary = "Gradient of MaxPool: each value goes where its maximum came from.",
    .min_inputs = 2,
    .max_inputs = 2,
    .infer = infer_max_grad,
    .cost = cost_max_grad,
    .cpu = prepare_max_grad,
    .gpu = prepare_max_grad,
    .samples = samples_max_grad,
};

const OpDef average_pool_op = {
    .name = "AveragePool",
    .summary = "Mean of each window.",
    .infer = infer_average,
    .grad = grad_average,
    .cost = cost_pool,
    .cpu = prepare_average,
    .gpu = prepare_average,
    .samples = samples_average,
    .channel_blocks = ChannelBlocks::attribute,
};

const OpDef average_pool_grad_op = {
    .name = "AveragePoolGrad",
    .domain = "gradloom",
    .summary = "Gradient of AveragePool: each value is spread over its window.",
    .infer = infer_average_grad,
    .cost = cost_average_grad,
    .cpu = prepare_average_grad,
    .gpu = prepare_average_grad,
    .samples = samples_average_grad,
};

const OpDef global_average_pool_op = {
    .name = "GlobalAveragePool",
    .summary = "Mean over all spatial positions.",
    .infer = infer_global,
    .grad = grad_global,
    .cost = input_cost,
    .cpu = prepare_global,
    .gpu = prepare_global,
    .samples = samples_global,
    .spatial_reduction = "ReduceMean",
};

}  // namespace gradloom
