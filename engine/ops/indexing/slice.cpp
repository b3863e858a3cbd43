// Slice (starts, ends, axes, steps: attributes before opset 10, inputs since; negative steps walk backwards)
// and its gradient SliceGrad(dy, shape of x), attributes starts, axes, steps: zeros with dy written to the
// places the slice read.
#include <algorithm>
#include <memory>

#include "engine/ops/copies.h"
#include "engine/ops/costs.h"
#include "engine/ops/dims.h"
#include "engine/ops/indexing/slice_ranges.h"
#include "engine/ops/inference.h"
#include "engine/ops/preparation.h"
#include "engine/ops/samples.h"
#include "engine/ops/rows.h"
#include "kernels/launcher.h"

namespace gradloom {
namespace {

using Ints = std::vector<std::int64_t>;

struct SliceArguments {
  Ints starts, ends, axes, steps;
};

// The arguments as known lists; no value when one is unknown before running.
template <class Context>
Result<std::optional<SliceArguments>> slice_arguments(const Context& ctx) {
  const IntArgument starts = int_argument(ctx, "starts", 1), ends = int_argument(ctx, "ends", 2),
                    axes = int_argument(ctx, "axes", 3), steps = int_argument(ctx, "steps", 4);
  if (!starts.present || !ends.present) return infer_error("Slice needs starts and ends");
  if (!starts.values || !ends.values || (axes.present && !axes.values) || (steps.present && !steps.values))
    return std::optional<SliceArguments>();
  SliceArguments a{*starts.values, *ends.values, {}, {}};
  const std::size_t n = a.starts.size();
  if (axes.values)
    a.axes = *axes.values;
  else
    for (std::size_t i = 0; i < n; ++i) a.axes.push_back(static_cast<std::int64_t>(i));
  a.steps = steps.values ? *steps.values : Ints(n, 1);
  if (a.ends.size() != n || a.axes.size() != n || a.steps.size() != n)
    return infer_error("Slice: starts, ends, axes and steps differ in length");
  return std::optional<SliceArguments>(std::move(a));
}

// numpy's rules: negative positions count from the end, then clamping to the range the direction allows.
Result<SliceRange> range_of(std::int64_t start, std::int64_t end, std::int64_t step, std::int64_t size) {
  if (step == 0) return infer_error("Slice: a step is 0");
  const auto place = [&](std::int64_t p) {
    if (p < 0) p = p < -size ? -1 : p + size;
    return step > 0 ? std::clamp<std::int64_t>(p, 0, size) : std::clamp<std::int64_t>(p, -1, size - 1);
  };
  SliceRange r{place(start), step, 0};
  const std::int64_t last = place(end);
  const std::int64_t distance = step > 0 ? last - r.start : r.start - last;
  // The magnitude without overflow: -INT64_MIN does not exist, and no axis is that long.
  const std::int64_t stride = step > 0 ? step : (step == INT64_MIN ? INT64_MAX : -step);
  r.count = distance > 0 ? (distance - 1) / stride + 1 : 0;
  if (r.count <= 1) r.step = step > 0 ? 1 : -1;
  if (r.count == 0) r.start = 0;
  return r;
}

Result<std::vector<SliceRange>> ranges(const SliceArguments& a, const Shape& shape) {
  std::vector<SliceRange> result;
  for (std::int64_t d : shape) result.push_back({0, 1, d});
  TRY(normalized_axes(a.axes, shape.size()));
  for (std::size_t i = 0; i < a.axes.size(); ++i) {
    const auto axis = static_cast<std::size_t>(TRY(normalized_axis(a.axes[i], shape.size())));
    if (shape[axis] >= 0) result[axis] = TRY(range_of(a.starts[i], a.ends[i], a.steps[i], shape[axis]));
  }
  return result;
}

Status infer_slice(InferContext& ctx) {
  TRY(require_inputs(ctx, 1));
  const Shape& in = ctx.shape(0);
  const auto arguments = TRY(slice_arguments(ctx));
  Shape out = in;
  if (!arguments) {
    for (std::size_t d = 0; d < in.size(); ++d) out[d] = unknown_dim(ctx, 1, static_cast<std::int64_t>(d));
    ctx.outputs[0] = {ctx.dtype(0), out};
    return {};
  }
  const auto parts = TRY(ranges(*arguments, in));
  for (std::size_t d = 0; d < in.size(); ++d) out[d] = parts[d].count;
  for (std::size_t i = 0; i < arguments->axes.size(); ++i) {
    const auto axis = static_cast<std::size_t>(TRY(normalized_axis(arguments->axes[i], in.size())));
    if (in[axis] >= 0) continue;
    const std::int64_t start = arguments->starts[i], end = arguments->ends[i], step = arguments->steps[i];
    if (step == 0) return infer_error("Slice: a step is 0");
    if (start == 0 && step == 1 && end >= (std::int64_t{1} << 31) - 1) continue;  // all of it
    out[axis] = derived_dim("slice " + std::to_string(in[axis]) + " " + std::to_string(start) + ":" +
                            std::to_string(end) + ":" + std::to_string(step));
  }
  ctx.outputs[0] = {ctx.dtype(0), out};
  return {};
}

struct Prepared {
  CopyPlan plan;
  kernels::StridedCopyArgs args;
  Tensor zero;
  std::int64_t count = 0;  // elements to zero first
};

CopyPlan slice_plan(const std::vector<SliceRange>& parts, const Shape& whole) {
  CopyPlan plan;
  const Ints strides = dense_strides(whole);
  for (std::size_t d = 0; d < whole.size(); ++d) {
    plan.dims.push_back(parts[d].count);
    plan.in_strides.push_back(strides[d] * parts[d].step);
    plan.in_offset += strides[d] * parts[d].start;
  }
  plan.out_strides = dense_strides(plan.dims);
  return plan;
}

Result<Kernel> prepare_slice(const NodeTypes& types) {
  const auto arguments = TRY(slice_arguments(types));
  if (!arguments) return no_kernel("Slice: starts, ends, axes and steps must be known before running");
  auto prepared = std::make_shared<Prepared>();
  prepared->plan = slice_plan(TRY(ranges(*arguments, types.inputs[0].shape)), types.inputs[0].shape);
  prepared->args = TRY(strided_copy_args(prepared->plan, dtype_bytes(types.inputs[0].dtype)));
  Kernel kernel;
  kernel.name = "slice";
  kernel.run = [prepared](const LaunchArgs& launch) {
    run_copy(launch.on, prepared->args, prepared->plan, launch.inputs[0], launch.outputs[0]);
  };
  return kernel;
}

// dx = SliceGrad(dy, shape(x)); ends are not needed, dy has the counts.
Status grad_slice(GradContext& ctx) {
  const auto arguments = TRY(slice_arguments(ctx));
  if (!arguments)
    return infer_error("the gradient of Slice needs starts, axes and steps known before running");
  const Shape shape = ctx.shape(ctx.in(0));
  if (!is_static(shape)) return infer_error("the gradient of Slice needs known dimensions");
  Ints starts, steps;
  for (const SliceRange& r : TRY(ranges(*arguments, shape))) {
    starts.push_back(r.start);
    steps.push_back(r.step);
  }
  ctx.set(0, ctx.b.op("SliceGrad", {ctx.grad(), ctx.b.i64s(shape)}, {{"starts", starts}, {"steps", steps}}));
  return {};
}

// Attributes starts and steps: one per dimension.
Status infer_slice_grad(InferContext& ctx) {
  TRY(require_inputs(ctx, 2));
  const Tensor* shape = ctx.constant(1);
  if (shape == nullptr) return infer_error("SliceGrad: the shape must be known before running");
  const Shape out = shape->to_i64(), &dy = ctx.shape(0);
  const Ints starts = ctx.attrs.integers("starts"), steps = ctx.attrs.integers("steps");
  if (out.size() != dy.size() || starts.size() != dy.size() || steps.size() != dy.size())
    return infer_error("SliceGrad: ranks differ");
  for (std::size_t d = 0; d < dy.size(); ++d) {
    if (dy[d] <= 0) continue;
    std::int64_t last;
    if (__builtin_mul_overflow(dy[d] - 1, steps[d], &last) ||
        __builtin_add_overflow(last, starts[d], &last) || starts[d] < 0 || starts[d] >= out[d] || last < 0 ||
        last >= out[d])
      return infer_error("SliceGrad: axis " + std::to_string(d) + " leaves the shape");
  }
  ctx.outputs[0] = {ctx.dtype(0), out};
  return {};
}

Result<Kernel> prepare_slice_grad(const NodeTypes& types) {
  const Shape &dy = types.inputs[0].shape, &out = types.outputs[0].shape;
  const Ints starts = types.attrs.integers("starts"), steps = types.attrs.integers("steps");
  std::vector<SliceRange> parts;
  for (std::size_t d = 0; d < dy.size(); ++d) parts.push_back({starts[d], steps[d], dy[d]});
  CopyPlan forward = slice_plan(parts, out);
  auto prepared = std::make_shared<Prepared>();
  prepared->plan = {forward.dims, forward.out_strides, forward.in_strides, 0, forward.in_offset};
  prepared->args = TRY(strided_copy_args(prepared->plan, dtype_bytes(types.inputs[0].dtype)));
  prepared->zero = Tensor::scalar(types.inputs[0].dtype, 0);
  prepared->count = element_count(out);
  Kernel kernel;
  kernel.name = "slice gradient";
  kernel.run = [prepared](const LaunchArgs& launch) {
    launch.on.fill({prepared->args.element_bytes, prepared->count, prepared->zero.data(), launch.outputs[0]});
    run_copy(launch.on, prepared->args, prepared->plan, launch.inputs[0], launch.outputs[0]);
  };
  return kernel;
}

// The gradient of a zero-padding is the same slice again.
Status grad_slice_grad(GradContext& ctx) {
  const Shape dy = ctx.shape(ctx.in(0));
  const Ints starts = ctx.node.attrs.integers("starts"), steps = ctx.node.attrs.integers("steps");
  Ints ends, axes;
  for (std::size_t d = 0; d < dy.size(); ++d) {
    std::int64_t end = starts[d] + dy[d] * steps[d];
    if (end < 0) end = INT64_MIN;  // walking back past the first element
    ends.push_back(end);
    axes.push_back(static_cast<std::int64_t>(d));
  }
  ctx.set(0, ctx.b.op("Slice", {ctx.grad(), ctx.b.i64s(starts), ctx.b.i64s(ends), ctx.b.i64s(axes),
                                ctx.b.i64s(steps)}));
  return {};
}

std::vector<Sample> slice_samples() {
  return {sample_of("rows", {}, {floats({5, 7}), known_ints({1}), known_ints({4})}),
          sample_of("last axis, step", {},
                    {floats({3, 4, 9}), known_ints({1}), known_ints({9}), known_ints({-1}), known_ints({3})}),
          sample_of("backwards", {},
                    {floats({5, 7}), known_ints({-1, 5}), known_ints({INT64_MIN, 1}), known_ints({0, 1}),
                     known_ints({-1, -2})}),
          sample_of("attributes", {{"starts", Ints{0, 1}}, {"ends", Ints{2, 1000}}, {"axes", Ints{0, 2}}},
                    {floats({3, 4, 5})}),
          sample_of("nothing", {}, {floats({3, 5}), known_ints({2}), known_ints({2}), known_ints({0})}),
          sample_of("integers", {}, {ints({6}, -9, 9), known_ints({-2}), known_ints({INT64_MAX})}),
          sample_of("i4", {}, {ints({5, 3}, -8, 7, DType::i4), known_ints({1}), known_ints({4})})};
}

std::vector<Sample> slice_grad_samples() {
  return {sample_of("rows", {{"starts", Ints{1, 0}}, {"steps", Ints{1, 1}}},
                    {floats({3, 7}), known_ints({5, 7})}),
          sample_of("backwards", {{"starts", Ints{4, 5}}, {"steps", Ints{-1, -2}}},
                    {floats({5, 2}), known_ints({5, 7})})};
}

constexpr InputRole kSliceRoles[] = {{.input = 1, .use = InputUse::sizes},
                                     {.input = 2, .use = InputUse::sizes},
                                     {.input = 3, .use = InputUse::sizes},
                                     {.input = 4, .use = InputUse::sizes}};

}  // namespace

Result<std::optional<std::vector<SliceRange>>> slice_ranges(const NodeTypes& types) {
  const auto arguments = TRY(slice_arguments(types));
  if (!arguments) return std::optional<std::vector<SliceRange>>();
  return std::optional(TRY(ranges(*arguments, types.inputs[0].shape)));
}

const OpDef slice_op = {.name = "Slice",
                        .summary = "A range with a step along axes",
                        .min_inputs = 1,
                        .max_inputs = 5,
                        .infer = infer_slice,
                        .grad = grad_slice,
                        .cost = copy_cost,
                        .cpu = prepare_slice,
                        .gpu = prepare_slice,
                        .samples = slice_samples,
                        .roles = kSliceRoles};
const OpDef slice_grad_op = {.name = "SliceGrad",
                             .domain = "gradloom",
                             .summary = "Gradient of Slice: zeros around dy",
                             .min_inputs = 2,
                             .max_inputs = 2,
                             .infer = infer_slice_grad,
                             .grad = grad_slice_grad,
                             .cost = copy_cost,
                             .cpu = prepare_slice_grad,
                             .gpu = prepare_slice_grad,
                             .samples = slice_grad_samples};

}  // namespace gradloom
