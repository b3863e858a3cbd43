// Gather(data, indices), attribute axis: y[o, k, i] = data[o, indices[k], i]; negative indices count from the
// end. OneHot.
// GatherGrad(dy, indices, shape of data[, base]): ddata[o, indices[k], i] += dy[o, k, i] in order of k; with `base`, of the result's type,
// ddata = base + those sums, in base's place where it is read no more: rows that no index names are not touched.
// AccumulateRows(acc, micro, dy, indices), attributes axis and count: next = acc + GatherGrad(dy, indices) / count, written over acc,
// whose rows micro-batches add to; with micro (i64 scalar) acc counts as 0 where micro is.
#include "engine/ops/input_roles.h"
#include "engine/ops/indexing/index_walks.h"
#include "engine/ops/copies.h"
#include "engine/ops/costs.h"
#include "engine/ops/dims.h"
#include "engine/ops/gradient_rules.h"
#include "engine/ops/inference.h"
#include "engine/ops/micro_batches.h"
#include "engine/ops/preparation.h"
#include "engine/ops/rows.h"
#include "engine/ops/samples.h"
#include "kernels/launcher.h"

#include <memory>

namespace gradloom {
namespace {

using indexing::is_index;

Status infer_gather(InferContext& ctx) {
  TRY(require_inputs(ctx, 2));
  if (!is_index(ctx.dtype(1)))
    return infer_error(std::string("Gather: indices are ") + dtype_name(ctx.dtype(1)));
  const Shape& data = ctx.shape(0);
  const std::int64_t axis = TRY(normalized_axis(ctx.attrs.integer("axis"), data.size()));
  TRY(indexing::check_range(ctx.constant(1), data[static_cast<std::size_t>(axis)]));
  Shape out(data.begin(), data.begin() + axis);
  out.insert(out.end(), ctx.shape(1).begin(), ctx.shape(1).end());
  out.insert(out.end(), data.begin() + axis + 1, data.end());
  ctx.outputs[0] = {ctx.dtype(0), out};
  return {};
}

Result<Kernel> prepare_gather(const NodeTypes& types) {
  const Type& data = types.inputs[0];
  const AxisView v =
      axis_view(data.shape, TRY(normalized_axis(types.attrs.integer("axis"), data.shape.size())));
  const kernels::GatherArgs args{dtype_bytes(data.dtype),
                                 types.inputs[1].dtype,
                                 v.outer,
                                 v.size,
                                 v.inner,
                                 element_count(types.inputs[1].shape),
                                 nullptr,
                                 nullptr,
                                 nullptr};
  Kernel kernel;
  kernel.name = "gather";
  kernel.run = [args](const LaunchArgs& launch) {
    kernels::GatherArgs a = args;
    a.data = launch.inputs[0];
    a.indices = launch.inputs[1];
    a.out = launch.outputs[0];
    launch.on.gather(a);
  };
  return kernel;
}

Status grad_gather(GradContext& ctx) {
  const std::int64_t axis = TRY(normalized_axis(ctx.node.attrs.integer("axis"), ctx.shape(ctx.in(0)).size()));
  if (!ctx.wants(0)) return {};
  if (!is_static(ctx.shape(ctx.in(0))))
    return infer_error("the gradient of Gather needs known dimensions of its data");
  ctx.set(0, ctx.b.op("GatherGrad", {ctx.grad(), ctx.in(1), shape_of(ctx, ctx.in(0))}, {{"axis", axis}}));
  return {};
}

std::vector<Sample> gather_samples() {
  std::vector<Sample> list = {
      sample_of("rows", {}, {floats({7, 5}), ints({2, 3}, -7, 6)}),
      sample_of("columns", {{"axis", std::int64_t{1}}}, {floats({3, 5, 2}), ints({4}, 0, 4)}),
      sample_of("one row", {{"axis", std::int64_t{0}}}, {floats({7, 5}), ints({}, 0, 6)}),
      sample_of("32-bit indices", {{"axis", std::int64_t{-1}}},
                {floats({3, 5}), ints({2, 2}, 0, 4, DType::i32)}),
      sample_of("of a shape", {}, {ints({4}, 1, 9), ints({}, 0, 3)}),
      sample_of("none", {}, {floats({7, 5}), ints({0}, 0, 6)}),
      sample_of("u4", {}, {ints({7, 5}, 0, 15, DType::u4), ints({2, 3}, -7, 6)}),
      sample_of("f8e5m2", {}, {ints({7}, -9, 9, DType::f8e5m2), ints({4}, 0, 6)}),
      sample_of("embedding", {}, {floats({4096, 256}), ints({8, 128}, 0, 4095)})};
  list.back().bench = true;
  return list;
}

// Whether input `at` is the gradient of what input `at` + 1 gathers from data of this shape.
Status check_gathered(const InferContext& ctx, const Shape& data, std::size_t at) {
  const Shape &given = ctx.shape(at), &indices = ctx.shape(at + 1);
  if (!is_index(ctx.dtype(at + 1))) return infer_error("indices must be integers");
  const std::int64_t axis = TRY(normalized_axis(ctx.attrs.integer("axis"), data.size()));
  Shape dy(data.begin(), data.begin() + axis);
  dy.insert(dy.end(), indices.begin(), indices.end());
  dy.insert(dy.end(), data.begin() + axis + 1, data.end());
  if (dy.size() != given.size()) return infer_error("the gradient has another rank than the gathered value");
  for (std::size_t d = 0; d < dy.size(); ++d)
    if (dims_differ(dy[d], given[d]))
      return infer_error("the gradient is " + to_string(given) + ", not " + to_string(dy));
  return indexing::check_range(ctx.constant(at + 1), data[static_cast<std::size_t>(axis)]);
}

Status infer_gather_grad(InferContext& ctx) {
  TRY(require_inputs(ctx, 3));
  const Tensor* shape = ctx.constant(2);
  if (shape == nullptr) return infer_error("GatherGrad: the shape must be known before running");
  const Type data{ctx.dtype(0), shape->to_i64()};
  TRY(check_gathered(ctx, data.shape, 0));
  if (ctx.has(3) && ctx.in(3) != data)
    return infer_error("the base is " + to_string(ctx.in(3)) + ", not " + to_string(data));
  ctx.outputs[0] = data;
  return {};
}

// Rows are read and added to others, which are read and written, and no more.
Cost cost_of_added_rows(const Type& dy, const Type& indices) {
  const auto rows = static_cast<double>(byte_size(dy));
  return {2 * static_cast<double>(element_count(dy.shape)),
          2 * rows + static_cast<double>(byte_size(indices)), rows};
}

Cost cost_gather_grad(const NodeTypes& types) {
  return types.has(3) ? cost_of_added_rows(types.inputs[0], types.inputs[1]) : input_cost(types);
}

// Of rows of `indices` many elements that are added up in `data`.
Result<kernels::GatherGradArgs> rows_args(const NodeTypes& types, const Type& data, const Type& indices) {
  const bool half = is_half(data.dtype) && kernels::computes_halves(types.target);
  if (!half && data.dtype != DType::f32 && data.dtype != DType::f64)
    return no_kernel(std::string("no kernel adds gradients of ") + dtype_name(data.dtype));
  const AxisView v =
      axis_view(data.shape, TRY(normalized_axis(types.attrs.integer("axis"), data.shape.size())));
  kernels::GatherGradArgs args{};
  args.dtype = data.dtype;
  args.index_dtype = indices.dtype;
  args.outer = v.outer;
  args.axis_size = v.size;
  args.inner = v.inner;
  args.count = element_count(indices.shape);
  return args;
}

void add_rows(const LaunchArgs& launch, kernels::GatherGradArgs args, std::size_t at) {
  args.dy = launch.inputs[at];
  args.indices = launch.inputs[at + 1];
  args.ddata = launch.outputs[0];
  args.workspace = launch.workspace;
  launch.on.gather_grad(args);
}

Result<Kernel> prepare_gather_grad(const NodeTypes& types) {
  const Type& out = types.outputs[0];
  kernels::GatherGradArgs args = TRY(rows_args(types, out, types.inputs[1]));
  args.adds = types.has(3);
  Kernel kernel;
  kernel.name = args.adds ? "gather gradient, added" : "gather gradient";
  kernel.workspace_bytes = kernels::workspace_bytes(types.target, args);
  kernel.run = [args, count = element_count(out.shape)](const LaunchArgs& launch) {
    if (args.adds) copy_elements(launch.on, args.dtype, count, launch.inputs[3], launch.outputs[0]);
    add_rows(launch, args, 0);
  };
  return kernel;
}

Status grad_gather_grad(GradContext& ctx) {
  if (ctx.wants(0))
    ctx.set(0, ctx.b.op("Gather", {ctx.grad(), ctx.in(1)}, {{"axis", ctx.node.attrs.integer("axis")}}));
  if (ctx.wants(3)) ctx.set(3, ctx.grad());
  return {};
}

std::vector<Sample> gather_grad_samples() {
  std::vector<Sample> list = {
      sample_of("repeated rows", {}, {floats({2, 9, 5}), ints({2, 9}, -4, 3), known_ints({4, 5})}),
      sample_of("columns", {{"axis", std::int64_t{1}}},
                {floats({3, 4, 2}), ints({4}, 0, 4), known_ints({3, 5, 2})}),
      sample_of("added", {}, {floats({2, 9, 5}), ints({2, 9}, -4, 3), known_ints({4, 5}), floats({4, 5})}),
      sample_of("columns, added", {{"axis", std::int64_t{1}}},
                {floats({3, 4, 2}), ints({4}, 0, 4), known_ints({3, 5, 2}), floats({3, 5, 2})}),
      sample_of("embedding", {}, {floats({8, 128, 256}), ints({8, 128}, 0, 4095), known_ints({4096, 256})})};
  list.back().bench = true;
  return list;
}

// ---- AccumulateRows -----------------------------------------------------------------------------------------

Status infer_accumulate_rows(InferContext& ctx) {
  for (const std::size_t i : {0u, 2u, 3u})
    if (!ctx.has(i)) return infer_error("input " + std::to_string(i) + " is missing");
  if (ctx.dtype(0) != ctx.dtype(2))
    return infer_error("accumulator " + to_string(ctx.in(0)) + ", rows " + to_string(ctx.in(2)));
  TRY(check_micro(ctx, 1));
  TRY(check_gathered(ctx, ctx.shape(0), 2));
  ctx.outputs[0] = ctx.in(0);
  return {};
}

Cost cost_accumulate_rows(const NodeTypes& types) {
  return cost_of_added_rows(types.inputs[2], types.inputs[3]);
}

Result<Kernel> prepare_accumulate_rows(const NodeTypes& types) {
  const Type& acc = types.inputs[0];
  kernels::GatherGradArgs args = TRY(rows_args(types, acc, types.inputs[3]));
  args.adds = true;
  args.divisor = static_cast<double>(types.attrs.integer("count", 1));
  const std::int64_t count = element_count(acc.shape);
  const bool counts = types.has(1), host = kernels::shares_host_memory(types.target);
  const std::shared_ptr<const kernels::EwProgram> begin =
      counts && !host ? accumulator_or_zero(acc) : nullptr;
  Kernel kernel;
  kernel.name = "accumulate rows";
  kernel.workspace_bytes = kernels::workspace_bytes(types.target, args);
  if (begin != nullptr) kernel.programs = {begin};
  kernel.run = [=, zero = Tensor::scalar(acc.dtype, 0)](const LaunchArgs& launch) {
    if (begin != nullptr) {
      launch.on.elementwise({begin.get(), launch.inputs, launch.outputs, nullptr});
    } else if (counts && *static_cast<const std::int64_t*>(launch.inputs[1]) == 0) {
      launch.on.fill({dtype_bytes(args.dtype), count, zero.data(), launch.outputs[0]});
    } else {
      copy_elements(launch.on, args.dtype, count, launch.inputs[0], launch.outputs[0]);
    }
    add_rows(launch, args, 2);
  };
  return kernel;
}

std::vector<std::pair<int, int>> aliases_accumulate_rows(const Node&) { return {{0, 0}}; }

std::vector<Sample> accumulate_rows_samples() {
  const auto micro = [](double n) { return exact(DType::i64, {}, {n}); };
  const Attrs four{{"count", std::int64_t{4}}};
  Attrs columns = four;
  columns.set("axis", std::int64_t{1});
  return {
      sample_of("first", four, {floats({4, 5}), micro(0), floats({2, 9, 5}), ints({2, 9}, -4, 3)}),
      sample_of("later", four, {floats({4, 5}), micro(2), floats({2, 9, 5}), ints({2, 9}, -4, 3)}),
      sample_of("to a sum", four, {floats({70, 5}), omitted(), floats({9, 5}), ints({9}, 0, 69, DType::i32)}),
      sample_of("columns", columns, {floats({3, 5, 2}), micro(1), floats({3, 4, 2}), ints({4}, 0, 4)})};
}

// ---- OneHot(indices, depth, values = [off, on]), attribute axis -------------------------------------------

Status infer_one_hot(InferContext& ctx) {
  TRY(require_inputs(ctx, 3));
  if (ctx.shape(2) != Shape{2}) return infer_error("OneHot: values must be [off, on]");
  const std::size_t rank = ctx.shape(0).size() + 1;
  const std::int64_t axis = TRY(normalized_axis(ctx.attrs.integer("axis", -1), rank));
  std::int64_t depth = unknown_dim(ctx, 1, 0);
  if (const Tensor* known = ctx.constant(1)) {
    if (known->count() != 1) return infer_error("OneHot: depth must be one number");
    depth = known->int_at(0);
    if (depth < 0) return infer_error("OneHot: depth is " + std::to_string(depth));
  }
  Shape out = ctx.shape(0);
  out.insert(out.begin() + axis, depth);
  ctx.outputs[0] = {ctx.dtype(2), out};
  return {};
}

Result<Kernel> prepare_one_hot(const NodeTypes& types) {
  const Type &indices = types.inputs[0], &out = types.outputs[0];
  const bool cpu_half = is_half(indices.dtype) && !kernels::computes_halves(types.target);
  if (indices.dtype == DType::boolean || cpu_half || is_small(indices.dtype))
    return no_kernel(std::string("OneHot of ") + dtype_name(indices.dtype));
  const AxisView v =
      axis_view(out.shape, TRY(normalized_axis(types.attrs.integer("axis", -1), out.shape.size())));
  const kernels::OneHotArgs args{
      dtype_bytes(out.dtype), indices.dtype, v.outer, v.size, v.inner, nullptr, nullptr, nullptr};
  Kernel kernel;
  kernel.name = "one hot";
  kernel.run = [args](const LaunchArgs& launch) {
    kernels::OneHotArgs a = args;
    a.indices = launch.inputs[0];
    a.values = launch.inputs[2];
    a.out = launch.outputs[0];
    launch.on.one_hot(a);
  };
  return kernel;
}

// The values' gradients: d on = sum of g at the hot places, d off = the rest.
Status grad_one_hot(GradContext& ctx) {
  if (!ctx.wants(2)) return {};
  const Attrs drop = {{"keepdims", std::int64_t{0}}};
  const ValueId unit = ctx.b.constant(Tensor::from_f64(ctx.dtype(ctx.grad()), {2}, {0, 1}));
  const ValueId hot = ctx.b.op(one_hot_op, {ctx.in(0), ctx.in(1), unit}, ctx.node.attrs);
  const ValueId on = ctx.b.op("ReduceSum", {ctx.b.op("Mul", {ctx.grad(), hot})}, drop);
  const ValueId off = ctx.b.op("Sub", {ctx.b.op("ReduceSum", {ctx.grad()}, drop), on});
  const ValueId one = ctx.b.i64s({1});
  ctx.set(2, ctx.b.op("Concat", {ctx.b.op("Reshape", {off, one}), ctx.b.op("Reshape", {on, one})},
                      {{"axis", std::int64_t{0}}}));
  return {};
}

std::vector<Sample> one_hot_samples() {
  const SampleInput values = floats({2});
  return {sample_of("last axis", {}, {ints({2, 3}, -5, 4), known_scalar(DType::i64, 5), values}),
          sample_of("first axis", {{"axis", std::int64_t{0}}},
                    {ints({4}, 0, 9), known_scalar(DType::i64, 5), values}),
          sample_of("middle axis, floats", {{"axis", std::int64_t{1}}},
                    {floats({3, 4}, -4.9, 4.9), known_scalar(DType::i64, 4), values})};
}

}  // namespace

const OpDef gather_op = {.name = "Gather",
                         .summary = "Rows of the data chosen by indices",
                         .min_inputs = 2,
                         .max_inputs = 2,
                         .infer = infer_gather,
                         .grad = grad_gather,
                         .cost = copy_cost,
                         .cpu = prepare_gather,
                         .gpu = prepare_gather,
                         .samples = gather_samples,
                         .roles = kIndicesSecond};
const OpDef gather_grad_op = {.name = "GatherGrad",
                              .domain = "gradloom",
                              .summary = "Gradient of Gather: rows added up by index",
                              .min_inputs = 3,
                              .max_inputs = 4,
                              .infer = infer_gather_grad,
                              .grad = grad_gather_grad,
                              .cost = cost_gather_grad,
                              .cpu = prepare_gather_grad,
                              .gpu = prepare_gather_grad,
                              .samples = gather_grad_samples,
                              .inplace_input = 3};
const OpDef accumulate_rows_op = {.name = "AccumulateRows",
                                  .domain = "gradloom",
                                  .summary = "Adds a micro-batch's rows to those of an accumulator.",
                                  .traits = kNoGradient | kMustAlias | kAccumulates,
                                  .min_inputs = 4,
                                  .max_inputs = 4,
                                  .infer = infer_accumulate_rows,
                                  .cost = cost_accumulate_rows,
                                  .cpu = prepare_accumulate_rows,
                                  .gpu = prepare_accumulate_rows,
                                  .samples = accumulate_rows_samples,
                                  .aliases = aliases_accumulate_rows};
const OpDef one_hot_op = {.name = "OneHot",
                          .since = 9,
                          .summary = "on at the index, off elsewhere",
                          .min_inputs = 3,
                          .max_inputs = 3,
                          .infer = infer_one_hot,
                          .grad = grad_one_hot,
                          .cost = copy_cost,
                          .cpu = prepare_one_hot,
                          .gpu = prepare_one_hot,
                          .samples = one_hot_samples,
                          .roles = kSizesSecond};

}  // namespace gradloom
