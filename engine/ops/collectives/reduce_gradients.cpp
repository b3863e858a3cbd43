#include "engine/ops/collectives/reduce_gradients.h"

#include <cmath>
#include <cstring>

#include "engine/ops/collectives/own_world.h"
#include "engine/ops/collectives/owned_parts.h"
#include "engine/ops/costs.h"
#include "engine/ops/dims.h"
#include "engine/ops/inference.h"
#include "engine/ops/preparation.h"

namespace gradloom {
namespace {

// ---- ReduceGradients --------------------------------------------------------------------------------------

// What is exchanged: elements and owner of each part.
struct ReducedParts {
  std::vector<OwnedPart> parts;
  std::vector<std::int64_t> counts;
  std::vector<int> owners;
};

Result<ReducedParts> reduced_parts(const Attrs& attrs, std::span<const Type> inputs) {
  ReducedParts reduced{TRY(owned_parts(attrs, inputs)), {}, {}};
  if (tensors_of(reduced.parts) != inputs.size()) return infer_error("there is an owner for each input");
  for (const OwnedPart& part : reduced.parts) {
    reduced.counts.push_back(part.count);
    reduced.owners.push_back(part.owner);
  }
  return reduced;
}

Status infer_reduce(InferContext& ctx) {
  const std::int64_t ranks = ctx.attrs.integer("ranks", 0), rank = ctx.attrs.integer("rank", -1);
  if (ranks < 1 || rank < 0 || rank >= ranks) return infer_error("rank must be one of ranks");
  std::vector<Type> inputs, own;
  for (std::size_t i = 0; i < ctx.inputs.size(); ++i) {
    if (!ctx.has(i)) return infer_error("input " + std::to_string(i) + " is missing");
    if (!is_float(ctx.dtype(i)) || ctx.dtype(i) != ctx.dtype(0) || !is_static(ctx.shape(i)))
      return infer_error("input " + std::to_string(i) + " is " + to_string(ctx.in(i)));
    inputs.push_back(ctx.in(i));
  }
  const ReducedParts reduced = TRY(reduced_parts(ctx.attrs, inputs));
  for (const OwnedPart& part : reduced.parts)
    if (part.owner == rank) own.push_back(type_of(part, inputs[part.tensor]));
  const std::int64_t bytes = World::reduce_workspace_bytes(ctx.dtype(0), reduced.counts, reduced.owners,
                                                           static_cast<int>(rank), static_cast<int>(ranks));
  own.push_back({DType::u8, {std::max<std::int64_t>(bytes, 1)}});  // it tells exchanges apart
  if (ctx.outputs.size() != own.size()) return infer_error("there is an output for each part of this rank");
  return set_outputs(ctx, std::move(own));
}

Result<Kernel> prepare_reduce(const NodeTypes& types) {
  const ReducedParts reduced = TRY(reduced_parts(types.attrs, types.inputs));
  const auto ranks = static_cast<int>(types.attrs.integer("ranks")),
             rank = static_cast<int>(types.attrs.integer("rank"));
  const DType type = types.inputs[0].dtype;
  return Kernel{"reduce begin", 0, [=](const LaunchArgs& args) {
                  const auto width = static_cast<std::int64_t>(dtype_bytes(type));
                  std::vector<World::Piece> pieces;
                  std::size_t own = 0;
                  for (const OwnedPart& part : reduced.parts)
                    pieces.push_back({static_cast<const char*>(args.inputs[part.tensor]) + part.begin * width,
                                      part.owner == rank ? args.outputs[own++] : nullptr, part.count});
                  if (ranks > 1)
                    return own_world(ranks).begin_reduce(type, std::move(pieces), reduced.owners,
                                                         args.outputs[own]);
                  for (const World::Piece& piece : pieces)  // the mean over one rank
                    std::memcpy(piece.to, piece.from, static_cast<std::size_t>(piece.count * width));
                }};
}

Result<Kernel> prepare_reduce_on_gpu(const NodeTypes& types) { return made_by_device(prepare_reduce(types)); }

// ---- the norm ---------------------------------------------------------------------------------------------

// Computed as GlobalNorm does: halves in f32.
DType computed_in(DType type) { return is_half(type) ? DType::f32 : type; }

kernels::GlobalNormArgs layout_of(const std::vector<std::int64_t>& sizes) {
  kernels::GlobalNormArgs layout{};
  layout.count = as_dim(sizes.size());
  layout.sizes = sizes.data();
  return layout;
}

Status infer_squares(InferContext& ctx) {
  std::int64_t pieces = 0;
  for (std::size_t i = 0; i < ctx.inputs.size(); ++i) {
    if (!ctx.has(i)) return infer_error("input " + std::to_string(i) + " is missing");
    if (!is_float(ctx.dtype(i)) || computed_in(ctx.dtype(i)) != computed_in(ctx.dtype(0)) ||
        !is_static(ctx.shape(i)))
      return infer_error("input " + std::to_string(i) + " is " + to_string(ctx.in(i)));
    pieces += square_pieces(element_count(ctx.shape(i)));
  }
  return set_outputs(ctx, {{DType::f64, {pieces}}});
}

// The kernel of GlobalNorm leaves the squares in its workspace, on GPUs too.
Result<Kernel> prepare_squares(const NodeTypes& types) {
  TRY(require_kernel_type(types.target, computed_in(types.inputs[0].dtype)));
  std::vector<std::int64_t> sizes;
  std::vector<DType> dtypes;
  for (const Type& type : types.inputs) {
    sizes.push_back(element_count(type.shape));
    dtypes.push_back(type.dtype);
  }
  return Kernel{"gradient_squares", sizeof(double), [=](const LaunchArgs& args) {
                  kernels::GlobalNormArgs a = layout_of(sizes);
                  a.dtype = computed_in(dtypes[0]);
                  a.types = dtypes.data();
                  a.tensors = args.inputs;
                  a.out = args.workspace;  // their norm, which nobody asks for
                  a.workspace = args.outputs[0];
                  args.on.global_norm(a);
                }};
}

Status infer_norm(InferContext& ctx) {
  const std::vector<std::int64_t> from = ctx.attrs.integers("from"), pieces = ctx.attrs.integers("pieces");
  const DType type = TRY(dtype_from_onnx(ctx.attrs.integer("type", 0)));
  if (type != DType::f32 && type != DType::f64) return infer_error("the norm is f32 or f64");
  if (from.size() != pieces.size()) return infer_error("there are pieces of each gradient");
  std::vector<std::int64_t> left(ctx.inputs.size(), 0);
  for (std::size_t i = 0; i < left.size(); ++i) {
    if (!ctx.has(i) || ctx.dtype(i) != DType::f64 || ctx.shape(i).size() != 1)
      return infer_error("input " + std::to_string(i) + " is no list of squares");
    left[i] = ctx.shape(i)[0];
  }
  for (std::size_t i = 0; i < from.size(); ++i) {
    if (from[i] < 0 || from[i] >= std::ssize(left) || pieces[i] < 0)
      return infer_error("the pieces of gradient " + std::to_string(i) + " are nowhere");
    left[static_cast<std::size_t>(from[i])] -= pieces[i];
  }
  for (const std::int64_t rest : left)
    if (rest != 0) return infer_error("the squares are of other gradients");
  return set_outputs(ctx, {{type, {}}});
}

Result<Kernel> prepare_norm(const NodeTypes& types) {
  const std::vector<std::int64_t> from = types.attrs.integers("from"),
                                  pieces = types.attrs.integers("pieces");
  const bool wide = types.outputs[0].dtype == DType::f64;
  const std::size_t inputs = types.inputs.size();
  return Kernel{"norm_of_squares", 0, [=](const LaunchArgs& args) {
                  std::vector<const double*> at(inputs);
                  for (std::size_t i = 0; i < inputs; ++i) at[i] = static_cast<const double*>(args.inputs[i]);
                  double total = 0;
                  for (std::size_t i = 0; i < from.size(); ++i)
                    for (std::int64_t k = 0; k < pieces[i]; ++k)
                      total += *at[static_cast<std::size_t>(from[i])]++;
                  if (wide)
                    *static_cast<double*>(args.outputs[0]) = std::sqrt(total);
                  else
                    *static_cast<float*>(args.outputs[0]) = static_cast<float>(std::sqrt(total));
                }};
}

Result<Kernel> prepare_norm_on_gpu(const NodeTypes& types) { return made_by_device(prepare_norm(types)); }

Cost cost_squares(const NodeTypes& types) {
  double elements = 0;
  for (const Type& type : types.inputs) elements += static_cast<double>(element_count(type.shape));
  return cost_of(types, 2 * elements);
}

const OpDef reduce_row{
    .name = "ReduceGradients",
    .domain = "gradloom",
    .summary = "Begins to make the mean of gradients over the ranks at those that own them",
    .traits = kNoGradient | kRandom | kRunsOnce,
    .max_inputs = 1 << 20,
    .max_outputs = 1 << 20,
    .infer = infer_reduce,
    .cost = [](const NodeTypes& types) { return cost_of(types, 0); },
    .cpu = prepare_reduce,
    .gpu = prepare_reduce_on_gpu,
    .precision = Precision::full,
    .exchange = RankExchange::begin_reduce};
const OpDef squares_row{.name = "GradientSquares",
                        .domain = "gradloom",
                        .summary = "Sums of squares of pieces of gradients",
                        .traits = kNoGradient,
                        .max_inputs = 1 << 20,
                        .infer = infer_squares,
                        .cost = cost_squares,
                        .cpu = prepare_squares,
                        .gpu = prepare_squares,
                        .precision = Precision::full};
const OpDef norm_row{.name = "NormOfSquares",
                     .domain = "gradloom",
                     .summary = "Euclidean norm of all gradients from sums of squares of their pieces",
                     .traits = kNoGradient,
                     .max_inputs = 1 << 20,
                     .infer = infer_norm,
                     .cpu = prepare_norm,
                     .gpu = prepare_norm_on_gpu,
                     .precision = Precision::full};

}  // namespace

const OpDef& reduce_gradients_op() { return reduce_row; }
const OpDef& gradient_squares_op() { return squares_row; }
const OpDef& norm_of_squares_op() { return norm_row; }

std::int64_t square_pieces(std::int64_t elements) {
  return static_cast<std::int64_t>(kernels::workspace_bytes(kernels::Target::cpu, layout_of({elements})) /
                                   sizeof(double));
}

}  // namespace gradloom
