// Pad: a constant around the input, or the input itself mirrored at its edge elements (reflect), its edge
// elements (edge), or its other end (wrap); negative pads crop. Pads and axes are attributes before opset 11,
// inputs since; the value is an attribute or a scalar input that may be computed. All modes but constant are
// selections along each axis (resample.h). Source: ONNX Pad-19, numpy.pad.
#include <memory>
#include <numeric>

#include "engine/ops/copies.h"
#include "engine/ops/costs.h"
#include "engine/ops/dims.h"
#include "engine/ops/gradient_rules.h"
#include "engine/ops/inference.h"
#include "engine/ops/samples.h"
#include "engine/ops/resampling/resample.h"
#include "engine/ops/rows.h"
#include "kernels/launcher.h"

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

Result<std::string> mode_of(const Attrs& attrs) {
  const std::string mode = attrs.text("mode", "constant");
  if (mode == "constant" || mode == "reflect" || mode == "edge" || mode == "wrap") return mode;
  return infer_error("Pad: mode '" + mode + "' is not supported");
}

// Which of `size` elements stands at position `at` of an endless axis.
std::int64_t repeated(const std::string& mode, std::int64_t at, std::int64_t size) {
  if (mode == "edge" || size == 1) return std::min(std::max<std::int64_t>(at, 0), size - 1);
  const std::int64_t period = mode == "wrap" ? size : 2 * (size - 1),
                     turned = ((at % period) + period) % period;
  return std::min(turned, mode == "wrap" ? turned : period - turned);
}

Result<resampling::Tables> tables_of(const std::string& mode, const PadSpec& spec, const Shape& in) {
  resampling::Tables tables(in.size());
  for (std::size_t d = 0; d < in.size(); ++d) {
    if (spec.before[d] == 0 && spec.after[d] == 0) continue;
    const std::int64_t out = in[d] + spec.before[d] + spec.after[d];
    if (in[d] == 0 && out > 0) return infer_error("Pad: an empty axis has nothing to repeat");
    if (std::max(in[d], out) > INT32_MAX)
      return infer_error("Pad: axis " + std::to_string(d) + " is too long to repeat");
    resampling::AxisTable table;
    table.in = in[d];
    for (std::int64_t j = 0; j < out; ++j) {
      table.add(repeated(mode, j - spec.before[d], in[d]), 1);
      table.end_row();
    }
    tables[d] = std::move(table);
  }
  return tables;
}

Status infer_pad(InferContext& ctx) {
  TRY(require_inputs(ctx, 1));
  TRY(mode_of(ctx.attrs));
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
  const std::string mode = TRY(mode_of(types.attrs));
  if (mode != "constant") return resampling::prepare("pad", types, TRY(tables_of(mode, spec, in.shape)));
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
  const kernels::StridedCopyArgs copy = TRY(strided_copy_args(plan, dtype_bytes(in.dtype)));
  auto prepared =
      std::make_shared<Prepared>(Prepared{plan, copy, Tensor::scalar(in.dtype, types.attrs.real("value", 0)),
                                          element_count(out.shape), types.has(2), !crop_only});
  Kernel kernel;
  kernel.name = crop_only ? "crop" : "pad";
  kernel.run = [prepared](const LaunchArgs& launch) {
    const std::size_t bytes = prepared->args.element_bytes;
    if (prepared->fill && prepared->value_input) {
      // One element in the memory of the device, repeated.
      if (prepared->count > 0)
        launch.on.strided_copy({bytes, 1, {prepared->count}, {0}, {1}, launch.inputs[2], launch.outputs[0]});
    } else if (prepared->fill) {
      launch.on.fill({bytes, prepared->count, prepared->value.data(), launch.outputs[0]});
    }
    run_copy(launch.on, prepared->args, prepared->plan, launch.inputs[0], launch.outputs[0]);
  };
  return kernel;
}

// Constant: the same pads with the other sign crop what was added and fill what was cropped with 0. Otherwise
// each element gets the sum of its copies.
Status grad_pad(GradContext& ctx) {
  const PadSpec spec = TRY(pad_spec(ctx, ctx.shape(ctx.in(0)).size()));
  if (const std::string mode = TRY(mode_of(ctx.node.attrs)); mode != "constant") {
    if (!ctx.wants(0)) return {};
    TRY(require_static(ctx, ctx.in(0)));
    ctx.set(0, resampling::gradient(ctx.b, ctx.grad(), TRY(tables_of(mode, spec, ctx.shape(ctx.in(0))))));
    return {};
  }
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
          sample_of("computed value", {}, {floats({3}), known_ints({1, 2}), floats({})}),
          sample_of("reflect", {{"mode", std::string("reflect")}},
                    {floats({2, 4, 3}), known_ints({0, 2, 1, 0, 3, 2})}),
          sample_of("reflect far", {{"mode", std::string("reflect")}}, {floats({3}), known_ints({5, 4})}),
          sample_of("edge, cropped", {{"mode", std::string("edge")}},
                    {floats({3, 5}), known_ints({2, -1, 1, 3})}),
          sample_of("wrap", {{"mode", std::string("wrap")}},
                    {floats({2, 3, 4}), known_ints({4, 2}), omitted(), known_ints({1})}),
          sample_of("edge of integers", {{"mode", std::string("edge")}, {"pads", Ints{1, 0, 0, 2}}},
                    {ints({2, 3}, -9, 9)}),
          sample_of("i4", {},
                    {ints({3, 5}, -8, 7, DType::i4), known_ints({1, 0, 2, 3}), known_scalar(DType::i4, -3)}),
          sample_of("f8e4m3fn", {}, {ints({3}, -9, 9, DType::f8e4m3fn), known_ints({1, 2})})};
}

constexpr InputRole kPadRoles[] = {{.input = 1, .use = InputUse::sizes},
                                   {.input = 3, .use = InputUse::sizes}};

}  // namespace

const OpDef pad_op = {.name = "Pad",
                      .summary = "Surrounds with a constant or with itself; negative pads crop",
                      .min_inputs = 1,
                      .max_inputs = 4,
                      .infer = infer_pad,
                      .grad = grad_pad,
                      .cost = copy_cost,
                      .cpu = prepare_pad,
                      .gpu = prepare_pad,
                      .samples = pad_samples,
                      .roles = kPadRoles};

}  // namespace gradloom
