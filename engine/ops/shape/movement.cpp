// Elements moved, not computed: Transpose, Concat, Split, Expand, Tile. All are strided copies.
#include <memory>

#include "engine/ops/noops.h"
#include "engine/ops/input_roles.h"
#include "engine/ops/copies.h"
#include "engine/ops/costs.h"
#include "engine/ops/dims.h"
#include "engine/ops/gradient_rules.h"
#include "engine/ops/operand_rows.h"
#include "engine/ops/inference.h"
#include "engine/ops/preparation.h"
#include "engine/ops/rows.h"
#include "engine/ops/samples.h"
#include "kernels/launcher.h"

namespace gradloom {
namespace {

using kernels::StridedCopyArgs;

struct Copy {
  CopyPlan plan;
  StridedCopyArgs args;
};

Result<Copy> make_copy(CopyPlan plan, DType dtype) {
  const StridedCopyArgs args = TRY(strided_copy_args(plan, dtype_bytes(dtype)));
  return Copy{std::move(plan), args};
}

// One copy from input 0 to output 0.
Result<Kernel> copy_kernel(const char* name, CopyPlan plan, DType dtype) {
  auto copy = std::make_shared<Copy>(TRY(make_copy(std::move(plan), dtype)));
  Kernel kernel;
  kernel.name = name;
  kernel.run = [copy](const LaunchArgs& launch) {
    run_copy(launch.on, copy->args, copy->plan, launch.inputs[0], launch.outputs[0]);
  };
  return kernel;
}

using Ints = std::vector<std::int64_t>;

// ---- Transpose: y[i_perm[0], i_perm[1], ..] = x[i_0, i_1, ..] ---------------------------------------------

Result<Ints> permutation(const Attrs& attrs, std::size_t rank) {
  Ints perm(rank);
  for (std::size_t i = 0; i < rank; ++i) perm[i] = static_cast<std::int64_t>(rank - 1 - i);
  perm = attrs.integers("perm", perm);
  if (perm.size() != rank)
    return infer_error("perm has " + std::to_string(perm.size()) + " entries for rank " +
                       std::to_string(rank));
  Ints seen = TRY(normalized_axes(perm, rank));
  for (std::int64_t& p : perm) p = TRY(normalized_axis(p, rank));
  return perm;
}

Status infer_transpose(InferContext& ctx) {
  TRY(require_inputs(ctx, 1));
  Shape out;
  for (std::int64_t p : TRY(permutation(ctx.attrs, ctx.shape(0).size())))
    out.push_back(ctx.shape(0)[static_cast<std::size_t>(p)]);
  ctx.outputs[0] = {ctx.dtype(0), out};
  return {};
}

Result<Kernel> prepare_transpose(const NodeTypes& types) {
  const Shape& in = types.inputs[0].shape;
  const Ints strides = input_strides(types, 0);
  CopyPlan plan{types.outputs[0].shape, {}, output_strides(types, 0)};
  for (std::int64_t p : TRY(permutation(types.attrs, in.size())))
    plan.in_strides.push_back(strides[static_cast<std::size_t>(p)]);
  return copy_kernel("transpose", std::move(plan), types.inputs[0].dtype);
}

Status grad_transpose(GradContext& ctx) {
  const Ints perm = TRY(permutation(ctx.node.attrs, ctx.shape(ctx.in(0)).size()));
  Ints inverse(perm.size());
  for (std::size_t i = 0; i < perm.size(); ++i)
    inverse[static_cast<std::size_t>(perm[i])] = static_cast<std::int64_t>(i);
  ctx.set(0, ctx.b.op("Transpose", {ctx.grad()}, {{"perm", inverse}}));
  return {};
}

std::vector<Sample> transpose_samples() {
  std::vector<Sample> list = {
      sample_of("reversed", {}, {floats({3, 5, 7})}),
      sample_of("heads", {{"perm", Ints{0, 2, 1, 3}}}, {floats({2, 3, 5, 4})}),
      sample_of("matrices", {{"perm", Ints{0, 2, 1}}}, {floats({2, 37, 19})}),
      sample_of("scalar", {}, {floats({})}),
      sample_of("bytes", {{"perm", Ints{1, 0}}}, {bools({5, 3})}),
      sample_of("integers", {}, {ints({3, 4}, -9, 9)}),
      sample_of("i4", {}, {ints({3, 5}, -8, 7, DType::i4)}),
      sample_of("f4e2m1", {}, {ints({3, 5}, -6, 6, DType::f4e2m1)}),
      sample_of("heads of a transformer", {{"perm", Ints{0, 2, 1, 3}}}, {floats({8, 128, 8, 64})})};
  list.back().bench = true;
  return list;
}

// ---- Concat -----------------------------------------------------------------------------------------------

Status infer_concat(InferContext& ctx) {
  TRY(require_inputs(ctx, std::max<std::size_t>(ctx.inputs.size(), 1)));
  Shape out = ctx.shape(0);
  const auto axis = static_cast<std::size_t>(TRY(normalized_axis(ctx.attrs.integer("axis"), out.size())));
  Ints parts;
  for (std::size_t i = 0; i < ctx.inputs.size(); ++i) {
    const Shape& in = ctx.shape(i);
    if (ctx.dtype(i) != ctx.dtype(0)) return infer_error("Concat: the inputs have different types");
    if (in.size() != out.size())
      return infer_error("Concat: ranks " + std::to_string(out.size()) + " and " + std::to_string(in.size()));
    for (std::size_t d = 0; d < in.size(); ++d) {
      if (d == axis || in[d] == out[d]) continue;
      if (in[d] >= 0 && out[d] >= 0)
        return infer_error("Concat: shapes " + to_string(ctx.shape(0)) + " and " + to_string(in) +
                           " differ outside the axis");
      out[d] = std::max(in[d], out[d]);
    }
    parts.push_back(in[axis]);
  }
  out[axis] = TRY(add_dims(parts));
  ctx.outputs[0] = {ctx.dtype(0), out};
  return {};
}

Result<Kernel> prepare_concat(const NodeTypes& types) {
  const Type& out = types.outputs[0];
  const auto axis =
      static_cast<std::size_t>(TRY(normalized_axis(types.attrs.integer("axis"), out.shape.size())));
  const Ints out_strides = dense_strides(out.shape);
  auto copies = std::make_shared<std::vector<Copy>>();
  std::int64_t offset = 0;
  for (std::size_t i = 0; i < types.inputs.size(); ++i) {
    const Shape& in = types.inputs[i].shape;
    CopyPlan plan{in, input_strides(types, i), out_strides, 0, offset * out_strides[axis]};
    copies->push_back(TRY(make_copy(std::move(plan), out.dtype)));
    offset += in[axis];
  }
  Kernel kernel;
  kernel.name = "concat of " + std::to_string(copies->size());
  kernel.run = [copies](const LaunchArgs& launch) {
    for (std::size_t i = 0; i < copies->size(); ++i)
      run_copy(launch.on, (*copies)[i].args, (*copies)[i].plan, launch.inputs[i], launch.outputs[0]);
  };
  return kernel;
}

Status grad_concat(GradContext& ctx) {
  const auto rank = ctx.shape(ctx.in(0)).size();
  const std::int64_t axis = TRY(normalized_axis(ctx.node.attrs.integer("axis"), rank));
  Ints sizes;
  for (ValueId in : ctx.node.inputs) sizes.push_back(ctx.shape(in)[static_cast<std::size_t>(axis)]);
  if (!is_static(sizes)) return infer_error("the gradient of Concat needs known sizes along its axis");
  std::size_t wanted = 0;
  for (std::size_t i = 0; i < sizes.size(); ++i) wanted += ctx.wants(i) ? 1 : 0;
  if (wanted == sizes.size()) {
    const auto parts =
        ctx.b.ops(split_op, {ctx.grad()}, {{"axis", axis}, {"split", sizes}}, static_cast<int>(sizes.size()));
    for (std::size_t i = 0; i < parts.size(); ++i) ctx.set(i, parts[i]);
    return {};
  }
  std::int64_t begin = 0;
  for (std::size_t i = 0; i < sizes.size(); ++i) {
    const std::int64_t end = begin + sizes[i];
    if (ctx.wants(i))
      ctx.set(i, ctx.b.op("Slice", {ctx.grad(), ctx.b.i64s({begin}), ctx.b.i64s({end}), ctx.b.i64s({axis})}));
    begin = end;
  }
  return {};
}

std::vector<Sample> concat_samples() {
  return {sample_of("columns", {{"axis", std::int64_t{1}}},
                    {floats({3, 2, 5}), floats({3, 4, 5}), floats({3, 1, 5})}),
          sample_of("last axis", {{"axis", std::int64_t{-1}}}, {floats({3, 5}), floats({3, 7})}),
          sample_of("rows and nothing", {{"axis", std::int64_t{0}}}, {floats({2, 5}), floats({0, 5})}),
          sample_of("shape", {{"axis", std::int64_t{0}}}, {ints({1}, 0, 9), ints({2}, 0, 9)}),
          sample_of("f8e4m3fnuz", {{"axis", std::int64_t{0}}},
                    {ints({3}, -9, 9, DType::f8e4m3fnuz), ints({2}, -9, 9, DType::f8e4m3fnuz)})};
}

// ---- Split ------------------------------------------------------------------------------------------------

// Sizes of the parts; a part is kUnsized when it is not known before running.
constexpr std::int64_t kUnsized = INT64_MIN;
template <class Context>
Result<Ints> split_sizes(const Context& ctx, const Attrs& attrs, std::int64_t size, std::size_t count) {
  const IntArgument given = int_argument(ctx, "split", 1);
  if (given.present && !given.values) return Ints(count, kUnsized);
  if (given.values) {
    if (given.values->size() != count)
      return infer_error("Split: " + std::to_string(given.values->size()) + " sizes for " +
                         std::to_string(count) + " outputs");
    std::int64_t sum = 0;
    for (std::int64_t part : *given.values)
      if (part < 0 || __builtin_add_overflow(sum, part, &sum))
        return infer_error("Split: a size is out of range");
    if (size >= 0 && sum != size)
      return infer_error("Split: the sizes add up to " + std::to_string(sum) + ", not " +
                         std::to_string(size));
    return *given.values;
  }
  const std::int64_t asked = attrs.integer("num_outputs", static_cast<std::int64_t>(count));
  if (asked != static_cast<std::int64_t>(count))
    return infer_error("Split: num_outputs is " + std::to_string(asked) + ", the node has " +
                       std::to_string(count));
  if (size < 0) return Ints(count, kUnsized);
  if (!attrs.has("num_outputs") && size % asked != 0)
    return infer_error("Split: " + std::to_string(size) + " does not divide into " + std::to_string(asked) +
                       " equal parts");
  const std::int64_t each = (size + asked - 1) / asked;
  Ints sizes(count, each);
  sizes.back() = size - each * (asked - 1);
  if (sizes.back() < 0)
    return infer_error("Split: " + std::to_string(size) + " is too small for " + std::to_string(asked) +
                       " parts");
  return sizes;
}

Status infer_split(InferContext& ctx) {
  TRY(require_inputs(ctx, 1));
  const Shape& in = ctx.shape(0);
  const auto axis = static_cast<std::size_t>(TRY(normalized_axis(ctx.attrs.integer("axis"), in.size())));
  const Ints sizes = TRY(split_sizes(ctx, ctx.attrs, in[axis], ctx.outputs.size()));
  for (std::size_t i = 0; i < sizes.size(); ++i) {
    Shape out = in;
    out[axis] = sizes[i];
    if (sizes[i] == kUnsized)
      out[axis] = derived_dim("split " + std::to_string(in[axis]) + " " + std::to_string(i) + "/" +
                              std::to_string(sizes.size()));
    ctx.outputs[i] = {ctx.dtype(0), out};
  }
  return {};
}

Result<Kernel> prepare_split(const NodeTypes& types) {
  const Type& in = types.inputs[0];
  const auto axis =
      static_cast<std::size_t>(TRY(normalized_axis(types.attrs.integer("axis"), in.shape.size())));
  const Ints in_strides = dense_strides(in.shape),
             sizes = TRY(split_sizes(types, types.attrs, in.shape[axis], types.outputs.size()));
  struct Part {
    Copy copy;
    std::size_t output;
  };
  auto parts = std::make_shared<std::vector<Part>>();
  std::int64_t offset = 0;
  for (std::size_t i = 0; i < sizes.size(); ++i) {
    if (types.wants(i)) {
      const Shape& out = types.outputs[i].shape;
      parts->push_back(
          {TRY(make_copy({out, in_strides, dense_strides(out), offset * in_strides[axis], 0}, in.dtype)), i});
    }
    offset += sizes[i];
  }
  Kernel kernel;
  kernel.name = "split into " + std::to_string(parts->size());
  kernel.run = [parts](const LaunchArgs& launch) {
    for (const Part& part : *parts)
      run_copy(launch.on, part.copy.args, part.copy.plan, launch.inputs[0], launch.outputs[part.output]);
  };
  return kernel;
}

Status grad_split(GradContext& ctx) {
  const std::int64_t axis = TRY(normalized_axis(ctx.node.attrs.integer("axis"), ctx.shape(ctx.in(0)).size()));
  std::vector<ValueId> parts;
  for (std::size_t i = 0; i < ctx.node.outputs.size(); ++i) {
    if (ctx.grad(i) != kNone)
      parts.push_back(ctx.grad(i));
    else
      parts.push_back(full_like(ctx, ctx.require_out(i), 0));
  }
  ctx.set(0, ctx.b.op("Concat", parts, {{"axis", axis}}));
  return {};
}

std::vector<Sample> split_samples() {
  return {
      sample_of("equal", {{"axis", std::int64_t{1}}}, {floats({3, 6, 2})}, 3),
      sample_of("sizes in an input", {{"axis", std::int64_t{-1}}}, {floats({3, 7}), known_ints({2, 5})}, 2),
      sample_of("sizes in an attribute", {{"axis", std::int64_t{0}}, {"split", Ints{1, 0, 4}}},
                {floats({5, 3})}, 3),
      sample_of("uneven", {{"num_outputs", std::int64_t{3}}}, {floats({8, 3})}, 3),
      sample_of("u4", {{"num_outputs", std::int64_t{2}}}, {ints({5, 3}, 0, 15, DType::u4)}, 2)};
}

// ---- Expand: numpy broadcasting of x and the shape --------------------------------------------------------

Status infer_expand(InferContext& ctx) {
  TRY(require_inputs(ctx, 2));
  const IntArgument target = int_argument(ctx, "shape", 1);
  const Shape& form = ctx.shape(1);
  if (form.size() != 1) return infer_error("Expand: the shape must be a vector");
  Shape to;
  if (target.values) {
    for (std::int64_t d : *target.values) {
      if (d < 0) return infer_error("Expand: the shape holds " + std::to_string(d));
      to.push_back(d);
    }
  } else {
    if (form[0] < 0) return infer_error("Expand: the rank of the shape is not known");
    if (form[0] > 64) return infer_error("Expand: a shape of rank " + std::to_string(form[0]));
    // An unknown size stands for the input's own where the input is not 1:
    // the usual reason to expand by a computed shape.
    const Shape& in = ctx.shape(0);
    for (std::int64_t i = 0; i < form[0]; ++i) {
      const std::int64_t back = form[0] - i;
      const std::int64_t own =
          back <= static_cast<std::int64_t>(in.size()) ? in[in.size() - static_cast<std::size_t>(back)] : 1;
      to.push_back(own == 1 ? unknown_dim(ctx, 1, i) : own);
    }
  }
  ctx.outputs[0] = {ctx.dtype(0), TRY(broadcast_shapes(ctx.shape(0), to))};
  return {};
}

Result<Kernel> prepare_expand(const NodeTypes& types) {
  const Shape &in = types.inputs[0].shape, &out = types.outputs[0].shape;
  const Ints strides = dense_strides(in);
  const std::size_t lead = out.size() - in.size();
  CopyPlan plan{out, Ints(out.size(), 0), dense_strides(out)};
  for (std::size_t d = 0; d < in.size(); ++d)
    if (in[d] != 1) plan.in_strides[lead + d] = strides[d];
  return copy_kernel("expand", std::move(plan), types.inputs[0].dtype);
}

Status grad_expand(GradContext& ctx) {
  ctx.set(0, ctx.reduce_to(ctx.grad(), ctx.in(0)));
  return {};
}

std::vector<Sample> expand_samples() {
  return {sample_of("new axes", {}, {floats({3, 1}), known_ints({2, 3, 5})}),
          sample_of("scalar", {}, {floats({}), known_ints({4, 3})}),
          sample_of("smaller shape", {}, {floats({2, 3, 5}), known_ints({3, 1})}),
          sample_of("both ways", {}, {floats({1, 5}), known_ints({4, 1})}),
          sample_of("integers", {}, {ints({1, 3}, -9, 9), known_ints({2, 3})}),
          sample_of("f8e8m0", {}, {exact(DType::f8e8m0, {1, 2}, {1, 0.5}), known_ints({3, 2})})};
}

// ---- Tile -------------------------------------------------------------------------------------------------

Status infer_tile(InferContext& ctx) {
  TRY(require_inputs(ctx, 2));
  const Shape& in = ctx.shape(0);
  const IntArgument repeats = int_argument(ctx, "repeats", 1);
  if (repeats.values && repeats.values->size() != in.size())
    return infer_error("Tile: one repeat per dimension is needed");
  Shape out;
  for (std::size_t d = 0; d < in.size(); ++d) {
    if (!repeats.values) {
      out.push_back(unknown_dim(ctx, 1, static_cast<std::int64_t>(d)));
      continue;
    }
    if ((*repeats.values)[d] < 0) return infer_error("Tile: a repeat is negative");
    out.push_back(TRY(multiply_dims({in[d], (*repeats.values)[d]})));
  }
  ctx.outputs[0] = {ctx.dtype(0), out};
  return {};
}

Result<Kernel> prepare_tile(const NodeTypes& types) {
  const Shape &in = types.inputs[0].shape, &out = types.outputs[0].shape;
  const Ints in_strides = dense_strides(in), out_strides = dense_strides(out);
  const IntArgument repeats = int_argument(types, "repeats", 1);
  if (!repeats.values) return no_kernel("Tile: the repeats must be known before running");
  CopyPlan plan;
  for (std::size_t d = 0; d < in.size(); ++d) {
    plan.dims.insert(plan.dims.end(), {(*repeats.values)[d], in[d]});
    plan.in_strides.insert(plan.in_strides.end(), {0, in_strides[d]});
    plan.out_strides.insert(plan.out_strides.end(), {in[d] * out_strides[d], out_strides[d]});
  }
  return copy_kernel("tile", std::move(plan), types.inputs[0].dtype);
}

// dy as [r0, d0, r1, d1, ..] summed over the repeats.
Status grad_tile(GradContext& ctx) {
  const Shape in = ctx.shape(ctx.in(0));
  const IntArgument repeats = int_argument(ctx, "repeats", 1);
  if (!repeats.values || !is_static(in))
    return infer_error("the gradient of Tile needs known repeats and dimensions");
  Shape split;
  Ints axes;
  for (std::size_t d = 0; d < in.size(); ++d) {
    axes.push_back(static_cast<std::int64_t>(split.size()));
    split.insert(split.end(), {(*repeats.values)[d], in[d]});
  }
  if (in.empty()) {
    ctx.set(0, ctx.grad());
    return {};
  }
  const ValueId parts = ctx.b.reshape(ctx.grad(), split);
  ctx.set(0, ctx.b.op("ReduceSum", {parts, ctx.b.i64s(axes)}, {{"keepdims", std::int64_t{0}}}));
  return {};
}

std::vector<Sample> tile_samples() {
  return {sample_of("matrix", {}, {floats({2, 3}), known_ints({3, 2})}),
          sample_of("one axis", {}, {floats({2, 3, 5}), known_ints({1, 4, 1})}),
          sample_of("integers", {}, {ints({3}, -9, 9), known_ints({2})}),
          sample_of("nothing", {}, {floats({2, 3}), known_ints({1, 0})})};
}

Noop transposes_nothing(const Graph& graph, const Node& node) {
  const Result<Ints> perm = permutation(node.attrs, graph.type(node.inputs[0]).shape.size());
  return perm.ok() && std::is_sorted(perm->begin(), perm->end()) ? Noop{"transpose-identity", 0} : Noop{};
}
Noop expands_nothing(const Graph&, const Node&) { return {"expand-same-shape", 0}; }

}  // namespace

const OpDef transpose_op = {.name = "Transpose",
                            .summary = "Permutes dimensions",
                            .traits = kPermutes,
                            .infer = infer_transpose,
                            .grad = grad_transpose,
                            .cost = copy_cost,
                            .cpu = prepare_transpose,
                            .gpu = prepare_transpose,
                            .samples = transpose_samples,
                            .noop = transposes_nothing};
const OpDef concat_op = {.name = "Concat",
                         .summary = "Joins along an axis",
                         .min_inputs = 1,
                         .max_inputs = 1 << 20,
                         .infer = infer_concat,
                         .grad = grad_concat,
                         .cost = copy_cost,
                         .cpu = prepare_concat,
                         .gpu = prepare_concat,
                         .samples = concat_samples,
                         .noop = one_input,
                         .channel_blocks = ChannelBlocks::axis};
const OpDef split_op = {.name = "Split",
                        .summary = "Parts along an axis",
                        .min_inputs = 1,
                        .max_inputs = 2,
                        .max_outputs = 1 << 20,
                        .infer = infer_split,
                        .grad = grad_split,
                        .cost = copy_cost,
                        .cpu = prepare_split,
                        .gpu = prepare_split,
                        .samples = split_samples,
                        .roles = kSizesSecond};
const OpDef expand_op = {.name = "Expand",
                         .since = 8,
                         .summary = "Broadcasts to a shape",
                         .min_inputs = 2,
                         .max_inputs = 2,
                         .infer = infer_expand,
                         .grad = grad_expand,
                         .cost = copy_cost,
                         .cpu = prepare_expand,
                         .gpu = prepare_expand,
                         .samples = expand_samples,
                         .roles = kSizesSecond,
                         .noop = expands_nothing};
const OpDef tile_op = {.name = "Tile",
                       .summary = "Repeats along every axis",
                       .min_inputs = 2,
                       .max_inputs = 2,
                       .infer = infer_tile,
                       .grad = grad_tile,
                       .cost = copy_cost,
                       .cpu = prepare_tile,
                       .gpu = prepare_tile,
                       .samples = tile_samples,
                       .roles = kSizesSecond};

}  // namespace gradloom
