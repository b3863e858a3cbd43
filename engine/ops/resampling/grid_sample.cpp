// GridSample(x, grid): x [n, c, (d,) h, w] read at the points of grid [n, (od,) oh, ow, 2 or 3], the last
// axis of x first, in [-1, 1]. GridSampleGrad(dy, x, grid): dx, dgrid. What is read and how it changes with
// the grid: kernels/grid.h. Attributes: mode (linear, nearest, cubic; bilinear and bicubic in opset 16),
// padding_mode (zeros, border, reflection), align_corners.
#include "engine/ops/costs.h"
#include "engine/ops/dims.h"
#include "engine/ops/inference.h"
#include "engine/ops/preparation.h"
#include "engine/ops/samples.h"
#include "engine/ops/rows.h"
#include "kernels/launcher.h"

namespace gradloom {
namespace {

Result<kernels::GridMode> mode_of(const Attrs& attrs) {
  const std::string mode = attrs.text("mode", "linear");
  if (mode == "linear" || mode == "bilinear") return kernels::GridMode::linear;
  if (mode == "nearest") return kernels::GridMode::nearest;
  if (mode == "cubic" || mode == "bicubic") return kernels::GridMode::cubic;
  return infer_error("mode '" + mode + "' is not supported");
}

Result<kernels::GridPadding> padding_of(const Attrs& attrs) {
  const std::string padding = attrs.text("padding_mode", "zeros");
  if (padding == "zeros") return kernels::GridPadding::zeros;
  if (padding == "border") return kernels::GridPadding::border;
  if (padding == "reflection") return kernels::GridPadding::reflection;
  return infer_error("padding_mode '" + padding + "' is not supported");
}

// [n, c, points..] for x and grid.
Result<Shape> sampled_shape(const InferContext& ctx, std::size_t x_input) {
  const Shape &x = ctx.shape(x_input), &grid = ctx.shape(x_input + 1);
  TRY(mode_of(ctx.attrs));
  TRY(padding_of(ctx.attrs));
  TRY(require_float(ctx, x_input + 1, "grid"));
  if (x.size() != 4 && x.size() != 5)
    return infer_error("x must be [n, c, h, w] or [n, c, d, h, w], it is " + to_string(x));
  if (grid.size() != x.size() || dims_differ(grid.back(), as_dim(x.size() - 2)) || dims_differ(grid[0], x[0]))
    return infer_error("grid " + to_string(grid) + " does not fit x " + to_string(x));
  for (std::size_t d = 2; d < x.size(); ++d)
    if (x[d] == 0) return infer_error("x has no pixels");
  Shape y{known_dim(x[0], grid[0]), x[1]};
  y.insert(y.end(), grid.begin() + 1, grid.end() - 1);
  return y;
}

Status infer(InferContext& ctx) {
  TRY(require_inputs(ctx, 2));
  Shape y = TRY(sampled_shape(ctx, 0));
  return set_outputs(ctx, {{ctx.dtype(0), std::move(y)}});
}

Result<kernels::GridSampleArgs> args_of(const NodeTypes& types, std::size_t x_input) {
  const Type& x = types.inputs[x_input];
  const Shape& grid = types.inputs[x_input + 1].shape;
  TRY(require_kernel_type(types.target, x.dtype));
  kernels::GridSampleArgs args{};
  args.dtype = x.dtype;
  args.mode = TRY(mode_of(types.attrs));
  args.padding = TRY(padding_of(types.attrs));
  args.align_corners = types.attrs.integer("align_corners") != 0;
  args.rank = static_cast<int>(x.shape.size()) - 2;
  args.n = x.shape[0];
  args.c = x.shape[1];
  for (int a = 0; a < kernels::kGridRank; ++a) {
    const std::int64_t axis = a - (kernels::kGridRank - args.rank);
    args.in[a] = axis < 0 ? 1 : x.shape[static_cast<std::size_t>(2 + axis)];
    args.out[a] = axis < 0 ? 1 : grid[static_cast<std::size_t>(1 + axis)];
  }
  if (args.in[0] * args.in[1] * args.in[2] > kernels::kMostGridPixels)
    return no_kernel("an image of " + to_string(x.shape) + " has too many pixels");
  return args;
}

Result<Kernel> prepare(const NodeTypes& types) {
  const kernels::GridSampleArgs args = TRY(args_of(types, 0));
  return Kernel{"grid sample", kernels::workspace_bytes(types.target, args),
                [args](const LaunchArgs& launch) {
                  kernels::GridSampleArgs a = args;
                  a.x = launch.inputs[0];
                  a.grid = launch.inputs[1];
                  a.y = launch.outputs[0];
                  a.workspace = launch.workspace;
                  launch.on.grid_sample(a);
                }};
}

Status grad(GradContext& ctx) {
  const auto grads = ctx.b.ops(op_by_name("GridSampleGrad"), {ctx.grad(), ctx.in(0), ctx.in(1)},
                               ctx.node.attrs, ctx.wants(1) ? 2 : 1);
  if (ctx.wants(0)) ctx.set(0, grads[0]);
  if (ctx.wants(1)) ctx.set(1, grads[1]);
  return {};
}

Status infer_grad(InferContext& ctx) {
  TRY(require_inputs(ctx, 3));
  TRY(sampled_shape(ctx, 1));
  return set_outputs(ctx, {ctx.in(1), ctx.in(2)});
}

Result<Kernel> prepare_grad(const NodeTypes& types) {
  kernels::GridSampleGradArgs args{TRY(args_of(types, 1)), nullptr, nullptr, nullptr, nullptr};
  const bool dx = types.wants(0), dgrid = types.wants(1);
  return Kernel{"grid sample gradient", kernels::workspace_bytes(types.target, args),
                [args, dx, dgrid](const LaunchArgs& launch) {
                  kernels::GridSampleGradArgs a = args;
                  a.dy = launch.inputs[0];
                  a.shape.x = launch.inputs[1];
                  a.shape.grid = launch.inputs[2];
                  a.dx = dx ? launch.outputs[0] : nullptr;
                  a.dgrid = dgrid ? launch.outputs[1] : nullptr;
                  a.workspace = launch.workspace;
                  launch.on.grid_sample_grad(a);
                }};
}

// A product and an addition per pixel that a point reads in a channel.
double pixels(const NodeTypes& types, std::size_t x_input) {
  const auto args = args_of(types, x_input);
  if (!args) return 0;
  const double each = args->mode == kernels::GridMode::nearest  ? 1
                      : args->mode == kernels::GridMode::linear ? 2
                                                                : 4;
  const double points = static_cast<double>(args->n * args->out[0] * args->out[1] * args->out[2]);
  return static_cast<double>(args->c) * points * (args->rank == 2 ? each * each : each * each * each);
}
Cost cost(const NodeTypes& types) { return cost_of(types, 2 * pixels(types, 0)); }
Cost cost_grad(const NodeTypes& types) {
  return cost_of(types,
                 (types.wants(0) ? 2 : 0) * pixels(types, 1) + (types.wants(1) ? 4 : 0) * pixels(types, 1));
}

// Numbers between pixels, some outside of x; none is on or near a pixel's center or
// edge of an axis of 3, 4 or 5.
SampleInput grid_of(Shape shape) {
  const double positions[] = {-0.93, -0.37, 0.11, 0.63, 0.91, -1.13, 1.21, -0.71, 0.29, 0.43};
  std::vector<double> values;
  for (std::int64_t i = 0; i < element_count(shape); ++i) values.push_back(positions[(i * 7 + i / 10) % 10]);
  return exact(DType::f32, std::move(shape), std::move(values));
}

std::vector<Sample> samples() {
  std::vector<Sample> list;
  for (const char* mode : {"linear", "nearest", "cubic"})
    for (const char* padding : {"zeros", "border", "reflection"})
      for (const std::int64_t align : {0, 1}) {
        list.push_back({.name = std::string(mode) + ", " + padding + (align != 0 ? ", aligned" : ""),
                        .attrs = {{"mode", std::string(mode)},
                                  {"padding_mode", std::string(padding)},
                                  {"align_corners", align}},
                        .inputs = {floats({2, 3, 4, 5}), grid_of({2, 3, 4, 2})}});
      }
  list.push_back(sample_of("opset 16", {{"mode", std::string("bicubic")}},
                           {floats({1, 2, 5, 4}), grid_of({1, 2, 2, 2})}));
  list.push_back(sample_of("volume", {{"padding_mode", std::string("reflection")}},
                           {floats({1, 2, 3, 4, 5}), grid_of({1, 2, 3, 2, 3})}));
  list.push_back(sample_of("volume, cubic", {{"mode", std::string("cubic")}},
                           {floats({1, 1, 3, 4, 3}), grid_of({1, 2, 1, 2, 3})}));
  list.push_back(sample_of("groups of channels", {}, {floats({1, 18, 4, 5}), grid_of({1, 5, 5, 2})}));
  list.push_back(
      sample_of("few points of a volume", {}, {floats({1, 3, 5, 20, 20}), grid_of({1, 1, 1, 2, 3})}));
  list.push_back(sample_of("image", {}, {floats({4, 32, 64, 64}), floats({4, 64, 64, 2}, -1.1, 1.1)}));
  list.back().bench = true;
  return list;
}

std::vector<Sample> grad_samples() {
  return {sample_of("both", {{"padding_mode", std::string("border")}},
                    {floats({2, 3, 3, 4}), floats({2, 3, 4, 5}), grid_of({2, 3, 4, 2})}, 2),
          sample_of("x alone", {{"mode", std::string("cubic")}},
                    {floats({1, 9, 3, 4}), floats({1, 9, 4, 5}), grid_of({1, 3, 4, 2})})};
}

}  // namespace

const OpDef grid_sample_op = {.name = "GridSample",
                              .since = 16,
                              .summary = "Values of an image at given points",
                              .min_inputs = 2,
                              .max_inputs = 2,
                              .infer = infer,
                              .grad = grad,
                              .cost = cost,
                              .cpu = prepare,
                              .gpu = prepare,
                              .samples = samples,
                              .precision = Precision::full};
const OpDef grid_sample_grad_op = {.name = "GridSampleGrad",
                                   .domain = "gradloom",
                                   .summary = "Gradients of GridSample",
                                   .min_inputs = 3,
                                   .max_inputs = 3,
                                   .max_outputs = 2,
                                   .infer = infer_grad,
                                   .cost = cost_grad,
                                   .cpu = prepare_grad,
                                   .gpu = prepare_grad,
                                   .samples = grad_samples};

}  // namespace gradloom
