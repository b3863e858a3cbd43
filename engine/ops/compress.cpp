// Operators whose output sizes are in the contents of an input, as far as a static plan allows: those
// contents must be known when planning.
//   Compress(data, condition), attribute axis: the elements, or with an axis the parts, where the condition is true
//   NonZero(x): i64 [rank, count], the indices of what is not 0, row-major
//   Unique(x), attributes axis, sorted: the different elements or parts, where each came first, which one each is, how many there are
// Source: ONNX Compress-11, NonZero-13, Unique-11.
#include <algorithm>
#include <cstring>
#include <map>
#include <numeric>

#include "engine/ops/known.h"
#include "engine/ops/nn.h"

namespace gradloom {
namespace {

using Ints = std::vector<std::int64_t>;

// ---- Compress ---------------------------------------------------------------------------------------------

// data as [outer, size, inner] around the axis; without one all elements in a row.
Result<AxisView> view_of(const Attrs& attrs, const Shape& data) {
  if (!attrs.has("axis")) return AxisView{1, element_count(data), 1};
  return axis_view(data, TRY(normalized_axis(attrs.integer("axis"), data.size())));
}

Result<Ints> chosen(const Tensor& condition, std::int64_t size) {
  if (condition.shape().size() != 1) return infer_error("the condition must be a vector");
  if (size >= 0 && condition.count() > size)
    return infer_error("a condition of " + std::to_string(condition.count()) + " for " +
                       std::to_string(size) + " elements");
  Ints indices;
  for (std::int64_t i = 0; i < condition.count(); ++i)
    if (condition.int_at(i) != 0) indices.push_back(i);
  return indices;
}

Status infer_compress(InferContext& ctx) {
  TRY(require_inputs(ctx, 2));
  if (ctx.dtype(1) != DType::boolean) return infer_error("the condition must be bool");
  const Shape& data = ctx.shape(0);
  const bool along = ctx.attrs.has("axis");
  const auto axis =
      along ? static_cast<std::size_t>(TRY(normalized_axis(ctx.attrs.integer("axis"), data.size()))) : 0;
  std::int64_t count = unknown_dim(ctx, 1, 0);
  if (const Tensor* condition = ctx.constant(1))
    count = static_cast<std::int64_t>(TRY(chosen(*condition, along             ? data[axis]
                                                             : is_static(data) ? element_count(data)
                                                                               : -1))
                                          .size());
  Shape y = along ? data : Shape{count};
  if (along) y[axis] = count;
  return nn::set_outputs(ctx, {{ctx.dtype(0), y}});
}

Result<Kernel> prepare_compress(const NodeTypes& types) {
  if (types.constants[1] == nullptr) return no_kernel("Compress: the condition must be known when planning");
  const AxisView v = TRY(view_of(types.attrs, types.inputs[0].shape));
  const Ints indices = TRY(chosen(*types.constants[1], v.size));
  if (indices.empty() || v.outer * v.inner == 0) return nn::no_work("compress");
  auto known = std::make_shared<KnownBytes>(types.target);
  known->add(indices);
  const kernels::GatherArgs args{
      dtype_bytes(types.inputs[0].dtype),        DType::i64, v.outer, v.size, v.inner,
      static_cast<std::int64_t>(indices.size()), nullptr,    nullptr, nullptr};
  Kernel kernel;
  kernel.name = "compress";
  kernel.workspace_bytes = known->workspace_bytes();
  kernel.run = [args, known = std::shared_ptr<const KnownBytes>(known)](const LaunchArgs& launch) {
    kernels::GatherArgs a = args;
    a.data = launch.inputs[0];
    a.indices = known->place(launch.on, launch.workspace);
    a.out = launch.outputs[0];
    launch.on.gather(a);
  };
  return kernel;
}

Status grad_compress(GradContext& ctx) {
  if (!ctx.wants(0)) return {};
  TRY(nn::require_static(ctx, ctx.in(0)));
  const Value& condition = ctx.b.graph().values[ctx.in(1)];
  if (!is_constant(ctx.b.graph(), ctx.in(1)) || !condition.data.defined())
    return infer_error("the condition must be known when planning");
  const Shape data = ctx.shape(ctx.in(0));
  const bool along = ctx.node.attrs.has("axis");
  const AxisView v = TRY(view_of(ctx.node.attrs, data));
  const Ints indices = TRY(chosen(condition.data, v.size));
  const std::int64_t axis = along ? TRY(normalized_axis(ctx.node.attrs.integer("axis"), data.size())) : 0;
  const ValueId shape = ctx.b.i64s(along ? data : Shape{v.size});
  const ValueId flat = ctx.b.op("GatherGrad", {ctx.grad(), ctx.b.i64s(indices), shape}, {{"axis", axis}});
  ctx.set(0, along ? flat : reshaped_like(ctx, flat, ctx.in(0)));
  return {};
}

SampleInput known_truths(const std::vector<double>& values) {
  SampleInput input = exact(DType::boolean, {static_cast<std::int64_t>(values.size())}, values);
  input.constant = true;
  return input;
}

std::vector<Sample> compress_samples() {
  return {sample_of("rows", {{"axis", std::int64_t{0}}}, {floats({4, 3}), known_truths({0, 1, 1, 0})}),
          sample_of("last axis, short condition", {{"axis", std::int64_t{-1}}},
                    {floats({2, 3, 5}), known_truths({1, 0, 1})}),
          sample_of("elements", {}, {floats({3, 2}), known_truths({0, 1, 0, 0, 1})}),
          sample_of("nothing", {}, {floats({3}), known_truths({0, 0, 0})})};
}

// ---- NonZero ----------------------------------------------------------------------------------------------

std::int64_t nonzero_count(const Tensor& x) {
  std::int64_t count = 0;
  for (std::int64_t i = 0, n = x.count(); i < n; ++i) count += x.at(i) != 0 ? 1 : 0;
  return count;
}

Tensor nonzero_of(const Tensor& x) {
  const Shape& shape = x.shape();
  const std::int64_t count = nonzero_count(x);
  Tensor y(DType::i64, {static_cast<std::int64_t>(shape.size()), count});
  std::int64_t* to = y.mutable_as<std::int64_t>();
  Shape place(shape.size(), 0);
  for (std::int64_t i = 0, n = x.count(); i < n; ++i) {
    if (x.at(i) != 0) {
      for (std::size_t d = 0; d < place.size(); ++d) to[static_cast<std::int64_t>(d) * count] = place[d];
      ++to;
    }
    for (std::size_t d = place.size(); d-- > 0 && ++place[d] == shape[d];) place[d] = 0;
  }
  return y;
}

Status infer_nonzero(InferContext& ctx) {
  TRY(require_inputs(ctx, 1));
  const Tensor* x = ctx.constant(0);
  const std::int64_t rank = static_cast<std::int64_t>(ctx.shape(0).size());
  std::int64_t count = unknown_dim(ctx, 0, 0);
  if (x != nullptr) count = nonzero_count(*x);
  return nn::set_outputs(ctx, {{DType::i64, {rank, count}}});
}

Result<Kernel> prepare_nonzero(const NodeTypes& types) {
  if (types.constants[0] == nullptr) return no_kernel("NonZero: the input must be known when planning");
  return known_outputs(types, "nonzero", {nonzero_of(*types.constants[0])});
}

SampleInput known_exact(DType dtype, Shape shape, std::vector<double> values) {
  SampleInput input = exact(dtype, std::move(shape), std::move(values));
  input.constant = true;
  return input;
}

std::vector<Sample> nonzero_samples() {
  return {sample_of("matrix", {}, {known_exact(DType::f32, {2, 3}, {0, 1, 0, -2, 0, 3})}),
          sample_of("truths", {}, {known_truths({1, 1, 0, 1})})};
}

// ---- Unique -----------------------------------------------------------------------------------------------

struct UniqueResult {
  Tensor values, first, inverse, counts;
};

// Elements compared as integers where they are.
bool less_at(const Tensor& x, std::int64_t a, std::int64_t b) {
  return is_float(x.dtype()) || is_small_float(x.dtype()) ? x.at(a) < x.at(b) : x.int_at(a) < x.int_at(b);
}

Result<UniqueResult> unique_of(const Tensor& x, const Attrs& attrs) {
  const AxisView v = TRY(view_of(attrs, x.shape()));
  const auto place = [&](std::int64_t part, std::int64_t i) {
    return (i / v.inner * v.size + part) * v.inner + i % v.inner;
  };
  const auto before = [&](std::int64_t a, std::int64_t b) {
    for (std::int64_t i = 0; i < v.outer * v.inner; ++i) {
      if (less_at(x, place(a, i), place(b, i))) return true;
      if (less_at(x, place(b, i), place(a, i))) return false;
    }
    return false;
  };
  std::map<std::int64_t, Ints, decltype(before)> groups(
      before);  // the first part of each kind -> all of them
  for (std::int64_t part = 0; part < v.size; ++part) groups[part].push_back(part);
  std::vector<const Ints*> order;
  for (const auto& [part, group] : groups) order.push_back(&group);
  if (attrs.integer("sorted", 1) == 0)
    std::sort(order.begin(), order.end(),
              [](const Ints* a, const Ints* b) { return a->front() < b->front(); });
  const auto count = static_cast<std::int64_t>(order.size());
  Shape shape = attrs.has("axis") ? x.shape() : Shape{count};
  if (attrs.has("axis"))
    shape[static_cast<std::size_t>(TRY(normalized_axis(attrs.integer("axis"), shape.size())))] = count;
  UniqueResult r{Tensor(x.dtype(), shape), Tensor(DType::i64, {count}), Tensor(DType::i64, {v.size}),
                 Tensor(DType::i64, {count})};
  const std::size_t bytes = dtype_bytes(x.dtype());
  char* const to = static_cast<char*>(r.values.mutable_data());
  const char* const from = static_cast<const char*>(x.data());
  for (std::int64_t n = 0; n < count; ++n) {
    const Ints& members = *order[static_cast<std::size_t>(n)];
    r.first.mutable_as<std::int64_t>()[n] = members.front();
    r.counts.mutable_as<std::int64_t>()[n] = static_cast<std::int64_t>(members.size());
    for (std::int64_t part : members) r.inverse.mutable_as<std::int64_t>()[part] = n;
    for (std::int64_t i = 0; i < v.outer * v.inner; ++i)
      std::memcpy(to + static_cast<std::size_t>((i / v.inner * count + n) * v.inner + i % v.inner) * bytes,
                  from + static_cast<std::size_t>(place(members.front(), i)) * bytes, bytes);
  }
  return r;
}

Status infer_unique(InferContext& ctx) {
  TRY(require_inputs(ctx, 1));
  const Shape& x = ctx.shape(0);
  const bool along = ctx.attrs.has("axis");
  const auto axis =
      along ? static_cast<std::size_t>(TRY(normalized_axis(ctx.attrs.integer("axis"), x.size()))) : 0;
  std::int64_t count = unknown_dim(ctx, 0, 0);
  if (const Tensor* known = ctx.constant(0)) count = TRY(unique_of(*known, ctx.attrs)).first.count();
  Shape y = along ? x : Shape{count};
  if (along) y[axis] = count;
  const std::int64_t parts = along ? x[axis] : TRY(multiply_dims(x));
  return nn::set_outputs(
      ctx, {{ctx.dtype(0), y}, {DType::i64, {count}}, {DType::i64, {parts}}, {DType::i64, {count}}});
}

Result<Kernel> prepare_unique(const NodeTypes& types) {
  if (types.constants[0] == nullptr) return no_kernel("Unique: the input must be known when planning");
  UniqueResult r = TRY(unique_of(*types.constants[0], types.attrs));
  return known_outputs(types, "unique",
                       {std::move(r.values), std::move(r.first), std::move(r.inverse), std::move(r.counts)});
}

std::vector<Sample> unique_samples() {
  const SampleInput numbers = known_exact(DType::f32, {6}, {2, 1, 1, 3, 4, 3});
  return {sample_of("sorted", {}, {numbers}, 4),
          sample_of("as they come", {{"sorted", std::int64_t{0}}}, {numbers}, 4),
          sample_of("columns", {{"axis", std::int64_t{1}}},
                    {known_exact(DType::i64, {2, 4}, {1, 0, 1, 0, 2, 3, 2, 1})}, 4)};
}

}  // namespace

const OpDef compress_op = {.name = "Compress",
                           .since = 9,
                           .summary = "Parts where a known condition is true",
                           .min_inputs = 2,
                           .max_inputs = 2,
                           .infer = infer_compress,
                           .grad = grad_compress,
                           .cost = copy_cost,
                           .cpu = prepare_compress,
                           .gpu = prepare_compress,
                           .samples = compress_samples};
const OpDef nonzero_op = {.name = "NonZero",
                          .since = 9,
                          .summary = "Indices of what is not 0, of a known tensor",
                          .traits = kNoGradient,
                          .infer = infer_nonzero,
                          .cpu = prepare_nonzero,
                          .gpu = prepare_nonzero,
                          .samples = nonzero_samples};
const OpDef unique_op = {.name = "Unique",
                         .since = 11,
                         .summary = "Different elements of a known tensor",
                         .traits = kNoGradient,
                         .max_outputs = 4,
                         .infer = infer_unique,
                         .cpu = prepare_unique,
                         .gpu = prepare_unique,
                         .samples = unique_samples};

}  // namespace gradloom
