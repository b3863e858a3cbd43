// MaxUnpool: puts values back where MaxPool took them from, zeros elsewhere.
//   x, indices (i64, into the whole of y, row-major): [n, c, in..], y: [n, c, out..]
//   out = (in - 1) * stride - pad_begin - pad_end + kernel, or the contents of the third input (output_shape)
// Where windows overlapped and several values land on one place, y is their mean. dx = dy[indices] / how many landed there.
// Indices out of range add nothing. Source: ONNX MaxUnpool-11.
#include "engine/ops/nn.h"
#include "engine/ops/window.h"

namespace gradloom {
namespace {

using Ints = std::vector<std::int64_t>;

Result<Shape> result_shape(const InferContext& ctx) {
  const Shape& x = ctx.shape(0);
  if (ctx.has(2)) {
    const Tensor* known = ctx.constant(2);
    Shape y;
    for (std::size_t i = 0; i < x.size(); ++i)
      y.push_back(known == nullptr ? unknown_dim(ctx, 2, nn::size(i)) : known->count() == nn::size(x.size()) ? known->int_at(nn::size(i)) : -1);
    if (known != nullptr && !is_static(y)) return infer_error("output_shape does not fit input " + to_string(x));
    return y;
  }
  const nn::Window w = TRY(nn::explicit_window(ctx.attrs, nn::spatial_of(x)));
  if (ctx.attrs.integers("kernel_shape").empty()) return infer_error("attribute kernel_shape is missing");
  Shape y{x[0], x[1]};
  for (std::size_t i = 0; i < w.rank(); ++i) {
    const std::int64_t in = x[i + 2], added = w.kernel[i] - w.stride[i] - w.pad_begin[i] - w.pad_end[i];
    y.push_back(in < 0 ? derived_dim("unpooled " + std::to_string(in) + "*" + std::to_string(w.stride[i]) + "+" + std::to_string(added))
                       : in * w.stride[i] + added);
    if (in >= 0 && y.back() < 1) return infer_error("output dim " + std::to_string(y.back()) + " is out of range");
  }
  return y;
}

Status infer(InferContext& ctx) {
  TRY(require_inputs(ctx, 2));
  const Shape& x = ctx.shape(0);
  if (x.size() < 3) return infer_error("input " + to_string(x) + " must have 3 or more dims");
  if (!is_float(ctx.dtype(0))) return infer_error(std::string("the input is ") + dtype_name(ctx.dtype(0)));
  if (ctx.dtype(1) != DType::i64 || ctx.shape(1).size() != x.size()) return infer_error("indices must be i64 and of the input's shape");
  return nn::set_outputs(ctx, {{ctx.dtype(0), TRY(result_shape(ctx))}});
}

Status grad(GradContext& ctx) {
  GraphBuilder& b = ctx.b;
  const ValueId indices = ctx.in(1), dy = ctx.grad();
  TRY(nn::require_static(ctx, dy));
  const std::int64_t size = element_count(ctx.shape(dy));
  const ValueId flat = b.op("Reshape", {indices, b.i64s({1, 1, -1})});
  const ValueId ones = full_like(ctx, ctx.in(0), 1);
  const ValueId landed =
      b.op("MaxPoolGrad", {b.op("Reshape", {ones, b.i64s({1, 1, -1})}), flat}, {{"input_shape", Ints{1, 1, size}}});
  const ValueId shares = b.op("Div", {b.op("Reshape", {dy, b.i64s({size})}),
                                      b.op("Max", {b.op("Reshape", {landed, b.i64s({size})}), b.scalar(ctx.dtype(dy), 1)})});
  ctx.set(0, b.op("Gather", {shares, indices}));
  return {};
}

Result<Kernel> prepare(const NodeTypes& types) {
  using kernels::EwOp;
  const Type& x = types.inputs[0];
  TRY(nn::require_kernel_type(types.target, x.dtype));
  const Shape& y = types.outputs[0].shape;
  const std::int64_t count = element_count(x.shape), size = element_count(y);
  if (size == 0) return nn::no_work("max_unpool");
  if (size >= std::int64_t{1} << 31) return no_kernel("no kernel for more than 2^31 elements");
  kernels::MaxPoolGradArgs layout{};
  layout.dtype = x.dtype;
  layout.planes = 1;
  layout.w = y.back();
  layout.h = size / layout.w;
  layout.ow = x.shape.back();
  layout.oh = layout.ow > 0 ? count / layout.ow : 0;
  // y holds sums, the workspace one 1 per value and how many landed on each place.
  nn::FlatProgram mean(x.dtype, size, 2, {1});
  const auto program = mean.finish(mean.add(EwOp::Div, 0, mean.add(EwOp::Max, 1, 2)));
  nn::FlatProgram one(x.dtype, count, 1, {1});
  const auto ones = one.finish(one.add(EwOp::Max, 1, 1));
  const auto bytes = [&](std::int64_t n) { return (static_cast<std::size_t>(n) * dtype_bytes(x.dtype) + 63) / 64 * 64; };
  return Kernel{"max_unpool", bytes(count) + bytes(size),
                [layout, program, ones, values = bytes(count)](const LaunchArgs& args) {
                  void* const filled = args.workspace;
                  void* const landed = static_cast<std::byte*>(args.workspace) + values;
                  args.on.elementwise({ones.get(), args.inputs, &filled, nullptr});
                  kernels::MaxPoolGradArgs a = layout;
                  a.argmax = static_cast<const std::int64_t*>(args.inputs[1]);
                  a.dy = args.inputs[0];
                  a.dx = args.outputs[0];
                  args.on.max_pool_grad(a);
                  a.dy = filled;
                  a.dx = landed;
                  args.on.max_pool_grad(a);
                  const void* const inputs[] = {args.outputs[0], landed};
                  args.on.elementwise({program.get(), inputs, args.outputs, nullptr});
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
       .inputs = {floats({1, 1, 2, 2}), exact(DType::i64, {1, 1, 2, 2}, {6, 8, 16, 18}), known_ints({1, 1, 5, 5})}},
      {.name = "three-dims",
       .attrs = {{"kernel_shape", Ints{2, 1, 2}}, {"strides", Ints{2, 1, 2}}},
       .inputs = {floats({1, 1, 1, 2, 2}), exact(DType::i64, {1, 1, 1, 2, 2}, {9, 2, 5, 14})}},
  };
}

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
};

}  // namespace gradloom
