#include "engine/device/gpu_ranks.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <thread>
#include <vector>

#include "engine/base/boot_id.h"
#include "engine/base/hash.h"
#include "engine/base/text.h"
#include "engine/ranks/agreement.h"
#include "engine/ranks/world.h"

namespace gradloom {
namespace {

// What each rank has for it.
enum class Ready : std::int64_t { yes, no_library, library_missing };

// Two ranks with one device cannot be joined; -1: there are none.
Result<int> rank_with_the_device_of_another(World& world, const std::string& uuid) {
  const std::string device = boot_id() + " " + uuid;
  const std::vector<std::int64_t> all = TRY(world.exchange(static_cast<std::int64_t>(fnv1a64(device))));
  for (std::size_t rank = 1; rank < all.size(); ++rank)
    if (std::find(all.begin(), all.begin() + static_cast<std::ptrdiff_t>(rank), all[rank]) !=
        all.begin() + static_cast<std::ptrdiff_t>(rank))
      return static_cast<int>(rank);
  return -1;
}

// Why none has the library's way, or nothing.
Result<MetRanks> look_for_reasons(World& world, const GpuPlugin& api, const std::string& uuid) {
  GpuImplementation library{};
  api.ranks_library(&library);
  const Ready mine = library.library[0] != 0 ? Ready::yes
                     : library.failed != 0   ? Ready::library_missing
                                             : Ready::no_library;
  const std::vector<std::int64_t> all = TRY(world.exchange(static_cast<std::int64_t>(mine)));
  for (std::size_t rank = 0; rank < all.size(); ++rank) {
    const auto theirs = static_cast<Ready>(all[rank]);
    if (theirs == Ready::yes) continue;
    const bool own = static_cast<int>(rank) == world.rank();
    return MetRanks{false,
                    own ? escaped(library.detail) : "rank " + std::to_string(rank) + " has no library for it",
                    theirs == Ready::library_missing};
  }
  const int twice = TRY(rank_with_the_device_of_another(world, uuid));
  if (twice >= 0)
    return MetRanks{false, "rank " + std::to_string(twice) + " has the device of another rank", false};
  // Of different versions they cannot be counted on to understand each other, and add in orders of their own.
  if (const auto other = TRY(other_text(world, library.library)))
    return Error{Errc::device, "rank " + std::to_string(other->rank) +
                                   " has another library than rank 0: " + escaped(other->theirs) + ", not " +
                                   escaped(other->first) + " (GRADLOOM_NCCL=0 exchanges through the host)"};
  return MetRanks{true, "", false};
}

}  // namespace

Result<MetRanks> meet_ranks(const Plugin& plugin, GpuContext* context, const std::string& uuid) {
  World* const world = World::current();
  if (world == nullptr || world->size() == 1) return MetRanks();
  const GpuPlugin& api = plugin.table();
  const MetRanks found = TRY(look_for_reasons(*world, api, uuid));
  if (!found.joined) return found;
  if (world->reduce_form() != ReduceForm::order) {
    GpuImplementation library{};
    api.ranks_library(&library);
    return Error{Errc::usage,
                 std::string("--reduce ") + kReduceForms[static_cast<int>(world->reduce_form())] +
                     ": these devices exchange by " + escaped(library.library) +
                     ", whose sums have an order of their own (GRADLOOM_NCCL=0 exchanges through "
                     "the host)"};
  }
  std::array<std::uint8_t, GPU_RANKS_ID_BYTES> id{};
  const GpuStatus made = world->rank() == 0 ? api.make_ranks_id(context, id.data()) : GPU_OK;
  std::string why = made == GPU_OK ? "" : escaped(api.message(context));
  const std::vector<std::int64_t> has_id = TRY(world->exchange(made));
  if (has_id[0] != GPU_OK)
    return MetRanks{false, world->rank() == 0 ? why : "rank 0 makes no id for it", true};
  const std::vector<World::Block> blocks{{id.data(), static_cast<std::int64_t>(id.size()), 0}};
  TRY(world->share(blocks));
  const GpuStatus joined =
      api.join_ranks(context, id.data(), world->rank(), world->size(), world->limit_ns());
  if (joined != GPU_OK) why = escaped(api.message(context));
  const std::vector<std::int64_t> all = TRY(world->exchange(joined));
  for (std::size_t rank = 0; rank < all.size(); ++rank) {
    if (all[rank] == GPU_OK) continue;
    api.leave_ranks(context);
    return MetRanks{false, why.empty() ? "rank " + std::to_string(rank) + " could not join" : why, true};
  }
  return found;
}

Status wait_for_ranks(const Plugin& plugin, GpuContext* context, std::int32_t event, const std::string& who) {
  constexpr std::int64_t kLooksNs = 50'000, kAskNs = 2'000'000;
  const GpuPlugin& api = plugin.table();
  World* const world = World::current();
  const std::int64_t start_ns = monotonic_ns();
  std::int64_t asked_ns = start_ns;
  const auto give_up = [&](Error error) {
    api.leave_ranks(context);
    return error;
  };
  while (true) {
    const GpuStatus status = api.query_event(context, event);
    const std::int64_t now_ns = monotonic_ns();
    if (status == GPU_OK) {
      const GpuStatus state = api.ranks_state(context);  // what is over may have gone wrong
      return state == GPU_OK ? Status() : give_up(plugin.error(state, context, who));
    }
    if (status != GPU_NOT_READY) return plugin.error(status, context, who + ": waiting for the device");
    if (now_ns - asked_ns > kAskNs) {
      asked_ns = now_ns;
      if (world != nullptr) {
        if (const Status ended = world->ended_ranks(); !ended) return give_up(ended.error());
        if (now_ns - start_ns > world->limit_ns())
          return give_up({Errc::device, who + ": an exchange between ranks did not end for " +
                                            duration_text(static_cast<double>(world->limit_ns()))});
      }
      if (const GpuStatus state = api.ranks_state(context); state != GPU_OK)
        return give_up(plugin.error(state, context, who));
    }
    if (now_ns - start_ns > kLooksNs) std::this_thread::sleep_for(std::chrono::microseconds(50));
  }
}

}  // namespace gradloom
