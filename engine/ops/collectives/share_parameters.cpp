#include "engine/ops/collectives/share_parameters.h"

#include <algorithm>
#include <cstring>

#include "engine/ir/views.h"
#include "engine/ops/collectives/own_world.h"
#include "engine/ops/collectives/owned_parts.h"
#include "engine/ops/costs.h"
#include "engine/ops/inference.h"
#include "engine/ops/micro_batches.h"
#include "engine/ops/preparation.h"
#include "kernels/signals.h"

namespace gradloom {
namespace {

std::vector<Type> input_types(const InferContext& ctx) {
  std::vector<Type> types;
  for (std::size_t i = 0; i < ctx.inputs.size(); ++i) types.push_back(ctx.has(i) ? ctx.in(i) : Type());
  return types;
}

// Of the tensors that ranks own parts of.
Result<std::vector<Type>> given_types(const InferContext& ctx) {
  if (ctx.attrs.integer("ranks", 0) < 1) return infer_error("ranks must be positive");
  const std::size_t tensors = tensors_of(TRY(owned_parts(ctx.attrs, input_types(ctx))));
  std::vector<Type> types;
  for (std::size_t i = 0; i < tensors; ++i) {
    if (!ctx.has(i)) return infer_error("input " + std::to_string(i) + " is missing");
    types.push_back(ctx.in(i));
  }
  return types;
}

Status infer(InferContext& ctx) {
  std::vector<Type> outputs = TRY(given_types(ctx));
  if (outputs.empty() || ctx.outputs.size() != outputs.size())
    return infer_error("there is an owner and an output for each input that is shared");
  return set_outputs(ctx, std::move(outputs));
}

Status infer_gather(InferContext& ctx) {
  std::vector<Type> outputs = TRY(given_types(ctx));
  const std::size_t tensors = outputs.size();
  if (tensors == 0 || ctx.outputs.size() != tensors + 1)
    return infer_error("there is an owner and an output for each parameter, and a workspace");
  if (ctx.inputs.size() > tensors + 1) return infer_error("there are inputs that nobody owns");
  TRY(check_micro(ctx, tensors));
  outputs.push_back({DType::u8, {1}});  // it tells exchanges apart
  return set_outputs(ctx, std::move(outputs));
}

// The tensors of a node, and who owns what of them.
struct GivenTensors {
  std::vector<OwnedPart> parts;
  std::vector<std::int64_t> widths, bytes;  // of each tensor: of an element, of all
  int ranks = 1;

  // Copies what is not in its place.
  void put_in_place(const LaunchArgs& args) const {
    for (std::size_t i = 0; i < bytes.size(); ++i)
      if (args.outputs[i] != args.inputs[i])
        std::memcpy(args.outputs[i], args.inputs[i], static_cast<std::size_t>(bytes[i]));
  }
  std::vector<World::Block> blocks(const LaunchArgs& args) const {
    std::vector<World::Block> all;
    for (const OwnedPart& part : parts)
      all.push_back({static_cast<char*>(args.outputs[part.tensor]) + part.begin * widths[part.tensor],
                     part.count * widths[part.tensor], part.owner});
    return all;
  }
};

Result<GivenTensors> given_tensors(const NodeTypes& types) {
  GivenTensors shared{TRY(owned_parts(types.attrs, types.inputs)), {}, {}};
  for (std::size_t i = 0; i < tensors_of(shared.parts); ++i) {
    shared.widths.push_back(static_cast<std::int64_t>(dtype_bytes(types.inputs[i].dtype)));
    shared.bytes.push_back(static_cast<std::int64_t>(byte_size(types.inputs[i])));
  }
  shared.ranks = static_cast<int>(types.attrs.integer("ranks"));
  return shared;
}

Result<Kernel> prepare(const NodeTypes& types) {
  const GivenTensors shared = TRY(given_tensors(types));
  return Kernel{"share", 0, [shared](const LaunchArgs& args) {
                  shared.put_in_place(args);
                  if (shared.ranks == 1) return;
                  // It may wait long, and calls no library of products.
                  const kernels::NoSignals::Pause handlers_run;
                  demand(own_world(shared.ranks).share(shared.blocks(args)));
                }};
}

Result<Kernel> prepare_gather(const NodeTypes& types) {
  const GivenTensors shared = TRY(given_tensors(types));
  const std::size_t tensors = shared.bytes.size();
  const bool has_micro = types.inputs.size() > tensors;
  return Kernel{"gather begin", 0, [shared, tensors, has_micro](const LaunchArgs& args) {
                  shared.put_in_place(args);
                  if (shared.ranks == 1) return;
                  if (has_micro && *static_cast<const std::int64_t*>(args.inputs[tensors]) != 0) return;
                  own_world(shared.ranks).begin_share(shared.blocks(args), args.outputs[tensors]);
                }};
}

Result<Kernel> prepare_on_gpu(const NodeTypes& types) { return made_by_device(prepare(types)); }
Result<Kernel> prepare_gather_on_gpu(const NodeTypes& types) { return made_by_device(prepare_gather(types)); }

std::vector<std::pair<int, int>> pairs_of(std::size_t tensors) {
  std::vector<std::pair<int, int>> pairs;
  for (int i = 0; i < static_cast<int>(tensors); ++i) pairs.emplace_back(i, i);
  return pairs;
}
std::vector<std::pair<int, int>> aliases(const Node& node) { return pairs_of(node.outputs.size()); }
// All but the workspace.
std::vector<std::pair<int, int>> aliases_gather(const Node& node) {
  return pairs_of(node.outputs.size() - 1);
}

const OpDef row{.name = "ShareParameters",
                .domain = "gradloom",
                .summary = "What one rank of a training has made, on all of them",
                .traits = kNoGradient | kRandom | kRunsOnce,
                .max_inputs = 1 << 20,
                .max_outputs = 1 << 20,
                .infer = infer,
                .cost = [](const NodeTypes& types) { return cost_of(types, 0); },
                .cpu = prepare,
                .gpu = prepare_on_gpu,
                .precision = Precision::full,
                .inplace_input = 0,
                .aliases = aliases,
                .exchange = RankExchange::share};

// It goes one way, as what begin_reduce names does.
const OpDef gather_row{.name = "GatherParameters",
                       .domain = "gradloom",
                       .summary = "Begins to bring what one rank of a training has made to all of them",
                       .traits = kNoGradient | kRandom | kRunsOnce | kMustAlias,
                       .max_inputs = 1 << 20,
                       .max_outputs = 1 << 20,
                       .infer = infer_gather,
                       .cost = [](const NodeTypes& types) { return cost_of(types, 0); },
                       .cpu = prepare_gather,
                       .gpu = prepare_gather_on_gpu,
                       .precision = Precision::full,
                       .aliases = aliases_gather,
                       .exchange = RankExchange::begin_reduce};

}  // namespace

const OpDef& share_parameters_op() { return row; }
const OpDef& gather_parameters_op() { return gather_row; }

bool gives_parameters(const OpDef& op) { return &op == &row || &op == &gather_row; }

Attrs given_attrs(std::int64_t ranks, std::int64_t rank, const std::vector<OwnedPart>& parts,
                  const std::vector<Type>& types, const std::vector<std::int64_t>& masters) {
  Attrs attrs{{"ranks", ranks}};
  set_owned_parts(attrs, parts, types);
  if (std::any_of(masters.begin(), masters.end(), [](std::int64_t of) { return of >= 0; })) {
    attrs.set(kMasters, masters);
    attrs.set("rank", rank);
  }
  return attrs;
}

ValueId before_gather(const Graph& graph, ValueId v) {
  if (v == kNone) return v;
  const Value& made = graph.values[behind_views(graph, v)];
  if (made.producer == kNone || graph.nodes[made.producer].op != &gather_row) return v;
  return graph.nodes[made.producer].inputs[made.output_index];
}

}  // namespace gradloom
