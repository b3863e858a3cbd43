#include "sessions/rank_rows.h"

#include <algorithm>
#include <map>

#include "engine/base/text.h"
#include "sessions/recipe.h"

namespace gradloom {

void set_waits(std::vector<ExchangeRow>& exchanges) {
  // The last rank, by micro-batch and plan step
  std::map<std::pair<std::int32_t, std::int32_t>, std::int64_t> ready_ns;
  for (const ExchangeRow& e : exchanges) {
    const auto [at, fresh] = ready_ns.try_emplace({e.micro, e.plan_step}, e.start_ns);
    if (!fresh) at->second = std::max(at->second, e.start_ns);
  }
  for (ExchangeRow& e : exchanges)
    e.wait_ns = std::clamp<std::int64_t>(ready_ns[{e.micro, e.plan_step}] - e.start_ns, 0,
                                         std::max<std::int64_t>(e.duration_ns, 0));
}

std::string slowest_text(const std::vector<RankShares>& ranks) {
  if (ranks.size() < 2) return {};
  const auto less = [](double RankShares::*member) {
    return [member](const RankShares& a, const RankShares& b) { return a.*member < b.*member; };
  };
  const RankShares& slowest = *std::max_element(ranks.begin(), ranks.end(), less(&RankShares::kernels_ns));
  const RankShares& waiting = *std::max_element(ranks.begin(), ranks.end(), less(&RankShares::exposed_ns));
  const double lost_ns = std::min(waiting.exposed_ns, waiting.wait_ns),
               step_ns = waiting.kernels_ns + waiting.exposed_ns;
  if (&slowest == &waiting || step_ns <= 0 || lost_ns < 0.02 * step_ns) return {};
  return "rank " + std::to_string(slowest.rank.rank) + " computes longest, " +
         duration_text(slowest.kernels_ns) + " a step: rank " + std::to_string(waiting.rank.rank) +
         " stands still for up to " + duration_text(lost_ns) + " of its " + duration_text(step_ns) +
         " until the last is ready";
}

std::vector<std::string> other_environments(const std::map<std::string, std::string>& first,
                                            const std::vector<RankShares>& ranks) {
  constexpr const char* kTold[] = {"version",  "git_id", "cpu_model", "isa",        "usable_cores", "threads",
                                   "governor", "kernel", "gpu.name",  "gpu.driver", "gpu.libraries"};
  constexpr std::size_t kMostLines = 8;
  std::vector<std::string> lines;
  for (const RankShares& r : ranks) {
    for (const char* name : kTold) {
      const auto own = r.rank.environment.find(name), of_first = first.find(name);
      if (own == r.rank.environment.end() || of_first == first.end() || own->second == of_first->second)
        continue;
      if (lines.size() == kMostLines) return lines;
      lines.push_back("rank " + std::to_string(r.rank.rank) + " has another " + name +
                      " than rank 0: " + escaped(own->second) + ", not " + escaped(of_first->second));
    }
  }
  return lines;
}

std::string reduce_text(const std::string& recipe_json) {
  const auto recipe = parse_recipe(recipe_json);
  return recipe.ok() && recipe->reduce != "order" ? "means are added as a " + recipe->reduce : std::string();
}

}  // namespace gradloom
