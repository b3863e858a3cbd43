// GatherND(data, indices), attribute batch_dims b: indices [batch.., items.., k],
//   y[batch, item, :] = data[batch, indices[.., 0], .., indices[.., k - 1], :]
// GatherNDGrad(dy, indices, shape of data): zeros but for the sums of dy at the places that were read, in the
// order of the items.
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

Status check(const InferContext& ctx, const Shape& data) {
  const Shape& indices = ctx.shape(1);
  const std::int64_t batch = ctx.attrs.integer("batch_dims");
  if (!indexing::is_index(ctx.dtype(1)))
    return infer_error(std::string("indices are ") + dtype_name(ctx.dtype(1)));
  if (data.empty() || indices.empty()) return infer_error("data and indices must have a dimension");
  if (batch < 0 || batch >= static_cast<std::int64_t>(std::min(data.size(), indices.size())))
    return infer_error("batch_dims " + std::to_string(batch) + " is out of range");
  const std::int64_t depth = indices.back();
  if (depth < 0) return infer_error("the last dimension of the indices must be known");
  if (depth + batch > static_cast<std::int64_t>(data.size()))
    return infer_error(std::to_string(depth) + " indices per item for data " + to_string(data));
  for (std::size_t d = 0; d < static_cast<std::size_t>(batch); ++d)
    if (data[d] >= 0 && indices[d] >= 0 && data[d] != indices[d])
      return infer_error("batch dimensions of data and indices differ");
  return indexing::check_nd_range(ctx.constant(1), data, batch);
}

Shape gathered_shape(const Shape& indices, const Shape& data, std::int64_t batch) {
  Shape out(indices.begin(), indices.end() - 1);
  out.insert(out.end(), data.begin() + batch + indices.back(), data.end());
  return out;
}

Status infer_gather_nd(InferContext& ctx) {
  TRY(require_inputs(ctx, 2));
  TRY(check(ctx, ctx.shape(0)));
  ctx.outputs[0] = {ctx.dtype(0),
                    gathered_shape(ctx.shape(1), ctx.shape(0), ctx.attrs.integer("batch_dims"))};
  return {};
}

Result<Kernel> prepare_gather_nd(const NodeTypes& types) {
  const auto walk =
      TRY(indexing::nd_walk(types.inputs[1], types.inputs[0].shape, types.attrs.integer("batch_dims")));
  return indexing::gather_kernel("gather nd", walk, types.inputs[0].dtype);
}

Status grad_gather_nd(GradContext& ctx) {
  if (!ctx.wants(0)) return {};
  if (!is_static(ctx.shape(ctx.in(0))))
    return infer_error("the gradient of GatherND needs known dimensions of its data");
  ctx.set(0, ctx.b.op("GatherNDGrad", {ctx.grad(), ctx.in(1), shape_of(ctx, ctx.in(0))}, ctx.node.attrs));
  return {};
}

std::vector<Sample> gather_nd_samples() {
  return {sample_of("elements", {}, {floats({3, 4}), ints({5, 2}, -3, 2)}),
          sample_of("rows", {}, {floats({3, 4, 5}), ints({2, 3, 1}, 0, 2)}),
          sample_of("batch", {{"batch_dims", std::int64_t{1}}}, {floats({2, 3, 4}), ints({2, 5, 1}, -3, 2)}),
          sample_of("two batch dims, 32-bit indices", {{"batch_dims", std::int64_t{2}}},
                    {floats({2, 3, 4, 5}), ints({2, 3, 2, 2}, 0, 3, DType::i32)}),
          sample_of("integers", {}, {ints({2, 2}, -9, 9), exact(DType::i64, {2, 2}, {0, 1, 1, 0})})};
}

Status infer_gather_nd_grad(InferContext& ctx) {
  TRY(require_inputs(ctx, 3));
  const Tensor* shape = ctx.constant(2);
  if (shape == nullptr) return infer_error("the shape must be known before running");
  const Shape data = shape->to_i64();
  TRY(check(ctx, data));
  if (ctx.shape(0).size() != gathered_shape(ctx.shape(1), data, ctx.attrs.integer("batch_dims")).size())
    return infer_error("the gradient has another rank than the gathered value");
  ctx.outputs[0] = {ctx.dtype(0), data};
  return {};
}

Result<Kernel> prepare_gather_nd_grad(const NodeTypes& types) {
  const auto walk =
      TRY(indexing::nd_walk(types.inputs[1], types.outputs[0].shape, types.attrs.integer("batch_dims")));
  return indexing::scatter_kernel(types, walk, kernels::ScatterReduction::add, indexing::kZeros, 0);
}

Status grad_gather_nd_grad(GradContext& ctx) {
  if (ctx.wants(0)) ctx.set(0, ctx.b.op("GatherND", {ctx.grad(), ctx.in(1)}, ctx.node.attrs));
  return {};
}

std::vector<Sample> gather_nd_grad_samples() {
  return {sample_of("repeated elements", {}, {floats({9}), ints({9, 2}, -2, 1), known_ints({2, 3})}),
          sample_of("batch of rows", {{"batch_dims", std::int64_t{1}}},
                    {floats({2, 5, 4}), ints({2, 5, 1}, 0, 2), known_ints({2, 3, 4})})};
}

}  // namespace

const OpDef gather_nd_op = {.name = "GatherND",
                            .since = 11,
                            .summary = "Parts of the data chosen by index tuples",
                            .min_inputs = 2,
                            .max_inputs = 2,
                            .infer = infer_gather_nd,
                            .grad = grad_gather_nd,
                            .cost = copy_cost,
                            .cpu = prepare_gather_nd,
                            .gpu = prepare_gather_nd,
                            .samples = gather_nd_samples,
                            .roles = kPlacesSecond};
const OpDef gather_nd_grad_op = {.name = "GatherNDGrad",
                                 .domain = "gradloom",
                                 .summary = "Gradient of GatherND: parts added up by index",
                                 .min_inputs = 3,
                                 .max_inputs = 3,
                                 .infer = infer_gather_nd_grad,
                                 .grad = grad_gather_nd_grad,
                                 .cost = input_cost,
                                 .cpu = prepare_gather_nd_grad,
                                 .gpu = prepare_gather_nd_grad,
                                 .samples = gather_nd_grad_samples};

}  // namespace gradloom
