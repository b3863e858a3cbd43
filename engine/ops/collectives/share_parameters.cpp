#include "engine/ops/collectives/share_parameters.h"

#include <algorithm>
#include <cstring>

#include "engine/ops/collectives/own_world.h"
#include "engine/ops/costs.h"
#include "engine/ops/inference.h"
#include "engine/ops/preparation.h"
#include "kernels/signals.h"

namespace gradloom {
namespace {

Status infer(InferContext& ctx) {
  const std::int64_t ranks = ctx.attrs.integer("ranks", 0);
  const std::vector<std::int64_t> owners = ctx.attrs.integers("owners");
  if (ranks < 1) return infer_error("ranks must be positive");
  if (owners.empty() || owners.size() > ctx.inputs.size() || ctx.outputs.size() != owners.size())
    return infer_error("there is an owner and an output for each input that is shared");
  for (std::size_t i = 0; i < owners.size(); ++i) {
    if (!ctx.has(i)) return infer_error("input " + std::to_string(i) + " is missing");
    if (owners[i] < 0 || owners[i] >= ranks)
      return infer_error("owner " + std::to_string(owners[i]) + " is no rank");
    ctx.outputs[i] = ctx.in(i);
  }
  return {};
}

Result<Kernel> prepare(const NodeTypes& types) {
  std::vector<World::Block> blocks;
  const std::vector<std::int64_t> owners = types.attrs.integers("owners");
  for (std::size_t i = 0; i < owners.size(); ++i)
    blocks.push_back(
        {nullptr, static_cast<std::int64_t>(byte_size(types.inputs[i])), static_cast<int>(owners[i])});
  const auto ranks = static_cast<int>(types.attrs.integer("ranks"));
  return Kernel{
      "share", 0, [blocks, ranks](const LaunchArgs& args) {
        std::vector<World::Block> there = blocks;
        for (std::size_t i = 0; i < there.size(); ++i) {
          there[i].at = args.outputs[i];
          if (args.outputs[i] != args.inputs[i])
            std::memcpy(args.outputs[i], args.inputs[i], static_cast<std::size_t>(there[i].bytes));
        }
        if (ranks == 1) return;
        const kernels::NoSignals::Pause handlers_run;  // it may wait long, and calls no library of products
        demand(own_world(ranks).share(there));
      }};
}

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
                .precision = Precision::full,
                .inplace_input = 0,
                .aliases = aliases};

}  // namespace

const OpDef& share_parameters_op() { return row; }

}  // namespace gradloom
