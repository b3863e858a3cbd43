// Operators over the rows of one or several axes that are sequences of other kernels:
//   MeanVarianceNormalization: y = (x - mean) / (std + 1e-9), mean and std over `axes` (default 0, 2, 3)
//   LpNormalization: y = x / |x|_p along `axis`, p = 1 or 2; 0 where the norm is 0
//   Hardmax: 1 at the first largest element along `axis`, else 0; opset 1..12: x is coerced to 2-d at `axis` (default 1)
// Source: ONNX MeanVarianceNormalization-13, LpNormalization-22, Hardmax-1, -13.
#include "engine/ops/kernel_sequence.h"
#include "engine/ops/copies.h"
#include "engine/ops/costs.h"
#include "engine/ops/gradient_rules.h"
#include "engine/ops/inference.h"
#include "engine/ops/preparation.h"
#include "engine/ops/samples.h"
#include "engine/ops/rows.h"

namespace gradloom {
namespace {

constexpr double kMvnEpsilon = 1e-9;
const Attrs kKeep{{"keepdims", std::int64_t{1}}};

Status infer_same_float(InferContext& ctx) {
  TRY(require_inputs(ctx, 1));
  TRY(require_float(ctx, 0, "the input"));
  ctx.outputs[0] = ctx.in(0);
  return {};
}

ValueId number(GraphBuilder& b, ValueId like, double v) { return b.scalar(b.type(like).dtype, v); }
ValueId where_zero(GraphBuilder& b, ValueId test, double instead, ValueId otherwise) {
  return b.op("Where", {b.op("Equal", {test, number(b, test, 0)}), number(b, otherwise, instead), otherwise});
}

// ---- MeanVarianceNormalization ----------------------------------------------------------------------------

Result<std::vector<std::int64_t>> mvn_axes(const Attrs& attrs, std::size_t rank) {
  return normalized_axes(attrs.has("axes") ? attrs.integers("axes") : std::vector<std::int64_t>{0, 2, 3},
                         rank);
}

Status infer_mvn(InferContext& ctx) {
  TRY(infer_same_float(ctx));
  if (TRY(mvn_axes(ctx.attrs, ctx.shape(0).size())).empty())
    return infer_error("MeanVarianceNormalization over no axes");
  return {};
}

struct Moments {
  ValueId centered, deviation;
};
Moments moments(GraphBuilder& b, ValueId x, const std::vector<std::int64_t>& axes) {
  const ValueId centered = b.op("Sub", {x, b.op("ReduceMean", {x, b.i64s(axes)}, kKeep)});
  return {centered, b.op("Sqrt", {b.op("ReduceMean", {b.op("Square", {centered}), b.i64s(axes)}, kKeep)})};
}

// f16 and bf16 are normalized in f32: differences from the mean of rounded numbers have few digits.
Result<Kernel> prepare_mvn(const NodeTypes& types) {
  const Type& in = types.inputs[0];
  KernelSequence s(types);
  const Moments m =
      moments(s.b(), s.cast(s.in(0), statistics_type(in.dtype)), TRY(mvn_axes(types.attrs, in.shape.size())));
  const ValueId scale = s.op("Add", {m.deviation, number(s.b(), m.deviation, kMvnEpsilon)});
  return s.prepare("mean variance normalization", {s.cast(s.op("Div", {m.centered, scale}), in.dtype)});
}

// With s = std and d = s + epsilon:
//   dx = (g - mean(g) - y mean(g y) d / s) / d, without the last term where s = 0
Status grad_mvn(GradContext& ctx) {
  GraphBuilder& b = ctx.b;
  const DType dtype = ctx.dtype(ctx.in(0)), work = statistics_type(dtype);
  const auto axes = TRY(mvn_axes(ctx.node.attrs, ctx.shape(ctx.in(0)).size()));
  const auto mean = [&](ValueId v) { return b.op("ReduceMean", {v, b.i64s(axes)}, kKeep); };
  const Moments m = moments(b, cast_to(b, ctx.in(0), work), axes);
  const ValueId g = cast_to(b, ctx.grad(), work), s = m.deviation;
  const ValueId d = b.op("Add", {s, number(b, s, kMvnEpsilon)}), y = b.op("Div", {m.centered, d});
  const ValueId ratio = where_zero(b, s, 0, b.op("Div", {d, s}));
  const ValueId along = b.op("Mul", {mean(b.op("Mul", {g, y})), ratio});
  const ValueId rest = b.op("Sub", {b.op("Sub", {g, mean(g)}), b.op("Mul", {y, along})});
  ctx.set(0, cast_to(b, b.op("Div", {rest, d}), dtype));
  return {};
}

Cost row_cost(const NodeTypes& types) {
  return cost_of(types, 6.0 * static_cast<double>(element_count(types.inputs[0].shape)));
}

std::vector<Sample> mvn_samples() {
  return {sample_of("images", {}, {floats({3, 2, 4, 5})}),
          sample_of("last axis", {{"axes", std::vector<std::int64_t>{-1}}}, {floats({3, 7})}),
          sample_of("rows", {{"axes", std::vector<std::int64_t>{1}}}, {floats({5, 3, 2})})};
}

// ---- LpNormalization --------------------------------------------------------------------------------------

Status infer_lp(InferContext& ctx) {
  TRY(infer_same_float(ctx));
  TRY(normalized_axis(ctx.attrs.integer("axis", -1), ctx.shape(0).size()));
  const std::int64_t p = ctx.attrs.integer("p", 2);
  if (p != 1 && p != 2) return infer_error("LpNormalization: p is " + std::to_string(p) + ", not 1 or 2");
  return {};
}

// The norm along the axis, 1 where it is 0.
Result<ValueId> lp_norm(GraphBuilder& b, ValueId x, const Attrs& attrs) {
  const std::int64_t axis = TRY(normalized_axis(attrs.integer("axis", -1), b.shape(x).size()));
  const ValueId norm = b.op(attrs.integer("p", 2) == 1 ? "ReduceL1" : "ReduceL2", {x, b.i64s({axis})}, kKeep);
  return where_zero(b, norm, 1, norm);
}

Result<Kernel> prepare_lp(const NodeTypes& types) {
  KernelSequence s(types);
  const ValueId norm = TRY(lp_norm(s.b(), s.in(0), types.attrs));
  return s.prepare("lp normalization", {s.op("Div", {s.in(0), norm})});
}

// dx = (g - n sum(g y)) / norm, n = dnorm/dx: sign(x) for p = 1, y for p = 2.
Status grad_lp(GradContext& ctx) {
  GraphBuilder& b = ctx.b;
  const ValueId g = ctx.grad(), x = ctx.in(0), y = ctx.out(0), norm = TRY(lp_norm(b, x, ctx.node.attrs));
  const std::int64_t axis = TRY(normalized_axis(ctx.node.attrs.integer("axis", -1), ctx.shape(x).size()));
  const ValueId slope = ctx.node.attrs.integer("p", 2) == 1 ? b.op("Sign", {x}) : y;
  const ValueId sum = b.op("ReduceSum", {b.op("Mul", {g, y}), b.i64s({axis})}, kKeep);
  ctx.set(0, b.op("Div", {b.op("Sub", {g, b.op("Mul", {slope, sum})}), norm}));
  return {};
}

std::vector<Sample> lp_samples() {
  std::vector<Sample> list = {
      sample_of("default", {}, {floats({3, 7})}),
      sample_of("first axis", {{"axis", std::int64_t{0}}}, {floats({5, 3})}),
      sample_of("p 1", {{"p", std::int64_t{1}}, {"axis", std::int64_t{1}}}, {floats({2, 5, 3})})};
  for (Sample& s : list) s.kinks = {0}, s.kink_distance = 0.01;
  return list;
}

// ---- Hardmax ----------------------------------------------------------------------------------------------

template <bool flatten>
Result<AxisView> hardmax_view(const Attrs& attrs, const Shape& shape) {
  const std::int64_t axis = TRY(normalized_axis(attrs.integer("axis", flatten ? 1 : -1), shape.size()));
  AxisView v = axis_view(shape, axis);
  if (flatten) v = {v.outer, v.size * v.inner, 1};
  return v;
}

template <bool flatten>
Status infer_hardmax(InferContext& ctx) {
  TRY(infer_same_float(ctx));
  TRY(normalized_axis(ctx.attrs.integer("axis", flatten ? 1 : -1), ctx.shape(0).size()));
  return {};
}

template <bool flatten>
Result<Kernel> prepare_hardmax(const NodeTypes& types) {
  const AxisView v = TRY(hardmax_view<flatten>(types.attrs, types.inputs[0].shape));
  if (v.outer * v.size * v.inner == 0) return no_work("hardmax");
  KernelSequence s(types);
  const ValueId x = s.op("Reshape", {s.in(0), s.b().i64s({v.outer, v.size, v.inner})});
  const ValueId first = s.first_largest(x, 1);
  const ValueId index =
      s.op("Reshape",
           {s.op("Range", {s.b().scalar(DType::i32, 0), s.b().scalar(DType::i32, static_cast<double>(v.size)),
                           s.b().scalar(DType::i32, 1)}),
            s.b().i64s({v.size, 1})});
  return s.prepare("hardmax", {s.cast(s.op("Equal", {index, first}), types.outputs[0].dtype)});
}

std::vector<Sample> hardmax_samples() {
  return {sample_of("default", {}, {floats({3, 7})}),
          sample_of("first axis", {{"axis", std::int64_t{0}}}, {floats({4, 2, 3})}),
          sample_of("middle axis", {{"axis", std::int64_t{1}}}, {floats({2, 5, 3})}),
          sample_of("equal elements", {}, {exact(DType::f32, {2, 4}, {3, 3, 3, 1, 0, 2, 2, 1})})};
}

}  // namespace

const OpDef mean_variance_normalization_op = {.name = "MeanVarianceNormalization",
                                              .since = 9,
                                              .summary = "Zero mean and unit variance over axes",
                                              .infer = infer_mvn,
                                              .grad = grad_mvn,
                                              .cost = row_cost,
                                              .cpu = prepare_mvn,
                                              .gpu = prepare_mvn,
                                              .samples = mvn_samples};
const OpDef lp_normalization_op = {.name = "LpNormalization",
                                   .summary = "Unit L1 or L2 norm along an axis",
                                   .infer = infer_lp,
                                   .grad = grad_lp,
                                   .cost = row_cost,
                                   .cpu = prepare_lp,
                                   .gpu = prepare_lp,
                                   .samples = lp_samples,
                                   .precision = Precision::full};
const OpDef hardmax_1_op = {.name = "Hardmax",
                            .until = 12,
                            .summary = "1 at the first largest element of a row, else 0",
                            .traits = kNoGradient,
                            .infer = infer_hardmax<true>,
                            .cost = row_cost,
                            .cpu = prepare_hardmax<true>,
                            .gpu = prepare_hardmax<true>,
                            .samples = hardmax_samples};
const OpDef hardmax_13_op = {.name = "Hardmax",
                             .since = 13,
                             .summary = "1 at the first largest element along an axis, else 0",
                             .traits = kNoGradient,
                             .infer = infer_hardmax<false>,
                             .cost = row_cost,
                             .cpu = prepare_hardmax<false>,
                             .gpu = prepare_hardmax<false>,
                             .samples = hardmax_samples};

}  // namespace gradloom
