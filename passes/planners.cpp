// Memory planners: offsets for lifetimes. All sizes are rounded up to kAlignmentBytes, so every
// offset is aligned. Greedy by size: Pisarchyk and Lee, Efficient Memory Management for Deep
// Neural Net Inference, 2020, algorithm 3; here in several orders, keeping the smallest arena,
// because no single order wins on every graph.
#include "passes/planners.h"

#include <algorithm>
#include <numeric>

#include "engine/base/text.h"

namespace gradloom {
namespace {

std::int64_t plan_none(const std::vector<Request>& requests, std::vector<std::int64_t>& offsets) {
  offsets.assign(requests.size(), 0);
  std::int64_t end = 0;
  for (std::size_t i = 0; i < requests.size(); ++i) {
    offsets[i] = end;
    end += aligned_bytes(requests[i].bytes);
  }
  return end;
}

std::int64_t plan_reuse(const std::vector<Request>& requests, std::vector<std::int64_t>& offsets) {
  struct Block {
    std::int64_t offset, bytes;
    std::int32_t busy_until;
  };
  offsets.assign(requests.size(), 0);
  std::vector<std::size_t> order(requests.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::stable_sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) {
    return requests[a].first_step < requests[b].first_step;
  });
  std::vector<Block> blocks;
  std::int64_t end = 0;
  for (std::size_t i : order) {
    const std::int64_t bytes = aligned_bytes(requests[i].bytes);
    if (bytes == 0) continue;
    auto fits = [&](const Block& b) { return b.busy_until < requests[i].first_step && b.bytes >= bytes; };
    auto block = std::find_if(blocks.begin(), blocks.end(), fits);
    if (block == blocks.end()) {
      block = blocks.insert(blocks.end(), Block{end, bytes, 0});
      end += bytes;
    }
    block->busy_until = requests[i].last_step;
    offsets[i] = block->offset;
  }
  return end;
}

enum class Gap { lowest, tightest };

// Places requests in `order`, each into a gap between the placed ones whose lifetimes overlap its own. Gives
// up, with at least `give_up_at`, once the arena is as large or `visits` of placed ones are used up.
std::int64_t place_in_order(const std::vector<Request>& requests, const std::vector<std::size_t>& order,
                            Gap rule, std::int64_t give_up_at, std::int64_t& visits,
                            std::vector<std::int64_t>& offsets) {
  struct Placed {
    std::int64_t offset, end;
    std::int32_t first_step, last_step;
  };
  std::vector<Placed> placed;  // by offset
  placed.reserve(requests.size());
  std::int64_t arena = 0;
  for (std::size_t i : order) {
    const Request& r = requests[i];
    const std::int64_t bytes = aligned_bytes(r.bytes);
    offsets[i] = 0;
    if (bytes == 0) continue;
    visits -= static_cast<std::int64_t>(placed.size());
    if (visits < 0) return give_up_at;
    std::int64_t cursor = 0, best = -1, best_gap = 0;
    for (const Placed& p : placed) {
      if (p.last_step < r.first_step || r.last_step < p.first_step) continue;
      const std::int64_t gap = p.offset - cursor;
      if (gap >= bytes && (best < 0 || gap < best_gap)) {
        best = cursor;
        best_gap = gap;
        if (rule == Gap::lowest) break;
      }
      cursor = std::max(cursor, p.end);
    }
    if (best < 0) best = cursor;
    offsets[i] = best;
    arena = std::max(arena, best + bytes);
    if (arena >= give_up_at) return arena;
    const Placed entry{best, best + bytes, r.first_step, r.last_step};
    auto at = std::upper_bound(placed.begin(), placed.end(), entry,
                               [](const Placed& a, const Placed& b) { return a.offset < b.offset; });
    placed.insert(at, entry);
  }
  return arena;
}

std::int64_t plan_best_fit(const std::vector<Request>& requests, std::vector<std::int64_t>& offsets) {
  const auto lifetime = [&](std::size_t i) { return requests[i].last_step - requests[i].first_step + 1; };
  const auto area = [&](std::size_t i) { return static_cast<double>(requests[i].bytes) * lifetime(i); };
  std::vector<std::size_t> by_index(requests.size());
  std::iota(by_index.begin(), by_index.end(), std::size_t{0});
  std::vector<Request> rounded = requests;
  for (Request& r : rounded) r.bytes = aligned_bytes(r.bytes);
  const std::int64_t bound = lower_bound_bytes(rounded);

  // Time grows with the square of the requests: with very many (about 30,000) the first orders must do.
  std::int64_t best = INT64_MAX, visits = 1'000'000'000;
  std::vector<std::int64_t> trial(requests.size());
  offsets.assign(requests.size(), 0);
  const auto attempt = [&](auto less) {
    if (best <= bound || visits < 0) return;
    std::vector<std::size_t> order = by_index;
    std::stable_sort(order.begin(), order.end(), less);
    for (Gap rule : {Gap::lowest, Gap::tightest}) {
      std::int64_t unlimited = INT64_MAX;
      const std::int64_t arena =
          place_in_order(requests, order, rule, best, best == INT64_MAX ? unlimited : visits, trial);
      if (arena >= best) continue;
      best = arena;
      offsets = trial;
    }
  };
  attempt([&](std::size_t a, std::size_t b) { return requests[a].bytes > requests[b].bytes; });
  attempt([&](std::size_t a, std::size_t b) { return area(a) > area(b); });
  attempt([&](std::size_t a, std::size_t b) { return lifetime(a) > lifetime(b); });
  attempt([&](std::size_t a, std::size_t b) {
    return lifetime(a) != lifetime(b) ? lifetime(a) > lifetime(b) : requests[a].bytes > requests[b].bytes;
  });
  attempt([&](std::size_t a, std::size_t b) { return requests[a].first_step < requests[b].first_step; });
  return requests.empty() ? 0 : best;
}

constexpr PlannerDef kPlanners[] = {
    {"none", "every buffer has its own place", plan_none},
    {"reuse", "a freed block of sufficient size is taken again, first fit in step order", plan_reuse},
    {"best-fit",
     "largest first into the gaps between overlapping lifetimes; several orders, the smallest arena is kept",
     plan_best_fit},
};

}  // namespace

std::span<const PlannerDef> all_planners() { return kPlanners; }

const PlannerDef* find_planner(const std::string& name) {
  for (const PlannerDef& def : kPlanners) {
    if (name == def.name) return &def;
  }
  return nullptr;
}

Result<const PlannerDef*> known_planner(const std::string& name) {
  if (const PlannerDef* def = find_planner(name); def != nullptr) return def;
  std::vector<std::string> names;
  for (const PlannerDef& def : kPlanners) names.emplace_back(def.name);
  return Error{Errc::usage, unknown_name("memory planner", name, names)};
}

}  // namespace gradloom
