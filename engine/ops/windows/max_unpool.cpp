// MaxUnpool: puts values back where MaxPool took them from, zeros elsewhere.
//   x, indices (i64, row-major into [n, c, out..]): [n, c, in..], out = (in - 1) * stride - pad_begin - pad_end + kernel
//   y: [n, c, out..], or that with zeros after it up to the third input, output_shape (or cut to it)
// Where windows overlapped and several values land on one place, y is their mean. dx = dy[indices] / how many
// landed there. Indices out of range add nothing. Source: ONNX MaxUnpool-11.
#include <algorithm>

#include "engine/ops/copies.h"
#include "engine/ops/costs.h"
#include "engine/ops/dims.h"
#include "engine/ops/gradient_rules.h"
#include "engine/ops/inference.h"
#include "engine/ops/preparation.h"
#include "engine/ops/samples.h"
#include "engine/ops/windows/sliding_window.h"
#include "engine/ops/rows.h"
#include "kernels/launcher.h"

namespace gradloom {
namespace {

using Ints = std::vector<std::int64_t>;

// The shape that the indices count in.
Result<Shape> pooled_from(const Attrs& attrs, const Shape& x) {
  if (attrs.integers("kernel_shape").empty()) return infer_error("attribute kernel_shape is missing");
  const SlidingWindow w = TRY(explicit_window(attrs, spatial_of(x)));
  Shape y{x[0], x[1]};
  for (std::size_t i = 0; i < w.rank(); ++i) {
    const std::int64_t in = x[i + 2], added = w.kernel[i] - w.stride[i] - w.pad_begin[i] - w.pad_end[i];
    y.push_back(in < 0 ? derived_dim("unpooled " + std::to_string(in) + "*" + std::to_string(w.stride[i]) +
                                     "+" + std::to_string(added))
                       : in * w.stride[i] + added);
    if (in >= 0 && y.back() < 1)
      return infer_error("output dim " + std::to_string(y.back()) + " is out of range");
  }
  return y;
}

Result<Shape> result_shape(const InferContext& ctx) {
  const Shape& x = ctx.shape(0);
  const Shape pooled = TRY(pooled_from(ctx.attrs, x));
  if (!ctx.has(2)) return pooled;
  const Tensor* known = ctx.constant(2);
  if (known != nullptr && known->count() != as_dim(x.size()))
    return infer_error("output_shape does not fit input " + to_string(x));
  Shape y;
  for (std::int64_t i = 0; i < as_dim(x.size()); ++i)
    y.push_back(known == nullptr ? unknown_dim(ctx, 2, i) : known->int_at(i));
  if (known != nullptr && (!is_static(y) || dims_differ(y[0], x[0]) || dims_differ(y[1], x[1])))
    return infer_error("output_shape " + to_string(y) + " does not fit input " + to_string(x));
  return y;
}

Shape common(Shape a, const Shape& b) {
  for (std::size_t i = 0; i < a.size(); ++i) a[i] = std::min(a[i], b[i]);
  return a;
}

Status infer(InferContext& ctx) {
  TRY(require_inputs(ctx, 2));
  const Shape& x = ctx.shape(0);
  if (x.size() < 3) return infer_error("input " + to_string(x) + " must have 3 or more dims");
  if (!is_float(ctx.dtype(0))) return infer_error(std::string("the input is ") + dtype_name(ctx.dtype(0)));
  bool fits = ctx.dtype(1) == DType::i64 && ctx.shape(1).size() == x.size();
  for (std::size_t d = 0; fits && d < x.size(); ++d) fits = !dims_differ(ctx.shape(1)[d], x[d]);
  if (!fits) return infer_error("indices must be i64 and of the input's shape");
  const Shape pooled = TRY(pooled_from(ctx.attrs, x));
  if (const Tensor* indices = ctx.constant(1); indices != nullptr && is_static(pooled)) {
    const std::int64_t count = TRY(multiply_dims(pooled));
    for (std::int64_t i = 0, n = indices->count(); i < n; ++i)
      if (const std::int64_t at = indices->int_at(i); at < 0 || at >= count)
        return infer_error("index " + std::to_string(at) + " is outside of " + to_string(pooled));
  }
  return set_outputs(ctx, {{ctx.dtype(0), TRY(result_shape(ctx))}});
}

Status grad(GradContext& ctx) {
  GraphBuilder& b = ctx.b;
  const ValueId indices = ctx.in(1);
  ValueId dy = ctx.grad();
  TRY(require_static(ctx, dy));
  TRY(require_static(ctx, ctx.in(0)));
  const Shape y = ctx.shape(dy), pooled = TRY(pooled_from(ctx.node.attrs, ctx.shape(ctx.in(0))));
  if (y != pooled) {  // what of dy the indices see
    const Shape inside = common(y, pooled);
    Ints pads(2 * y.size(), 0);
    for (std::size_t i = 0; i < y.size(); ++i) pads[y.size() + i] = pooled[i] - inside[i];
    dy = b.op("Pad", {b.op("Slice", {dy, b.i64s(Ints(y.size(), 0)), b.i64s(inside)}), b.i64s(pads)});
  }
  const std::int64_t size = element_count(pooled);
  const ValueId flat = b.op("Reshape", {indices, b.i64s({1, 1, -1})});
  const ValueId ones = full_like(ctx, ctx.in(0), 1);
  const ValueId landed = b.op("MaxPoolGrad", {b.op("Reshape", {ones, b.i64s({1, 1, -1})}), flat},
                              {{"input_shape", Ints{1, 1, size}}});
  const ValueId shares = b.op(
      "Div", {b.reshape(dy, {size}), b.op("Max", {b.reshape(landed, {size}), b.scalar(ctx.dtype(dy), 1)})});
  ctx.set(0, b.op("Gather", {shares, indices}));
  return {};
}

// The part of `from` that `to` has, densely.
CopyPlan cut(const Shape& from, const Shape& to) {
  CopyPlan plan;
  plan.dims = common(from, to);
  plan.in_strides = dense_strides(from);
  plan.out_strides = dense_strides(to);
  return plan;
}

Result<Kernel> prepare(const NodeTypes& types) {
  using kernels::EwOp;
  const Type& x = types.inputs[0];
  TRY(require_kernel_type(types.target, x.dtype));
  const Shape& y = types.outputs[0].shape;
  const Shape pooled = TRY(pooled_from(types.attrs, x.shape));
  const std::int64_t count = element_count(x.shape), size = element_count(pooled);
  if (element_count(y) == 0) return no_work("max_unpool");
  if (size >= std::int64_t{1} << 31) return no_kernel("no kernel for more than 2^31 elements");
  kernels::MaxPoolGradArgs layout{};
  layout.dtype = x.dtype;
  layout.planes = 1;
  layout.w = pooled.back();
  layout.h = size / layout.w;
  layout.ow = x.shape.back();
  layout.oh = layout.ow > 0 ? count / layout.ow : 0;
  // Sums, one 1 per value, and how many landed on each place.
  FlatProgram mean(x.dtype, size, 2, {1}), one(x.dtype, count, 1, {1});
  const auto program = mean.finish(mean.add(EwOp::Div, 0, mean.add(EwOp::Max, 1, 2)));
  const auto ones = one.finish(one.add(EwOp::Max, 1, 1));
  const auto bytes = [&](std::int64_t n) { return aligned_bytes(x.dtype, n); };
  const bool direct = y == pooled;
  const CopyPlan part = cut(pooled, y);
  const kernels::StridedCopyArgs copy = TRY(strided_copy_args(part, dtype_bytes(x.dtype)));
  return Kernel{"max_unpool",
                bytes(count) + bytes(size) + (direct ? 0 : bytes(size)),
                [layout, program, ones, direct, copy, part, values = bytes(count), places = bytes(size),
                 elements = element_count(y)](const LaunchArgs& args) {
                  auto* const workspace = static_cast<std::byte*>(args.workspace);
                  void* const filled = workspace;
                  void* const landed = workspace + values;
                  void* const sums = direct ? args.outputs[0] : workspace + values + places;
                  args.on.elementwise({ones.get(), args.inputs, &filled, nullptr});
                  kernels::MaxPoolGradArgs a = layout;
                  a.argmax = static_cast<const std::int64_t*>(args.inputs[1]);
                  a.dy = args.inputs[0];
                  a.dx = sums;
                  args.on.max_pool_grad(a);
                  a.dy = filled;
                  a.dx = landed;
                  args.on.max_pool_grad(a);
                  const void* const inputs[] = {sums, landed};
                  args.on.elementwise({program.get(), inputs, &sums, nullptr});
                  if (direct) return;
                  const std::uint64_t zero = 0;
                  args.on.fill({copy.element_bytes, elements, &zero, args.outputs[0]});
                  run_copy(args.on, copy, part, sums, args.outputs[0]);
                },
                {program, ones}};
}

std::vector<Sample> samples() {
  const Attrs halves{{"kernel_shape", Ints{2, 2}}, {"strides", Ints{2, 2}}};
  return {
      {.name = "plain",
       .attrs = halves,
       .inputs = {floats({1, 2, 2, 2}), exact(DType::i64, {1, 2, 2, 2}, {0, 3, 9, 14, 17, 22, 28, 31})}},
      {.name = "same-place",
       .attrs = {{"kernel_shape", Ints{2}}, {"pads", Ints{1, 0}}},
       .inputs = {floats({1, 1, 4}), exact(DType::i64, {1, 1, 4}, {0, 2, 2, 3})}},
      {.name = "output-shape",
       .attrs = halves,
       .inputs = {floats({1, 1, 2, 2}), exact(DType::i64, {1, 1, 2, 2}, {5, 7, 13, 15}),
                  known_ints({1, 1, 5, 3})}},
      {.name = "three-dims",
       .attrs = {{"kernel_shape", Ints{2, 1, 2}}, {"strides", Ints{2, 1, 2}}},
       .inputs = {floats({1, 1, 1, 2, 2}), exact(DType::i64, {1, 1, 1, 2, 2}, {9, 2, 5, 14})}},
  };
}

constexpr InputRole kRoles[] = {{.input = 1, .examined = true}, {.input = 2, .use = InputUse::sizes}};

}  // namespace

const OpDef max_unpool_op = {
    .name = "MaxUnpool",
    .since = 9,
    .summary = "Puts values back where MaxPool took them from, zeros elsewhere.",
    .min_inputs = 2,
    .max_inputs = 3,
    .infer = infer,
    .grad = grad,
    .cost = input_cost,
    .cpu = prepare,
    .gpu = prepare,
    .samples = samples,
    .roles = kRoles,
};

}  // namespace gradloom
