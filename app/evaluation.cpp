#include "app/evaluation.h"

#include <algorithm>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "app/ranks.h"
#include "engine/base/text.h"
#include "engine/ir/op.h"
#include "engine/ops/collectives/parameter_part.h"
#include "engine/ranks/world.h"
#include "engine/run/blocks.h"

namespace gradloom {
namespace {

constexpr std::int64_t kEndlessBatches = 16;  // of an evaluation on data without an end

// Where values of the graph that is evaluated lie in the training's memory.
std::vector<std::pair<ValueId, ValueId>> shared_values(const Graph& evaluated, const TrainGraph& train) {
  std::unordered_map<std::string_view, ValueId> trained;
  for (ValueId id = 0; id < train.graph.values.size(); ++id) trained[train.graph.values[id].name] = id;
  std::unordered_map<std::string_view, std::string_view> averages;  // by parameter
  for (const TrainState& state : train.states)
    if (state.name == kAverage) averages[state.parameter] = state.value;
  std::vector<std::pair<ValueId, ValueId>> shared;
  for (ValueId id = 0; id < evaluated.values.size(); ++id) {
    const Value& value = evaluated.values[id];
    if (value.producer != kNone || (value.role != Role::parameter && value.role != Role::state)) continue;
    const auto average = averages.find(value.name);
    const auto found = trained.find(average == averages.end() ? value.name : average->second);
    if (found == trained.end()) continue;
    const Value& there = train.graph.values[found->second];
    if (there.producer == kNone && there.type == value.type) shared.emplace_back(id, found->second);
  }
  return shared;
}

}  // namespace

Status check_evaluation(const Recipe& recipe) {
  if (!recipe.eval_data.empty()) return {};
  const char* const flag = recipe.eval_every > 0        ? "--eval-every"
                           : recipe.eval_batches > 0    ? "--eval-batches"
                           : !recipe.early_stop.empty() ? "--early-stop"
                                                        : nullptr;
  if (flag == nullptr) return {};
  return Error{Errc::usage, std::string(flag) + " needs held-out data: --eval-data"};
}

Result<std::unique_ptr<Evaluation>> Evaluation::create(Job& job, std::stop_token stop) {
  const Recipe& recipe = job.recipe();
  std::unique_ptr<Evaluation> evaluation;
  if (recipe.eval_data.empty()) return evaluation;
  evaluation.reset(new Evaluation(job));
  Evaluation& e = *evaluation;
  e.stop_ = std::move(stop);
  e.early_stop_ = EarlyStop(TRY(parse_early_stop(recipe.early_stop)));
  e.compiled_ = TRY(compile_evaluation(job.compiled(), job.options(), e.stop_));
  const Graph& graph = e.compiled_.graph;
  const std::vector<InputSpec> specs = input_specs(graph, job.compiled().forward);
  auto batches = make_batches(recipe.eval_data, specs, recipe.seed, {.epochs = true});
  if (!batches) return with_context(batches.error(), "held-out data");
  e.batches_ = std::move(batches).value();
  e.batch_count_ = e.batches_->count() > 0 ? e.batches_->count() : kEndlessBatches;
  if (recipe.eval_batches > 0)
    e.batch_count_ =
        e.batches_->count() > 0 ? std::min(e.batch_count_, recipe.eval_batches) : recipe.eval_batches;
  TRY(e.divide());
  const LentMemory lent = job.executor().lend(shared_values(graph, job.compiled().train));
  e.executor_ = TRY(Executor::create(graph, e.compiled_.plan, job.processor(), &lent));
  for (const InputSpec& s : specs) e.fed_.emplace_back(find_value(graph, s.name), s.name);
  return evaluation;
}

// Ranks that share parameters take the same batches. Where a batch exchanges with all ranks, all take each.
Status Evaluation::divide() {
  World* const world = World::current();
  if (world == nullptr) return {};
  const std::vector<std::int64_t> counts = TRY(world->exchange(batch_count_));
  for (std::size_t rank = 1; rank < counts.size(); ++rank)
    if (counts[rank] != counts[0])
      return Error{Errc::device, "rank " + std::to_string(rank) + " has " + std::to_string(counts[rank]) +
                                     " batches of held-out data, rank 0 " + std::to_string(counts[0])};
  const std::vector<Node>& nodes = compiled_.graph.nodes;
  const bool with_all = std::any_of(nodes.begin(), nodes.end(), [](const Node& node) {
    return node.alive() && node.op->exchanges() && !node.attrs.has("world");
  });
  if (with_all) return {};
  const std::int64_t sharing = tensor_ranks(job_.compiled().train.graph);
  shares_ = world->size() / sharing;
  share_ = world->rank() / sharing;
  return {};
}

bool Evaluation::due(std::int64_t step) const {
  const Recipe& recipe = job_.recipe();
  // A run that was stopped may have left the evaluation of its last step to this one.
  const bool left = step == job_.steps_before() && early_stop_.last_step() >= 0;
  if ((step <= job_.steps_before() && !left) || early_stop_.last_step() >= step) return false;
  return step == recipe.steps || (recipe.eval_every > 0 && step % recipe.eval_every == 0);
}

Result<double> Evaluation::loss_of(std::int64_t i) {
  const std::map<std::string, Tensor> batch = TRY(batches_->batch(i));
  for (const auto& [id, name] : fed_) TRY(executor_->feed(id, batch.at(name)));
  TRY(executor_->run_forward(job_.recipe().seed, static_cast<std::uint64_t>(i + 1)));
  return executor_->read_scalar(compiled_.graph.outputs[0]);
}

// All look in each round whether one was asked to stop: none waits long for it, nor in an exchange that a batch makes.
Result<bool> Evaluation::run_batches(std::vector<std::vector<double>>& losses) {
  std::vector<double>& own = losses[static_cast<std::size_t>(share_)];
  for (std::int64_t i = 0; i < batch_count_; i += shares_) {
    if (TRY(on_any_rank(stop_.stop_requested()))) return true;
    if (i + share_ < batch_count_) own[static_cast<std::size_t>(i / shares_)] = TRY(loss_of(i + share_));
  }
  return false;
}

Result<EvaluationRow> Evaluation::run(std::int64_t step) {
  CHECK(job_.pending() == 0, "evaluation while steps are pending");
  const std::int64_t start_ns = monotonic_ns();
  EvaluationRow row{step, 0, batch_count_, 0};
  std::vector<std::vector<double>> losses;  // of each share
  for (std::int64_t share = 0; share < shares_; ++share)
    losses.emplace_back(static_cast<std::size_t>((batch_count_ - share + shares_ - 1) / shares_));
  if (TRY(run_batches(losses))) return Error{Errc::interrupted, "interrupted"};
  if (World* const world = World::current(); world != nullptr && shares_ > 1) {
    std::vector<World::Block> blocks;
    for (std::int64_t share = 0; share < shares_; ++share) {
      std::vector<double>& of_share = losses[static_cast<std::size_t>(share)];
      blocks.push_back({of_share.data(), static_cast<std::int64_t>(of_share.size() * sizeof(double)),
                        static_cast<int>(share * (world->size() / shares_))});
    }
    TRY(world->share(blocks));
  }
  double sum = 0;  // in the order of one rank
  for (std::int64_t i = 0; i < batch_count_; ++i)
    sum += losses[static_cast<std::size_t>(i % shares_)][static_cast<std::size_t>(i / shares_)];
  row.loss = sum / static_cast<double>(batch_count_);
  row.eval_ns = monotonic_ns() - start_ns;
  rows_.push_back(row);
  return row;
}

}  // namespace gradloom
