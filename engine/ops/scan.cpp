// Operators that walk along an axis or over matrices element by element: Trilu, CumSum, ArgMax, ArgMin.
#include "engine/ops/common.h"

namespace gradloom {
namespace {

// ---- Trilu ------------------------------------------------------------------------------------------------
// The upper (column - row >= k) or lower (column - row <= k) triangle of the last two axes, 0 elsewhere.

Status infer_trilu(InferContext& ctx) {
  TRY(require_inputs(ctx, 1));
  if (ctx.shape(0).size() < 2) return infer_error("Trilu needs at least two dimensions");
  if (ctx.has(1) && ctx.dtype(1) != DType::i64) return infer_error("Trilu: k must be a 64-bit integer");
  if (ctx.has(1) && (!is_static(ctx.shape(1)) || element_count(ctx.shape(1)) != 1))
    return infer_error("Trilu: k must be one number");
  ctx.outputs[0] = ctx.in(0);
  return {};
}

Result<Kernel> prepare_trilu(const NodeTypes& types) {
  const Shape& shape = types.inputs[0].shape;
  const std::int64_t rows = shape[shape.size() - 2], cols = shape.back();
  const std::int64_t matrices = rows * cols == 0 ? 0 : element_count(shape) / (rows * cols);
  const bool upper = types.attrs.integer("upper", 1) != 0;
  const kernels::TriluArgs args{
      dtype_bytes(types.inputs[0].dtype), upper, matrices, rows, cols, nullptr, nullptr, nullptr};
  Kernel kernel;
  kernel.name = upper ? "upper triangle" : "lower triangle";
  kernel.run = [args, given = types.has(1)](const LaunchArgs& launch) {
    kernels::TriluArgs a = args;
    a.x = launch.inputs[0];
    a.k = given ? static_cast<const std::int64_t*>(launch.inputs[1]) : nullptr;
    a.y = launch.outputs[0];
    launch.on.trilu(a);
  };
  return kernel;
}

Status grad_trilu(GradContext& ctx) {
  if (ctx.wants(0)) ctx.set(0, ctx.b.op("Trilu", {ctx.grad(), ctx.in(1)}, ctx.node.attrs));
  return {};
}

std::vector<Sample> trilu_samples() {
  const Attrs lower = {{"upper", std::int64_t{0}}};
  return {sample_of("upper", {}, {floats({4, 5})}),
          sample_of("lower", lower, {floats({2, 5, 3})}),
          sample_of("above", {}, {floats({4, 5}), known_scalar(DType::i64, 2)}),
          sample_of("below", lower, {floats({5, 4}), known_scalar(DType::i64, -1)}),
          sample_of("far", lower, {ints({3, 3}, -9, 9), known_scalar(DType::i64, -7)}),
          sample_of("booleans", {}, {bools({4, 4}), known_scalar(DType::i64, 1)})};
}

// ---- CumSum -----------------------------------------------------------------------------------------------

Status infer_cum_sum(InferContext& ctx) {
  TRY(require_inputs(ctx, 2));
  if (ctx.shape(0).empty()) return infer_error("CumSum of a scalar");
  if (ctx.dtype(1) != DType::i32 && ctx.dtype(1) != DType::i64)
    return infer_error("CumSum: the axis must be an integer");
  if (!is_static(ctx.shape(1)) || element_count(ctx.shape(1)) != 1)
    return infer_error("CumSum: the axis must be one number");
  if (const Tensor* axis = ctx.constant(1)) TRY(normalized_axis(axis->int_at(0), ctx.shape(0).size()));
  ctx.outputs[0] = ctx.in(0);
  return {};
}

std::int64_t axis_at(DType type, const void* axis) {
  return type == DType::i32 ? *static_cast<const std::int32_t*>(axis)
                            : *static_cast<const std::int64_t*>(axis);
}

// An axis that is only known when running is read then, on the CPU; out of range, where a kernel cannot fail,
// it counts as the last one.
Result<Kernel> prepare_cum_sum(const NodeTypes& types) {
  const DType given = types.inputs[0].dtype, axis_type = types.inputs[1].dtype;
  // Sums modulo 2^32 or 2^64 have the same bits with a sign.
  const DType dtype = given == DType::u32 ? DType::i32 : given == DType::u64 ? DType::i64 : given;
  const bool gpu = types.target == kernels::Target::gpu;
  if (dtype != DType::f32 && dtype != DType::f64 && dtype != DType::i32 && dtype != DType::i64 &&
      !(gpu && is_half(dtype)))
    return no_kernel(std::string("no kernel sums ") + dtype_name(dtype) + " cumulatively");
  const Tensor* known = types.constants[1];
  if (gpu && known == nullptr) return no_kernel("no GPU kernel for an axis that is not known when planning");
  const kernels::CumSumArgs args{
      dtype,  types.attrs.integer("exclusive") != 0, types.attrs.integer("reverse") != 0, 1, 1, 1, nullptr,
      nullptr};
  Kernel kernel;
  kernel.name = "cumulative sum";
  kernel.run = [args, axis_type, shape = types.inputs[0].shape,
                axis_known = known == nullptr ? std::optional<std::int64_t>()
                                              : known->int_at(0)](const LaunchArgs& launch) {
    const auto rank = static_cast<std::int64_t>(shape.size());
    std::int64_t axis = axis_known ? *axis_known : axis_at(axis_type, launch.inputs[1]);
    if (axis < 0) axis += rank;
    const AxisView v = axis_view(shape, axis < 0 || axis >= rank ? rank - 1 : axis);
    kernels::CumSumArgs a = args;
    a.outer = v.outer;
    a.n = v.size;
    a.inner = v.inner;
    a.x = launch.inputs[0];
    a.y = launch.outputs[0];
    launch.on.cum_sum(a);
  };
  return kernel;
}

Status grad_cum_sum(GradContext& ctx) {
  Attrs attrs = ctx.node.attrs;
  attrs.set("reverse", std::int64_t{attrs.integer("reverse") == 0});
  if (ctx.wants(0)) ctx.set(0, ctx.b.op("CumSum", {ctx.grad(), ctx.in(1)}, attrs));
  return {};
}

std::vector<Sample> cum_sum_samples() {
  const std::int64_t yes = 1;
  return {sample_of("last axis", {}, {floats({3, 7}), known_scalar(DType::i64, -1)}),
          sample_of("exclusive", {{"exclusive", yes}}, {floats({5, 3}), known_scalar(DType::i64, 0)}),
          sample_of("reverse", {{"reverse", yes}}, {floats({2, 5, 3}), known_scalar(DType::i32, 1)}),
          sample_of("both", {{"exclusive", yes}, {"reverse", yes}},
                    {ints({9}, -9, 9), known_scalar(DType::i64, 0)}),
          sample_of("unsigned", {}, {ints({2, 3}, 0, 9, DType::u64), known_scalar(DType::i64, 1)}),
          sample_of("unsigned, 32 bits", {{"exclusive", yes}},
                    {ints({5}, 0, 9, DType::u32), known_scalar(DType::i64, 0)}),
          sample_of("long axis", {{"exclusive", yes}, {"reverse", yes}},
                    {floats({2, 300}), known_scalar(DType::i64, 1)})};
}

// ---- ArgMax, ArgMin ---------------------------------------------------------------------------------------

Status infer_arg(InferContext& ctx) {
  TRY(require_inputs(ctx, 1));
  Shape out = ctx.shape(0);
  const std::int64_t axis = TRY(normalized_axis(ctx.attrs.integer("axis"), out.size()));
  if (out[static_cast<std::size_t>(axis)] == 0)
    return infer_error("no largest or smallest element of an empty axis");
  if (ctx.attrs.integer("keepdims", 1) != 0)
    out[static_cast<std::size_t>(axis)] = 1;
  else
    out.erase(out.begin() + axis);
  ctx.outputs[0] = {DType::i64, out};
  return {};
}

template <bool largest>
Result<Kernel> prepare_arg(const NodeTypes& types) {
  const Type& in = types.inputs[0];
  if (is_small(in.dtype) || (is_half(in.dtype) && types.target == kernels::Target::cpu))
    return no_kernel(std::string("no kernel searches ") + dtype_name(in.dtype));
  const AxisView v = axis_view(in.shape, TRY(normalized_axis(types.attrs.integer("axis"), in.shape.size())));
  const bool last = types.attrs.integer("select_last_index") != 0;
  const kernels::ArgExtremeArgs args{in.dtype, largest, last, v.outer, v.size, v.inner, nullptr, nullptr};
  Kernel kernel;
  kernel.name = largest ? "argmax" : "argmin";
  kernel.run = [args](const LaunchArgs& launch) {
    kernels::ArgExtremeArgs a = args;
    a.x = launch.inputs[0];
    a.y = static_cast<std::int64_t*>(launch.outputs[0]);
    launch.on.arg_extreme(a);
  };
  return kernel;
}

std::vector<Sample> arg_samples() {
  const std::int64_t yes = 1, no = 0;
  return {
      sample_of("first axis", {}, {floats({5, 3})}),
      sample_of("last axis", {{"axis", std::int64_t{-1}}, {"keepdims", no}}, {floats({3, 7})}),
      sample_of("last of equal", {{"axis", yes}, {"select_last_index", yes}}, {ints({4, 9}, 0, 2)}),
      sample_of("first of equal", {{"axis", yes}}, {ints({4, 9}, 0, 2)}),
      sample_of("long axis", {{"axis", yes}, {"select_last_index", yes}}, {ints({3, 500}, 0, 9, DType::i32)}),
      sample_of("bytes", {{"axis", yes}}, {ints({2, 100, 2}, 0, 9, DType::u8)})};
}

}  // namespace

const OpDef trilu_op = {.name = "Trilu",
                        .since = 14,
                        .summary = "Upper or lower triangle of matrices",
                        .min_inputs = 1,
                        .max_inputs = 2,
                        .infer = infer_trilu,
                        .grad = grad_trilu,
                        .cost = copy_cost,
                        .cpu = prepare_trilu,
                        .gpu = prepare_trilu,
                        .samples = trilu_samples};
const OpDef cum_sum_op = {.name = "CumSum",
                          .since = 11,
                          .summary = "Running sum along an axis",
                          .min_inputs = 2,
                          .max_inputs = 2,
                          .infer = infer_cum_sum,
                          .grad = grad_cum_sum,
                          .cpu = prepare_cum_sum,
                          .gpu = prepare_cum_sum,
                          .samples = cum_sum_samples,
                          .precision = Precision::full};
const OpDef arg_max_op = {.name = "ArgMax",
                          .summary = "Index of the largest element along an axis",
                          .traits = kNoGradient,
                          .infer = infer_arg,
                          .cost = input_cost,
                          .cpu = prepare_arg<true>,
                          .gpu = prepare_arg<true>,
                          .samples = arg_samples};
const OpDef arg_min_op = {.name = "ArgMin",
                          .summary = "Index of the smallest element along an axis",
                          .traits = kNoGradient,
                          .infer = infer_arg,
                          .cost = input_cost,
                          .cpu = prepare_arg<false>,
                          .gpu = prepare_arg<false>,
                          .samples = arg_samples};

}  // namespace gradloom
