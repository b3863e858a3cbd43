// TopK(x, k) or attribute k, attributes axis, largest, sorted: the k largest or smallest elements along the
// axis and where they were. Always in order, equal ones by index; NaN counts as the largest number. Source:
// ONNX TopK-1, 10, 11, 24.
#include "engine/ops/input_roles.h"
#include "engine/ops/copies.h"
#include "engine/ops/costs.h"
#include "engine/ops/dims.h"
#include "engine/ops/gradient_rules.h"
#include "engine/ops/inference.h"
#include "engine/ops/preparation.h"
#include "engine/ops/samples.h"
#include "engine/ops/rows.h"
#include "kernels/launcher.h"

namespace gradloom {
namespace {

Result<std::int64_t> axis_of(const Attrs& attrs, const Shape& x) {
  return normalized_axis(attrs.integer("axis", -1), x.size());
}

// The number k itself; no value when it is not known before running. An attribute of opset 1 is one integer.
template <class Context>
Result<std::optional<std::int64_t>> count_of(const Context& ctx, const Attrs& attrs) {
  if (attrs.has("k")) return std::optional<std::int64_t>(attrs.integer("k"));
  const IntArgument k = int_argument(ctx, "", 1);
  if (!k.present) return infer_error("k is missing");
  if (!k.values) return std::optional<std::int64_t>();
  if (k.values->size() != 1) return infer_error("k must be one number");
  return std::optional<std::int64_t>((*k.values)[0]);
}

Status infer(InferContext& ctx) {
  TRY(require_inputs(ctx, 1));
  Shape y = ctx.shape(0);
  const auto axis = static_cast<std::size_t>(TRY(axis_of(ctx.attrs, y)));
  const std::optional<std::int64_t> k = TRY(count_of(ctx, ctx.attrs));
  if (k && (*k < 0 || (y[axis] >= 0 && *k > y[axis])))
    return infer_error("k is " + std::to_string(*k) + " for " + std::to_string(y[axis]) + " elements");
  y[axis] = k ? *k : unknown_dim(ctx, 1, 0);
  return set_outputs(ctx, {{ctx.dtype(0), y}, {DType::i64, y}});
}

Status grad(GradContext& ctx) {
  TRY(require_first_output_only(ctx));
  if (!ctx.wants(0)) return {};
  TRY(require_static(ctx, ctx.in(0)));
  const std::int64_t axis = TRY(axis_of(ctx.node.attrs, ctx.shape(ctx.in(0))));
  const ValueId indices = ctx.require_out(1);
  ctx.set(0,
          ctx.b.op("GatherElementsGrad", {ctx.grad(), indices, shape_of(ctx, ctx.in(0))}, {{"axis", axis}}));
  return {};
}

Result<Kernel> prepare(const NodeTypes& types) {
  const Type &x = types.inputs[0], &y = types.outputs[types.wants(0) ? 0 : 1];
  if (is_small(x.dtype) || (is_half(x.dtype) && !kernels::computes_halves(types.target)))
    return no_kernel(std::string("no kernel searches ") + dtype_name(x.dtype));
  const std::int64_t axis = TRY(axis_of(types.attrs, x.shape));
  const AxisView v = axis_view(x.shape, axis);
  const kernels::TopKArgs args{x.dtype, types.attrs.integer("largest", 1) != 0,
                               v.outer, v.size,
                               v.inner, y.shape[static_cast<std::size_t>(axis)],
                               nullptr, nullptr,
                               nullptr, nullptr};
  // An output that nobody asked for is made in the workspace.
  const std::size_t own = (kernels::workspace_bytes(types.target, args) + 15) / 16 * 16,
                    count = static_cast<std::size_t>(element_count(y.shape));
  const std::size_t values = own + (types.wants(1) ? 0 : count * 8),
                    all = values + (types.wants(0) ? 0 : count * 8);
  Kernel kernel;
  kernel.name = "top k";
  kernel.workspace_bytes = all;
  kernel.run = [args, own, values, wants_values = types.wants(0),
                wants_indices = types.wants(1)](const LaunchArgs& launch) {
    char* const workspace = static_cast<char*>(launch.workspace);
    kernels::TopKArgs a = args;
    a.x = launch.inputs[0];
    a.values = wants_values ? launch.outputs[0] : workspace + values;
    a.indices = reinterpret_cast<std::int64_t*>(wants_indices ? static_cast<char*>(launch.outputs[1])
                                                              : workspace + own);
    a.workspace = workspace;
    launch.on.top_k(a);
  };
  return kernel;
}

std::vector<Sample> samples() {
  const std::int64_t no = 0;
  return {sample_of("last axis", {}, {distinct_floats({3, 9}), known_ints({4})}, 2),
          sample_of("smallest", {{"axis", std::int64_t{1}}, {"largest", no}},
                    {distinct_floats({2, 7, 3}), known_ints({3})}, 2),
          sample_of("unsorted, values only", {{"axis", std::int64_t{0}}, {"sorted", no}},
                    {distinct_floats({5, 4}), known_ints({5})}),
          sample_of("attribute", {{"k", std::int64_t{2}}}, {distinct_floats({4, 70})}, 2),
          sample_of("equal", {{"largest", no}}, {ints({2, 300}, 0, 3), known_ints({40})}, 2),
          sample_of("none", {}, {floats({3, 4}), known_ints({0})}, 2)};
}

}  // namespace

const OpDef top_k_op = {.name = "TopK",
                        .summary = "The k largest or smallest elements along an axis",
                        .traits = kOptionalOutputs | kFirstOutputOptional,
                        .min_inputs = 1,
                        .max_inputs = 2,
                        .max_outputs = 2,
                        .infer = infer,
                        .grad = grad,
                        .cost = input_cost,
                        .cpu = prepare,
                        .gpu = prepare,
                        .samples = samples,
                        .roles = kSizesSecond};

}  // namespace gradloom
