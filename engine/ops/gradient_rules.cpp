#include "engine/ops/gradient_rules.h"
#include "engine/ops/inference.h"

namespace gradloom {

ValueId shape_of(GradContext& ctx, ValueId value) {
  const Shape shape = ctx.shape(value);
  if (is_static(shape)) return ctx.b.i64s(shape);
  return ctx.b.op("Shape", {value});
}

ValueId reshaped_like(GradContext& ctx, ValueId value, ValueId like) {
  const Shape shape = ctx.shape(like);
  if (is_static(shape)) return ctx.b.reshape(value, shape);
  return ctx.b.op("Reshape", {value, shape_of(ctx, like)}, {{"allowzero", std::int64_t{1}}});
}

ValueId full_like(GradContext& ctx, ValueId value, double fill) {
  const ValueId shape = shape_of(ctx, value);
  return ctx.b.op("Expand", {ctx.b.scalar(ctx.dtype(value), fill), shape});
}

ValueId cast_to(GraphBuilder& b, ValueId value, DType dtype) {
  return b.type(value).dtype == dtype ? value : b.op("Cast", {value}, {{"to", onnx_from_dtype(dtype)}});
}

ValueId divided_by_count(GraphBuilder& b, ValueId g, double count) {
  const DType type = b.type(g).dtype;
  if (Tensor::scalar(type, count).at(0) == count) return b.op("Div", {g, b.scalar(type, count)});
  return divided_by_count(b, g, b.scalar(statistics_type(type), count));
}

ValueId divided_by_count(GraphBuilder& b, ValueId g, ValueId count) {
  const DType type = b.type(g).dtype, wide = statistics_type(type);
  return cast_to(b, b.op("Div", {cast_to(b, g, wide), cast_to(b, count, wide)}), type);
}

ValueId sum_of(GraphBuilder& b, ValueId x, ValueId y) {
  return x == kNone ? y : y == kNone ? x : b.op("Add", {x, y});
}

Status require_static(const GradContext& ctx, ValueId value) {
  if (is_static(ctx.shape(value))) return {};
  return Error{Errc::bad_input, "the gradient needs every dim of " + to_string(ctx.shape(value)) + " bound"};
}

Status require_first_output_only(const GradContext& ctx) {
  for (std::size_t i = 1; i < ctx.out_grads.size(); ++i)
    if (ctx.out_grads[i] != kNone)
      return Error{Errc::bad_input, "no gradient through output " + std::to_string(i)};
  return {};
}

ValueId moments_gradient(GradContext& ctx, ValueId x, ValueId mean, ValueId dmean, ValueId dmoment,
                         std::int64_t count) {
  if (dmean == kNone && dmoment == kNone) return kNone;
  GraphBuilder& b = ctx.b;
  const DType type = ctx.dtype(dmean != kNone ? dmean : dmoment), x_type = ctx.dtype(x);
  const auto share = [&](ValueId d, double factor) {
    return b.op("Mul", {d, b.scalar(type, factor / static_cast<double>(count))});
  };
  ValueId dx = kNone;
  if (dmoment != kNone) {
    const ValueId wide = cast_to(b, x, type);
    const ValueId apart = mean == kNone ? wide : b.op("Sub", {wide, mean});
    dx = b.op("Mul", {apart, share(dmoment, 2)});
  }
  if (dmean != kNone) {
    const ValueId each = share(dmean, 1);
    dx = dx == kNone ? b.op("Expand", {each, b.i64s(ctx.shape(x))}) : b.op("Add", {dx, each});
  }
  return cast_to(b, dx, x_type);
}

ValueId moment_gradient(GradContext& ctx, ValueId inv_std, ValueId dinv_std) {
  if (dinv_std == kNone) return kNone;
  GraphBuilder& b = ctx.b;
  const ValueId cube = b.op("Mul", {b.op("Mul", {inv_std, inv_std}), inv_std});
  return b.op("Mul", {b.op("Mul", {dinv_std, cube}), b.scalar(ctx.dtype(inv_std), -0.5)});
}

}  // namespace gradloom
