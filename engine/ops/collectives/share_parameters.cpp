#include "engine/ops/collectives/share_parameters.h"

#include <cstring>

#include "engine/ops/collectives/own_world.h"
#include "engine/ops/collectives/owned_parts.h"
#include "engine/ops/costs.h"
#include "engine/ops/inference.h"
#include "engine/ops/preparation.h"
#include "kernels/signals.h"

namespace gradloom {
namespace {

std::vector<Type> input_types(const InferContext& ctx) {
  std::vector<Type> types;
  for (std::size_t i = 0; i < ctx.inputs.size(); ++i) types.push_back(ctx.has(i) ? ctx.in(i) : Type());
  return types;
}

Status infer(InferContext& ctx) {
  if (ctx.attrs.integer("ranks", 0) < 1) return infer_error("ranks must be positive");
  const std::size_t tensors = tensors_of(TRY(owned_parts(ctx.attrs, input_types(ctx))));
  if (tensors == 0 || ctx.outputs.size() != tensors)
    return infer_error("there is an owner and an output for each input that is shared");
  for (std::size_t i = 0; i < tensors; ++i) {
    if (!ctx.has(i)) return infer_error("input " + std::to_string(i) + " is missing");
    ctx.outputs[i] = ctx.in(i);
  }
  return {};
}

Result<Kernel> prepare(const NodeTypes& types) {
  const std::vector<OwnedPart> parts = TRY(owned_parts(types.attrs, types.inputs));
  std::vector<std::int64_t> widths, bytes;  // of each tensor: of an element, of all
  for (std::size_t i = 0; i < tensors_of(parts); ++i) {
    widths.push_back(static_cast<std::int64_t>(dtype_bytes(types.inputs[i].dtype)));
    bytes.push_back(static_cast<std::int64_t>(byte_size(types.inputs[i])));
  }
  const auto ranks = static_cast<int>(types.attrs.integer("ranks"));
  return Kernel{
      "share", 0, [parts, widths, bytes, ranks](const LaunchArgs& args) {
        for (std::size_t i = 0; i < bytes.size(); ++i)
          if (args.outputs[i] != args.inputs[i])
            std::memcpy(args.outputs[i], args.inputs[i], static_cast<std::size_t>(bytes[i]));
        if (ranks == 1) return;
        const kernels::NoSignals::Pause handlers_run;  // it may wait long, and calls no library of products
        std::vector<World::Block> blocks;
        for (const OwnedPart& part : parts)
          blocks.push_back({static_cast<char*>(args.outputs[part.tensor]) + part.begin * widths[part.tensor],
                            part.count * widths[part.tensor], part.owner});
        demand(own_world(ranks).share(blocks));
      }};
}

Result<Kernel> prepare_on_gpu(const NodeTypes& types) { return made_by_device(prepare(types)); }

std::vector<std::pair<int, int>> aliases(const Node& node) {
  std::vector<std::pair<int, int>> pairs;
  for (int i = 0; i < static_cast<int>(node.outputs.size()); ++i) pairs.emplace_back(i, i);
  return pairs;
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

}  // namespace

const OpDef& share_parameters_op() { return row; }

}  // namespace gradloom
