// MatMul: Y = A B with NumPy's rules.
//   A: [batch_a.., m, k] or [k], B: [batch_b.., k, n] or [k], Y: [broadcast(batch_a, batch_b).., m, n]
//   (without m or n for 1-d operands) dA = dY B^T, dB = A^T dY, summed over broadcast batch dims.
// Source: ONNX MatMul-13.
#include "engine/ops/costs.h"
#include "engine/ops/gradient_rules.h"
#include "engine/ops/inference.h"
#include "engine/ops/samples.h"
#include "engine/ops/products/matrix_product.h"
#include "engine/ops/rows.h"

namespace gradloom {
namespace {

Status infer(InferContext& ctx) {
  TRY(require_inputs(ctx, 2));
  if (ctx.dtype(0) != ctx.dtype(1))
    return infer_error(std::string("operands have types ") + dtype_name(ctx.dtype(0)) + " and " +
                       dtype_name(ctx.dtype(1)));
  const ProductShape s = TRY(product_shape(ctx.shape(0), ctx.shape(1), {}));
  return set_outputs(ctx, {{ctx.dtype(0), s.y}});
}

// A 1-d operand and dY with the dim of 1 that the product gives it, and back. Shapes are static here.
ValueId reshaped(GradContext& ctx, ValueId value, const Shape& shape) {
  return ctx.shape(value) == shape ? value : ctx.b.reshape(value, shape);
}

Status grad(GradContext& ctx) {
  ValueId a = ctx.in(0), b = ctx.in(1), dy = ctx.grad();
  const Shape shape_a = ctx.shape(a), shape_b = ctx.shape(b);
  const bool vectors = shape_a.size() == 1 || shape_b.size() == 1;
  if (vectors) {
    TRY(require_static(ctx, a));
    TRY(require_static(ctx, b));
    const ProductShape s = TRY(product_shape(shape_a, shape_b, {}));
    Shape full = s.batch;
    full.push_back(s.m);
    full.push_back(s.n);
    a = reshaped(ctx, a, s.a);
    b = reshaped(ctx, b, s.b);
    dy = reshaped(ctx, dy, full);
  }
  const ProductGradients grads = product_gradients(ctx, {}, a, b, dy, ctx.wants(0), ctx.wants(1));
  if (ctx.wants(0)) ctx.set(0, vectors ? reshaped(ctx, grads.a, shape_a) : grads.a);
  if (ctx.wants(1)) ctx.set(1, vectors ? reshaped(ctx, grads.b, shape_b) : grads.b);
  return {};
}

Cost cost(const NodeTypes& types) {
  auto s = product_shape(types.inputs[0].shape, types.inputs[1].shape, {});
  CHECK(s.ok(), "cost of an invalid MatMul");
  return cost_of(types, product_flops(s.value()));
}

Result<Kernel> prepare(const NodeTypes& types) { return prepare_product(types, {}, false, {}); }

std::vector<Sample> samples() {
  return {
      {.name = "square", .inputs = {floats({5, 7}), floats({7, 3})}},
      {.name = "weight", .inputs = {floats({2, 3, 5}), floats({5, 4})}},
      {.name = "weight-4d", .inputs = {floats({2, 3, 2, 5}), floats({5, 4})}},
      {.name = "batched", .inputs = {floats({2, 3, 4, 5}), floats({2, 3, 5, 2})}},
      {.name = "broadcast", .inputs = {floats({2, 1, 3, 5}), floats({3, 5, 4})}},
      {.name = "broadcast-left", .inputs = {floats({3, 5}), floats({2, 5, 4})}},
      {.name = "vector-matrix", .inputs = {floats({5}), floats({5, 3})}},
      {.name = "matrix-vector", .inputs = {floats({2, 4, 5}), floats({5})}},
      {.name = "vector-batch", .inputs = {floats({5}), floats({2, 5, 3})}},
      {.name = "dot", .inputs = {floats({6}), floats({6})}},
      {.name = "one-row", .inputs = {floats({1, 9}), floats({9, 1})}},
      {.name = "linear", .inputs = {floats({8, 128, 512}), floats({512, 512})}, .bench = true},
      {.name = "attention", .inputs = {floats({8, 8, 128, 64}), floats({8, 8, 64, 128})}, .bench = true},
  };
}

}  // namespace

const OpDef matmul_op = {
    .name = "MatMul",
    .since = 1,
    .summary = "Matrix product with broadcast batch dims.",
    .min_inputs = 2,
    .max_inputs = 2,
    .max_outputs = 1,
    .infer = infer,
    .grad = grad,
    .cost = cost,
    .cpu = prepare,
    .gpu = prepare,
    .samples = samples,
    .precision = Precision::low,
    .arithmetic = Arithmetic::products,
};

}  // namespace gradloom
