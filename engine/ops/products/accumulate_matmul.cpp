// AccumulateMatMul (ours): a micro-batch's share of a weight's gradient, added in the product that makes it.
//   inputs acc, micro (i64 scalar), A, B;  next = (micro == 0 ? 0 : acc) + Y / count, Y as FusedMatMul's of A and B
//   acc has the shape of Y and its type, or is f32 where A and B are bf16
// Attributes: perm_a, perm_b, perm_y (absent: identity), alpha (1), count (1). On the CPU which of two products
// runs is decided when micro is read; on GPUs, where the host does not see it, a program adds the product.
#include <algorithm>
#include <cstring>
#include <memory>
#include <utility>

#include "engine/ops/costs.h"
#include "engine/ops/dims.h"
#include "engine/ops/inference.h"
#include "engine/ops/micro_batches.h"
#include "engine/ops/preparation.h"
#include "engine/ops/products/matrix_product.h"
#include "engine/ops/rows.h"
#include "engine/ops/samples.h"

namespace gradloom {
namespace {

Status infer(InferContext& ctx) {
  TRY(require_inputs(ctx, 4));
  if (!is_float(ctx.dtype(2)) || ctx.dtype(2) != ctx.dtype(3))
    return infer_error("operands have different types");
  const ProductSpec spec = TRY(product_spec(ctx.attrs, ctx.shape(2).size(), ctx.shape(3).size()));
  const ProductShape s = TRY(product_shape(ctx.shape(2), ctx.shape(3), spec));
  const DType type = ctx.dtype(2), sums = ctx.dtype(0);
  if (ctx.shape(0) != s.y || (sums != type && sums != statistics_type(type)))
    return infer_error("accumulator " + to_string(ctx.in(0)) + ", product " + to_string(Type{type, s.y}));
  TRY(check_micro(ctx, 1));
  return set_outputs(ctx, {ctx.in(0)});
}

Cost cost(const NodeTypes& types) {
  const Shape &a = types.inputs[2].shape, &b = types.inputs[3].shape;
  const auto spec = product_spec(types.attrs, a.size(), b.size());
  CHECK(spec.ok(), "cost of an invalid product");
  const auto s = product_shape(a, b, *spec);
  CHECK(s.ok(), "cost of an invalid product");
  return cost_of(types, product_flops(*s));
}

// Where C lies column by column, C turned is B turned times A turned; true: A and B have changed places.
bool turn(kernels::MatMulDesc& desc) {
  if (!desc.batch.empty() || desc.c_strides[1] == 1) return false;
  std::swap(desc.m, desc.n);
  std::swap(desc.a_strides, desc.b_strides);
  for (auto* strides : {&desc.a_strides, &desc.b_strides, &desc.c_strides})
    std::swap((*strides)[0], (*strides)[1]);
  return true;
}

// The product in the workspace, then acc and it.
Result<Kernel> prepare_in_parts(const NodeTypes& types, const kernels::MatMulDesc& desc) {
  using kernels::EwOp;
  const DType part = desc.dtype, sums = types.inputs[0].dtype;
  const SliceProduct product = TRY(SliceProduct::create(types.target, desc, types.dnn_library));
  kernels::EwProgram program;  // 0: acc, 1: part, 2: micro, 3: i64 0, 4: 0
  program.rank = 1;
  program.dims[0] = element_count(types.inputs[0].shape);
  program.inputs = {{sums, {1}}, {part, {1}}, {DType::i64, {}}};
  program.constants = {{DType::i64, 0}, {sums, 0}};
  program.code = {{EwOp::Equal, DType::i64, DType::boolean, {2, 3, -1}, 0},
                  {EwOp::Where, sums, sums, {5, 4, 0}, 0},
                  {EwOp::Cast, part, sums, {1, -1, -1}, 0},
                  {EwOp::Add, sums, sums, {6, 7, -1}, 0}};
  program.outputs = {{8, sums}};
  kernels::ew_collapse_dims(program);
  const auto add = std::make_shared<const kernels::EwProgram>(std::move(program));
  const std::size_t bytes = kernels::at_library_boundary(byte_size(Type{part, types.inputs[0].shape}));
  Kernel kernel;
  kernel.name = "matmul + accumulate";
  kernel.workspace_bytes = bytes + product.workspace_bytes();
  kernel.programs = {add};
  kernel.run = [product, add, bytes](const LaunchArgs& args) {
    auto* const rest = static_cast<std::byte*>(args.workspace) + bytes;
    product.run(args, args.inputs[2], args.inputs[3], args.workspace, rest);
    const void* const inputs[] = {args.inputs[0], args.workspace, args.inputs[1]};
    args.on.elementwise({add.get(), inputs, args.outputs, nullptr});
  };
  return kernel;
}

Result<Kernel> prepare(const NodeTypes& types) {
  const Type &a = types.inputs[2], &b = types.inputs[3];
  TRY(require_kernel_type(types.target, a.dtype, multiplies_bf16(types.target, a.dtype)));
  ProductSpec spec = TRY(product_spec(types.attrs, a.shape.size(), b.shape.size()));
  spec.alpha /= static_cast<double>(types.attrs.integer("count", 1));
  const ProductShape s = TRY(product_shape(a.shape, b.shape, spec));
  if (s.k == 0 || element_count(s.y) == 0) return no_kernel("there is nothing to multiply");
  kernels::MatMulDesc desc = product_desc(a.dtype, s, a.shape, b.shape, spec);
  if (desc.batch.size() > kernels::kEwMaxRank) return no_kernel("no kernel for more than 8 batch dims");
  if (!kernels::shares_host_memory(types.target)) return prepare_in_parts(types, desc);
  desc.wide_c = types.inputs[0].dtype != a.dtype;
  const std::size_t left = turn(desc) ? 3 : 2;
  const SliceProduct first = TRY(SliceProduct::create(types.target, desc));
  desc.accumulate = true;
  const SliceProduct more = TRY(SliceProduct::create(types.target, desc));
  const std::size_t bytes = byte_size(types.inputs[0]);
  return Kernel{"matmul accumulate", std::max(first.workspace_bytes(), more.workspace_bytes()),
                [first, more, left, bytes](const LaunchArgs& args) {
                  if (args.outputs[0] != args.inputs[0])  // not in a plan
                    std::memcpy(args.outputs[0], args.inputs[0], bytes);
                  const bool begins = *static_cast<const std::int64_t*>(args.inputs[1]) == 0;
                  (begins ? first : more)
                      .run(args, args.inputs[left], args.inputs[5 - left], args.outputs[0], args.workspace);
                }};
}

std::vector<std::pair<int, int>> aliases(const Node&) { return {{0, 0}}; }

std::vector<Sample> samples() {
  const Attrs four{{"count", std::int64_t{4}}};
  const auto micro = [](double n) { return exact(DType::i64, {}, {n}); };
  Attrs turned{{"count", std::int64_t{2}}, {"perm_a", Perm{1, 0}}, {"perm_y", Perm{1, 0}}, {"alpha", 0.5}};
  return {
      {.name = "first", .attrs = four, .inputs = {floats({3, 4}), micro(0), floats({3, 5}), floats({5, 4})}},
      {.name = "later", .attrs = four, .inputs = {floats({3, 4}), micro(2), floats({3, 5}), floats({5, 4})}},
      {.name = "turned",
       .attrs = turned,
       .inputs = {floats({4, 3}), micro(1), floats({5, 3}), floats({5, 4})}},
      {.name = "batches",
       .attrs = four,
       .inputs = {floats({2, 3, 4}), micro(1), floats({2, 3, 5}), floats({2, 5, 4})}},
      {.name = "weight",
       .attrs = {{"count", std::int64_t{4}}, {"perm_a", Perm{1, 0}}},
       .inputs = {floats({768, 768}), micro(1), floats({1024, 768}), floats({1024, 768})},
       .bench = true},
  };
}

}  // namespace

const OpDef accumulate_matmul_op = {
    .name = "AccumulateMatMul",
    .domain = "gradloom",
    .summary = "Adds a micro-batch's product to an accumulator, in the product.",
    .traits = kNoGradient | kMustAlias | kAccumulates,
    .min_inputs = 4,
    .max_inputs = 4,
    .infer = infer,
    .cost = cost,
    .cpu = prepare,
    .gpu = prepare,
    .samples = samples,
    .aliases = aliases,
    .arithmetic = Arithmetic::products,
};

}  // namespace gradloom
