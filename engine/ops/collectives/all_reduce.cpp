#include "engine/ops/collectives/all_reduce.h"

#include <algorithm>
#include <cstring>

#include "engine/ops/collectives/adasum.h"
#include "engine/ops/collectives/own_world.h"
#include "engine/ops/costs.h"
#include "engine/ops/dims.h"
#include "engine/ops/inference.h"
#include "engine/ops/preparation.h"
#include "kernels/signals.h"

namespace gradloom {
namespace {

// The means, and then what else the node makes.
Status infer_means(InferContext& ctx, std::size_t others) {
  const std::int64_t ranks = ctx.attrs.integer("ranks", 0), stride = ctx.attrs.integer("stride", 1);
  if (ranks < 1 || stride < 1) return infer_error("ranks must be positive");
  if (ctx.attrs.integer("world", ranks) % (ranks * stride) != 0)
    return infer_error("ranks must be in groups as large as each other");
  if (ctx.outputs.size() != ctx.inputs.size() + others)
    return infer_error("there is an output for each input");
  for (std::size_t i = 0; i < ctx.inputs.size(); ++i) {
    if (!ctx.has(i)) return infer_error("input " + std::to_string(i) + " is missing");
    if (!is_float(ctx.dtype(i)) || ctx.dtype(i) != ctx.dtype(0))
      return infer_error("input " + std::to_string(i) + " is " + to_string(ctx.in(i)));
    ctx.outputs[i] = ctx.in(i);
  }
  return {};
}

Status infer(InferContext& ctx) { return infer_means(ctx, 0); }

Status infer_begin(InferContext& ctx) {
  TRY(infer_means(ctx, 1));
  std::int64_t count = 0;
  for (std::size_t i = 0; i < ctx.inputs.size(); ++i) {
    if (!is_static(ctx.shape(i)))
      return infer_error("input " + std::to_string(i) + " is " + to_string(ctx.in(i)));
    count += element_count(ctx.shape(i));
  }
  const std::int64_t bytes =
      World::mean_workspace_bytes(ctx.dtype(0), count, static_cast<int>(ctx.attrs.integer("ranks")));
  ctx.outputs.back() = {DType::u8, {std::max<std::int64_t>(bytes, 1)}};  // it tells exchanges apart
  return {};
}

Status infer_wait(InferContext& ctx) { return set_outputs(ctx, {{DType::u8, {1}}}); }

Status infer_result(InferContext& ctx) {
  TRY(require_inputs(ctx, 2));
  return set_outputs(ctx, {ctx.in(0)});
}

std::int64_t count_of(const NodeTypes& types) {
  std::int64_t count = 0;
  for (const Type& type : types.inputs) count += element_count(type.shape);
  return count;
}

Cost cost(const NodeTypes& types) {
  return cost_of(types,
                 static_cast<double>(types.attrs.integer("ranks", 1)) * static_cast<double>(count_of(types)));
}

struct Prepared {
  DType type;
  int ranks;
  ExchangeRanks of;
  std::vector<std::int64_t> counts;
};

// The mean over one rank.
void copy(const Prepared& prepared, const LaunchArgs& args) {
  for (std::size_t i = 0; i < prepared.counts.size(); ++i)
    if (args.outputs[i] != args.inputs[i])
      std::memcpy(args.outputs[i], args.inputs[i],
                  static_cast<std::size_t>(prepared.counts[i]) * dtype_bytes(prepared.type));
}

std::vector<World::Piece> pieces_of(const Prepared& prepared, const LaunchArgs& args) {
  std::vector<World::Piece> pieces;
  for (std::size_t i = 0; i < prepared.counts.size(); ++i)
    pieces.push_back({args.inputs[i], args.outputs[i], prepared.counts[i]});
  return pieces;
}

std::shared_ptr<const Prepared> prepared_of(const NodeTypes& types) {
  auto prepared = std::make_shared<Prepared>();
  prepared->type = types.inputs[0].dtype;
  prepared->ranks = static_cast<int>(types.attrs.integer("ranks"));
  prepared->of = exchange_ranks(types.attrs);
  for (const Type& type : types.inputs) prepared->counts.push_back(element_count(type.shape));
  return prepared;
}

using Exchange = Status (World::*)(DType, std::span<const World::Piece>, void*, RankGroup);

template <Exchange make>
Result<Kernel> prepare(const char* name, const NodeTypes& types) {
  const auto prepared = prepared_of(types);
  const std::int64_t workspace =
      World::mean_workspace_bytes(prepared->type, count_of(types), prepared->ranks);
  return Kernel{
      name, static_cast<std::size_t>(workspace), [prepared](const LaunchArgs& args) {
        if (prepared->ranks == 1) return copy(*prepared, args);
        // It may wait long, and calls no library of products.
        const kernels::NoSignals::Pause handlers_run;
        World& world = own_world(prepared->of.world);
        demand((world.*make)(prepared->type, pieces_of(*prepared, args), args.workspace, prepared->of.group));
      }};
}

Result<Kernel> prepare_mean(const NodeTypes& types) {
  return prepare<&World::mean>("all_reduce mean", types);
}

Result<Kernel> prepare_sum(const NodeTypes& types) { return prepare<&World::sum>("all_reduce sum", types); }

Status grad_sum(GradContext& ctx) {
  for (std::size_t i = 0; i < ctx.in_grads.size(); ++i)
    if (ctx.wants(i)) ctx.set(i, ctx.grad(i));
  return {};
}

Status infer_gradient(InferContext& ctx) {
  TRY(require_inputs(ctx, 1));
  return infer_means(ctx, 0);
}

Status grad_gradient(GradContext& ctx) {
  if (ctx.wants(0) && ctx.grad() != kNone)
    ctx.set(0, ctx.b.ops(all_reduce_sum_op(), {ctx.grad()}, ctx.node.attrs, 1)[0]);
  return {};
}

std::int64_t bytes_of(const NodeTypes& types) {
  return count_of(types) * static_cast<std::int64_t>(dtype_bytes(types.inputs[0].dtype));
}

Status infer_adasum(InferContext& ctx) {
  const std::int64_t ranks = ctx.attrs.integer("ranks", 0);
  if (ranks < 1 || (ranks & (ranks - 1)) != 0) return infer_error("ranks must be a power of two");
  return infer_means(ctx, 0);
}

Result<Kernel> prepare_adasum(const NodeTypes& types) {
  const auto prepared = prepared_of(types);
  const auto workspace = static_cast<std::size_t>(prepared->ranks == 1 ? 0 : bytes_of(types));
  return Kernel{
      "all_reduce adasum", workspace, [prepared](const LaunchArgs& args) {
        if (prepared->ranks == 1) return copy(*prepared, args);
        const kernels::NoSignals::Pause handlers_run;
        demand(own_world(prepared->ranks).adasum(prepared->type, pieces_of(*prepared, args), args.workspace));
      }};
}

Result<Kernel> prepare_begin(const NodeTypes& types) {
  const auto prepared = prepared_of(types);
  return Kernel{"all_reduce begin", 0, [prepared](const LaunchArgs& args) {
                  if (prepared->ranks == 1) return copy(*prepared, args);
                  own_world(prepared->of.world)
                      .begin_mean(prepared->type, pieces_of(*prepared, args),
                                  args.outputs[prepared->counts.size()], prepared->of.group);
                }};
}

Result<Kernel> prepare_wait(const NodeTypes&) {
  return Kernel{"all_reduce wait", 0, [](const LaunchArgs& args) {
                  const kernels::NoSignals::Pause handlers_run;
                  if (World* const world = World::current()) demand(world->wait_for(args.inputs[0]));
                }};
}

Result<Kernel> prepare_on_gpu(const NodeTypes& types) { return made_by_device(prepare_mean(types)); }
Result<Kernel> prepare_sum_on_gpu(const NodeTypes& types) { return made_by_device(prepare_sum(types)); }
Result<Kernel> prepare_adasum_on_gpu(const NodeTypes& types) { return made_by_device(prepare_adasum(types)); }
Result<Kernel> prepare_begin_on_gpu(const NodeTypes& types) { return made_by_device(prepare_begin(types)); }
// Its stream has waited (engine/plan/streams.h).
Result<Kernel> prepare_wait_on_gpu(const NodeTypes& types) { return made_by_device(prepare_wait(types)); }

// The mean of what a state holds next replaces it where it is.
std::vector<std::pair<int, int>> aliases(const Node& node) {
  std::vector<std::pair<int, int>> pairs;
  for (int i = 0; i < static_cast<int>(node.outputs.size()); ++i) pairs.emplace_back(i, i);
  return pairs;
}

// A row that is run once in its place: not folded, not merged.
constexpr OpDef exchange(const char* name, const char* summary, RankExchange kind, InferFn infer_types,
                         PrepareFn cpu, PrepareFn gpu) {
  return {.name = name,
          .domain = "gradloom",
          .summary = summary,
          .traits = kNoGradient | kRandom | kRunsOnce,
          .max_inputs = 1 << 20,
          .max_outputs = 1 << 20,
          .infer = infer_types,
          .cost = cost,
          .cpu = cpu,
          .gpu = gpu,
          .precision = Precision::full,
          .exchange = kind};
}

const OpDef row = [] {
  OpDef r = exchange("AllReduceMean", "The mean of tensors over the ranks of a training", RankExchange::mean,
                     infer, prepare_mean, prepare_on_gpu);
  r.inplace_input = 0;
  r.aliases = aliases;
  return r;
}();
const OpDef sum_row = [] {
  OpDef r = exchange("AllReduceSum", "The sum of tensors over ranks of a training", RankExchange::sum, infer,
                     prepare_sum, prepare_sum_on_gpu);
  r.traits &= ~static_cast<std::uint32_t>(kNoGradient);
  r.grad = grad_sum;
  r.inplace_input = 0;
  r.precision = Precision::follow;
  return r;
}();
const OpDef gradient_row{.name = "AllReduceGradient",
                         .domain = "gradloom",
                         .summary = "A tensor whose gradient is the sum of those of ranks of a training",
                         .traits = kView,
                         .infer = infer_gradient,
                         .grad = grad_gradient};
const OpDef adasum_row = [] {
  OpDef r = exchange("AllReduceAdasum", "AdaSum of gradients over the ranks of a training",
                     RankExchange::adasum, infer_adasum, prepare_adasum, prepare_adasum_on_gpu);
  r.inplace_input = 0;
  return r;
}();
const OpDef begin_row =
    exchange("AllReduceBegin", "Begins to make the mean of tensors over the ranks, in the background",
             RankExchange::begin_mean, infer_begin, prepare_begin, prepare_begin_on_gpu);
const OpDef wait_row = [] {
  OpDef r = exchange("AllReduceWait", "Waits for a mean over the ranks that was begun", RankExchange::wait,
                     infer_wait, prepare_wait, prepare_wait_on_gpu);
  r.max_outputs = 1;
  r.cost = [](const NodeTypes&) { return Cost(); };
  return r;
}();
const OpDef result_row{.name = "AllReduceResult",
                       .domain = "gradloom",
                       .summary = "A mean over the ranks, after the wait for it",
                       .traits = kNoGradient | kView,
                       .min_inputs = 2,
                       .max_inputs = 2,
                       .infer = infer_result,
                       .precision = Precision::full};

}  // namespace

const OpDef& all_reduce_op() { return row; }
const OpDef& all_reduce_sum_op() { return sum_row; }
const OpDef& all_reduce_gradient_op() { return gradient_row; }
const OpDef& all_reduce_adasum_op() { return adasum_row; }
const OpDef& all_reduce_begin_op() { return begin_row; }
const OpDef& all_reduce_wait_op() { return wait_row; }
const OpDef& all_reduce_result_op() { return result_row; }

Attrs exchange_attrs(std::int64_t ranks, std::int64_t stride, std::int64_t world) {
  Attrs attrs{{"ranks", ranks}};
  if (ranks == world) return attrs;
  attrs.set("world", world);
  if (stride != 1) attrs.set("stride", stride);
  return attrs;
}

}  // namespace gradloom
