#include "engine/ops/collectives/sync_batch_norm.h"

#include "engine/ops/channel_blocks.h"
#include "engine/ops/costs.h"
#include "engine/ops/dims.h"
#include "engine/ops/inference.h"
#include "engine/ops/preparation.h"
#include "kernels/launcher.h"

namespace gradloom {
namespace {

struct Images {
  std::int64_t n, c, spatial, block;
};

Result<Images> images_of(const Attrs& attrs, const Shape& shape) {
  const std::int64_t block = TRY(block_of(attrs, "block", shape, "input"));
  const Shape x = plain_shape(shape, block);
  if (x.size() < 2 || !is_static(x)) return infer_error("input " + to_string(x) + " has no channels");
  const Images images{x[0], x[1], dim_product(x, 2, x.size()), block};
  if (images.n * images.c * images.spatial == 0) return infer_error("an empty batch has no statistics");
  return images;
}

// Of both kernels, without what they read and write. The CPU's take bf16 only in blocks, those of GPUs no blocks.
template <class Args>
Result<Args> layout_of(const NodeTypes& types, const Type& x) {
  const Images images = TRY(images_of(types.attrs, x.shape));
  TRY(require_kernel_type(types.target, types.inputs[0].dtype, images.block > 1));
  TRY(require_layout(types.target, images.block));
  Args layout{};
  layout.block = images.block;
  layout.dtype = x.dtype;
  layout.parameters = types.outputs[0].dtype;
  layout.training = true;
  layout.n = images.n;
  layout.c = images.c;
  layout.spatial = images.spatial;
  return layout;
}

// ---- BatchMoments -----------------------------------------------------------------------------------------

Status infer_moments(InferContext& ctx) {
  TRY(require_inputs(ctx, 1));
  if (!is_float(ctx.dtype(0))) return infer_error("the input is " + to_string(ctx.in(0)));
  const Type statistic{statistics_type(ctx.dtype(0)), {TRY(images_of(ctx.attrs, ctx.shape(0))).c}};
  return set_outputs(ctx, {statistic, statistic});
}

Result<Kernel> prepare_moments(const NodeTypes& types) {
  const auto layout = TRY(layout_of<kernels::BatchNormArgs>(types, types.inputs[0]));
  return Kernel{"batch_moments", kernels::workspace_bytes(types.target, layout),
                [layout](const LaunchArgs& args) {
                  kernels::BatchNormArgs a = layout;
                  a.x = args.inputs[0];
                  a.saved_mean = args.outputs[0];
                  a.saved_inv_std = args.outputs[1];
                  a.workspace = args.workspace;
                  args.on.batch_norm(a);
                }};
}

// ---- BatchGradSums ----------------------------------------------------------------------------------------

Status infer_sums(InferContext& ctx) {
  TRY(require_inputs(ctx, 4));
  TRY(require_float(ctx, 1, "x"));
  for (const std::size_t i : {2u, 3u}) TRY(require_statistic(ctx, i, "mean and inv_std"));
  const Type sum{ctx.dtype(2), {TRY(images_of(ctx.attrs, ctx.shape(1))).c}};
  return set_outputs(ctx, {sum, sum});
}

Result<Kernel> prepare_sums(const NodeTypes& types) {
  const auto layout = TRY(layout_of<kernels::BatchNormGradArgs>(types, types.inputs[1]));
  return Kernel{"batch_grad_sums", kernels::workspace_bytes(types.target, layout),
                [layout](const LaunchArgs& args) {
                  kernels::BatchNormGradArgs a = layout;
                  a.dy = args.inputs[0];
                  a.x = args.inputs[1];
                  a.saved_mean = args.inputs[2];
                  a.saved_inv_std = args.inputs[3];
                  a.dscale = args.outputs[0];
                  a.dbias = args.outputs[1];
                  a.workspace = args.workspace;
                  args.on.batch_norm_grad(a);
                }};
}

Cost cost_pass(const NodeTypes& types) {
  return cost_of(types, 5.0 * static_cast<double>(element_count(types.inputs[0].shape)));
}

const OpDef moments_row{.name = "BatchMoments",
                        .domain = "gradloom",
                        .summary = "Mean and variance of each channel of a batch",
                        .traits = kNoGradient,
                        .max_outputs = 2,
                        .infer = infer_moments,
                        .cost = cost_pass,
                        .cpu = prepare_moments,
                        .gpu = prepare_moments,
                        .precision = Precision::full};
const OpDef sums_row{
    .name = "BatchGradSums",
    .domain = "gradloom",
    .summary = "What the gradient of a normalization by batch statistics sums over the batch",
    .traits = kNoGradient,
    .min_inputs = 4,
    .max_inputs = 4,
    .max_outputs = 2,
    .infer = infer_sums,
    .cost = cost_pass,
    .cpu = prepare_sums,
    .gpu = prepare_sums,
    .precision = Precision::full};

}  // namespace

const OpDef& batch_moments_op() { return moments_row; }
const OpDef& batch_grad_sums_op() { return sums_row; }

}  // namespace gradloom
