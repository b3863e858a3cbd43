#include "app/ranks.h"

#include <algorithm>
#include <cstdlib>
#include <new>
#include <thread>

#include "app/local_ranks.h"
#include "engine/base/hash.h"
#include "engine/base/text.h"
#include "engine/ranks/world.h"
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

// Open MPI kills ranks a second after it asked them to end, ours three (app/local_ranks.cpp).
constexpr std::chrono::milliseconds kPatience{500}, kLocalPatience{1500};

Status train_as(const RankPlace& place, TrainRequest request, std::chrono::milliseconds silence,
                CommandContext& context, const TrainOne& train) {
  if (request.recipe.ranks > 1 && request.recipe.ranks != place.world && place.rank == 0)
    context.out.note("the launcher has started " + std::to_string(place.world) + " ranks, not " +
                     std::to_string(request.recipe.ranks));
  request.recipe.ranks = place.world;
  request.recipe.threads = threads_of(request.recipe, place);
  World& world = *TRY(World::join(place));
  world.set_limit(silence);
  world.set_stop(context.stop, is_local_rank() ? kLocalPatience : kPatience);
  if (place.rank > 0) make_silent(request, context);
  Status ended;
  {
    const Finishing finishing(context);  // a rank that ended at once would leave the others waiting
    try {
      ended = train(std::move(request), context, [&](const Status& mine) { return world.leave(mine); });
    } catch (const std::bad_alloc&) {
      ended = world.leave(Error{Errc::limit, "out of memory"});
    }
  }
  if (ended.ok()) return ended;
  if (end_as_local_rank(place.rank, ended.error())) return {};
  return place.rank == 0 ? ended : Error{ended.error().code, ""};  // rank 0 tells it
}

}  // namespace

Status train_on_ranks(TrainRequest request, std::chrono::milliseconds silence, CommandContext& context,
                      const TrainOne& train) {
  const std::optional<RankPlace> place = TRY(rank_place());
  if (request.options.paced && (place || request.recipe.ranks > 1))
    return Error{Errc::usage, "--paced runs on one rank"};
  if (place) return train_as(*place, std::move(request), silence, context, train);
  if (request.recipe.ranks > 1) return start_local_ranks(request.recipe.ranks, context);
  return train(std::move(request), context, [](const Status& mine) { return mine; });
}

Status check_same_on_all_ranks(const Job& job) {
  World* const world = World::current();
  if (world == nullptr) return {};
  const Recipe& r = job.recipe();
  const std::string order = r.optimizer + " " + r.schedule + " " + std::to_string(r.steps) + " " +
                            std::to_string(r.epochs) + " " + std::to_string(r.shuffle) + " " +
                            std::to_string(r.seed) + " " + std::to_string(job.first_batch(1));
  for (const auto& [what, text] :
       {std::pair<const char*, std::string>{"has another model", r.model_hash},
        {"has another plan (another recipe, version or kind of processor)", job.compiled().plan.hash},
        {"takes other steps, batches or learning rates", order}}) {
    const std::vector<std::int64_t> hashes = TRY(world->exchange(static_cast<std::int64_t>(fnv1a64(text))));
    for (std::size_t rank = 1; rank < hashes.size(); ++rank)
      if (hashes[rank] != hashes[0])
        return Error{Errc::bad_input, "rank " + std::to_string(rank) + " " + what + " than rank 0"};
  }
  return {};
}

Result<bool> on_any_rank(bool mine) {
  World* const world = World::current();
  if (world == nullptr) return mine;
  const std::vector<std::int64_t> all = TRY(world->exchange(mine ? 1 : 0));
  return std::any_of(all.begin(), all.end(), [](std::int64_t one) { return one != 0; });
}

}  // namespace gradloom
