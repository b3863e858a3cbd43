// Operators that walk along an axis or over matrices element by element: Trilu, CumSum, ArgMax, ArgMin.
#include <cstring>

#include "engine/ops/common.h"

namespace gradloom {
namespace {

// ---- Trilu: upper (column - row >= k) or lower (column - row <= k) triangle of the last two axes, 0 -------
// elsewhere ----------------

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
  const std::size_t bytes = dtype_bytes(types.inputs[0].dtype);
  const bool upper = types.attrs.integer("upper", 1) != 0, given = types.has(1);
  Kernel kernel;
  kernel.name = upper ? "upper triangle" : "lower triangle";
  kernel.run = [=](const LaunchArgs& launch) {
    // Far outside the matrix all values of k mean the same; clamped, no sum below overflows.
    std::int64_t k = given ? *static_cast<const std::int64_t*>(launch.inputs[1]) : 0;
    k = std::min(std::max(k, -rows - 1), cols + 1);
    const char* x = static_cast<const char*>(launch.inputs[0]);
    char* y = static_cast<char*>(launch.outputs[0]);
    const auto row_bytes = static_cast<std::size_t>(cols) * bytes;
    for (std::int64_t r = 0; r < matrices * rows; ++r, x += row_bytes, y += row_bytes) {
      const std::int64_t diagonal = r % rows + k;
      const std::int64_t cut = std::min(std::max<std::int64_t>(upper ? diagonal : diagonal + 1, 0), cols);
      const std::size_t left = static_cast<std::size_t>(cut) * bytes;
      if (upper) {
        std::memset(y, 0, left);
        std::memcpy(y + left, x + left, row_bytes - left);
      } else {
        std::memcpy(y, x, left);
        std::memset(y + left, 0, row_bytes - left);
      }
    }
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

// Sums in f64 for floats: a running sum in f32 loses digits with the length of the axis. An axis that is only
// known when running is read then; out of range, where a kernel cannot fail, it counts as the last one.
template <class T, class Sum>
Kernel cum_sum_kernel(const NodeTypes& types) {
  const bool exclusive = types.attrs.integer("exclusive") != 0, reverse = types.attrs.integer("reverse") != 0;
  Kernel kernel;
  kernel.name = "cumulative sum";
  kernel.run = [=, shape = types.inputs[0].shape,
                axis_type = types.inputs[1].dtype](const LaunchArgs& launch) {
    const T* x = static_cast<const T*>(launch.inputs[0]);
    T* y = static_cast<T*>(launch.outputs[0]);
    const auto rank = static_cast<std::int64_t>(shape.size());
    std::int64_t axis = axis_type == DType::i32 ? *static_cast<const std::int32_t*>(launch.inputs[1])
                                                : *static_cast<const std::int64_t*>(launch.inputs[1]);
    if (axis < 0) axis += rank;
    const AxisView v = axis_view(shape, axis < 0 || axis >= rank ? rank - 1 : axis);
    for (std::int64_t o = 0; o < v.outer; ++o)
      for (std::int64_t i = 0; i < v.inner; ++i) {
        Sum sum = 0;
        for (std::int64_t n = 0; n < v.size; ++n) {
          const std::int64_t at = (o * v.size + (reverse ? v.size - 1 - n : n)) * v.inner + i;
          const T value = x[at];
          if (exclusive) y[at] = static_cast<T>(sum);
          sum += static_cast<Sum>(value);
          if (!exclusive) y[at] = static_cast<T>(sum);
        }
      }
  };
  return kernel;
}

Result<Kernel> prepare_cum_sum(const NodeTypes& types) {
  switch (types.inputs[0].dtype) {
    case DType::f32:
      return cum_sum_kernel<float, double>(types);
    case DType::f64:
      return cum_sum_kernel<double, double>(types);
    case DType::i32:
      return cum_sum_kernel<std::int32_t, std::uint32_t>(types);
    case DType::i64:
      return cum_sum_kernel<std::int64_t, std::uint64_t>(types);
    default:
      return no_kernel(std::string("no CPU kernel sums ") + dtype_name(types.inputs[0].dtype) +
                       " cumulatively");
  }
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
                    {ints({9}, -9, 9), known_scalar(DType::i64, 0)})};
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

template <class T, bool largest>
Kernel arg_kernel(AxisView v, bool last) {
  Kernel kernel;
  kernel.name = largest ? "argmax" : "argmin";
  kernel.run = [=](const LaunchArgs& launch) {
    const T* x = static_cast<const T*>(launch.inputs[0]);
    auto* y = static_cast<std::int64_t*>(launch.outputs[0]);
    for (std::int64_t o = 0; o < v.outer; ++o)
      for (std::int64_t i = 0; i < v.inner; ++i) {
        const T* column = x + o * v.size * v.inner + i;
        std::int64_t best = 0;
        for (std::int64_t n = 1; n < v.size; ++n) {
          const T a = column[n * v.inner], b = column[best * v.inner];
          if ((largest ? a > b : a < b) || (last && a == b)) best = n;
        }
        y[o * v.inner + i] = best;
      }
  };
  return kernel;
}

template <bool largest>
Result<Kernel> prepare_arg(const NodeTypes& types) {
  const Type& in = types.inputs[0];
  const AxisView v = axis_view(in.shape, TRY(normalized_axis(types.attrs.integer("axis"), in.shape.size())));
  const bool last = types.attrs.integer("select_last_index") != 0;
  switch (in.dtype) {
    case DType::f32:
      return arg_kernel<float, largest>(v, last);
    case DType::f64:
      return arg_kernel<double, largest>(v, last);
    case DType::i32:
      return arg_kernel<std::int32_t, largest>(v, last);
    case DType::i64:
      return arg_kernel<std::int64_t, largest>(v, last);
    default:
      return no_kernel(std::string("no CPU kernel searches ") + dtype_name(in.dtype));
  }
}

std::vector<Sample> arg_samples() {
  const std::int64_t yes = 1, no = 0;
  return {sample_of("first axis", {}, {floats({5, 3})}),
          sample_of("last axis", {{"axis", std::int64_t{-1}}, {"keepdims", no}}, {floats({3, 7})}),
          sample_of("last of equal", {{"axis", yes}, {"select_last_index", yes}}, {ints({4, 9}, 0, 2)}),
          sample_of("first of equal", {{"axis", yes}}, {ints({4, 9}, 0, 2)})};
}

}  // namespace

const OpDef trilu_op = {.name = "Trilu",
                        .summary = "Upper or lower triangle of matrices",
                        .min_inputs = 1,
                        .max_inputs = 2,
                        .infer = infer_trilu,
                        .grad = grad_trilu,
                        .cost = copy_cost,
                        .cpu = prepare_trilu,
                        .samples = trilu_samples};
const OpDef cum_sum_op = {.name = "CumSum",
                          .summary = "Running sum along an axis",
                          .min_inputs = 2,
                          .max_inputs = 2,
                          .infer = infer_cum_sum,
                          .grad = grad_cum_sum,
                          .cpu = prepare_cum_sum,
                          .samples = cum_sum_samples};
const OpDef arg_max_op = {.name = "ArgMax",
                          .summary = "Index of the largest element along an axis",
                          .traits = kNoGradient,
                          .infer = infer_arg,
                          .cost = input_cost,
                          .cpu = prepare_arg<true>,
                          .samples = arg_samples};
const OpDef arg_min_op = {.name = "ArgMin",
                          .summary = "Index of the smallest element along an axis",
                          .traits = kNoGradient,
                          .infer = infer_arg,
                          .cost = input_cost,
                          .cpu = prepare_arg<false>,
                          .samples = arg_samples};

}  // namespace gradloom
