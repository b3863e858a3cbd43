// ReduceSum, Mean, Max, Min, Prod, L1, L2, SumSquare, LogSum, LogSumExp over any axes (attribute before opset
// 13 or 18, input since). Adjacent reduced axes are one reduction [outer, n, inner]; separate groups are
// reduced one after another, innermost first, which every one of these operators allows (a sum of sums, the
// L2 norm of L2 norms; SumSquare continues with Sum; the mean of integers is divided once, at the end). Types
// without a kernel of their own are reduced in a wider one, u64 as i64 with the same bits; the norms and
// logarithms of integers are computed in f64 and cut. Max and Min take booleans, as false < true. Without axes
// (noop_with_empty_axes) L1 and L2 give |x|, SumSquare x^2 and LogSum log x, as ONNX's newer
// texts say of all opsets; the others give x.
#include <limits>
#include <memory>
#include <utility>

#include "engine/ops/input_roles.h"
#include "engine/ops/kernel_sequence.h"
#include "engine/ops/costs.h"
#include "engine/ops/gradient_rules.h"
#include "engine/ops/inference.h"
#include "engine/ops/preparation.h"
#include "engine/ops/samples.h"
#include "engine/ops/rows.h"
#include "kernels/launcher.h"

namespace gradloom {
namespace {

using kernels::ReduceArgs;
using kernels::Reduction;

// Normalized reduced axes. Without axes: all of them, or none with noop_with_empty_axes.
template <class Context>
Result<std::vector<std::int64_t>> reduced_axes(const Context& ctx, const Attrs& attrs, std::size_t rank) {
  const IntArgument argument = int_argument(ctx, "axes", 1);
  if (argument.present && !argument.values) return infer_error("the axes must be known before running");
  if (argument.values && !argument.values->empty()) return normalized_axes(*argument.values, rank);
  std::vector<std::int64_t> all;
  if (attrs.integer("noop_with_empty_axes") != 0) return all;
  for (std::size_t d = 0; d < rank; ++d) all.push_back(static_cast<std::int64_t>(d));
  return all;
}

std::vector<bool> mask_of(const std::vector<std::int64_t>& axes, std::size_t rank) {
  std::vector<bool> mask(rank, false);
  for (std::int64_t a : axes) mask[static_cast<std::size_t>(a)] = true;
  return mask;
}

template <bool booleans = false>
Status infer_reduce(InferContext& ctx) {
  TRY(require_inputs(ctx, 1));
  const DType t = ctx.dtype(0);
  if ((t == DType::boolean && !booleans) || is_small(t))
    return infer_error(std::string("does not reduce ") + dtype_name(t));
  const Shape& in = ctx.shape(0);
  const auto reduced = mask_of(TRY(reduced_axes(ctx, ctx.attrs, in.size())), in.size());
  const bool keep = ctx.attrs.integer("keepdims", 1) != 0;
  Shape out;
  for (std::size_t d = 0; d < in.size(); ++d) {
    if (!reduced[d])
      out.push_back(in[d]);
    else if (keep)
      out.push_back(1);
  }
  ctx.outputs[0] = {t, out};
  return {};
}

struct Stage {
  ReduceArgs args;
  std::size_t in_offset = 0,
              out_offset =
                  0;  // bytes in the workspace; the first reads the input, the last writes the output
};

// One stage per run of reduced dims, from the innermost outwards.
std::vector<Stage> plan_stages(DType dtype, Reduction op, Shape dims, std::vector<bool> reduced) {
  // Merge neighbours of one kind; dims of size 1 belong to any.
  Shape merged;
  std::vector<bool> kind;
  for (std::size_t d = 0; d < dims.size(); ++d) {
    if (dims[d] == 1) continue;
    if (!merged.empty() && kind.back() == reduced[d]) {
      merged.back() *= dims[d];
    } else {
      merged.push_back(dims[d]);
      kind.push_back(reduced[d]);
    }
  }
  std::vector<Stage> stages;
  const auto product = [&](std::size_t first, std::size_t last) {
    std::int64_t p = 1;
    for (std::size_t d = first; d < last; ++d) p *= merged[d];
    return p;
  };
  for (std::size_t d = merged.size(); d-- > 0;) {
    if (!kind[d]) continue;
    stages.push_back({ReduceArgs{dtype, op, product(0, d), merged[d], product(d + 1, merged.size()), nullptr,
                                 nullptr, nullptr}});
    merged[d] = 1;
    if (op == Reduction::sum_square) op = Reduction::sum;
  }
  // Nothing to reduce: still one pass, because the L2 norm of one element is its absolute value.
  if (stages.empty())
    stages.push_back({ReduceArgs{dtype, op, product(0, merged.size()), 1, 1, nullptr, nullptr, nullptr}});
  return stages;
}

// x / count in place.
kernels::EwProgram division(DType dtype, std::int64_t elements, double count) {
  kernels::EwProgram program;
  program.rank = 1;
  program.dims[0] = elements;
  program.inputs = {{dtype, {1}}};
  program.constants = {{dtype, count}};
  program.code = {{kernels::EwOp::Div, dtype, dtype, {0, 1, -1}, 0}};
  program.outputs = {{2, dtype}};
  return program;
}

// The type that the kernel works in; the type itself when there is no wider one with a kernel.
DType reduced_as(kernels::Target target, DType t) {
  switch (t) {
    case DType::f16:
    case DType::bf16: return kernels::computes_halves(target) ? t : DType::f32;
    case DType::boolean:
    case DType::u8:
    case DType::i8:
    case DType::u16:
    case DType::i16: return DType::i32;
    case DType::u32: return DType::i64;
    default: return t;
  }
}

// The attributes of a reduction in a KernelSequence: axes that may come from an input become an attribute.
Result<Attrs> sequence_attrs(const NodeTypes& types) {
  Attrs attrs = types.attrs;
  const auto axes = TRY(reduced_axes(types, types.attrs, types.inputs[0].shape.size()));
  if (!axes.empty()) attrs.set("axes", axes);
  return attrs;
}

constexpr const char* kReduceNames[] = {"ReduceSum", "ReduceMean",      "ReduceMax",
                                        "ReduceMin", "ReduceProd",      "ReduceL1",
                                        "ReduceL2",  "ReduceSumSquare", "ReduceLogSumExp"};

// Whether no axis of several is reduced.
Result<bool> reduces_nothing(const NodeTypes& types) {
  const Shape& shape = types.inputs[0].shape;
  return TRY(reduced_axes(types, types.attrs, shape.size())).empty() && !shape.empty();
}

// The square root of a sum of squares modulo 2^32 or 2^64, or what f64 makes of
// exponentials, without its fraction.
template <Reduction reduction>
Result<Kernel> prepare_cut(const NodeTypes& types) {
  KernelSequence s(types);
  const DType type = types.inputs[0].dtype;
  const Attrs attrs = TRY(sequence_attrs(types));
  ValueId y = s.in(0);
  if (reduction == Reduction::l2) {
    y = s.cast(s.op("Sqrt", {s.cast(s.op("ReduceSumSquare", {y}, attrs), DType::f64)}), type);
  } else if (TRY(reduces_nothing(types))) {
    y = s.op("ReduceSum", {y}, attrs);
  } else {
    y = s.cast(s.op("ReduceLogSumExp", {s.cast(y, DType::f64)}, attrs), type);
  }
  return s.prepare("reduce integers", {y});
}

// Sums, products and their squares have the same bits with a sign; extrema with the highest bit flipped.
template <Reduction reduction>
Result<Kernel> prepare_u64(const NodeTypes& types) {
  // The bit is a constant that no program holds (engine/ops/elementwise/program.cpp), and so not on a device.
  if (types.target == kernels::Target::gpu && (reduction == Reduction::max || reduction == Reduction::min))
    return no_kernel("no GPU kernel for an extremum of u64");
  KernelSequence s(types);
  const auto as = [&](ValueId x, DType to) { return s.op("BitCast", {x}, {{"to", onnx_from_dtype(to)}}); };
  const auto reduced = [&](Reduction r, ValueId x) -> Result<ValueId> {
    return s.op(kReduceNames[static_cast<std::size_t>(r)], {x}, TRY(sequence_attrs(types)));
  };
  const auto flipped = [&](ValueId x) {
    return s.op("Add", {x, s.b().scalar(DType::i64, -9223372036854775808.0)});
  };
  const ValueId x = as(s.in(0), DType::i64);
  ValueId y = kNone;
  switch (reduction) {
    case Reduction::max:
    case Reduction::min: y = as(flipped(TRY(reduced(reduction, flipped(x)))), DType::u64); break;
    case Reduction::mean: {
      const auto results = std::max<std::int64_t>(element_count(types.outputs[0].shape), 1);
      const std::int64_t count = std::max<std::int64_t>(element_count(types.inputs[0].shape) / results, 1);
      const ValueId divisor = s.b().scalar(DType::u64, static_cast<double>(count));
      y = s.op("Div", {as(TRY(reduced(Reduction::sum, x)), DType::u64), divisor});
      break;
    }
    case Reduction::l2:
    case Reduction::log_sum_exp: return prepare_cut<reduction>(types);
    default: y = as(TRY(reduced(reduction == Reduction::l1 ? Reduction::sum : reduction, x)), DType::u64);
  }
  return s.prepare("reduce u64", {y});
}

// Whether the CPU sums up bf16 as it is stored: in one stage, as sums between stages would be rounded.
Result<bool> sums_halves(const NodeTypes& types, Reduction reduction) {
  const Type& in = types.inputs[0];
  if (kernels::computes_halves(types.target) || in.dtype != DType::bf16 ||
      (reduction != Reduction::sum && reduction != Reduction::mean))
    return false;
  const auto axes = TRY(reduced_axes(types, types.attrs, in.shape.size()));
  return plan_stages(in.dtype, reduction, in.shape, mask_of(axes, in.shape.size())).size() == 1;
}

template <Reduction reduction>
Result<Kernel> prepare_reduce(const NodeTypes& types) {
  const Type& in = types.inputs[0];
  if (const DType work = reduced_as(types.target, in.dtype);
      work != in.dtype && !TRY(sums_halves(types, reduction))) {
    KernelSequence s(types);
    const char* name = kReduceNames[static_cast<std::size_t>(reduction)];
    const ValueId y = s.op(name, {s.cast(s.in(0), work)}, TRY(sequence_attrs(types)));
    return s.prepare(std::string("reduce as ") + dtype_name(work), {s.cast(y, in.dtype)});
  }
  if (in.dtype == DType::u64) return prepare_u64<reduction>(types);
  if (!is_float(in.dtype) && (reduction == Reduction::l2 || reduction == Reduction::log_sum_exp))
    return prepare_cut<reduction>(types);
  const auto axes = TRY(reduced_axes(types, types.attrs, in.shape.size()));
  struct Prepared {
    std::vector<Stage> stages;
    std::size_t scratch = 0;
    kernels::EwProgram after;  // if it has code
  };
  auto prepared = std::make_shared<Prepared>();
  const auto mask = mask_of(axes, in.shape.size());
  prepared->stages = plan_stages(in.dtype, reduction, in.shape, mask);
  const bool divides = reduction == Reduction::mean && !is_float(in.dtype) && prepared->stages.size() > 1;
  if (divides) {
    // A mean of rounded means is not the mean.
    prepared->stages = plan_stages(in.dtype, Reduction::sum, in.shape, mask);
    double count = 1;
    for (std::int64_t a : axes) count *= static_cast<double>(in.shape[static_cast<std::size_t>(a)]);
    prepared->after = division(in.dtype, element_count(types.outputs[0].shape), count);
  }
  std::size_t kernel_bytes = 0;
  for (std::size_t i = 0; i < prepared->stages.size(); ++i) {
    Stage& stage = prepared->stages[i];
    kernel_bytes = std::max(kernel_bytes, kernels::workspace_bytes(types.target, stage.args));
    if (i > 0) stage.in_offset = prepared->stages[i - 1].out_offset;
    if (i + 1 == prepared->stages.size()) break;
    stage.out_offset = prepared->scratch;
    const auto bytes = static_cast<std::size_t>(stage.args.outer * stage.args.inner) * dtype_bytes(in.dtype);
    prepared->scratch += aligned_bytes(bytes);
  }
  Kernel kernel;
  const ReduceArgs& first = prepared->stages[0].args;
  kernel.name = "reduce " + std::to_string(first.outer) + "x" + std::to_string(first.n) + "x" +
                std::to_string(first.inner);
  kernel.workspace_bytes = prepared->scratch + kernel_bytes;
  if (divides) kernel.programs = {std::shared_ptr<const kernels::EwProgram>(prepared, &prepared->after)};
  kernel.run = [prepared](const LaunchArgs& launch) {
    char* workspace = static_cast<char*>(launch.workspace);
    for (std::size_t i = 0; i < prepared->stages.size(); ++i) {
      ReduceArgs args = prepared->stages[i].args;
      const bool last = i + 1 == prepared->stages.size();
      args.in = i == 0 ? launch.inputs[0] : workspace + prepared->stages[i].in_offset;
      args.out = last ? launch.outputs[0] : static_cast<void*>(workspace + prepared->stages[i].out_offset);
      args.workspace = workspace + prepared->scratch;
      launch.on.reduce(args);
    }
    if (prepared->after.code.empty()) return;
    const void* const sums[] = {launch.outputs[0]};
    launch.on.elementwise({&prepared->after, sums, launch.outputs, nullptr});
  };
  return kernel;
}

Result<Kernel> prepare_log_sum(const NodeTypes& types) {
  KernelSequence s(types);
  const DType type = types.inputs[0].dtype;
  const ValueId sum = s.op("ReduceSum", {s.in(0)}, TRY(sequence_attrs(types)));
  return s.prepare("reduce log sum",
                   {s.cast(s.op("Log", {is_float(type) ? sum : s.cast(sum, DType::f64)}), type)});
}

// ---- gradients --------------------------------------------------------------------------------------------

// The rule's view of one reduction: values with the reduced axes kept as 1,
// so that they broadcast against the input.
struct Rule {
  GradContext& ctx;
  std::vector<std::int64_t> axes;

  ValueId x() const { return ctx.in(0); }
  ValueId kept(ValueId value) const {
    if (ctx.node.attrs.integer("keepdims", 1) != 0 || axes.empty()) return value;
    return ctx.b.op("Unsqueeze", {value, ctx.b.i64s(axes)});
  }
  ValueId g() const { return kept(ctx.grad()); }
  ValueId y() const { return kept(ctx.out(0)); }
  ValueId number(double v) const { return ctx.b.scalar(ctx.dtype(x()), v); }
  ValueId op(const char* name, std::vector<ValueId> inputs) const {
    return ctx.b.op(name, std::move(inputs));
  }
  ValueId expanded(ValueId value) const {
    if (ctx.shape(value) == ctx.shape(x())) return value;
    return op("Expand", {value, shape_of(ctx, x())});
  }
  // Over the number of elements that one result stands for.
  ValueId over_count(ValueId value) const {
    std::int64_t n = 1;
    for (std::int64_t a : axes) {
      const std::int64_t d = ctx.shape(x())[static_cast<std::size_t>(a)];
      if (d < 0)
        return divided_by_count(ctx.b, value, op("Div", {op("Size", {x()}), op("Size", {ctx.out(0)})}));
      n *= d;
    }
    return divided_by_count(ctx.b, value, static_cast<double>(n));
  }
};

using Formula = ValueId (*)(const Rule& r);

// `steps`: without axes there is still what the operator does to each element.
template <Formula formula, bool steps = false>
Status grad_reduce(GradContext& ctx) {
  const Rule r{ctx, TRY(reduced_axes(ctx, ctx.node.attrs, ctx.shape(ctx.in(0)).size()))};
  const bool noop = !steps && r.axes.empty() && !ctx.shape(ctx.in(0)).empty();
  ctx.set(0, noop ? ctx.grad() : formula(r));
  return {};
}

ValueId sum_gradient(const Rule& r) { return r.expanded(r.g()); }
ValueId mean_gradient(const Rule& r) { return r.expanded(r.over_count(r.g())); }
// Equal extremes share the gradient equally (torch.amax).
ValueId extremum_gradient(const Rule& r) {
  const ValueId winner = r.op("Equal", {r.x(), r.y()});
  if (r.axes.empty()) return r.op("Where", {winner, r.g(), r.number(0)});
  const ValueId ones = cast_to(r.ctx.b, winner, statistics_type(r.ctx.dtype(r.x())));
  const ValueId ties = r.ctx.b.op("ReduceSum", {ones, r.ctx.b.i64s(r.axes)}, {{"keepdims", std::int64_t{1}}});
  return r.op("Where", {winner, divided_by_count(r.ctx.b, r.g(), ties), r.number(0)});
}
ValueId l1_gradient(const Rule& r) { return r.op("Mul", {r.g(), r.op("Sign", {r.x()})}); }
// g x / y, 0 where the norm is 0.
ValueId l2_gradient(const Rule& r) {
  const ValueId y = r.y();
  const ValueId slope =
      r.op("Where", {r.op("Equal", {y, r.number(0)}), r.number(0), r.op("Div", {r.g(), y})});
  return r.op("Mul", {r.x(), slope});
}
ValueId sum_square_gradient(const Rule& r) { return r.op("Mul", {r.op("Mul", {r.g(), r.number(2)}), r.x()}); }
// Where everything is -inf so is y, and the difference would be NaN: nothing moves there (torch.logsumexp).
ValueId log_sum_exp_gradient(const Rule& r) {
  const ValueId y = r.y();
  const ValueId none = r.op("Equal", {y, r.number(-std::numeric_limits<double>::infinity())});
  const ValueId shift = r.op("Where", {none, r.number(0), y});
  return r.op("Mul", {r.g(), r.op("Exp", {r.op("Sub", {r.x(), shift})})});
}
// g / sum = g exp(-y)
ValueId log_sum_gradient(const Rule& r) {
  return r.expanded(r.op("Mul", {r.g(), r.op("Exp", {r.op("Neg", {r.y()})})}));
}
// g times the product of the other elements: that of all non-zero ones over the element's own, with 1 in the
// place of a zero; 0 where another element is zero.
ValueId prod_gradient(const Rule& r) {
  const ValueId zero = r.op("Equal", {r.x(), r.number(0)});
  const ValueId own_zeros = r.ctx.b.op("Cast", {zero}, {{"to", onnx_from_dtype(r.ctx.dtype(r.x()))}});
  const Attrs keep{{"keepdims", std::int64_t{1}}};
  const ValueId zeros = r.ctx.b.op("ReduceSum", {own_zeros, r.ctx.b.i64s(r.axes)}, keep);
  const ValueId factors = r.op("Where", {zero, r.number(1), r.x()});
  const ValueId product = r.ctx.b.op("ReduceProd", {factors, r.ctx.b.i64s(r.axes)}, keep);
  const ValueId others =
      r.op("Where", {r.op("Equal", {zeros, own_zeros}), r.op("Div", {product, factors}), r.number(0)});
  return r.op("Mul", {r.g(), others});
}

// ---- samples ----------------------------------------------------------------------------------------------

std::vector<Sample> float_samples() {
  const Attrs drop = {{"keepdims", std::int64_t{0}}};
  std::vector<Sample> list = {
      sample_of("last axis", drop, {floats({3, 5, 7}), known_ints({-1})}),
      sample_of("first axis", {}, {floats({3, 5, 7}), known_ints({0})}),
      sample_of("middle axis", drop, {floats({3, 5, 7}), known_ints({1})}),
      sample_of("apart", drop, {floats({3, 5, 2, 7}), known_ints({0, 2})}),
      sample_of("apart, kept", {}, {floats({3, 5, 2, 7}), known_ints({1, 3})}),
      sample_of("all", drop, {floats({3, 5, 7})}),
      sample_of("attribute", {{"axes", std::vector<std::int64_t>{0, 1}}}, {floats({4, 3, 2})}),
      sample_of("no axes", {{"noop_with_empty_axes", std::int64_t{1}}}, {floats({3, 5})}),
      sample_of("size 1", drop, {floats({3, 1}), known_ints({1})}),
      sample_of("bias of an image batch", drop, {floats({16, 32, 14, 14}), known_ints({0, 2, 3})}),
      sample_of("rows", drop, {floats({512, 768}), known_ints({0})})};
  list[list.size() - 1].bench = true;
  list[list.size() - 2].bench = true;
  return list;
}

// Away from 0: |x| and the norm have kinks there.
std::vector<Sample> kinked_samples() {
  auto list = float_samples();
  for (Sample& s : list) s.kinks = {0}, s.kink_distance = 0.01;
  return list;
}

std::vector<Sample> number_samples() {
  auto list = float_samples();
  list.push_back(
      sample_of("integers", {{"keepdims", std::int64_t{0}}}, {ints({3, 5}, -9, 9), known_ints({1})}));
  list.push_back(
      sample_of("vector of integers", {{"keepdims", std::int64_t{0}}}, {ints({4}, 1, 9), known_ints({0})}));
  return list;
}

std::vector<Sample> extremum_samples() {
  auto list = number_samples();
  const Attrs drop = {{"keepdims", std::int64_t{0}}};
  list.push_back(sample_of("booleans", drop, {bools({3, 5}), known_ints({1})}));
  list.push_back(sample_of("bytes", {}, {ints({3, 5}, 0, 255, DType::u8), known_ints({0})}));
  list.push_back(
      sample_of("signed bytes", drop, {ints({2, 3, 5}, -128, 127, DType::i8), known_ints({0, 2})}));
  list.push_back(sample_of("f16", drop, {ints({3, 5}, -9, 9, DType::f16), known_ints({1})}));
  return list;
}

std::vector<Sample> log_sum_samples() {
  auto list = float_samples();
  for (Sample& s : list) s.inputs[0].low = 0.2;
  return list;
}

// Factors near 1, so that products of many stay numbers; and zeros, alone and in pairs.
std::vector<Sample> product_samples() {
  auto list = number_samples();
  for (Sample& s : list)
    if (s.inputs[0].type.dtype == DType::f32) s.inputs[0].low = 0.8, s.inputs[0].high = 1.2;
  list.push_back(sample_of(
      "zeros", {}, {exact(DType::f32, {4, 3}, {2, -3, 4, 0, 2, 3, 2, 0, 0, 0, 0, 0}), known_ints({1})}));
  return list;
}

// Of one type with its input, a reduction is over axes of size 1; these keep what they find there.
Noop reduces_one(const Graph&, const Node&) { return {"reduce-one-element", 0}; }

}  // namespace

const OpDef reduce_sum_op = {.name = "ReduceSum",
                             .summary = "Sum over axes",
                             .min_inputs = 1,
                             .max_inputs = 2,
                             .infer = infer_reduce<>,
                             .grad = grad_reduce<sum_gradient>,
                             .cost = input_cost,
                             .cpu = prepare_reduce<Reduction::sum>,
                             .gpu = prepare_reduce<Reduction::sum>,
                             .samples = number_samples,
                             .precision = Precision::full,
                             .roles = kSizesSecond,
                             .noop = reduces_one,
                             .spatial_reduction = "ReduceSum"};
const OpDef reduce_mean_op = {.name = "ReduceMean",
                              .summary = "Mean over axes",
                              .min_inputs = 1,
                              .max_inputs = 2,
                              .infer = infer_reduce<>,
                              .grad = grad_reduce<mean_gradient>,
                              .cost = input_cost,
                              .cpu = prepare_reduce<Reduction::mean>,
                              .gpu = prepare_reduce<Reduction::mean>,
                              .samples = float_samples,
                              .precision = Precision::full,
                              .roles = kSizesSecond,
                              .noop = reduces_one,
                              .spatial_reduction = "ReduceMean"};
const OpDef reduce_max_op = {.name = "ReduceMax",
                             .summary = "Largest element over axes; ties share the gradient",
                             .min_inputs = 1,
                             .max_inputs = 2,
                             .infer = infer_reduce<true>,
                             .grad = grad_reduce<extremum_gradient>,
                             .cost = input_cost,
                             .cpu = prepare_reduce<Reduction::max>,
                             .gpu = prepare_reduce<Reduction::max>,
                             .samples = extremum_samples,
                             .roles = kSizesSecond,
                             .noop = reduces_one,
                             .spatial_reduction = "ReduceMax"};
const OpDef reduce_min_op = {.name = "ReduceMin",
                             .summary = "Smallest element over axes; ties share the gradient",
                             .min_inputs = 1,
                             .max_inputs = 2,
                             .infer = infer_reduce<true>,
                             .grad = grad_reduce<extremum_gradient>,
                             .cost = input_cost,
                             .cpu = prepare_reduce<Reduction::min>,
                             .gpu = prepare_reduce<Reduction::min>,
                             .samples = extremum_samples,
                             .roles = kSizesSecond,
                             .noop = reduces_one};
const OpDef reduce_prod_op = {.name = "ReduceProd",
                              .summary = "Product over axes",
                              .min_inputs = 1,
                              .max_inputs = 2,
                              .infer = infer_reduce<>,
                              .grad = grad_reduce<prod_gradient>,
                              .cost = input_cost,
                              .cpu = prepare_reduce<Reduction::prod>,
                              .gpu = prepare_reduce<Reduction::prod>,
                              .samples = product_samples,
                              .precision = Precision::full,
                              .roles = kSizesSecond,
                              .noop = reduces_one};
const OpDef reduce_l1_op = {.name = "ReduceL1",
                            .summary = "Sum of absolute values over axes",
                            .min_inputs = 1,
                            .max_inputs = 2,
                            .infer = infer_reduce<>,
                            .grad = grad_reduce<l1_gradient, true>,
                            .cost = input_cost,
                            .cpu = prepare_reduce<Reduction::l1>,
                            .gpu = prepare_reduce<Reduction::l1>,
                            .samples = kinked_samples,
                            .precision = Precision::full,
                            .roles = kSizesSecond};
const OpDef reduce_l2_op = {.name = "ReduceL2",
                            .summary = "Euclidean norm over axes; gradient 0 at 0",
                            .min_inputs = 1,
                            .max_inputs = 2,
                            .infer = infer_reduce<>,
                            .grad = grad_reduce<l2_gradient, true>,
                            .cost = input_cost,
                            .cpu = prepare_reduce<Reduction::l2>,
                            .gpu = prepare_reduce<Reduction::l2>,
                            .samples = kinked_samples,
                            .precision = Precision::full,
                            .roles = kSizesSecond};
const OpDef reduce_sum_square_op = {.name = "ReduceSumSquare",
                                    .summary = "Sum of squares over axes",
                                    .min_inputs = 1,
                                    .max_inputs = 2,
                                    .infer = infer_reduce<>,
                                    .grad = grad_reduce<sum_square_gradient, true>,
                                    .cost = input_cost,
                                    .cpu = prepare_reduce<Reduction::sum_square>,
                                    .gpu = prepare_reduce<Reduction::sum_square>,
                                    .samples = float_samples,
                                    .precision = Precision::full,
                                    .roles = kSizesSecond};
const OpDef reduce_log_sum_op = {.name = "ReduceLogSum",
                                 .summary = "log of the sum over axes",
                                 .min_inputs = 1,
                                 .max_inputs = 2,
                                 .infer = infer_reduce<>,
                                 .grad = grad_reduce<log_sum_gradient, true>,
                                 .cost = input_cost,
                                 .cpu = prepare_log_sum,
                                 .gpu = prepare_log_sum,
                                 .samples = log_sum_samples,
                                 .precision = Precision::full,
                                 .roles = kSizesSecond};
const OpDef reduce_log_sum_exp_op = {.name = "ReduceLogSumExp",
                                     .summary = "log of the sum of exponentials over axes",
                                     .min_inputs = 1,
                                     .max_inputs = 2,
                                     .infer = infer_reduce<>,
                                     .grad = grad_reduce<log_sum_exp_gradient>,
                                     .cost = input_cost,
                                     .cpu = prepare_reduce<Reduction::log_sum_exp>,
                                     .gpu = prepare_reduce<Reduction::log_sum_exp>,
                                     .samples = float_samples,
                                     .precision = Precision::full,
                                     .roles = kSizesSecond};

}  // namespace gradloom
