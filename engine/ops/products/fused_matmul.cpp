// FusedMatMul (ours): a product that reads and writes through axis permutations,
// with scale, bias and activation.
//   A' = transpose(A, perm_a), B' = transpose(B, perm_b), P = alpha * A' B' + bias, Y = transpose(activation(P), perm_y)
//   A: rank >= 2, B: rank >= 2 (batch dims of A', B' broadcast), bias: [n], Y: P's dims permuted
//   addend, without activation: of Y's shape, Y is that much more
//   second output, with gelu_tanh: P, which the gradient of the activation reads
// Attributes: perm_a, perm_b, perm_y (absent: identity), alpha (1), activation ("none" | "relu"
// | "gelu_tanh"). The gradients of MatMul and Gemm are FusedMatMul nodes, so no Transpose
// appears in a backward graph.
//
// FusedMatMulGrad (ours): what passes make of such a gradient and its neighbours. Inputs A, B, aux.
//   Y = transpose(P, perm_y), P = alpha * A' B', times the slope of the activation at aux, which has the shape of Y
//   second output, sums: "a" | "b": A or B, which have 2 dims, summed over the first, k: the gradient of a bias,
//   [m] or [n], beside that of its weight
// Attributes: perm_a, perm_b, perm_y, alpha, activation ("none" | "gelu_tanh"), sums.
#include "engine/ops/costs.h"
#include "engine/ops/dims.h"
#include "engine/ops/inference.h"
#include "engine/ops/samples.h"
#include "engine/ops/products/matrix_product.h"
#include "engine/ops/rows.h"
#include "kernels/launcher.h"

namespace gradloom {
namespace {

using kernels::Activation, kernels::GemmOperand;

Error unknown_activation(const std::string& name) {
  return infer_error("activation '" + name + "' is unknown");
}

Result<ProductSpec> spec_of(const Attrs& attrs, std::size_t rank_a, std::size_t rank_b) {
  ProductSpec spec = TRY(product_spec(attrs, rank_a, rank_b));
  const std::string activation = attrs.text("activation", "none");
  if (activation == "relu")
    spec.activation = Activation::relu;
  else if (activation == "gelu_tanh")
    spec.activation = Activation::gelu_tanh;
  else if (activation != "none")
    return unknown_activation(activation);
  if (spec.activation == Activation::gelu_tanh && !spec.perm_y.empty())
    return infer_error("gelu_tanh needs the identity as perm_y");
  return spec;
}

Result<ProductSpec> grad_spec_of(const Attrs& attrs, std::size_t rank_a, std::size_t rank_b) {
  ProductSpec spec = TRY(product_spec(attrs, rank_a, rank_b));
  const std::string activation = attrs.text("activation", "none"), sums = attrs.text("sums", "none");
  if (activation == "gelu_tanh")
    spec.activation = Activation::gelu_tanh_grad;
  else if (activation != "none")
    return unknown_activation(activation);
  if (spec.activation != Activation::none && !spec.perm_y.empty())
    return infer_error("the slope of an activation needs the identity as perm_y");
  if (sums == "none") return spec;
  if (sums != "a" && sums != "b") return infer_error("sums '" + sums + "' is unknown");
  spec.sums_of = sums == "a" ? GemmOperand::a : GemmOperand::b;
  if (rank_a != 2 || rank_b != 2) return infer_error("sums need operands of 2 dims");
  // k is the first dim as stored: A' = [m, k] is A turned, B' = [k, n] is B.
  if (spec.sums_of == GemmOperand::a ? spec.perm_a.empty() : !spec.perm_b.empty())
    return infer_error("sums need an operand whose first dim is summed over by the product");
  return spec;
}

// Types of A and B, and of what else is given.
Status require_one_type(const InferContext& ctx) {
  for (const std::size_t i : {1u, 2u, 3u})
    if (ctx.has(i) && ctx.dtype(i) != ctx.dtype(0)) return infer_error("operands have different types");
  return {};
}

Status infer(InferContext& ctx) {
  TRY(require_inputs(ctx, 2));
  const ProductSpec spec = TRY(spec_of(ctx.attrs, ctx.shape(0).size(), ctx.shape(1).size()));
  TRY(require_one_type(ctx));
  const ProductShape s = TRY(product_shape(ctx.shape(0), ctx.shape(1), spec));
  if (ctx.has(2) && (ctx.shape(2).size() != 1 || dims_differ(ctx.shape(2)[0], s.n)))
    return infer_error("bias must have shape [" + std::to_string(s.n) + "], it has " +
                       to_string(ctx.shape(2)));
  if (ctx.output_count > 1 && spec.activation != Activation::gelu_tanh)
    return infer_error("the second output needs activation gelu_tanh");
  if (ctx.has(3)) {
    if (spec.activation != Activation::none) return infer_error("an addend needs activation none");
    TRY(require_shape(ctx, 3, "the addend", s.y));
  }
  return set_outputs(ctx, {{ctx.dtype(0), s.y}, {ctx.dtype(0), s.y}});
}

Status grad(GradContext& ctx) {
  const ProductSpec spec =
      TRY(spec_of(ctx.node.attrs, ctx.shape(ctx.in(0)).size(), ctx.shape(ctx.in(1)).size()));
  ValueId dy = ctx.grad();
  if (spec.activation == Activation::relu) dy = ctx.b.op("ReluGrad", {dy, ctx.out(0)});
  if (spec.activation == Activation::gelu_tanh) {
    if (dy != kNone) dy = ctx.b.op("GeluTanhGrad", {dy, ctx.require_out(1)});
    const ValueId more = ctx.grad(1);
    if (more != kNone) dy = dy == kNone ? more : ctx.b.op("Add", {dy, more});
  }
  const ProductGradients grads =
      product_gradients(ctx, spec, ctx.in(0), ctx.in(1), dy, ctx.wants(0), ctx.wants(1));
  if (ctx.wants(0)) ctx.set(0, grads.a);
  if (ctx.wants(1)) ctx.set(1, grads.b);
  if (ctx.wants(3)) ctx.set(3, dy);
  if (!ctx.wants(2)) return {};
  const std::size_t rank = ctx.shape(dy).size();
  std::vector<std::int64_t> axes;  // every dim of Y but the product's columns
  for (std::size_t i = 0; i < rank; ++i) {
    const std::int64_t axis = spec.perm_y.empty() ? as_dim(i) : spec.perm_y[i];
    if (axis != as_dim(rank) - 1) axes.push_back(as_dim(i));
  }
  ctx.set(2, ctx.b.op("ReduceSum", {dy, ctx.b.i64s(axes)}, {{"keepdims", std::int64_t{0}}}));
  return {};
}

Cost cost_with(const NodeTypes& types, const Result<ProductSpec>& spec) {
  CHECK(spec.ok(), "cost of an invalid product");
  auto s = product_shape(types.inputs[0].shape, types.inputs[1].shape, spec.value());
  CHECK(s.ok(), "cost of an invalid product");
  const double epilogue =
      (types.has(2) ? 1 : 0) + (types.has(3) ? 1 : 0) + (spec->activation == Activation::none ? 0 : 1);
  const double sums = spec->sums_of == GemmOperand::none ? 0
                      : spec->sums_of == GemmOperand::a
                          ? static_cast<double>(element_count(types.inputs[0].shape))
                          : static_cast<double>(element_count(types.inputs[1].shape));
  return cost_of(types,
                 product_flops(s.value()) + epilogue * static_cast<double>(element_count(s->y)) + sums);
}
Cost cost(const NodeTypes& types) {
  return cost_with(types, spec_of(types.attrs, types.inputs[0].shape.size(), types.inputs[1].shape.size()));
}
Cost grad_cost(const NodeTypes& types) {
  return cost_with(types,
                   grad_spec_of(types.attrs, types.inputs[0].shape.size(), types.inputs[1].shape.size()));
}

Result<Kernel> prepare(const NodeTypes& types) {
  const ProductSpec spec =
      TRY(spec_of(types.attrs, types.inputs[0].shape.size(), types.inputs[1].shape.size()));
  return prepare_product(types, spec, types.has(2), {},
                         {.aux_out = types.wants(1) ? 1 : -1, .addend = types.has(3) ? 3 : -1});
}

Status infer_grad(InferContext& ctx) {
  TRY(require_inputs(ctx, 2));
  const ProductSpec spec = TRY(grad_spec_of(ctx.attrs, ctx.shape(0).size(), ctx.shape(1).size()));
  TRY(require_one_type(ctx));
  const ProductShape s = TRY(product_shape(ctx.shape(0), ctx.shape(1), spec));
  if (ctx.has(2) != (spec.activation != Activation::none))
    return infer_error("aux is given with an activation, and only then");
  if (ctx.has(2)) TRY(require_shape(ctx, 2, "aux", s.y));
  if ((ctx.output_count > 1) != (spec.sums_of != GemmOperand::none))
    return infer_error("the second output is there with sums, and only then");
  const Shape sums{spec.sums_of == GemmOperand::a ? s.m : s.n};
  return set_outputs(ctx, {{ctx.dtype(0), s.y}, {ctx.dtype(0), sums}});
}

Result<Kernel> prepare_grad(const NodeTypes& types) {
  const ProductSpec spec =
      TRY(grad_spec_of(types.attrs, types.inputs[0].shape.size(), types.inputs[1].shape.size()));
  return prepare_product(types, spec, false, {},
                         {.aux_in = types.has(2) ? 2 : -1, .sums = types.wants(1) ? 1 : -1});
}

std::vector<Sample> samples() {
  using Perm = Perm;
  return {
      {.name = "plain", .inputs = {floats({3, 5}), floats({5, 4})}},
      {.name = "transposed",
       .attrs = {{"perm_a", Perm{1, 0}}, {"perm_b", Perm{1, 0}}, {"perm_y", Perm{1, 0}}, {"alpha", 0.5}},
       .inputs = {floats({5, 3}), floats({4, 5}), floats({4})}},
      {.name = "bias", .inputs = {floats({2, 3, 5}), floats({5, 4}), floats({4})}},
      // ReLU: a bias of 9 or -9 keeps every column away from the kink.
      {.name = "bias-relu",
       .attrs = {{"activation", std::string("relu")}},
       .inputs = {floats({3, 5}), floats({5, 4}), exact(DType::f32, {4}, {9, -9, 9.5, -9.5})}},
      {.name = "bias-gelu",
       .attrs = {{"activation", std::string("gelu_tanh")}},
       .inputs = {floats({3, 5}), floats({5, 4}), floats({4})}},
      {.name = "gelu-saved",
       .attrs = {{"activation", std::string("gelu_tanh")}, {"perm_b", Perm{1, 0}}, {"alpha", 1.5}},
       .inputs = {floats({2, 3, 5}), floats({4, 5}), floats({4})},
       .output_count = 2},
      {.name = "addend", .inputs = {floats({2, 3, 5}), floats({5, 4}), floats({4}), floats({2, 3, 4})}},
      {.name = "addend-turned",
       .attrs = {{"perm_a", Perm{0, 2, 1}}, {"perm_y", Perm{1, 0, 2}}, {"alpha", 2.0}},
       .inputs = {floats({2, 5, 3}), floats({2, 5, 4}), omitted(), floats({3, 2, 4})}},
      {.name = "heads",
       .attrs = {{"perm_a", Perm{0, 2, 1, 3}}, {"perm_b", Perm{0, 2, 3, 1}}, {"alpha", 0.125}},
       .inputs = {floats({2, 3, 4, 5}), floats({2, 3, 4, 5})}},
      {.name = "merge-heads",
       .attrs = {{"perm_b", Perm{0, 2, 1, 3}}, {"perm_y", Perm{0, 2, 1, 3}}},
       .inputs = {floats({2, 4, 3, 3}), floats({2, 3, 4, 5})}},
      {.name = "broadcast",
       .attrs = {{"perm_y", Perm{2, 0, 1}}},
       .inputs = {floats({2, 3, 5}), floats({5, 4}), floats({4})}},
      {.name = "broadcast-batch",
       .attrs = {{"perm_b", Perm{1, 2, 0}}},
       .inputs = {floats({4, 5}), floats({3, 2, 5})}},
      {.name = "attention-scores",
       .attrs = {{"perm_a", Perm{0, 2, 1, 3}}, {"perm_b", Perm{0, 2, 3, 1}}, {"alpha", 0.125}},
       .inputs = {floats({8, 128, 8, 64}), floats({8, 128, 8, 64})},
       .bench = true},
  };
}

std::vector<Sample> grad_samples() {
  using Perm = Perm;
  const std::string gelu = "gelu_tanh";
  return {
      {.name = "slope",
       .attrs = {{"activation", gelu}},
       .inputs = {floats({3, 5}), floats({5, 4}), floats({3, 4})}},
      {.name = "slope-turned",
       .attrs = {{"activation", gelu}, {"perm_b", Perm{1, 0}}, {"alpha", 0.5}},
       .inputs = {floats({2, 3, 5}), floats({4, 5}), floats({2, 3, 4})}},
      {.name = "sums-b",
       .attrs = {{"perm_a", Perm{1, 0}}, {"sums", std::string("b")}},
       .inputs = {floats({6, 3}), floats({6, 4})},
       .output_count = 2},
      {.name = "sums-a",
       .attrs = {{"perm_a", Perm{1, 0}}, {"sums", std::string("a")}},
       .inputs = {floats({6, 3}), floats({6, 4})},
       .output_count = 2},
      {.name = "sums-written-turned",
       .attrs = {{"perm_a", Perm{1, 0}}, {"perm_y", Perm{1, 0}}, {"sums", std::string("b")}, {"alpha", 2.0}},
       .inputs = {floats({6, 3}), floats({6, 4})},
       .output_count = 2},
      {.name = "slope-and-sums",
       .attrs = {{"activation", gelu}, {"sums", std::string("b")}},
       .inputs = {floats({3, 6}), floats({6, 4}), floats({3, 4})},
       .output_count = 2},
      {.name = "sums-many-rows",
       .attrs = {{"perm_a", Perm{1, 0}}, {"sums", std::string("b")}},
       .inputs = {floats({2000, 3}), floats({2000, 5})},
       .output_count = 2},
      {.name = "sums-of-nothing",
       .attrs = {{"perm_a", Perm{1, 0}}, {"sums", std::string("b")}},
       .inputs = {floats({0, 3}), floats({0, 5})},
       .output_count = 2},
      {.name = "weight-and-bias",
       .attrs = {{"perm_a", Perm{1, 0}}, {"sums", std::string("b")}},
       .inputs = {floats({1024, 512}), floats({1024, 2048})},
       .output_count = 2,
       .bench = true},
  };
}

}  // namespace

const OpDef fused_matmul_op = {
    .name = "FusedMatMul",
    .domain = "gradloom",
    .summary = "Matrix product through axis permutations with scale, bias and activation.",
    .min_inputs = 2,
    .max_inputs = 4,
    .max_outputs = 2,
    .infer = infer,
    .grad = grad,
    .cost = cost,
    .cpu = prepare,
    .gpu = prepare,
    .samples = samples,
    .precision = Precision::low,
    .arithmetic = Arithmetic::products,
};

const OpDef fused_matmul_grad_op = {
    .name = "FusedMatMulGrad",
    .domain = "gradloom",
    .summary =
        "Matrix product of a backward graph, times the slope of an activation, with sums of an operand.",
    .min_inputs = 2,
    .max_inputs = 3,
    .max_outputs = 2,
    .infer = infer_grad,
    .cost = grad_cost,
    .cpu = prepare_grad,
    .gpu = prepare_grad,
    .samples = grad_samples,
    .precision = Precision::low,
    .arithmetic = Arithmetic::products,
};

}  // namespace gradloom
