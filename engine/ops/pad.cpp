// Pad: constant mode; negative pads crop. Pads and axes are attributes before opset 11, inputs since; the
// value is an attribute or a scalar input that may be computed.
#include <memory>
#include <numeric>

#include "engine/ops/common.h"

namespace gradloom {
namespace {

using Ints = std::vector<std::int64_t>;

struct PadSpec {
  Ints before, after;  // per dimension
};

template <class Context>
Result<PadSpec> pad_spec(const Context& ctx, std::size_t rank) {
  const IntArgument pads = int_argument(ctx, "pads", 1);
  if (!pads.values) return infer_error("Pad: the pads must be known before running");
  const IntArgument axes_given = int_argument(ctx, "axes", 3);
  if (axes_given.present && !axes_given.values)
    return infer_error("Pad: the axes must be known before running");
  Ints axes(rank);
  std::iota(axes.begin(), axes.end(), 0);
  if (axes_given.values) {
    TRY(normalized_axes(*axes_given.values, rank));  // distinct and in range
    axes = *axes_given.values;
  }
  if (pads.values->size() != 2 * axes.size()) return infer_error("Pad: two pads per axis are needed");
  PadSpec spec{Ints(rank, 0), Ints(rank, 0)};
  for (std::size_t i = 0; i < axes.size(); ++i) {
    const auto axis = static_cast<std::size_t>(TRY(normalized_axis(axes[i], rank)));
    spec.before[axis] = (*pads.values)[i];
    spec.after[axis] = (*pads.values)[axes.size() + i];
  }
  return spec;
}

Status infer_pad(InferContext& ctx) {
  TRY(require_inputs(ctx, 1));
  const std::string mode = ctx.attrs.text("mode", "constant");
  if (mode != "constant") return infer_error("Pad: mode '" + mode + "' is not supported");
  if (ctx.has(2) &&
      (ctx.dtype(2) != ctx.dtype(0) || !is_static(ctx.shape(2)) || element_count(ctx.shape(2)) != 1))
    return infer_error("Pad: the value must be one element of the input's type");
  const Shape& in = ctx.shape(0);
  const PadSpec spec = TRY(pad_spec(ctx, in.size()));
  Shape out;
  for (std::size_t d = 0; d < in.size(); ++d) {
    if (spec.before[d] == 0 && spec.after[d] == 0) {
      out.push_back(in[d]);
    } else if (in[d] < 0) {
      out.push_back(derived_dim("pad " + std::to_string(in[d]) + " " + std::to_string(spec.before[d]) + " " +
                                std::to_string(spec.after[d])));
    } else {
      std::int64_t size;
      if (__builtin_add_overflow(in[d], spec.before[d], &size) ||
          __builtin_add_overflow(size, spec.after[d], &size) || size < 0 ||
          in[d] + std::min<std::int64_t>(spec.before[d], 0) < 0 ||
          in[d] + std::min<std::int64_t>(spec.after[d], 0) < 0)
        return infer_error("Pad: pads of axis " + std::to_string(d) + " do not fit size " +
                           std::to_string(in[d]));
      out.push_back(size);
    }
  }
  ctx.outputs[0] = {ctx.dtype(0), out};
  return {};
}

Result<Kernel> prepare_pad(const NodeTypes& types) {
  const Type &in = types.inputs[0], &out = types.outputs[0];
  const PadSpec spec = TRY(pad_spec(types, in.shape.size()));
  CopyPlan plan{{}, dense_strides(in.shape), dense_strides(out.shape)};
  bool crop_only = true;
  for (std::size_t d = 0; d < in.shape.size(); ++d) {
    const std::int64_t skipped = std::max<std::int64_t>(-spec.before[d], 0),
                       shift = std::max<std::int64_t>(spec.before[d], 0);
    const std::int64_t kept = in.shape[d] - skipped - std::max<std::int64_t>(-spec.after[d], 0);
    plan.dims.push_back(std::max<std::int64_t>(kept, 0));
    plan.in_offset += skipped * plan.in_strides[d];
    plan.out_offset += shift * plan.out_strides[d];
    crop_only = crop_only && spec.before[d] <= 0 && spec.after[d] <= 0;
  }
  if (element_count(plan.dims) == 0) plan.in_offset = plan.out_offset = 0;
  struct Prepared {
    CopyPlan plan;
    kernels::StridedCopyArgs args;
    Tensor value;
    std::int64_t count;
    bool value_input, fill;
  };
  auto prepared =
      std::make_shared<Prepared>(Prepared{plan, TRY(strided_copy_args(plan, dtype_bytes(in.dtype))),
                                          Tensor::scalar(in.dtype, types.attrs.real("value", 0)),
                                          element_count(out.shape), types.has(2), !crop_only});
  if (types.target == kernels::Target::gpu && types.has(2) && !crop_only)
    return no_kernel("no GPU kernel for a padding value that is not known when planning");
  Kernel kernel;
  kernel.name = crop_only ? "crop" : "pad";
  kernel.run = [prepared](const LaunchArgs& launch) {
    const void* value = prepared->value_input ? launch.inputs[2] : prepared->value.data();
    if (prepared->fill)
      launch.on.fill({prepared->args.element_bytes, prepared->count, value, launch.outputs[0]});
    run_copy(launch.on, prepared->args, prepared->plan, launch.inputs[0], launch.outputs[0]);
  };
  return kernel;
}

// The same pads with the other sign: crops what was added, fills what was cropped with 0.
Status grad_pad(GradContext& ctx) {
  const PadSpec spec = TRY(pad_spec(ctx, ctx.shape(ctx.in(0)).size()));
  Ints pads;
  for (std::int64_t p : spec.before) pads.push_back(-p);
  for (std::int64_t p : spec.after) pads.push_back(-p);
  if (ctx.wants(0)) ctx.set(0, ctx.b.op("Pad", {ctx.grad(), ctx.b.i64s(pads)}));
  if (ctx.wants(2)) {
    // Everything that is not the input's interior is the value.
    const ValueId inside = ctx.b.op("ReduceSum", {ctx.b.op("Pad", {ctx.grad(), ctx.b.i64s(pads)})},
                                    {{"keepdims", std::int64_t{0}}});
    const ValueId all = ctx.b.op("ReduceSum", {ctx.grad()}, {{"keepdims", std::int64_t{0}}});
    const ValueId outside = ctx.b.op("Sub", {all, inside});
    ctx.set(2, ctx.shape(ctx.in(2)).empty() ? outside : reshaped_like(ctx, outside, ctx.in(2)));
  }
  return {};
}

std::vector<Sample> pad_samples() {
  return {sample_of("zeros", {}, {floats({3, 5}), known_ints({1, 0, 2, 3})}),
          sample_of("value", {},
                    {floats({2, 3, 5}), known_ints({0, 1, 2, 0, 1, 1}), known_scalar(DType::f32, 0.5)}),
          sample_of("attribute", {{"pads", Ints{0, 1, 0, 1}}, {"value", 1.5}}, {floats({2, 3})}),
          sample_of("crop and pad", {}, {floats({4, 5}), known_ints({-1, 2, 0, -2})}),
          sample_of("one axis", {}, {floats({2, 3, 5}), known_ints({1, 2}), omitted(), known_ints({-1})}),
          sample_of("computed value", {}, {floats({3}), known_ints({1, 2}), floats({})})};
}

}  // namespace

const OpDef pad_op = {.name = "Pad",
                      .summary = "Surrounds with a constant; negative pads crop",
                      .min_inputs = 1,
                      .max_inputs = 4,
                      .infer = infer_pad,
                      .grad = grad_pad,
                      .cost = copy_cost,
                      .cpu = prepare_pad,
                      .gpu = prepare_pad,
                      .samples = pad_samples};

}  // namespace gradloom
