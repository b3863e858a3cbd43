// Views: the input's bytes with another shape. Reshape (0 copies a dimension, -1 is computed,
// allowzero), Flatten, Squeeze, Unsqueeze (axes: attribute before opset 13, input since),
// Identity. Gradients reshape back.
#include <algorithm>

#include "engine/ops/input_roles.h"
#include "engine/ops/costs.h"
#include "engine/ops/dims.h"
#include "engine/ops/gradient_rules.h"
#include "engine/ops/inference.h"
#include "engine/ops/samples.h"
#include "engine/ops/rows.h"

namespace gradloom {
namespace {

std::vector<std::int64_t> as_list(std::initializer_list<std::int64_t> values) { return values; }

Status grad_view(GradContext& ctx) {
  ctx.set(0, reshaped_like(ctx, ctx.grad(), ctx.in(0)));
  return {};
}

Status infer_reshape(InferContext& ctx) {
  TRY(require_inputs(ctx, 1));
  const Shape& in = ctx.shape(0);
  const IntArgument target = int_argument(ctx, "shape", 1);
  if (!target.present) return infer_error("Reshape needs a shape");
  Shape out;
  if (!target.values) {
    const Shape& form = ctx.shape(1);
    if (form.size() != 1 || form[0] < 0) return infer_error("the rank of the new shape is not known");
    if (form[0] > 64) return infer_error("a shape of rank " + std::to_string(form[0]));
    for (std::int64_t i = 0; i < form[0]; ++i) out.push_back(unknown_dim(ctx, 1, i));
    ctx.outputs[0] = {ctx.dtype(0), out};
    return {};
  }
  if (!ctx.attrs.has("shape") && ctx.shape(1).size() != 1)
    return infer_error("the new shape must be a vector");
  const bool allow_zero = ctx.attrs.integer("allowzero") != 0;
  std::size_t computed = SIZE_MAX;
  for (std::size_t i = 0; i < target.values->size(); ++i) {
    std::int64_t d = (*target.values)[i];
    if (d < -1) return infer_error("the new shape holds " + std::to_string(d));
    if (d == -1) {
      if (computed != SIZE_MAX) return infer_error("the new shape holds -1 twice");
      computed = i;
    }
    if (d == 0 && !allow_zero) {
      if (i >= in.size())
        return infer_error("the new shape copies dimension " + std::to_string(i) + ", which the input lacks");
      d = in[i];
    }
    out.push_back(d);
  }
  if (computed != SIZE_MAX) {
    Shape others = out;
    others.erase(others.begin() + static_cast<std::ptrdiff_t>(computed));
    out[computed] = TRY(divide_dims(in, others));
  }
  if (is_static(in) && is_static(out)) {
    const std::int64_t from = TRY(multiply_dims(in)), to = TRY(multiply_dims(out));
    if (from != to)
      return infer_error("cannot reshape " + to_string(in) + " to " + to_string(out) +
                         ": the element counts differ");
  }
  ctx.outputs[0] = {ctx.dtype(0), out};
  return {};
}

std::vector<Sample> reshape_samples() {
  return {sample_of("explicit", {}, {floats({3, 4, 5}), known_ints({4, 15})}),
          sample_of("computed", {}, {floats({3, 4, 5}), known_ints({-1, 5})}),
          sample_of("copied", {}, {floats({3, 4, 5}), known_ints({0, 2, -1})}),
          sample_of("scalar", {}, {floats({1, 1}), known_ints({})}),
          sample_of("empty", {{"allowzero", std::int64_t{1}}}, {floats({0, 3}), known_ints({3, 0})}),
          sample_of("integers", {}, {ints({6}, -9, 9), known_ints({2, 3})}),
          sample_of("i4", {}, {ints({6}, -8, 7, DType::i4), known_ints({2, 3})}),
          sample_of("f8e4m3fn", {}, {ints({6}, -9, 9, DType::f8e4m3fn), known_ints({2, 3})})};
}

Status infer_flatten(InferContext& ctx) {
  TRY(require_inputs(ctx, 1));
  const Shape& in = ctx.shape(0);
  std::int64_t axis = ctx.attrs.integer("axis", 1);
  const auto rank = static_cast<std::int64_t>(in.size());
  if (axis < -rank || axis > rank)
    return infer_error("axis " + std::to_string(axis) + " is out of range for rank " + std::to_string(rank));
  if (axis < 0) axis += rank;
  const auto middle = in.begin() + static_cast<std::ptrdiff_t>(axis);
  ctx.outputs[0] = {ctx.dtype(0),
                    {TRY(multiply_dims({in.begin(), middle})), TRY(multiply_dims({middle, in.end()}))}};
  return {};
}

std::vector<Sample> flatten_samples() {
  return {sample_of("default", {}, {floats({3, 4, 5})}),
          sample_of("all", {{"axis", std::int64_t{0}}}, {floats({3, 5})}),
          sample_of("negative", {{"axis", std::int64_t{-1}}}, {floats({3, 4, 5})}),
          sample_of("u4", {}, {ints({3, 5}, 0, 15, DType::u4)})};
}

Status infer_squeeze(InferContext& ctx) {
  TRY(require_inputs(ctx, 1));
  const Shape& in = ctx.shape(0);
  const IntArgument axes = int_argument(ctx, "axes", 1);
  if (axes.present && !axes.values) return infer_error("Squeeze: the axes must be known before running");
  std::vector<bool> drop(in.size(), false);
  if (axes.present) {
    for (std::int64_t axis : TRY(normalized_axes(*axes.values, in.size()))) {
      const auto a = static_cast<std::size_t>(axis);
      if (in[a] != 1 && in[a] >= 0)
        return infer_error("Squeeze: axis " + std::to_string(axis) + " of " + to_string(in) + " is not 1");
      drop[a] = true;
    }
  } else {
    for (std::size_t d = 0; d < in.size(); ++d) drop[d] = in[d] == 1;
  }
  Shape out;
  for (std::size_t d = 0; d < in.size(); ++d)
    if (!drop[d]) out.push_back(in[d]);
  ctx.outputs[0] = {ctx.dtype(0), out};
  return {};
}

std::vector<Sample> squeeze_samples() {
  return {sample_of("input", {}, {floats({3, 1, 5, 1}), known_ints({1})}),
          sample_of("attribute", {{"axes", as_list({-1})}}, {floats({3, 1, 5, 1})}),
          sample_of("all", {}, {floats({1, 3, 1})}),
          sample_of("f8e5m2", {}, {ints({1, 3}, -9, 9, DType::f8e5m2)})};
}

Status infer_unsqueeze(InferContext& ctx) {
  TRY(require_inputs(ctx, 1));
  const Shape& in = ctx.shape(0);
  const IntArgument argument = int_argument(ctx, "axes", 1);
  if (!argument.present) return infer_error("Unsqueeze needs axes");
  if (!argument.values) return infer_error("Unsqueeze: the axes must be known before running");
  const std::size_t rank = in.size() + argument.values->size();
  const auto axes = TRY(normalized_axes(*argument.values, rank));
  Shape out;
  std::size_t next = 0;
  for (std::size_t d = 0; d < rank; ++d) {
    const bool added = std::binary_search(axes.begin(), axes.end(), static_cast<std::int64_t>(d));
    out.push_back(added ? 1 : in[next++]);
  }
  ctx.outputs[0] = {ctx.dtype(0), out};
  return {};
}

std::vector<Sample> unsqueeze_samples() {
  return {sample_of("input", {}, {floats({3, 5}), known_ints({0, -1})}),
          sample_of("attribute", {{"axes", as_list({1})}}, {floats({3, 5})}),
          sample_of("scalar", {}, {ints({}, 0, 9), known_ints({0})}),
          sample_of("i2", {}, {ints({5}, -2, 1, DType::i2), known_ints({0})})};
}

Status infer_identity(InferContext& ctx) {
  TRY(require_inputs(ctx, 1));
  ctx.outputs[0] = ctx.in(0);
  return {};
}

Status grad_identity(GradContext& ctx) {
  ctx.set(0, ctx.grad());
  return {};
}

std::vector<Sample> identity_samples() {
  return {sample_of("matrix", {}, {floats({3, 5})}), sample_of("booleans", {}, {bools({3})}),
          sample_of("u2", {}, {ints({5}, 0, 3, DType::u2)}),
          sample_of("f8e8m0", {}, {exact(DType::f8e8m0, {3}, {1, 0.5, 4})})};
}

Noop identity(const Graph&, const Node&) { return {"identity", 0}; }
Noop same_shape(const Graph&, const Node&) { return {"view-same-shape", 0}; }

}  // namespace

const OpDef reshape_op = {.name = "Reshape",
                          .summary = "Another shape for the same elements",
                          .traits = kView | kReshapes,
                          .min_inputs = 1,
                          .max_inputs = 2,
                          .infer = infer_reshape,
                          .grad = grad_view,
                          .cost = no_cost,
                          .samples = reshape_samples,
                          .roles = kSizesSecond,
                          .noop = same_shape};
const OpDef flatten_op = {.name = "Flatten",
                          .summary = "Two dimensions: before and from the axis",
                          .traits = kView | kReshapes,
                          .infer = infer_flatten,
                          .grad = grad_view,
                          .cost = no_cost,
                          .samples = flatten_samples,
                          .noop = same_shape};
const OpDef squeeze_op = {.name = "Squeeze",
                          .summary = "Drops dimensions of size 1",
                          .traits = kView | kReshapes,
                          .min_inputs = 1,
                          .max_inputs = 2,
                          .infer = infer_squeeze,
                          .grad = grad_view,
                          .cost = no_cost,
                          .samples = squeeze_samples,
                          .roles = kSizesSecond,
                          .noop = same_shape};
const OpDef unsqueeze_op = {.name = "Unsqueeze",
                            .summary = "Adds dimensions of size 1",
                            .traits = kView | kReshapes,
                            .min_inputs = 1,
                            .max_inputs = 2,
                            .infer = infer_unsqueeze,
                            .grad = grad_view,
                            .cost = no_cost,
                            .samples = unsqueeze_samples,
                            .roles = kSizesSecond,
                            .noop = same_shape};
const OpDef identity_op = {.name = "Identity",
                           .summary = "The input",
                           .traits = kView,
                           .infer = infer_identity,
                           .grad = grad_identity,
                           .cost = no_cost,
                           .samples = identity_samples,
                           .noop = identity};
const OpDef stop_gradient_op = {.name = "StopGradient",
                                .domain = "gradloom",
                                .summary = "The input, through which no gradient flows",
                                .traits = kView | kNoGradient,
                                .infer = infer_identity,
                                .cost = no_cost,
                                .samples = identity_samples};

}  // namespace gradloom
