// DepthToSpace and SpaceToDepth: blocks of channels against blocks of pixels, each one strided copy.
//   DepthToSpace DCR  x: [n, b, b, c, h, w] -> y: [n, c, h, b, w, b]; CRD: x: [n, c, b, b, h, w] -> the same y
//   SpaceToDepth      the way back: DCR, what opsets before 28 mean; CRD
// Source: ONNX DepthToSpace-11, SpaceToDepth-28.
#include <memory>

#include "engine/ops/copies.h"
#include "engine/ops/costs.h"
#include "engine/ops/dims.h"
#include "engine/ops/inference.h"
#include "engine/ops/samples.h"
#include "engine/ops/rows.h"
#include "kernels/launcher.h"

namespace gradloom {
namespace {

using Ints = std::vector<std::int64_t>;

Result<std::int64_t> block_of(const InferContext& ctx) {
  TRY(require_inputs(ctx, 1));
  const std::int64_t block = ctx.attrs.integer("blocksize");
  if (block < 1 || block > (1 << 20)) return infer_error("blocksize is " + std::to_string(block));
  if (ctx.shape(0).size() != 4)
    return infer_error("the input must be [n, c, h, w], it is " + to_string(ctx.shape(0)));
  return block;
}

Result<bool> column_row_depth(const Attrs& attrs) {
  const std::string mode = attrs.text("mode", "DCR");
  if (mode != "DCR" && mode != "CRD") return infer_error("mode '" + mode + "' is not supported");
  return mode == "CRD";
}

Status infer_to_space(InferContext& ctx) {
  const std::int64_t b = TRY(block_of(ctx));
  TRY(column_row_depth(ctx.attrs));
  const Shape& x = ctx.shape(0);
  if (x[1] >= 0 && x[1] % (b * b) != 0)
    return infer_error(std::to_string(x[1]) + " channels are no whole blocks");
  ctx.outputs[0] = {
      ctx.dtype(0),
      {x[0], TRY(divide_dims({x[1]}, {b, b})), TRY(multiply_dims({x[2], b})), TRY(multiply_dims({x[3], b}))}};
  return {};
}

Status infer_to_depth(InferContext& ctx) {
  const std::int64_t b = TRY(block_of(ctx));
  TRY(column_row_depth(ctx.attrs));
  const Shape& x = ctx.shape(0);
  for (std::size_t d : {2, 3})
    if (x[d] >= 0 && x[d] % b != 0) return infer_error(std::to_string(x[d]) + " pixels are no whole blocks");
  ctx.outputs[0] = {
      ctx.dtype(0),
      {x[0], TRY(multiply_dims({x[1], b, b})), TRY(divide_dims({x[2]}, {b})), TRY(divide_dims({x[3]}, {b}))}};
  return {};
}

// The copy from `split`, the input with its blocks apart, in the order `perm`.
Result<Kernel> permuting_kernel(const char* name, const Shape& split, const Ints& perm, DType dtype) {
  const Ints strides = dense_strides(split);
  CopyPlan plan;
  for (std::int64_t p : perm) {
    plan.dims.push_back(split[static_cast<std::size_t>(p)]);
    plan.in_strides.push_back(strides[static_cast<std::size_t>(p)]);
  }
  plan.out_strides = dense_strides(plan.dims);
  const kernels::StridedCopyArgs args = TRY(strided_copy_args(plan, dtype_bytes(dtype)));
  Kernel kernel;
  kernel.name = name;
  kernel.run = [args, plan](const LaunchArgs& launch) {
    run_copy(launch.on, args, plan, launch.inputs[0], launch.outputs[0]);
  };
  return kernel;
}

Result<Kernel> prepare_to_space(const NodeTypes& types) {
  const Shape &x = types.inputs[0].shape, &y = types.outputs[0].shape;
  const std::int64_t b = types.attrs.integer("blocksize");
  if (TRY(column_row_depth(types.attrs)))
    return permuting_kernel("depth to space", {x[0], y[1], b, b, x[2], x[3]}, {0, 1, 4, 2, 5, 3},
                            types.inputs[0].dtype);
  return permuting_kernel("depth to space", {x[0], b, b, y[1], x[2], x[3]}, {0, 3, 4, 1, 5, 2},
                          types.inputs[0].dtype);
}

Result<Kernel> prepare_to_depth(const NodeTypes& types) {
  const Shape &x = types.inputs[0].shape, &y = types.outputs[0].shape;
  const std::int64_t b = types.attrs.integer("blocksize");
  const bool columns_first = TRY(column_row_depth(types.attrs));
  return permuting_kernel("space to depth", {x[0], x[1], y[2], b, y[3], b},
                          columns_first ? Ints{0, 1, 3, 5, 2, 4} : Ints{0, 3, 5, 1, 2, 4},
                          types.inputs[0].dtype);
}

// Each one's gradient is the other, in the same order.
template <bool to_space>
Status grad(GradContext& ctx) {
  ctx.set(0, ctx.b.op(to_space ? "SpaceToDepth" : "DepthToSpace", {ctx.grad()},
                      {{"blocksize", ctx.node.attrs.integer("blocksize")},
                       {"mode", ctx.node.attrs.text("mode", "DCR")}}));
  return {};
}

std::vector<Sample> to_space_samples() {
  const std::int64_t two = 2, three = 3;
  return {
      sample_of("depth first", {{"blocksize", two}}, {floats({2, 8, 3, 2})}),
      sample_of("columns first", {{"blocksize", two}, {"mode", std::string("CRD")}}, {floats({1, 8, 2, 3})}),
      sample_of("integers", {{"blocksize", three}}, {ints({1, 9, 1, 2}, -9, 9)})};
}

std::vector<Sample> to_depth_samples() {
  return {sample_of("blocks of 2", {{"blocksize", std::int64_t{2}}}, {floats({2, 3, 4, 6})}),
          sample_of("columns first", {{"blocksize", std::int64_t{2}}, {"mode", std::string("CRD")}},
                    {floats({1, 2, 4, 6})}),
          sample_of("integers", {{"blocksize", std::int64_t{3}}}, {ints({1, 2, 3, 6}, -9, 9)})};
}

}  // namespace

const OpDef depth_to_space_op = {.name = "DepthToSpace",
                                 .summary = "Blocks of channels become blocks of pixels",
                                 .infer = infer_to_space,
                                 .grad = grad<true>,
                                 .cost = copy_cost,
                                 .cpu = prepare_to_space,
                                 .gpu = prepare_to_space,
                                 .samples = to_space_samples};
const OpDef space_to_depth_op = {.name = "SpaceToDepth",
                                 .summary = "Blocks of pixels become blocks of channels",
                                 .infer = infer_to_depth,
                                 .grad = grad<false>,
                                 .cost = copy_cost,
                                 .cpu = prepare_to_depth,
                                 .gpu = prepare_to_depth,
                                 .samples = to_depth_samples};

}  // namespace gradloom
