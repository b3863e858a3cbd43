// Trilu(x, k): the upper or the lower triangle of the matrices in the last two axes, zeros elsewhere. Source: ONNX Trilu-14.
#include "engine/ops/input_roles.h"
#include "engine/ops/copies.h"
#include "engine/ops/costs.h"
#include "engine/ops/inference.h"
#include "engine/ops/preparation.h"
#include "engine/ops/samples.h"
#include "engine/ops/rows.h"
#include "kernels/launcher.h"

namespace gradloom {
namespace {

// The upper (column - row >= k) or lower (column - row <= k) triangle of the last two axes, 0 elsewhere.

Status infer_trilu(InferContext& ctx) {
  TRY(require_inputs(ctx, 1));
  if (ctx.shape(0).size() < 2) return infer_error("Trilu needs at least two dimensions");
  if (ctx.has(1) && ctx.dtype(1) != DType::i64) return infer_error("Trilu: k must be a 64-bit integer");
  if (ctx.has(1) && (!is_static(ctx.shape(1)) || element_count(ctx.shape(1)) != 1))
    return infer_error("Trilu: k must be one number");
  ctx.outputs[0] = ctx.in(0);
  return {};
}

Result<Kernel> prepare_trilu(const NodeTypes& types) {
  const Shape& shape = types.inputs[0].shape;
  const std::int64_t rows = shape[shape.size() - 2], cols = shape.back();
  const std::int64_t matrices = rows * cols == 0 ? 0 : element_count(shape) / (rows * cols);
  const bool upper = types.attrs.integer("upper", 1) != 0;
  const kernels::TriluArgs args{
      dtype_bytes(types.inputs[0].dtype), upper, matrices, rows, cols, nullptr, nullptr, nullptr};
  Kernel kernel;
  kernel.name = upper ? "upper triangle" : "lower triangle";
  kernel.run = [args, given = types.has(1)](const LaunchArgs& launch) {
    kernels::TriluArgs a = args;
    a.x = launch.inputs[0];
    a.k = given ? static_cast<const std::int64_t*>(launch.inputs[1]) : nullptr;
    a.y = launch.outputs[0];
    launch.on.trilu(a);
  };
  return kernel;
}

Status grad_trilu(GradContext& ctx) {
  if (ctx.wants(0)) ctx.set(0, ctx.b.op("Trilu", {ctx.grad(), ctx.in(1)}, ctx.node.attrs));
  return {};
}

std::vector<Sample> trilu_samples() {
  const Attrs lower = {{"upper", std::int64_t{0}}};
  return {sample_of("upper", {}, {floats({4, 5})}),
          sample_of("lower", lower, {floats({2, 5, 3})}),
          sample_of("above", {}, {floats({4, 5}), known_scalar(DType::i64, 2)}),
          sample_of("below", lower, {floats({5, 4}), known_scalar(DType::i64, -1)}),
          sample_of("far", lower, {ints({3, 3}, -9, 9), known_scalar(DType::i64, -7)}),
          sample_of("booleans", {}, {bools({4, 4}), known_scalar(DType::i64, 1)})};
}

}  // namespace

const OpDef trilu_op = {.name = "Trilu",
                        .since = 14,
                        .summary = "Upper or lower triangle of matrices",
                        .min_inputs = 1,
                        .max_inputs = 2,
                        .infer = infer_trilu,
                        .grad = grad_trilu,
                        .cost = copy_cost,
                        .cpu = prepare_trilu,
                        .gpu = prepare_trilu,
                        .samples = trilu_samples,
                        .roles = kSizesSecond};

}  // namespace gradloom
