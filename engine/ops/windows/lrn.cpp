// LRN, local response normalization over channels (Krizhevsky et al. 2012), and its gradient row.
//   x, y: [n, c, spatial..]; s = bias + alpha / size * sum of x^2 over the `size` channels around, y = x / s^beta
// The CPU has a kernel of each. On GPUs the sum is an average pooling along the channels, x^2 seen as planes
// [c, spatial], and the gradient is a sequence of kernels:
//   dx = dy s^-beta - 2 alpha beta x AveragePoolGrad(dy x s^(-beta - 1))
// Source: ONNX LRN-13.
#include <algorithm>

#include "engine/ops/kernel_sequence.h"
#include "engine/ops/costs.h"
#include "engine/ops/dims.h"
#include "engine/ops/inference.h"
#include "engine/ops/preparation.h"
#include "engine/ops/samples.h"
#include "engine/ops/windows/sliding_window.h"
#include "engine/ops/rows.h"
#include "kernels/launcher.h"

namespace gradloom {
namespace {

using Ints = std::vector<std::int64_t>;

struct Response {
  double alpha, beta, bias;
};
Response response_of(const Attrs& attrs) {
  return {attrs.real("alpha", 1e-4), attrs.real("beta", 0.75), attrs.real("bias", 1)};
}

Status infer(InferContext& ctx) {
  TRY(require_inputs(ctx, 1));
  const Shape& x = ctx.shape(0);
  if (x.size() < 3) return infer_error("input " + to_string(x) + " must have 3 or more dims");
  if (!is_float(ctx.dtype(0))) return infer_error(std::string("the input is ") + dtype_name(ctx.dtype(0)));
  const std::int64_t size = ctx.attrs.integer("size");
  if (size < 1 || size > std::int64_t{1} << 31)
    return infer_error("size " + std::to_string(size) + " is out of range");
  return set_outputs(ctx, {ctx.in(0)});
}

Shape planes_of(const Shape& x) { return {x[0], 1, x[1], dim_product(x, 2, x.size())}; }

Attrs window_of(std::int64_t size) {
  const std::int64_t before = (size - 1) / 2;
  return {{"kernel_shape", Ints{size, 1}},
          {"pads", Ints{before, 0, size - 1 - before, 0}},
          {"count_include_pad", std::int64_t{1}}};
}

Status grad(GradContext& ctx) {
  ctx.set(0, ctx.b.op("LRNGrad", {ctx.grad(), ctx.in(0)}, ctx.node.attrs));
  return {};
}

Cost cost(const NodeTypes& types) {
  const double taps = static_cast<double>(types.attrs.integer("size")) + 6;
  return cost_of(types, taps * static_cast<double>(element_count(types.inputs[0].shape)));
}

Cost cost_grad(const NodeTypes& types) {
  Cost total = cost(types);
  total.flops *= 2;
  return total;
}

kernels::LrnShape lrn_shape(const NodeTypes& types) {
  const Shape& x = types.inputs[0].shape;
  const Response r = response_of(types.attrs);
  return {x[0], x[1], dim_product(x, 2, x.size()), types.attrs.integer("size"), r.alpha, r.beta, r.bias};
}

Result<Kernel> prepare(const NodeTypes& types) {
  const Type& x = types.inputs[0];
  TRY(require_kernel_type(types.target, x.dtype));
  return Kernel{"lrn", 0, [dtype = x.dtype, shape = lrn_shape(types)](const LaunchArgs& args) {
                  args.on.lrn({dtype, shape, args.inputs[0], args.outputs[0]});
                }};
}

Result<Kernel> prepare_gpu(const NodeTypes& types) {
  using kernels::EwOp;
  const Type& x = types.inputs[0];
  TRY(require_kernel_type(types.target, x.dtype));
  const std::int64_t count = element_count(x.shape);
  if (count == 0) return no_work("lrn");
  const Shape planes = planes_of(x.shape);
  kernels::AveragePoolArgs pool{};
  pool.dtype = x.dtype;
  pool.divisor = kernels::PoolDivisor::padded;
  pool.shape = TRY(
      pool_shape(planes, TRY(resolve_window(window_of(types.attrs.integer("size")), spatial_of(planes)))));
  const Response r = response_of(types.attrs);
  FlatProgram square(x.dtype, count, 1), scale(x.dtype, count, 2, {r.alpha, r.bias, -r.beta});
  const int sum = scale.add(EwOp::Add, scale.add(EwOp::Mul, 1, 2), 3);
  const auto first = square.finish(square.add(EwOp::Square, 0));
  const int power = scale.add(EwOp::Exp, scale.add(EwOp::Mul, scale.add(EwOp::Log, sum), 4));  // sum^-beta
  const auto last = scale.finish(scale.add(EwOp::Mul, 0, power));
  const std::size_t bytes = aligned_bytes(x.dtype, count);
  return Kernel{"lrn",
                2 * bytes,
                [pool, first, last, bytes](const LaunchArgs& args) {
                  void* const squares = args.workspace;
                  void* const means = static_cast<std::byte*>(args.workspace) + bytes;
                  args.on.elementwise({first.get(), args.inputs, &squares, nullptr});
                  kernels::AveragePoolArgs a = pool;
                  a.x = squares;
                  a.y = means;
                  args.on.average_pool(a);
                  const void* const inputs[] = {args.inputs[0], means};
                  args.on.elementwise({last.get(), inputs, args.outputs, nullptr});
                },
                {first, last}};
}

Result<Kernel> prepare_grad_sequence(const NodeTypes& types) {
  const Type& type = types.inputs[1];
  TRY(require_kernel_type(types.target, type.dtype));
  KernelSequence q(types);
  const Response r = response_of(types.attrs);
  const Shape planes = planes_of(type.shape);
  const DType work = statistics_type(type.dtype);
  const ValueId dy = q.cast(q.in(0), work), x = q.cast(q.in(1), work);
  const auto number = [&](double v) { return q.b().scalar(work, v); };
  const auto reshaped = [&](ValueId v, const Shape& to) { return q.op("Reshape", {v, q.b().i64s(to)}); };
  Attrs window = window_of(types.attrs.integer("size"));
  const ValueId mean = q.op("AveragePool", {reshaped(q.op("Mul", {x, x}), planes)}, window);
  const ValueId s = q.op("Add", {q.op("Mul", {reshaped(mean, type.shape), number(r.alpha)}), number(r.bias)});
  const ValueId scaled = q.op("Mul", {dy, q.op("Pow", {s, number(-r.beta)})});
  window.set("input_shape", planes);
  const ValueId spread = q.op(
      "AveragePoolGrad", {reshaped(q.op("Div", {q.op("Mul", {scaled, x}), s}), planes)}, std::move(window));
  const ValueId through =
      q.op("Mul", {q.op("Mul", {x, reshaped(spread, type.shape)}), number(2 * r.alpha * r.beta)});
  return q.prepare("lrn_grad", {q.cast(q.op("Sub", {scaled, through}), type.dtype)});
}

Result<Kernel> prepare_grad(const NodeTypes& types) {
  const Type& x = types.inputs[1];
  TRY(require_kernel_type(types.target, x.dtype));
  const kernels::LrnShape shape = lrn_shape(types);
  if (std::min(shape.size, shape.c) > kernels::kLrnGradWindow) return prepare_grad_sequence(types);
  return Kernel{"lrn_grad", 0, [dtype = x.dtype, shape](const LaunchArgs& args) {
                  args.on.lrn_grad({dtype, shape, args.inputs[0], args.inputs[1], args.outputs[0]});
                }};
}

Status infer_grad(InferContext& ctx) {
  TRY(require_inputs(ctx, 2));
  TRY(infer(ctx));
  if (ctx.shape(0) != ctx.shape(1) || ctx.dtype(0) != ctx.dtype(1))
    return infer_error("dy " + to_string(ctx.shape(0)) + " and x " + to_string(ctx.shape(1)) + " differ");
  return {};
}

std::vector<Sample> samples() {
  return {
      {.name = "plain",
       .attrs = {{"size", std::int64_t{3}}, {"alpha", 0.3}, {"beta", 0.6}, {"bias", 1.5}},
       .inputs = {floats({2, 5, 3, 2}, -2, 2)}},
      {.name = "even",
       .attrs = {{"size", std::int64_t{4}}, {"alpha", 0.5}},
       .inputs = {floats({1, 6, 4}, -2, 2)}},
      {.name = "wider-than-channels",
       .attrs = {{"size", std::int64_t{9}}, {"alpha", 0.5}},
       .inputs = {floats({1, 3, 2, 2, 2})}},
      {.name = "alexnet",
       .attrs = {{"size", std::int64_t{5}}},
       .inputs = {floats({8, 96, 55, 55})},
       .bench = true},
  };
}

std::vector<Sample> samples_grad() {
  const auto both = [](const Shape& shape) {
    return std::vector<SampleInput>{floats(shape, -2, 2), floats(shape, -2, 2)};
  };
  return {
      {.name = "plain",
       .attrs = {{"size", std::int64_t{3}}, {"alpha", 0.3}, {"beta", 0.6}, {"bias", 1.5}},
       .inputs = both({2, 5, 3, 2})},
      {.name = "even",
       .attrs = {{"size", std::int64_t{4}}, {"alpha", 0.5}, {"beta", 0.5}},
       .inputs = both({1, 6, 40})},
      {.name = "wide", .attrs = {{"size", std::int64_t{80}}, {"alpha", 0.5}}, .inputs = both({1, 70, 3})},
      {.name = "alexnet",
       .attrs = {{"size", std::int64_t{5}}},
       .inputs = both({8, 96, 55, 55}),
       .bench = true},
  };
}

}  // namespace

const OpDef lrn_op = {
    .name = "LRN",
    .summary = "Divides each value by a power of the mean square of the channels around it.",
    .infer = infer,
    .grad = grad,
    .cost = cost,
    .cpu = prepare,
    .gpu = prepare_gpu,
    .samples = samples,
    .precision = Precision::full,
};

const OpDef lrn_grad_op = {
    .name = "LRNGrad",
    .domain = "gradloom",
    .summary = "Gradient of LRN.",
    .min_inputs = 2,
    .max_inputs = 2,
    .infer = infer_grad,
    .cost = cost_grad,
    .cpu = prepare_grad,
    .gpu = prepare_grad_sequence,
    .samples = samples_grad,
    .precision = Precision::full,
};

}  // namespace gradloom
