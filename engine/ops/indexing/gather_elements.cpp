// GatherElements(data, indices), attribute axis: y[.., k, ..] = data[.., indices[.., k, ..], ..], the indices
// in the shape of y. GatherElementsGrad(dy, indices, shape of data): ddata is zero but for the sums of dy at
// the places that were read, added in the order of dy. Negative indices count from the end; unknown ones that
// are out of range read zeros and add nothing.
#include "engine/ops/input_roles.h"
#include "engine/ops/indexing/index_walks.h"
#include "engine/ops/costs.h"
#include "engine/ops/gradient_rules.h"
#include "engine/ops/inference.h"
#include "engine/ops/samples.h"
#include "engine/ops/rows.h"
#include "kernels/launcher.h"

namespace gradloom {
namespace {

Status check_shapes(const InferContext& ctx, const Shape& data, std::int64_t axis) {
  const Shape& indices = ctx.shape(1);
  if (!indexing::is_index(ctx.dtype(1)))
    return infer_error(std::string("indices are ") + dtype_name(ctx.dtype(1)));
  if (indices.size() != data.size()) return infer_error("the indices must have the rank of the data");
  for (std::size_t d = 0; d < data.size(); ++d)
    if (static_cast<std::int64_t>(d) != axis && data[d] >= 0 && indices[d] > data[d])
      return infer_error("indices " + to_string(indices) + " reach beyond data " + to_string(data));
  return indexing::check_range(ctx.constant(1), data[static_cast<std::size_t>(axis)]);
}

Status infer_gather_elements(InferContext& ctx) {
  TRY(require_inputs(ctx, 2));
  const Shape& data = ctx.shape(0);
  TRY(check_shapes(ctx, data, TRY(normalized_axis(ctx.attrs.integer("axis"), data.size()))));
  ctx.outputs[0] = {ctx.dtype(0), ctx.shape(1)};
  return {};
}

Result<Kernel> prepare_gather_elements(const NodeTypes& types) {
  const Shape& data = types.inputs[0].shape;
  const std::int64_t axis = TRY(normalized_axis(types.attrs.integer("axis"), data.size()));
  return indexing::gather_kernel("gather elements", TRY(indexing::elements_walk(types.inputs[1], data, axis)),
                                 types.inputs[0].dtype);
}

Status grad_gather_elements(GradContext& ctx) {
  if (!ctx.wants(0)) return {};
  if (!is_static(ctx.shape(ctx.in(0))))
    return infer_error("the gradient of GatherElements needs known dimensions of its data");
  ctx.set(0,
          ctx.b.op("GatherElementsGrad", {ctx.grad(), ctx.in(1), shape_of(ctx, ctx.in(0))}, ctx.node.attrs));
  return {};
}

std::vector<Sample> gather_elements_samples() {
  return {sample_of("rows", {}, {floats({4, 3}), ints({2, 3}, -4, 3)}),
          sample_of("labels", {{"axis", std::int64_t{1}}}, {floats({5, 7}), ints({5, 1}, 0, 6)}),
          sample_of("32-bit indices", {{"axis", std::int64_t{-1}}},
                    {floats({2, 3, 4}), ints({2, 2, 6}, 0, 3, DType::i32)}),
          sample_of("integers", {}, {ints({5}, -9, 9), ints({3}, 0, 4)})};
}

Status infer_gather_elements_grad(InferContext& ctx) {
  TRY(require_inputs(ctx, 3));
  const Tensor* shape = ctx.constant(2);
  if (shape == nullptr) return infer_error("GatherElementsGrad: the shape must be known before running");
  const Shape data = shape->to_i64();
  TRY(check_shapes(ctx, data, TRY(normalized_axis(ctx.attrs.integer("axis"), data.size()))));
  if (ctx.shape(0) != ctx.shape(1))
    return infer_error("GatherElementsGrad: the gradient must have the shape of the indices");
  ctx.outputs[0] = {ctx.dtype(0), data};
  return {};
}

Result<Kernel> prepare_gather_elements_grad(const NodeTypes& types) {
  const Shape& data = types.outputs[0].shape;
  const std::int64_t axis = TRY(normalized_axis(types.attrs.integer("axis"), data.size()));
  return indexing::scatter_kernel(types, TRY(indexing::elements_walk(types.inputs[1], data, axis)),
                                  kernels::ScatterReduction::add, indexing::kZeros, 0);
}

Status grad_gather_elements_grad(GradContext& ctx) {
  if (ctx.wants(0)) ctx.set(0, ctx.b.op("GatherElements", {ctx.grad(), ctx.in(1)}, ctx.node.attrs));
  return {};
}

std::vector<Sample> gather_elements_grad_samples() {
  return {sample_of("repeated", {}, {floats({6, 3}), ints({6, 3}, -4, 3), known_ints({4, 3})}),
          sample_of("labels", {{"axis", std::int64_t{1}}},
                    {floats({5, 1}), ints({5, 1}, 0, 6), known_ints({5, 7})})};
}

}  // namespace

const OpDef gather_elements_op = {.name = "GatherElements",
                                  .since = 11,
                                  .summary = "Elements chosen by indices along an axis",
                                  .min_inputs = 2,
                                  .max_inputs = 2,
                                  .infer = infer_gather_elements,
                                  .grad = grad_gather_elements,
                                  .cost = copy_cost,
                                  .cpu = prepare_gather_elements,
                                  .gpu = prepare_gather_elements,
                                  .samples = gather_elements_samples,
                                  .roles = kIndicesSecond};
const OpDef gather_elements_grad_op = {.name = "GatherElementsGrad",
                                       .domain = "gradloom",
                                       .summary = "Gradient of GatherElements: elements added up by index",
                                       .min_inputs = 3,
                                       .max_inputs = 3,
                                       .infer = infer_gather_elements_grad,
                                       .grad = grad_gather_elements_grad,
                                       .cost = input_cost,
                                       .cpu = prepare_gather_elements_grad,
                                       .gpu = prepare_gather_elements_grad,
                                       .samples = gather_elements_grad_samples};

}  // namespace gradloom
