// Gemm: Y = alpha * A' B' + beta * C, A' = A^T with transA, B' = B^T with transB.
//   A': [m, k], B': [k, n], C broadcasts to [m, n], Y: [m, n]
//   dA' = alpha dY B'^T, dB' = alpha A'^T dY, dC = beta dY summed over broadcast dims.
// Source: ONNX Gemm-13.
#include "engine/ops/costs.h"
#include "engine/ops/dims.h"
#include "engine/ops/inference.h"
#include "engine/ops/samples.h"
#include "engine/ops/products/matrix_product.h"
#include "engine/ops/rows.h"

namespace gradloom {
namespace {

ProductSpec spec_of(const Attrs& attrs) {
  ProductSpec spec;
  if (attrs.integer("transA") != 0) spec.perm_a = {1, 0};
  if (attrs.integer("transB") != 0) spec.perm_b = {1, 0};
  spec.alpha = attrs.real("alpha", 1);
  return spec;
}

Status infer(InferContext& ctx) {
  TRY(require_inputs(ctx, 2));
  for (std::size_t i = 0; i < 2; ++i)
    if (ctx.shape(i).size() != 2)
      return infer_error(std::string(i ? "B" : "A") + " must have 2 dims, it is " + to_string(ctx.in(i)));
  if (ctx.dtype(0) != ctx.dtype(1) || (ctx.has(2) && ctx.dtype(2) != ctx.dtype(0)))
    return infer_error("operands have different types");
  const ProductShape s = TRY(product_shape(ctx.shape(0), ctx.shape(1), spec_of(ctx.attrs)));
  if (ctx.has(2)) {
    const Shape& c = ctx.shape(2);
    bool fits = c.size() <= 2;
    for (std::size_t i = 0; fits && i < c.size(); ++i) {
      const std::int64_t dim = s.y[i + 2 - c.size()];
      fits = c[i] == 1 || !dims_differ(c[i], dim);
    }
    if (!fits) return infer_error("C of shape " + to_string(c) + " does not broadcast to " + to_string(s.y));
  }
  return set_outputs(ctx, {{ctx.dtype(0), s.y}});
}

Status grad(GradContext& ctx) {
  const ProductSpec spec = spec_of(ctx.node.attrs);
  const ProductGradients grads =
      product_gradients(ctx, spec, ctx.in(0), ctx.in(1), ctx.grad(), ctx.wants(0), ctx.wants(1));
  if (ctx.wants(0)) ctx.set(0, grads.a);
  if (ctx.wants(1)) ctx.set(1, grads.b);
  if (!ctx.wants(2)) return {};
  ValueId dc = ctx.reduce_to(ctx.grad(), ctx.in(2));
  const double beta = ctx.node.attrs.real("beta", 1);
  if (beta != 1) dc = ctx.b.op("Mul", {dc, ctx.b.scalar(ctx.dtype(dc), beta)});
  ctx.set(2, dc);
  return {};
}

Cost cost(const NodeTypes& types) {
  auto s = product_shape(types.inputs[0].shape, types.inputs[1].shape, spec_of(types.attrs));
  CHECK(s.ok(), "cost of an invalid Gemm");
  const double addend = types.has(2) ? static_cast<double>(element_count(types.outputs[0].shape)) : 0;
  return cost_of(types, product_flops(s.value()) + addend);
}

Result<Kernel> prepare(const NodeTypes& types) {
  const double beta = types.attrs.real("beta", 1);
  const bool has_c = types.has(2) && beta != 0;
  const Shape& y = types.outputs[0].shape;
  bool bias = false;
  Addend addend;
  if (has_c) {
    const Shape& c = types.inputs[2].shape;
    bias = beta == 1 && !c.empty() && c.back() == y[1] && element_count(c) == y[1];
    addend.present = !bias;
    addend.beta = beta;
    const std::int64_t columns = c.empty() ? 1 : c.back(), rows = c.size() < 2 ? 1 : c[0];
    addend.strides = {rows == 1 ? 0 : columns, columns == 1 ? 0 : 1};
  }
  return prepare_product(types, spec_of(types.attrs), bias, addend);
}

std::vector<Sample> samples() {
  const std::int64_t on = 1;
  return {
      {.name = "plain", .inputs = {floats({3, 5}), floats({5, 4})}},
      {.name = "linear", .attrs = {{"transB", on}}, .inputs = {floats({3, 5}), floats({4, 5}), floats({4})}},
      {.name = "all-attributes",
       .attrs = {{"transA", on}, {"transB", on}, {"alpha", 0.25}, {"beta", 0.35}},
       .inputs = {floats({4, 3}), floats({5, 4}), floats({1, 5})}},
      {.name = "trans-a",
       .attrs = {{"transA", on}},
       .inputs = {floats({6, 3}), floats({6, 4}), floats({3, 1})}},
      {.name = "matrix-c",
       .attrs = {{"beta", 0.5}},
       .inputs = {floats({2, 7}), floats({7, 4}), floats({2, 4})}},
      {.name = "scalar-c", .inputs = {floats({2, 3}), floats({3, 4}), floats({})}},
      {.name = "one-element-c", .inputs = {floats({2, 10}), floats({10, 3}), floats({1})}},
      {.name = "layer",
       .attrs = {{"transB", on}},
       .inputs = {floats({256, 512}), floats({512, 512}), floats({512})},
       .bench = true},
  };
}

}  // namespace

const OpDef gemm_op = {
    .name = "Gemm",
    .since = 7,
    .summary = "Matrix product with transposed operands, scaling and an added matrix.",
    .min_inputs = 2,
    .max_inputs = 3,
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
