// Helpers of the neural-network rows; see nn.h.
#include "engine/ops/nn.h"

#include <algorithm>
#include <numeric>

namespace gradloom::nn {

std::int64_t size(std::size_t n) { return static_cast<std::int64_t>(n); }

std::int64_t product(const Shape& shape, std::size_t from, std::size_t to) {
  std::int64_t count = 1;
  for (std::size_t i = from; i < to; ++i) {
    CHECK(shape[i] >= 0, "product of a symbolic dim");
    count *= shape[i];
  }
  return count;
}

bool all_static(const Shape& shape, std::size_t from, std::size_t to) {
  for (std::size_t i = from; i < to; ++i)
    if (shape[i] < 0) return false;
  return true;
}

bool differ(std::int64_t a, std::int64_t b) { return a >= 0 && b >= 0 && a != b; }

std::int64_t known_dim(std::int64_t a, std::int64_t b) {
  if (a >= 0) return a;
  if (b >= 0) return b;
  return std::max(a, b);  // a named symbol rather than a formula
}

Status set_outputs(InferContext& ctx, std::vector<Type> types) {
  const std::size_t wanted = static_cast<std::size_t>(ctx.output_count);
  if (types.size() > wanted) types.resize(wanted);
  ctx.outputs = std::move(types);
  return {};
}

Status require_float(const InferContext& ctx, std::size_t i, const char* what) {
  const DType dtype = ctx.dtype(i);
  if (!is_float(ctx.dtype(0)))
    return infer_error(std::string("the input must be floating point, it is ") + dtype_name(ctx.dtype(0)));
  if (dtype == ctx.dtype(0)) return {};
  return infer_error(std::string(what) + " must be " + dtype_name(ctx.dtype(0)) + " like the input, it is " +
                     dtype_name(dtype));
}

Status require_parameter(const InferContext& ctx, std::size_t i, const char* what, std::size_t scale) {
  const DType dtype = ctx.dtype(i), input = ctx.dtype(0);
  if (i != scale && dtype != ctx.dtype(scale))
    return infer_error(std::string(what) + " must be " + dtype_name(ctx.dtype(scale)) +
                       " like scale, it is " + dtype_name(dtype));
  const bool wider = is_float(input) && dtype == statistics_type(input);
  return wider ? Status{} : require_float(ctx, i, what);
}

DType statistics_type(DType dtype) { return is_half(dtype) ? DType::f32 : dtype; }

Status require_statistic(const InferContext& ctx, std::size_t i, const char* what) {
  const DType want = statistics_type(ctx.dtype(0));
  if (ctx.dtype(i) == want) return {};
  return infer_error(std::string(what) + " must be " + dtype_name(want) + ", it is " +
                     dtype_name(ctx.dtype(i)));
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

ValueId sum_of(GraphBuilder& b, ValueId x, ValueId y) {
  return x == kNone ? y : y == kNone ? x : b.op("Add", {x, y});
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

Status require_kernel_type(kernels::Target target, DType dtype, bool takes_bf16) {
  if (dtype == DType::f32 || dtype == DType::f64) return {};
  if (dtype == DType::bf16 && takes_bf16) return {};
  if (target == kernels::Target::gpu && is_half(dtype)) return {};
  return no_kernel(std::string("no ") + (target == kernels::Target::cpu ? "CPU" : "GPU") + " kernel for " +
                   dtype_name(dtype));
}

Kernel elementwise_kernel(std::string name, kernels::EwProgram program) {
  kernels::ew_collapse_dims(program);
  Kernel kernel;
  kernel.name = std::move(name);
  const auto shared = std::make_shared<const kernels::EwProgram>(std::move(program));
  kernel.programs = {shared};
  kernel.run = [shared](const LaunchArgs& args) {
    args.on.elementwise({shared.get(), args.inputs, args.outputs, args.random});
  };
  return kernel;
}

FlatProgram::FlatProgram(DType dtype, std::int64_t count, std::size_t inputs,
                         const std::vector<double>& constants)
    : dtype_(dtype) {
  program_.rank = 1;
  program_.dims[0] = count;
  program_.inputs.assign(inputs, {dtype, {1}});
  for (const double value : constants) program_.constants.push_back({dtype, value});
}

int FlatProgram::add(kernels::EwOp op, int a, int b, int c) {
  const auto reg = [](int r) { return static_cast<std::int16_t>(r); };
  program_.code.push_back({op, dtype_, dtype_, {reg(a), reg(b), reg(c)}, 0});
  return static_cast<int>(program_.inputs.size() + program_.constants.size() + program_.code.size()) - 1;
}

std::shared_ptr<const kernels::EwProgram> FlatProgram::finish(int result) {
  program_.outputs = {{static_cast<std::int16_t>(result), dtype_}};
  kernels::ew_collapse_dims(program_);
  return std::make_shared<const kernels::EwProgram>(std::move(program_));
}

std::shared_ptr<const kernels::EwProgram> conversion(DType from, DType to, std::int64_t count) {
  kernels::EwProgram program;
  program.rank = 1;
  program.dims[0] = count;
  program.inputs = {{from, {1}}};
  program.code = {{kernels::EwOp::Cast, from, to, {0, -1, -1}, 0}};
  program.outputs = {{1, to}};
  kernels::ew_collapse_dims(program);
  return std::make_shared<const kernels::EwProgram>(std::move(program));
}

Kernel no_work(std::string name) {
  return Kernel{std::move(name) + " (empty)", 0, [](const LaunchArgs&) {}};
}

Cost cost_of(const NodeTypes& types, double flops) {
  Cost cost = default_cost(types);
  cost.flops = flops;
  return cost;
}

SampleInput distinct(Shape shape, double step) {
  const std::int64_t count = element_count(shape);
  std::int64_t stride = count * 5 / 8 + 1;
  while (count > 1 && std::gcd(stride, count) != 1) ++stride;
  std::vector<double> values;
  for (std::int64_t i = 0; i < count; ++i)
    values.push_back(step * (static_cast<double>(i * stride % count) - static_cast<double>(count) / 2 + 0.3));
  return exact(DType::f32, std::move(shape), std::move(values));
}

}  // namespace gradloom::nn
