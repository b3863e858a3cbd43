#include "engine/ops/collectives/parameter_part.h"

#include <algorithm>
#include <cstring>

#include "engine/ops/collectives/all_reduce.h"
#include "engine/ops/costs.h"
#include "engine/ops/inference.h"
#include "engine/ops/preparation.h"
#include "engine/ops/rank_part.h"

namespace gradloom {
namespace {

constexpr const char *kParameters = "parameters", *kAxes = "axes", *kGroups = "groups", *kDims = "dims";

// Calls f(byte in the whole, byte in the part, bytes) for each run of elements that lie in a row in both.
template <class F>
void for_runs(const Type& whole, const ParameterPart& part, std::int64_t number, const F& f) {
  const auto axis = static_cast<std::size_t>(part.axis);
  std::int64_t outer = part.groups, inner = static_cast<std::int64_t>(dtype_bytes(whole.dtype));
  for (std::size_t i = 0; i < axis; ++i) outer *= whole.shape[i];
  for (std::size_t i = axis + 1; i < whole.shape.size(); ++i) inner *= whole.shape[i];
  const std::int64_t piece = whole.shape[axis] / part.groups, size = part_of_dim(piece, part.parts),
                     begin = number * size, end = std::min(begin + size, piece);
  for (std::int64_t i = 0; i < outer; ++i)
    f(static_cast<std::size_t>((i * piece + begin) * inner), static_cast<std::size_t>(i * size * inner),
      static_cast<std::size_t>((end - begin) * inner));
}

ParameterPart part_of(const Attrs& attrs) {
  return {attrs.integer("axis"), attrs.integer("groups", 1), attrs.integer("parts", 1),
          attrs.integer("dim", 0)};
}

// Whether a dim of the whole can be cut so.
bool fits(std::int64_t dim, const ParameterPart& part) {
  if (part.dim != 0) return part.dim == dim && part.groups == 1 && part_of_dim(dim, part.parts) > 0;
  return dim % (part.groups * part.parts) == 0;
}

void copy_part(const void* whole, void* contents, const Type& type, const ParameterPart& part,
               std::int64_t number) {
  for_runs(type, part, number, [&](std::size_t there, std::size_t here, std::size_t bytes) {
    std::memcpy(static_cast<std::byte*>(contents) + here, static_cast<const std::byte*>(whole) + there,
                bytes);
  });
}

Status infer(InferContext& ctx) {
  TRY(require_inputs(ctx, 1));
  const ParameterPart part = part_of(ctx.attrs);
  Type type = ctx.in(0);
  if (part.parts < 1 || part.groups < 1) return infer_error("parts and groups must be positive");
  if (part.axis < 0 || part.axis >= static_cast<std::int64_t>(type.shape.size()))
    return infer_error("there is no axis " + std::to_string(part.axis));
  std::int64_t& dim = type.shape[static_cast<std::size_t>(part.axis)];
  if (!fits(dim, part)) return infer_error(std::to_string(dim) + " is no multiple of groups and parts");
  dim = part_of_dim(dim, part.parts);
  return set_outputs(ctx, {type});
}

Result<Kernel> prepare(const NodeTypes& types) {
  const Type type = types.inputs[0];
  const ParameterPart part = part_of(types.attrs);
  const std::size_t bytes = byte_size(types.outputs[0]);
  return Kernel{"parameter part", 0, [type, part, bytes](const LaunchArgs& args) {
                  if (part.dim != 0) std::memset(args.outputs[0], 0, bytes);
                  copy_part(args.inputs[0], args.outputs[0], type, part, own_part(part.parts));
                }};
}

const OpDef row{.name = "ParameterPart",
                .domain = "gradloom",
                .summary = "The part of a parameter that this rank has",
                .traits = kNoGradient | kRandom,
                .infer = infer,
                .cost = [](const NodeTypes& types) { return cost_of(types, 0); },
                .cpu = prepare,
                .precision = Precision::full};

}  // namespace

const OpDef& parameter_part_op() { return row; }

Shape ParameterPart::whole(Shape part) const {
  std::int64_t& along = part[static_cast<std::size_t>(axis)];
  along = dim != 0 ? dim : along * parts;
  return part;
}

std::int64_t part_of_dim(std::int64_t dim, std::int64_t parts) {
  const std::int64_t size = (dim + parts - 1) / parts;
  return (parts - 1) * size < dim ? size : 0;
}

Attrs part_attrs(const ParameterPart& part) {
  Attrs attrs{{"axis", part.axis}, {"groups", part.groups}, {"parts", part.parts}};
  if (part.dim != 0) attrs.set("dim", part.dim);
  return attrs;
}

void say_parts(Attrs& attrs, const std::map<ValueId, ParameterPart>& parts) {
  std::vector<std::int64_t> parameters, axes, groups, dims;
  for (const auto& [parameter, part] : parts) {
    parameters.push_back(parameter);
    axes.push_back(part.axis);
    groups.push_back(part.groups);
    dims.push_back(part.dim);
  }
  attrs.set(kParameters, std::move(parameters));
  attrs.set(kAxes, std::move(axes));
  attrs.set(kGroups, std::move(groups));
  if (std::any_of(dims.begin(), dims.end(), [](std::int64_t dim) { return dim != 0; }))
    attrs.set(kDims, std::move(dims));
}

std::map<ValueId, ParameterPart> parameter_parts(const Graph& graph) {
  std::map<ValueId, ParameterPart> parts;
  for (const Node& node : graph.nodes) {
    if (node.op != &all_reduce_sum_op() || !node.attrs.has(kParameters)) continue;
    const std::vector<std::int64_t> parameters = node.attrs.integers(kParameters),
                                    axes = node.attrs.integers(kAxes), groups = node.attrs.integers(kGroups),
                                    dims = node.attrs.integers(kDims);
    for (std::size_t i = 0; i < parameters.size(); ++i)
      parts[static_cast<ValueId>(parameters[i])] = {axes[i], groups[i], node.attrs.integer("ranks"),
                                                    dims.empty() ? 0 : dims[i]};
  }
  return parts;
}

std::int64_t tensor_ranks(const Graph& graph) {
  const auto parts = parameter_parts(graph);
  return parts.empty() ? 1 : parts.begin()->second.parts;
}

Result<Tensor> cut_part(const Tensor& whole, const ParameterPart& part, std::int64_t number) {
  const Tensor from = TRY(whole.loaded());
  Shape shape = whole.shape();
  std::int64_t& dim = shape[static_cast<std::size_t>(part.axis)];
  CHECK(fits(dim, part), "parts of a parameter are as large as each other");
  dim = part_of_dim(dim, part.parts);
  Tensor contents(whole.dtype(), shape);
  copy_part(from.data(), contents.mutable_data(), whole.type(), part, number);
  return contents;
}

void put_part(Tensor& whole, const Tensor& contents, const ParameterPart& part, std::int64_t number) {
  CHECK(whole.dtype() == contents.dtype() && whole.shape() == part.whole(contents.shape()),
        "a part of another tensor");
  const auto* const in = static_cast<const std::byte*>(contents.data());
  auto* const out = static_cast<std::byte*>(whole.mutable_data());
  for_runs(whole.type(), part, number, [&](std::size_t there, std::size_t here, std::size_t bytes) {
    std::memcpy(out + there, in + here, bytes);
  });
}

Status keep_parts(Graph& graph, std::int64_t number) {
  std::map<ValueId, ValueId> parameters;  // by their parts
  for (Node& node : graph.nodes) {
    if (node.op != &parameter_part_op()) continue;
    const ValueId whole = node.inputs[0], part = node.outputs[0];
    parameters[part] = whole;
    Value& parameter = graph.values[whole];
    CHECK(parameter.role == Role::parameter, "parts are of parameters");
    if (parameter.type != graph.values[part].type) {  // else another node had the same part
      parameter.data = TRY(cut_part(parameter.data, part_of(node.attrs), number));
      parameter.type = parameter.data.type();
    }
    node.op = nullptr;
    node.inputs.clear();
  }
  if (parameters.empty()) return {};
  for (Node& node : graph.nodes)
    for (ValueId& in : node.inputs)
      if (const auto found = parameters.find(in); found != parameters.end()) in = found->second;
  return {};
}

}  // namespace gradloom
