#include "app/ranks.h"

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <new>
#include <thread>

#include "app/local_ranks.h"
#include "app/rank_agreement.h"
#include "app/rank_message.h"
#include "engine/ops/collectives/share_parameters.h"
#include "engine/ranks/world.h"
#include "engine/train/state_ranges.h"
#include "kernels/cpu.h"

namespace gradloom {
namespace {

// The ranks of a machine share its processors, unless their launcher has given each its own or somebody has said how many.
std::int64_t threads_of(const Recipe& recipe, const RankPlace& place) {
  if (recipe.threads > 0 || place.local_world == 1 || std::getenv("OMP_NUM_THREADS") != nullptr)
    return recipe.threads;
  const int usable = kernels::threads();  // nobody has said how many: the processors that are ours
  if (usable < static_cast<int>(std::thread::hardware_concurrency())) return 0;
  return std::max(1, usable / place.local_world);
}

// What is rank 0's to do for all.
void make_silent(TrainRequest& request, CommandContext& context) {
  request.options.session.clear();
  request.options.files = {};
  request.options.checkpoints.folder.clear();
  context.out.set_quiet(true);
}

// Open MPI kills ranks a second after it asked them to end, ours three (app/mpirun.cpp).
constexpr std::chrono::milliseconds kPatience{500}, kLocalPatience{1500};

// ---- states that ranks keep apart --------------------------------------------------------------------------

void add_part(RankMessage& message, const std::string& name, const StatePart& part) {
  message.add(name);
  message.add(static_cast<std::int64_t>(part.contents.dtype()));
  message.add(static_cast<std::int64_t>(part.whole.size()));
  for (const std::int64_t dim : part.whole) message.add(dim);
  message.add(part.begin);
  message.add(part.contents.count());
  message.add_bytes(part.contents.data(), part.contents.bytes());
}

StatePart next_part(RankMessage& message) {
  const auto type = static_cast<DType>(message.number());
  StatePart part;
  part.whole.resize(static_cast<std::size_t>(message.number()));
  for (std::int64_t& dim : part.whole) dim = message.number();
  part.begin = message.number();
  const std::int64_t count = message.number();
  const bool all = count == element_count(part.whole);
  part.contents = Tensor(type, all ? part.whole : Shape{count});
  const std::span<const std::byte> contents = message.bytes_next();
  CHECK(contents.size() == part.contents.bytes(), "a state of another rank is not whole");
  std::memcpy(part.contents.mutable_data(), contents.data(), contents.size());
  return part;
}

// Parts become the tensors that they are of.
class JoinedStates {
 public:
  void add(const std::string& name, StatePart part) {
    const std::int64_t count = part.contents.count();
    if (count == element_count(part.whole)) {  // the same on several ranks, or on one alone
      tensors_.emplace(name, std::move(part.contents));
      return;
    }
    const auto [at, fresh] = tensors_.try_emplace(name);
    if (fresh) at->second = Tensor(part.contents.dtype(), part.whole);
    const std::size_t width = dtype_bytes(part.contents.dtype());
    std::memcpy(
        static_cast<std::byte*>(at->second.mutable_data()) + static_cast<std::size_t>(part.begin) * width,
        part.contents.data(), part.contents.bytes());
    left_.try_emplace(name, element_count(part.whole)).first->second -= count;
  }
  std::map<std::string, Tensor> take() {
    for (const auto& [name, left] : left_) CHECK(left == 0, "a state is not whole on all ranks together");
    return std::move(tensors_);
  }

 private:
  std::map<std::string, Tensor> tensors_;
  std::map<std::string, std::int64_t> left_;  // elements of those that come in parts
};

using LeaveWorld = std::function<Status(const Status& mine)>;

// Meets the other ranks; `work` leaves them.
Status run_as(const RankPlace& place, std::chrono::milliseconds silence, CommandContext& context,
              const std::function<Status(World&, const LeaveWorld&)>& work) {
  World& world = *TRY(World::join(place, silence, context.stop));
  world.set_stop(context.stop, is_local_rank() ? kLocalPatience : kPatience);
  const LeaveWorld leave = [&](const Status& mine) { return world.leave(mine); };
  Status ended;
  {
    const Finishing finishing(context);  // a rank that ended at once would leave the others waiting
    try {
      const Status same = check_same_build(world);
      ended = same.ok() ? work(world, leave) : leave(same);
    } catch (const std::bad_alloc&) {
      ended = leave(Error{Errc::device, "out of memory"});
    }
  }
  if (ended.ok()) return ended;
  if (end_as_local_rank(place.rank, ended.error())) return {};
  return place.rank == 0 ? ended : Error{ended.error().code, ""};  // rank 0 tells it
}

Status train_as(const RankPlace& place, TrainRequest request, std::chrono::milliseconds silence,
                CommandContext& context, const TrainOne& train) {
  if (request.recipe.ranks > 1 && request.recipe.ranks != place.world && place.rank == 0)
    context.out.note("the launcher has started " + std::to_string(place.world) + " ranks, not " +
                     std::to_string(request.recipe.ranks));
  become_rank(place, request, context);
  return run_as(place, silence, context,
                [&](World&, const LeaveWorld& leave) { return train(std::move(request), context, leave); });
}

}  // namespace

void become_rank(const RankPlace& place, TrainRequest& request, CommandContext& context) {
  request.recipe.ranks = place.world;
  request.options.checkpoints.threads = request.recipe.threads;
  request.recipe.threads = threads_of(request.recipe, place);
  if (place.rank > 0) make_silent(request, context);
}

Status train_on_ranks(TrainRequest request, std::chrono::milliseconds silence, CommandContext& context,
                      const TrainOne& train) {
  const std::optional<RankPlace> place = TRY(rank_place());
  if (request.options.paced && (place || request.recipe.ranks > 1))
    return Error{Errc::usage, "--paced runs on one rank"};
  if (place) return train_as(*place, std::move(request), silence, context, train);
  if (request.recipe.ranks > 1) return start_local_ranks(request.recipe.ranks, context);
  return train(std::move(request), context, [](const Status& mine) { return mine; });
}

Status work_on_ranks(std::int64_t ranks, CommandContext& context,
                     const std::function<Status(World& world)>& work) {
  const std::optional<RankPlace> place = TRY(rank_place());
  if (!place) return start_local_ranks(ranks, context);
  return run_as(*place, std::chrono::seconds(60), context, [&](World& world, const LeaveWorld& leave) {
    if (place->rank > 0) context.out.set_quiet(true);
    return leave(work(world));
  });
}

Result<std::vector<std::int64_t>> of_all_ranks(std::int64_t mine) {
  World* const world = World::current();
  return world == nullptr ? std::vector{mine} : world->exchange(mine);
}

Result<bool> as_rank_0(bool mine) { return TRY(of_all_ranks(mine ? 1 : 0))[0] != 0; }

Result<bool> on_all_ranks(bool mine) {
  const std::vector<std::int64_t> all = TRY(of_all_ranks(mine ? 1 : 0));
  return std::all_of(all.begin(), all.end(), [](std::int64_t one) { return one != 0; });
}

Result<bool> on_any_rank(bool mine) { return !TRY(on_all_ranks(!mine)); }

Result<std::vector<std::byte>> bytes_of_rank(std::size_t rank, std::vector<std::byte> mine) {
  World* const world = World::current();
  if (world == nullptr) return mine;
  const std::vector<std::int64_t> sizes = TRY(world->exchange(static_cast<std::int64_t>(mine.size())));
  mine.resize(static_cast<std::size_t>(sizes[rank]));
  const std::vector<World::Block> blocks{{mine.data(), sizes[rank], static_cast<int>(rank)}};
  TRY(world->share(blocks));
  return mine;
}

Result<NextStep> agree_on_next_step(const NextStep& mine) {
  constexpr std::int64_t kStop = 1, kTimes = 2, kCheckpoint = 4, kCopy = 8;
  const std::vector<std::int64_t> all =
      TRY(of_all_ranks((mine.stop ? kStop : 0) | (mine.timed ? kTimes : 0) |
                       (mine.checkpoint ? kCheckpoint : 0) | (mine.copy ? kCopy : 0)));
  return NextStep{std::any_of(all.begin(), all.end(), [](std::int64_t one) { return (one & kStop) != 0; }),
                  (all[0] & kTimes) != 0, (all[0] & kCheckpoint) != 0, (all[0] & kCopy) != 0};
}

bool keeps_states_apart(const Job& job) {
  const std::vector<PassReport>& reports = job.compiled().reports;
  return job.recipe().ranks > 1 && std::any_of(reports.begin(), reports.end(), [](const PassReport& report) {
           return report.name == "zero" && report.matched > 0;
         });
}

bool has_parts(const Job& job) { return tensor_ranks(job.compiled().train.graph) > 1; }

bool has_parts_of_parameters(const Job& job) {
  return has_parts(job) || !parameter_ranges(job.compiled().train.graph).empty();
}

// The kernels that begin it are the first of a step.
Status gather_parameters(Job& job) {
  const Compiled& c = job.compiled();
  const auto begins = [&](std::int32_t step) {
    return c.train.graph.nodes[c.plan.steps[static_cast<std::size_t>(step)].node].op ==
           &gather_parameters_op();
  };
  if (World::current() == nullptr || c.plan.steps.empty() || !begins(0)) return {};
  while (job.pending() > 0) TRY(job.collect());
  TRY(job.executor().observe(
      c.train.names, StepOptions(), nullptr,
      [&](std::int32_t step, std::int64_t, bool after) -> Result<bool> { return after || begins(step); }));
  TRY(of_all_ranks(0));  // which comes after what was begun
  return {};
}

bool needs_all_ranks(const Job& job) { return keeps_states_apart(job) || has_parts(job); }

// Ranks of the first group have what rank 0 lacks.
Result<std::map<std::string, Tensor>> with_whole(std::map<std::string, Tensor> tensors,
                                                 const std::map<std::string, ParameterPart>& parts) {
  World* const world = World::current();
  if (world == nullptr || parts.empty()) return tensors;
  const std::int64_t count = parts.begin()->second.parts;
  RankMessage message;
  if (world->rank() > 0 && world->rank() < count)
    for (const auto& [name, part] : parts) {
      const Tensor& own = tensors.at(name);
      message.add_bytes(own.data(), own.bytes());
    }
  std::vector<World::Bytes> all = TRY(world->gather(message.bytes()));
  if (world->rank() != 0) return tensors;
  std::map<std::string, Tensor> own;
  for (const auto& [name, part] : parts) {
    Tensor& tensor = tensors.at(name);
    own[name] = std::exchange(tensor, Tensor(tensor.dtype(), part.whole(tensor.shape())));
    put_part(tensor, own[name], part, 0);
  }
  for (std::int64_t rank = 1; rank < count; ++rank) {
    RankMessage theirs(std::move(all[static_cast<std::size_t>(rank)]));
    for (const auto& [name, part] : parts) {
      Tensor contents(own[name].dtype(), own[name].shape());
      const std::span<const std::byte> bytes = theirs.bytes_next();
      CHECK(bytes.size() == contents.bytes(), "a part of another rank is not whole");
      std::memcpy(contents.mutable_data(), bytes.data(), bytes.size());
      put_part(tensors.at(name), contents, part, rank);
    }
  }
  return tensors;
}

Result<std::map<std::string, Tensor>> with_whole_parameters(const Job& job,
                                                            std::map<std::string, Tensor> parameters) {
  const Graph& graph = job.compiled().train.graph;
  std::map<std::string, ParameterPart> named;
  for (const auto& [id, part] : parameter_parts(graph)) named[graph.values[id].name] = part;
  parameters = TRY(with_whole(std::move(parameters), named));
  const std::map<ValueId, OwnRange> ranges = parameter_ranges(graph);
  if (ranges.empty()) return parameters;
  StateParts mine;
  for (const auto& [id, own] : ranges) {
    const std::string& name = graph.values[id].name;
    Tensor contents = std::move(parameters.at(name));
    parameters.erase(name);
    if (contents.count() > 0) mine[name] = {std::move(contents), own.whole, own.range.begin};
  }
  for (auto& [name, whole] : TRY(gather_states(std::move(mine)))) parameters[name] = std::move(whole);
  return parameters;
}

Result<std::map<std::string, Tensor>> joined(StateParts all) {
  std::map<std::string, Tensor> states;
  for (auto& [name, part] : all) states.emplace(name, std::move(part.contents));
  return states;
}

Result<std::map<std::string, Tensor>> gather_states(StateParts mine) {
  World* const world = World::current();
  if (world == nullptr) return joined(std::move(mine));
  RankMessage message;
  JoinedStates states;
  for (auto& [name, part] : mine) {
    if (world->rank() == 0)
      states.add(name, std::move(part));
    else
      add_part(message, name, part);
  }
  for (World::Bytes& bytes : TRY(world->gather(message.bytes()))) {
    RankMessage theirs(std::move(bytes));
    while (theirs.left() > 0) {
      const std::string name = theirs.text();
      states.add(name, next_part(theirs));
    }
  }
  return world->rank() == 0 ? states.take() : std::map<std::string, Tensor>();
}

}  // namespace gradloom
