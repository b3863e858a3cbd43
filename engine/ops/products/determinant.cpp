// Determinants of the square matrices in the last two axes: x [.., n, n] -> y [..]; dx = dy times the
// cofactors of x, for singular matrices too (kernels/determinant.h). Source: ONNX Det-11 (22: more types).
#include "engine/ops/dims.h"
#include "engine/ops/inference.h"
#include "engine/ops/preparation.h"
#include "engine/ops/samples.h"
#include "engine/ops/rows.h"
#include "kernels/launcher.h"

namespace gradloom {
namespace {

// The shape of x without its matrices.
Result<Shape> batch_of(const Shape& x) {
  if (x.size() < 2 || dims_differ(x[x.size() - 1], x[x.size() - 2]))
    return infer_error("the input " + to_string(x) + " must be square matrices [.., n, n]");
  return Shape(x.begin(), x.end() - 2);
}

Status infer(InferContext& ctx) {
  TRY(require_inputs(ctx, 1));
  return set_outputs(ctx, {{ctx.dtype(0), TRY(batch_of(ctx.shape(0)))}});
}

// Inputs: dy, x.
Status infer_grad(InferContext& ctx) {
  TRY(require_inputs(ctx, 2));
  const Shape batch = TRY(batch_of(ctx.shape(1)));
  bool fits = ctx.shape(0).size() == batch.size() && ctx.dtype(0) == ctx.dtype(1);
  for (std::size_t i = 0; fits && i < batch.size(); ++i) fits = !dims_differ(batch[i], ctx.shape(0)[i]);
  if (!fits) return infer_error("the gradient must be " + to_string(batch) + " of the input's type");
  ctx.outputs[0] = ctx.in(1);
  return {};
}

Status grad(GradContext& ctx) {
  if (ctx.wants(0)) ctx.set(0, ctx.b.op("DetGrad", {ctx.grad(), ctx.in(0)}));
  return {};
}

// n^3 steps for each matrix, of a multiplication and an addition.
Cost cost(const NodeTypes& types) {
  Cost c = default_cost(types);
  const Type& x = types.inputs.back();
  c.flops = 2.0 * static_cast<double>(element_count(x.shape)) * static_cast<double>(x.shape.back());
  return c;
}

Result<Kernel> prepare(const NodeTypes& types) {
  const Type& x = types.inputs[0];
  TRY(require_kernel_type(types.target, x.dtype));
  const kernels::DeterminantArgs args{
      x.dtype, element_count(types.outputs[0].shape), x.shape.back(), nullptr, nullptr, nullptr};
  return Kernel{"determinant", kernels::workspace_bytes(types.target, args),
                [args](const LaunchArgs& launch) {
                  kernels::DeterminantArgs a = args;
                  a.x = launch.inputs[0];
                  a.y = launch.outputs[0];
                  a.workspace = launch.workspace;
                  launch.on.determinant(a);
                }};
}

Result<Kernel> prepare_grad(const NodeTypes& types) {
  const Type& x = types.inputs[1];
  TRY(require_kernel_type(types.target, x.dtype));
  const kernels::DeterminantGradArgs args{
      x.dtype, element_count(types.inputs[0].shape), x.shape.back(), nullptr, nullptr, nullptr, nullptr};
  return Kernel{"determinant gradient", kernels::workspace_bytes(types.target, args),
                [args](const LaunchArgs& launch) {
                  kernels::DeterminantGradArgs a = args;
                  a.dy = launch.inputs[0];
                  a.x = launch.inputs[1];
                  a.dx = launch.outputs[0];
                  a.workspace = launch.workspace;
                  launch.on.determinant_grad(a);
                }};
}

// Of rank 3, 2 and 1 of 4: the cofactors of the last are 0.
SampleInput singular(int rank) {
  std::vector<double> matrix(16, 0);
  for (int r = 0; r < rank; ++r)
    for (std::int64_t i = 0; i < 4; ++i)
      for (std::int64_t j = 0; j < 4; ++j)
        matrix[static_cast<std::size_t>(4 * i + j)] +=
            (1 + 0.3 * static_cast<double>((i + 2) * (r + 1) % 5)) *
            (0.2 * static_cast<double>((j + 1) * (r + 2) % 7) - 0.5);
  return exact(DType::f32, {4, 4}, matrix);
}

std::vector<Sample> samples() {
  return {
      sample_of("one matrix", {}, {floats({5, 5})}),    sample_of("batch", {}, {floats({2, 3, 3, 3})}),
      sample_of("numbers", {}, {floats({4, 1, 1})}),    sample_of("rank 3 of 4", {}, {singular(3)}),
      sample_of("rank 2 of 4", {}, {singular(2)}),      sample_of("empty matrices", {}, {floats({2, 0, 0})}),
      sample_of("no matrices", {}, {floats({0, 3, 3})})};
}

std::vector<Sample> grad_samples() {
  return {sample_of("batch", {}, {floats({3}), floats({3, 4, 4})}),
          sample_of("rank 3 of 4", {}, {floats({}), singular(3)}),
          sample_of("rank 2 of 4", {}, {floats({}), singular(2)})};
}

}  // namespace

const OpDef det_op = {.name = "Det",
                      .since = 11,
                      .summary = "Determinants of square matrices",
                      .infer = infer,
                      .grad = grad,
                      .cost = cost,
                      .cpu = prepare,
                      .gpu = prepare,
                      .samples = samples,
                      .precision = Precision::full};

const OpDef det_grad_op = {.name = "DetGrad",
                           .domain = "gradloom",
                           .summary = "Gradient of Det: dy times the cofactors",
                           .min_inputs = 2,
                           .max_inputs = 2,
                           .infer = infer_grad,
                           .cost = cost,
                           .cpu = prepare_grad,
                           .gpu = prepare_grad,
                           .samples = grad_samples,
                           .precision = Precision::full};

}  // namespace gradloom
