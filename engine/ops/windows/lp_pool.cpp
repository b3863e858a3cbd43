// LpPool, GlobalLpPool and GlobalMaxPool.
//   LpPool: y = (sum of |x|^p over the window)^(1/p), padding adds nothing; GlobalLpPool over all spatial positions
//   dx = sign(x) |x|^(p-1) * (dy y^(1-p), spread over the windows), 0 where y is 0
//   GlobalMaxPool: the largest value of all spatial positions; its gradient goes there (to equal ones in equal shares)
// Source: ONNX LpPool-18, GlobalLpPool-2, GlobalMaxPool-1.
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

using kernels::EwOp;
using Ints = std::vector<std::int64_t>;

Status check_power(const Attrs& attrs) {
  const std::int64_t p = attrs.integer("p", 2);
  return p < 1 || p > 1024 ? Status(infer_error("p is " + std::to_string(p))) : Status{};
}

Status infer_lp(InferContext& ctx) {
  TRY(require_inputs(ctx, 1));
  TRY(check_power(ctx.attrs));
  const Shape& x = ctx.shape(0);
  if (x.size() < 3) return infer_error("input " + to_string(x) + " must have 3 or more dims");
  if (!is_float(ctx.dtype(0))) return infer_error(std::string("the input is ") + dtype_name(ctx.dtype(0)));
  const SlidingWindow window = TRY(resolve_pooling_window(ctx.attrs, spatial_of(x)));
  Shape y{x[0], x[1]};
  y.insert(y.end(), window.out.begin(), window.out.end());
  return set_outputs(ctx, {{ctx.dtype(0), std::move(y)}});
}

Status infer_global(InferContext& ctx) {
  TRY(require_inputs(ctx, 1));
  TRY(check_power(ctx.attrs));
  Shape y = ctx.shape(0);
  if (y.size() < 3) return infer_error("input " + to_string(y) + " must have 3 or more dims");
  if (!is_float(ctx.dtype(0))) return infer_error(std::string("the input is ") + dtype_name(ctx.dtype(0)));
  for (std::size_t i = 2; i < y.size(); ++i) y[i] = 1;
  return set_outputs(ctx, {{ctx.dtype(0), std::move(y)}});
}

// ---- gradients --------------------------------------------------------------------------------------------

// dy y^(1-p), 0 where y is 0.
ValueId share(GradContext& ctx, double p) {
  GraphBuilder& b = ctx.b;
  const ValueId y = ctx.out(0), dy = ctx.grad();
  const auto number = [&](double v) { return b.scalar(ctx.dtype(dy), v); };
  if (p == 1) return dy;
  const ValueId empty = b.op("Equal", {y, number(0)});
  const ValueId safe = b.op("Where", {empty, number(1), y});
  const ValueId power =
      p == 2 ? b.op("Div", {dy, safe}) : b.op("Mul", {dy, b.op("Pow", {safe, number(1 - p)})});
  return b.op("Where", {empty, number(0), power});
}

// sign(x) |x|^(p-1).
ValueId slope(GradContext& ctx, double p) {
  GraphBuilder& b = ctx.b;
  const ValueId x = ctx.in(0);
  if (p == 2) return x;
  const ValueId sign = b.op("Sign", {x});
  return p == 1 ? sign : b.op("Mul", {sign, b.op("Pow", {b.op("Abs", {x}), b.scalar(ctx.dtype(x), p - 1)})});
}

Status grad_lp(GradContext& ctx) {
  TRY(require_static(ctx, ctx.in(0)));
  const double p = static_cast<double>(ctx.node.attrs.integer("p", 2));
  const Shape x = ctx.shape(ctx.in(0));
  Attrs attrs = window_attrs(TRY(resolve_pooling_window(ctx.node.attrs, spatial_of(x))));
  attrs.set("input_shape", x);
  attrs.set("sum", std::int64_t{1});
  ctx.set(0,
          ctx.b.op("Mul", {slope(ctx, p), ctx.b.op("AveragePoolGrad", {share(ctx, p)}, std::move(attrs))}));
  return {};
}

Status grad_global_lp(GradContext& ctx) {
  const double p = static_cast<double>(ctx.node.attrs.integer("p", 2));
  ctx.set(0, ctx.b.op("Mul", {slope(ctx, p), share(ctx, p)}));
  return {};
}

Status grad_global_max(GradContext& ctx) {
  GraphBuilder& b = ctx.b;
  const ValueId x = ctx.in(0);
  Ints axes;
  for (std::size_t i = 2; i < ctx.shape(x).size(); ++i) axes.push_back(as_dim(i));
  const ValueId hits = b.op("Equal", {x, ctx.out(0)});
  const ValueId count = b.op("ReduceSum", {cast_to(b, hits, statistics_type(ctx.dtype(x))), b.i64s(axes)},
                             {{"keepdims", std::int64_t{1}}});
  ctx.set(0, b.op("Where", {hits, divided_by_count(b, ctx.grad(), count), b.scalar(ctx.dtype(x), 0)}));
  return {};
}

// ---- kernels ----------------------------------------------------------------------------------------------

Cost cost_lp(const NodeTypes& types) {
  double taps = 1;
  for (std::int64_t k : types.attrs.integers("kernel_shape")) taps *= static_cast<double>(k);
  return cost_of(types, 2 * static_cast<double>(element_count(types.inputs[0].shape)) +
                            taps * static_cast<double>(element_count(types.outputs[0].shape)));
}

struct Powers {
  std::shared_ptr<const kernels::EwProgram> raise, root;  // |x|^p; y^(1/p) in place, null for p = 1
};
Powers powers(DType dtype, std::int64_t p, std::int64_t inputs, std::int64_t outputs) {
  const auto exponent = static_cast<double>(p);
  Powers result;
  FlatProgram raise(dtype, inputs, 1, {exponent}), root(dtype, outputs, 1, {1 / exponent});
  const int size = p == 2 ? 0 : raise.add(EwOp::Abs, 0);
  result.raise = raise.finish(p == 1   ? size
                              : p == 2 ? raise.add(EwOp::Square, 0)
                                       : raise.add(EwOp::Pow, size, 1));
  if (p == 2) result.root = root.finish(root.add(EwOp::Sqrt, 0));
  if (p > 2) result.root = root.finish(root.add(EwOp::Pow, 0, 1));
  return result;
}

// `sum(args, powers)` adds those in the workspace up to output 0.
template <class Sum>
Result<Kernel> prepare_powers(std::string name, const NodeTypes& types, std::size_t sum_bytes, Sum sum) {
  const Type& x = types.inputs[0];
  const std::int64_t count = element_count(x.shape);
  const Powers p = powers(x.dtype, types.attrs.integer("p", 2), count, element_count(types.outputs[0].shape));
  const std::size_t bytes = aligned_bytes(x.dtype, count);
  Kernel kernel{std::move(name), bytes + sum_bytes, [p, sum, bytes](const LaunchArgs& args) {
                  void* const raised = args.workspace;
                  args.on.elementwise({p.raise.get(), args.inputs, &raised, nullptr});
                  sum(args, raised, static_cast<std::byte*>(args.workspace) + bytes);
                  if (p.root == nullptr) return;
                  const void* const inputs[] = {args.outputs[0]};
                  args.on.elementwise({p.root.get(), inputs, args.outputs, nullptr});
                }};
  kernel.programs = {p.raise};
  if (p.root != nullptr) kernel.programs.push_back(p.root);
  return kernel;
}

Result<Kernel> prepare_lp(const NodeTypes& types) {
  const Type& x = types.inputs[0];
  TRY(require_kernel_type(types.target, x.dtype));
  if (element_count(x.shape) == 0) return no_kernel("no kernel for an empty input");
  kernels::AveragePoolArgs pool{};
  pool.dtype = x.dtype;
  pool.divisor = kernels::PoolDivisor::one;
  pool.shape = TRY(pool_shape(x.shape, TRY(resolve_pooling_window(types.attrs, spatial_of(x.shape)))));
  return prepare_powers("lp_pool", types, 0, [pool](const LaunchArgs& args, const void* raised, void*) {
    kernels::AveragePoolArgs a = pool;
    a.x = raised;
    a.y = args.outputs[0];
    args.on.average_pool(a);
  });
}

kernels::ReduceArgs reduction(const NodeTypes& types, kernels::Reduction op) {
  const Type& x = types.inputs[0];
  kernels::ReduceArgs layout{};
  layout.dtype = x.dtype;
  layout.op = op;
  layout.outer = x.shape[0] * x.shape[1];
  layout.n = dim_product(x.shape, 2, x.shape.size());
  layout.inner = 1;
  return layout;
}

Result<Kernel> prepare_global_lp(const NodeTypes& types) {
  TRY(require_kernel_type(types.target, types.inputs[0].dtype));
  if (element_count(types.inputs[0].shape) == 0) return no_kernel("no kernel for an empty input");
  const kernels::ReduceArgs layout = reduction(types, kernels::Reduction::sum);
  return prepare_powers("global_lp_pool", types, kernels::workspace_bytes(types.target, layout),
                        [layout](const LaunchArgs& args, const void* raised, void* workspace) {
                          kernels::ReduceArgs a = layout;
                          a.in = raised;
                          a.out = args.outputs[0];
                          a.workspace = workspace;
                          args.on.reduce(a);
                        });
}

Result<Kernel> prepare_global_max(const NodeTypes& types) {
  TRY(require_kernel_type(types.target, types.inputs[0].dtype));
  const kernels::ReduceArgs layout = reduction(types, kernels::Reduction::max);
  return Kernel{"reduce max", kernels::workspace_bytes(types.target, layout),
                [layout](const LaunchArgs& args) {
                  kernels::ReduceArgs a = layout;
                  a.in = args.inputs[0];
                  a.out = args.outputs[0];
                  a.workspace = args.workspace;
                  args.on.reduce(a);
                }};
}

// ---- samples ----------------------------------------------------------------------------------------------

std::vector<Sample> samples_lp() {
  constexpr double kAway = 0.05;  // from the kink of |x|
  return {
      {.name = "plain", .attrs = {{"kernel_shape", Ints{2, 3}}}, .inputs = {floats({2, 2, 4, 5})}},
      {.name = "p1-pads-strides",
       .attrs = {{"kernel_shape", Ints{3, 2}},
                 {"p", std::int64_t{1}},
                 {"pads", Ints{1, 0, 1, 1}},
                 {"strides", Ints{2, 1}}},
       .inputs = {floats({1, 2, 5, 4})},
       .kink_distance = kAway,
       .kinks = {0}},
      {.name = "p3-dilations",
       .attrs = {{"kernel_shape", Ints{2, 2}}, {"p", std::int64_t{3}}, {"dilations", Ints{2, 1}}},
       .inputs = {floats({1, 2, 4, 4})},
       .kink_distance = kAway,
       .kinks = {0}},
      {.name = "ceil-same-one-dim",
       .attrs = {{"kernel_shape", Ints{3}}, {"strides", Ints{2}}, {"ceil_mode", std::int64_t{1}}},
       .inputs = {floats({2, 2, 6})}},
      {.name = "same-lower",
       .attrs = {{"kernel_shape", Ints{2, 2}}, {"auto_pad", std::string("SAME_LOWER")}},
       .inputs = {floats({1, 1, 3, 3})}},
      {.name = "three-dims", .attrs = {{"kernel_shape", Ints{2, 1, 2}}}, .inputs = {floats({1, 2, 3, 2, 3})}},
  };
}

std::vector<Sample> samples_global_lp() {
  return {
      {.name = "plain", .inputs = {floats({2, 3, 4, 5})}},
      {.name = "p1",
       .attrs = {{"p", std::int64_t{1}}},
       .inputs = {floats({2, 3, 7})},
       .kink_distance = 0.05,
       .kinks = {0}},
      {.name = "p4", .attrs = {{"p", std::int64_t{4}}}, .inputs = {floats({1, 2, 2, 3, 2})}},
  };
}

std::vector<Sample> samples_global_max() {
  return {
      {.name = "plain", .inputs = {distinct_floats({2, 3, 4, 5})}},
      {.name = "one-dim", .inputs = {distinct_floats({2, 3, 7})}},
      {.name = "three-dims", .inputs = {distinct_floats({1, 2, 2, 3, 2})}},
  };
}

}  // namespace

const OpDef lp_pool_op = {
    .name = "LpPool",
    .since = 2,
    .summary = "The p-norm of each window.",
    .infer = infer_lp,
    .grad = grad_lp,
    .cost = cost_lp,
    .cpu = prepare_lp,
    .gpu = prepare_lp,
    .samples = samples_lp,
    .precision = Precision::full,
};

const OpDef global_lp_pool_op = {
    .name = "GlobalLpPool",
    .since = 2,
    .summary = "The p-norm of all spatial positions.",
    .infer = infer_global,
    .grad = grad_global_lp,
    .cost = input_cost,
    .cpu = prepare_global_lp,
    .gpu = prepare_global_lp,
    .samples = samples_global_lp,
    .precision = Precision::full,
};

const OpDef global_max_pool_op = {
    .name = "GlobalMaxPool",
    .summary = "Largest value of all spatial positions.",
    .infer = infer_global,
    .grad = grad_global_max,
    .cost = input_cost,
    .cpu = prepare_global_max,
    .gpu = prepare_global_max,
    .samples = samples_global_max,
};

}  // namespace gradloom
