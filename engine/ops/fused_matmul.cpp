// FusedMatMul (ours): a product that reads and writes through axis permutations, with scale, bias and
// activation.
//   A' = transpose(A, perm_a), B' = transpose(B, perm_b), P = activation(alpha * A' B' + bias), Y =
//   transpose(P, perm_y) A: rank >= 2, B: rank >= 2 (batch dims of A', B' broadcast), bias: [n], Y: P's dims
//   permuted
// Attributes: perm_a, perm_b, perm_y (absent: identity), alpha (1), activation ("none" | "relu").
// The gradients of MatMul and Gemm are FusedMatMul nodes, so no Transpose appears in a backward graph.
#include "engine/ops/nn.h"
#include "engine/ops/product.h"

namespace gradloom {
namespace {

Result<nn::ProductSpec> spec_of(const Attrs& attrs, std::size_t rank_a, std::size_t rank_b) {
  nn::ProductSpec spec;
  if (rank_a < 2 || rank_b < 2) return infer_error("operands must have at least 2 dims");
  spec.perm_a = TRY(nn::checked_perm("perm_a", attrs.integers("perm_a"), rank_a));
  spec.perm_b = TRY(nn::checked_perm("perm_b", attrs.integers("perm_b"), rank_b));
  spec.perm_y = TRY(nn::checked_perm("perm_y", attrs.integers("perm_y"), std::max(rank_a, rank_b)));
  spec.alpha = attrs.real("alpha", 1);
  const std::string activation = attrs.text("activation", "none");
  if (activation != "none" && activation != "relu")
    return infer_error("activation '" + activation + "' is unknown");
  spec.relu = activation == "relu";
  return spec;
}

Status infer(InferContext& ctx) {
  TRY(require_inputs(ctx, 2));
  const nn::ProductSpec spec = TRY(spec_of(ctx.attrs, ctx.shape(0).size(), ctx.shape(1).size()));
  if (ctx.dtype(0) != ctx.dtype(1) || (ctx.has(2) && ctx.dtype(2) != ctx.dtype(0)))
    return infer_error("operands have different types");
  const nn::ProductShape s = TRY(nn::product_shape(ctx.shape(0), ctx.shape(1), spec));
  if (ctx.has(2) && (ctx.shape(2).size() != 1 || nn::differ(ctx.shape(2)[0], s.n)))
    return infer_error("bias must have shape [" + std::to_string(s.n) + "], it has " +
                       to_string(ctx.shape(2)));
  return nn::set_outputs(ctx, {{ctx.dtype(0), s.y}});
}

Status grad(GradContext& ctx) {
  const nn::ProductSpec spec =
      TRY(spec_of(ctx.node.attrs, ctx.shape(ctx.in(0)).size(), ctx.shape(ctx.in(1)).size()));
  ValueId dy = ctx.grad();
  if (spec.relu) dy = ctx.b.op("ReluGrad", {dy, ctx.out(0)});
  const nn::ProductGradients grads =
      nn::product_gradients(ctx, spec, ctx.in(0), ctx.in(1), dy, ctx.wants(0), ctx.wants(1));
  if (ctx.wants(0)) ctx.set(0, grads.a);
  if (ctx.wants(1)) ctx.set(1, grads.b);
  if (!ctx.wants(2)) return {};
  const std::size_t rank = ctx.shape(dy).size();
  std::vector<std::int64_t> axes;  // every dim of Y but the product's columns
  for (std::size_t i = 0; i < rank; ++i) {
    const std::int64_t axis = spec.perm_y.empty() ? nn::size(i) : spec.perm_y[i];
    if (axis != nn::size(rank) - 1) axes.push_back(nn::size(i));
  }
  ctx.set(2, ctx.b.op("ReduceSum", {dy, ctx.b.i64s(axes)}, {{"keepdims", std::int64_t{0}}}));
  return {};
}

Cost cost(const NodeTypes& types) {
  auto spec = spec_of(types.attrs, types.inputs[0].shape.size(), types.inputs[1].shape.size());
  CHECK(spec.ok(), "cost of an invalid FusedMatMul");
  auto s = nn::product_shape(types.inputs[0].shape, types.inputs[1].shape, spec.value());
  CHECK(s.ok(), "cost of an invalid FusedMatMul");
  const double epilogue = (types.has(2) ? 1 : 0) + (spec->relu ? 1 : 0);
  return nn::cost_of(types,
                     nn::product_flops(s.value()) + epilogue * static_cast<double>(element_count(s->y)));
}

Result<Kernel> prepare(const NodeTypes& types) {
  const nn::ProductSpec spec =
      TRY(spec_of(types.attrs, types.inputs[0].shape.size(), types.inputs[1].shape.size()));
  return nn::prepare_product(types.target, types.inputs[0].dtype, types.inputs[0].shape,
                             types.inputs[1].shape, spec, types.has(2), {});
}

std::vector<Sample> samples() {
  using Perm = nn::Perm;
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

}  // namespace

const OpDef fused_matmul_op = {
    .name = "FusedMatMul",
    .domain = "gradloom",
    .summary = "Matrix product through axis permutations with scale, bias and activation.",
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
};

}  // namespace gradloom
