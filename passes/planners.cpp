// Memory planners: offsets for lifetimes. All sizes are rounded up to kAlignmentBytes, so every
// offset is aligned. Greedy by size: Pisarchyk and Lee, Efficient Memory Management for Deep
// Neural Net Inference, 2020, algorithm 3; here in several orders, keeping the smallest arena,
// because no single order wins on every graph.
#include "passes/planners.h"

#include <algorithm>
#include <map>
#include <numeric>
#include <set>

#include "engine/base/text.h"
#include "passes/packing.h"

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

// In the order of the steps, as an allocator would: what ended before is free, and joins its free neighbours;
// each request takes the smallest free piece that holds it, else the end grows. Time n log n.
std::int64_t place_by_steps(const std::vector<Request>& requests, std::vector<std::int64_t>& offsets) {
  std::vector<std::size_t> begins(requests.size());
  std::iota(begins.begin(), begins.end(), std::size_t{0});
  std::vector<std::size_t> ends = begins;
  std::stable_sort(begins.begin(), begins.end(), [&](std::size_t a, std::size_t b) {
    return requests[a].first_step != requests[b].first_step ? requests[a].first_step < requests[b].first_step
                                                            : requests[a].bytes > requests[b].bytes;
  });
  std::stable_sort(ends.begin(), ends.end(), [&](std::size_t a, std::size_t b) {
    return requests[a].last_step < requests[b].last_step;
  });
  std::map<std::int64_t, std::int64_t> free;                // offset -> end
  std::set<std::pair<std::int64_t, std::int64_t>> by_size;  // bytes, offset
  std::int64_t arena = 0;
  const auto take = [&](std::map<std::int64_t, std::int64_t>::iterator at) {
    by_size.erase({at->second - at->first, at->first});
    return free.erase(at);
  };
  const auto release = [&](std::int64_t begin, std::int64_t end) {
    if (begin == end) return;
    auto after = free.lower_bound(begin);
    if (after != free.end() && after->first == end) {
      end = after->second;
      after = take(after);
    }
    if (after != free.begin() && std::prev(after)->second == begin) {
      begin = std::prev(after)->first;
      take(std::prev(after));
    }
    free[begin] = end;
    by_size.insert({end - begin, begin});
  };
  std::size_t ended = 0;
  for (const std::size_t i : begins) {
    const std::int64_t bytes = aligned_bytes(requests[i].bytes);
    for (; ended < ends.size() && requests[ends[ended]].last_step < requests[i].first_step; ++ended)
      release(offsets[ends[ended]], offsets[ends[ended]] + aligned_bytes(requests[ends[ended]].bytes));
    offsets[i] = 0;
    if (bytes == 0) continue;
    const auto fit = by_size.lower_bound({bytes, 0});
    if (fit != by_size.end()) {
      const auto piece = free.find(fit->second);
      const std::int64_t end = piece->second;
      offsets[i] = piece->first;
      take(piece);
      release(offsets[i] + bytes, end);
      continue;
    }
    offsets[i] = arena;
    if (!free.empty() && std::prev(free.end())->second == arena) {
      offsets[i] = std::prev(free.end())->first;
      take(std::prev(free.end()));
    }
    arena = offsets[i] + bytes;
  }
  return arena;
}

// The smallest arena found so far.
class BestFit {
 public:
  BestFit(const std::vector<Request>& requests, std::vector<std::int64_t>& offsets)
      : requests_(requests), offsets_(offsets), trial_(requests.size()), by_index_(requests.size()) {
    std::iota(by_index_.begin(), by_index_.end(), std::size_t{0});
    for (Request& r : requests_) r.bytes = aligned_bytes(r.bytes);
    bound_ = lower_bound_bytes(requests_);
  }

  std::int64_t run() {
    if (requests_.size() > kMany) return place_by_steps(requests_, offsets_);
    const auto lifetime = [&](std::size_t i) { return requests_[i].last_step - requests_[i].first_step + 1; };
    const auto area = [&](std::size_t i) { return static_cast<double>(requests_[i].bytes) * lifetime(i); };
    attempt([&](std::size_t a, std::size_t b) { return requests_[a].bytes > requests_[b].bytes; });
    attempt([&](std::size_t a, std::size_t b) { return area(a) > area(b); });
    attempt([&](std::size_t a, std::size_t b) { return lifetime(a) > lifetime(b); });
    attempt([&](std::size_t a, std::size_t b) {
      return lifetime(a) != lifetime(b) ? lifetime(a) > lifetime(b) : requests_[a].bytes > requests_[b].bytes;
    });
    attempt([&](std::size_t a, std::size_t b) { return requests_[a].first_step < requests_[b].first_step; });
    tighten();
    return best_;
  }

 private:
  template <class Less>
  void attempt(Less less) {
    std::vector<std::size_t> order = by_index_;
    std::stable_sort(order.begin(), order.end(), less);
    for (const Gap rule : {Gap::lowest, Gap::tightest}) {
      if (best_ <= bound_ || visits_ <= 0) return;
      const std::int64_t arena = place_in_order(requests_, order, rule, best_, visits_, trial_);
      if (arena < best_) keep(arena);
    }
  }

  void keep(std::int64_t arena) {
    best_ = arena;
    offsets_ = trial_;
  }

  // Arenas between the bound and the best found: the bound itself, then halves of what is left in between, down
  // to a part of the bound that no one minds.
  void tighten() {
    const auto count = static_cast<std::int64_t>(requests_.size());
    work_ = std::min(kSearch, kSearchEach * count * count);
    std::int64_t least = bound_;
    for (std::int64_t most = bound_; least < best_ && best_ - least >= bound_ / 4096;
         most = (least + best_) / 2 / kAlignmentBytes * kAlignmentBytes) {
      if (!fit(most)) {
        least = most + kAlignmentBytes;
        continue;
      }
      std::int64_t arena = 0;
      for (std::size_t i = 0; i < requests_.size(); ++i)
        arena = std::max(arena, trial_[i] + requests_[i].bytes);
      keep(arena);
    }
  }

  // Each search may take a part of the work that is left: there is always some for the next arena.
  bool fit(std::int64_t most) {
    struct Search {
      decltype(&pack_exactly) pack;
      int part;
    };
    for (const Search& search : {Search{pack_by_ejection, 4}, Search{pack_exactly, 3}}) {
      std::int64_t work = work_ / search.part;
      work_ -= work;
      const Packed answer = search.pack(requests_, most, work, trial_);
      work_ += std::max<std::int64_t>(work, 0);
      if (answer != Packed::gave_up) return answer == Packed::found;
    }
    return false;
  }

  // Of placed requests that are looked at: about a nanosecond each.
  static constexpr std::int64_t kOrders = 1'000'000'000, kSearch = 200'000'000, kSearchEach = 10'000;
  static constexpr std::size_t kMany = 20'000;
  std::vector<Request> requests_;  // with aligned bytes
  std::vector<std::int64_t>& offsets_;
  std::vector<std::int64_t> trial_;
  std::vector<std::size_t> by_index_;
  std::int64_t bound_ = 0, best_ = INT64_MAX, visits_ = kOrders, work_ = 0;
};

std::int64_t plan_best_fit(const std::vector<Request>& requests, std::vector<std::int64_t>& offsets) {
  offsets.assign(requests.size(), 0);
  return requests.empty() ? 0 : BestFit(requests, offsets).run();
}

constexpr PlannerDef kPlanners[] = {
    {"none", "every buffer has its own place", plan_none},
    {"reuse", "a freed block of sufficient size is taken again, first fit in step order", plan_reuse},
    {"best-fit",
     "into the gaps between overlapping lifetimes, in several orders; then searches for offsets in arenas ever "
     "nearer to the lower bound",
     plan_best_fit},
};

}  // namespace

std::span<const PlannerDef> all_planners() { return kPlanners; }

std::int64_t plan_nothing(const std::vector<Request>& requests, std::vector<std::int64_t>&) {
  return lower_bound_bytes(requests);
}

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
