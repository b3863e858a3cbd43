#include "app/rank_times.h"

#include <unistd.h>

#include <algorithm>
#include <array>
#include <map>

#include "app/rank_message.h"
#include "app/ranks.h"
#include "engine/base/boot_id.h"
#include "engine/ir/op.h"
#include "engine/ops/collectives/share_parameters.h"
#include "engine/ranks/world.h"

namespace gradloom {
namespace {

std::string host_name() {
  std::array<char, 256> name{};
  return gethostname(name.data(), name.size() - 1) == 0 ? name.data() : "unknown";
}

World::Bytes pack(const std::vector<KernelSample>& samples, const std::vector<ExchangeRow>& exchanges) {
  RankMessage packed;
  packed.add(static_cast<std::int64_t>(samples.size()));
  for (const KernelSample& s : samples)
    for (const std::int64_t number :
         {std::int64_t{s.plan_step}, std::int64_t{s.micro}, s.start_ns, s.duration_ns})
      packed.add(number);
  for (const ExchangeRow& e : exchanges)
    for (const std::int64_t number :
         {std::int64_t{e.plan_step}, std::int64_t{e.micro}, e.start_ns, e.duration_ns, e.sent_bytes})
      packed.add(number);
  return packed.bytes();
}

// Appends what pack() made of a rank, on rank 0's clock and by the steps of its plan. `steps`: of rank 0's plan by that rank's, -1:
// none; empty: they are the same.
void unpack(RankMessage packed, std::int64_t rank, std::int64_t ahead_ns,
            const std::vector<std::int32_t>& steps, RankStep& step) {
  const auto small = [&] { return static_cast<std::int32_t>(packed.number()); };
  const auto plan_step = [&] {
    const auto own = static_cast<std::size_t>(packed.number());
    return steps.empty() ? static_cast<std::int32_t>(own) : own < steps.size() ? steps[own] : -1;
  };
  for (std::int64_t count = packed.number(); count > 0 && packed.left() > 0; --count) {
    KernelSample s{plan_step(), small(), packed.number() - ahead_ns, 0};
    s.duration_ns = packed.number();
    if (rank > 0 && s.plan_step >= 0) step.samples.emplace_back(rank, s);
  }
  while (packed.left() > 0) {
    ExchangeRow e{rank, 0, plan_step()};
    e.micro = small();
    e.start_ns = packed.number() - ahead_ns;
    e.duration_ns = packed.number();
    e.sent_bytes = packed.number();
    if (e.plan_step >= 0) step.exchanges.push_back(e);
  }
}

using EnvironmentRows = std::map<std::string, std::string>;

void add_environment(RankMessage& message, const Environment& environment) {
  const EnvironmentRows rows = environment_rows(environment);
  message.add(static_cast<std::int64_t>(rows.size()));
  for (const auto& [name, value] : rows) {
    message.add(name);
    message.add(value);
  }
}

EnvironmentRows next_environment(RankMessage& message) {
  EnvironmentRows rows;
  for (std::int64_t count = message.number(); count > 0 && message.left() > 0; --count) {
    std::string name = message.text();
    rows[std::move(name)] = message.text();
  }
  return rows;
}

// Names of the nodes that a plan's steps run.
std::vector<std::string> step_names(const Job& job) {
  std::vector<std::string> names;
  for (const PlanStep& step : job.compiled().plan.steps)
    names.push_back(job.compiled().train.graph.nodes[step.node].name);
  return names;
}

}  // namespace

Result<std::optional<RankTimes>> RankTimes::meet(const Job& job, const Environment& own) {
  World* const world = World::current();
  if (world == nullptr) return std::optional<RankTimes>();
  RankTimes times;
  times.job_ = &job;
  times.machine_ = boot_id();
  RankMessage mine;
  mine.add(host_name());
  const std::optional<RankPlace> place = TRY(rank_place());
  mine.add(place ? place->local_rank : world->rank());
  mine.add(own.threads);
  mine.add(own.cpu_model);
  add_environment(mine, own);
  const std::vector<std::string> names = step_names(job);
  const bool own_plan = keeps_states_apart(job);  // whose steps only their names connect with rank 0's
  for (std::size_t i = 0; i < names.size() && own_plan; ++i) mine.add(names[i]);
  std::map<std::string, std::int32_t> places;
  for (std::size_t i = 0; i < names.size(); ++i) places.emplace(names[i], static_cast<std::int32_t>(i));
  const std::vector<World::Bytes> all = TRY(world->gather(mine.bytes()));
  const std::vector<World::Clock> clocks = TRY(world->clocks(times.machine_));
  for (std::size_t rank = 0; rank < all.size(); ++rank) {
    RankMessage theirs(all[rank]);
    RankRow row;
    row.rank = static_cast<std::int64_t>(rank);
    row.host = theirs.text();
    row.local_rank = theirs.number();
    row.threads = theirs.number();
    row.cpu_model = theirs.text();
    row.environment = next_environment(theirs);
    row.clock_offset_ns = clocks[rank].offset_ns;
    row.clock_error_ns = clocks[rank].error_ns;
    times.ranks_.push_back(std::move(row));
    std::vector<std::int32_t>& steps = times.steps_.emplace_back();
    while (theirs.left() > 0) {
      const auto at = places.find(theirs.text());
      steps.push_back(at == places.end() ? -1 : at->second);
    }
  }
  return std::optional<RankTimes>(std::move(times));
}

Result<std::vector<EnvironmentRows>> RankTimes::environments(const Environment& own) {
  RankMessage mine;
  add_environment(mine, own);
  std::vector<EnvironmentRows> all;
  for (World::Bytes& bytes : TRY(World::current()->gather(mine.bytes()))) {
    RankMessage theirs(std::move(bytes));
    all.push_back(next_environment(theirs));
  }
  return all;
}

void RankTimes::begin_step() { World::current()->record(true); }

// Those in the background are made in the order of the kernels that begin them.
std::vector<ExchangeRow> RankTimes::own_exchanges(const StepResult& result) const {
  World& world = *World::current();
  const std::vector<World::Exchanged> made = world.take_recorded();
  world.record(false);
  const Graph& graph = job_->compiled().train.graph;
  const Plan& plan = job_->compiled().plan;
  std::vector<ExchangeRow> rows;
  for (const bool background : {false, true}) {
    const auto exchanges = [&](const OpDef* op, std::int32_t micro) {
      const bool idle = op == &gather_parameters_op() && micro > 0;  // the first micro-batch has it all
      return op->exchanges() && op->begins_exchange() == background && !idle;
    };
    auto next = made.begin();
    for (const KernelSample& s : result.samples) {
      if (!exchanges(graph.nodes[plan.steps[static_cast<std::size_t>(s.plan_step)].node].op, s.micro))
        continue;
      next = std::find_if(next, made.end(),
                          [&](const World::Exchanged& e) { return e.background == background; });
      if (next == made.end()) break;
      rows.push_back({world.rank(), s.micro, s.plan_step, next->start_ns, next->end_ns - next->start_ns, 0,
                      next->sent_bytes});
      ++next;
    }
  }
  return rows;
}

Result<RankStep> RankTimes::end_step(const StepResult& result) {
  World& world = *World::current();
  const std::vector<World::Bytes> all = TRY(world.gather(pack(result.samples, own_exchanges(result))));
  const std::vector<World::Clock> clocks = TRY(world.clocks(machine_));
  RankStep step;
  for (std::size_t rank = 0; rank < all.size(); ++rank)
    unpack(RankMessage(all[rank]), static_cast<std::int64_t>(rank), clocks[rank].offset_ns, steps_[rank],
           step);
  set_waits(step.exchanges);
  return step;
}

}  // namespace gradloom
