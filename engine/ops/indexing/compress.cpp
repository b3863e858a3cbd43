// Compress(data, condition), attribute axis: the elements, or with an axis the parts, where the condition is true.
// What comes out has a size that is in the contents of an input: these must be known when planning. Source: ONNX Compress-11.
#include <algorithm>
#include <cstring>

#include "engine/ops/copies.h"
#include "engine/ops/costs.h"
#include "engine/ops/dims.h"
#include "engine/ops/gradient_rules.h"
#include "engine/ops/inference.h"
#include "engine/ops/known_bytes.h"
#include "engine/ops/preparation.h"
#include "engine/ops/samples.h"
#include "engine/ops/rows.h"
#include "kernels/launcher.h"

namespace gradloom {
namespace {

using Ints = std::vector<std::int64_t>;

Result<Ints> chosen(const Tensor& condition, std::int64_t size) {
  if (condition.shape().size() != 1) return infer_error("the condition must be a vector");
  if (size >= 0 && condition.count() > size)
    return infer_error("a condition of " + std::to_string(condition.count()) + " for " +
                       std::to_string(size) + " elements");
  Ints indices;
  for (std::int64_t i = 0; i < condition.count(); ++i)
    if (condition.int_at(i) != 0) indices.push_back(i);
  return indices;
}

Status infer_compress(InferContext& ctx) {
  TRY(require_inputs(ctx, 2));
  if (ctx.dtype(1) != DType::boolean) return infer_error("the condition must be bool");
  const Shape& data = ctx.shape(0);
  const bool along = ctx.attrs.has("axis");
  const auto axis =
      along ? static_cast<std::size_t>(TRY(normalized_axis(ctx.attrs.integer("axis"), data.size()))) : 0;
  std::int64_t count = unknown_dim(ctx, 1, 0);
  if (const Tensor* condition = ctx.constant(1))
    count = static_cast<std::int64_t>(TRY(chosen(*condition, along             ? data[axis]
                                                             : is_static(data) ? element_count(data)
                                                                               : -1))
                                          .size());
  Shape y = along ? data : Shape{count};
  if (along) y[axis] = count;
  return set_outputs(ctx, {{ctx.dtype(0), y}});
}

Result<Kernel> prepare_compress(const NodeTypes& types) {
  if (types.constants[1] == nullptr) return no_kernel("Compress: the condition must be known when planning");
  const AxisView v = TRY(optional_axis_view(types.attrs, types.inputs[0].shape));
  const Ints indices = TRY(chosen(*types.constants[1], v.size));
  if (indices.empty() || v.outer * v.inner == 0) return no_work("compress");
  auto known = std::make_shared<KnownBytes>(types.target);
  known->add(indices);
  const kernels::GatherArgs args{
      dtype_bytes(types.inputs[0].dtype),        DType::i64, v.outer, v.size, v.inner,
      static_cast<std::int64_t>(indices.size()), nullptr,    nullptr, nullptr};
  Kernel kernel;
  kernel.name = "compress";
  kernel.workspace_bytes = known->workspace_bytes();
  kernel.run = [args, known = std::shared_ptr<const KnownBytes>(known)](const LaunchArgs& launch) {
    kernels::GatherArgs a = args;
    a.data = launch.inputs[0];
    a.indices = known->place(launch.on, launch.workspace);
    a.out = launch.outputs[0];
    launch.on.gather(a);
  };
  return kernel;
}

Status grad_compress(GradContext& ctx) {
  if (!ctx.wants(0)) return {};
  TRY(require_static(ctx, ctx.in(0)));
  const Value& condition = ctx.b.graph().values[ctx.in(1)];
  if (!is_constant(ctx.b.graph(), ctx.in(1)) || !condition.data.defined())
    return infer_error("the condition must be known when planning");
  const Shape data = ctx.shape(ctx.in(0));
  const bool along = ctx.node.attrs.has("axis");
  const AxisView v = TRY(optional_axis_view(ctx.node.attrs, data));
  const Ints indices = TRY(chosen(condition.data, v.size));
  const std::int64_t axis = along ? TRY(normalized_axis(ctx.node.attrs.integer("axis"), data.size())) : 0;
  const ValueId shape = ctx.b.i64s(along ? data : Shape{v.size});
  const ValueId flat = ctx.b.op("GatherGrad", {ctx.grad(), ctx.b.i64s(indices), shape}, {{"axis", axis}});
  ctx.set(0, along ? flat : reshaped_like(ctx, flat, ctx.in(0)));
  return {};
}

std::vector<Sample> compress_samples() {
  return {sample_of("rows", {{"axis", std::int64_t{0}}}, {floats({4, 3}), known_truths({0, 1, 1, 0})}),
          sample_of("last axis, short condition", {{"axis", std::int64_t{-1}}},
                    {floats({2, 3, 5}), known_truths({1, 0, 1})}),
          sample_of("elements", {}, {floats({3, 2}), known_truths({0, 1, 0, 0, 1})}),
          sample_of("nothing", {}, {floats({3}), known_truths({0, 0, 0})})};
}

constexpr InputRole kCompressRoles[] = {{.input = 1, .use = InputUse::sizes, .examined = true}};

}  // namespace

const OpDef compress_op = {.name = "Compress",
                           .since = 9,
                           .summary = "Parts where a known condition is true",
                           .min_inputs = 2,
                           .max_inputs = 2,
                           .infer = infer_compress,
                           .grad = grad_compress,
                           .cost = copy_cost,
                           .cpu = prepare_compress,
                           .gpu = prepare_compress,
                           .samples = compress_samples,
                           .roles = kCompressRoles};

}  // namespace gradloom
