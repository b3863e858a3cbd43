#include "viz/model/worth_table.h"

#include <algorithm>
#include <cmath>
#include <set>

#include "sessions/recipe.h"

namespace gradloom {
namespace {

constexpr const char* kNoPasses = "passes=none";

// The measured trial of these changes; null: none was made.
const Trial* trial_of(const WorthTrials& search, const std::string& changes) {
  for (const Trial& trial : search.trials)
    if (trial.changes == changes && trial.round > 0) return &trial;
  return nullptr;
}

// `with` against `without`, both against the job of one search, which is one of them or a third.
WorthSide side_of(const Trial& with, const Trial& without) {
  const Interval &a = with.ratio, &b = without.ratio;
  return {WorthSide::State::measured,
          {a.value / b.value, a.low / b.high, a.high / b.low},
          without.peak_bytes - with.peak_bytes};
}

WorthSide side_between(const WorthTrials& search, const std::string& with, const std::string& without) {
  if (with == without) return {.state = WorthSide::State::same};
  const Trial *a = trial_of(search, with), *b = trial_of(search, without);
  return a == nullptr || b == nullptr ? WorthSide() : side_of(*a, *b);
}

std::set<std::string> pass_names(const Recipe& recipe) {
  std::set<std::string> names;
  for (const RecipePass& pass : recipe.passes) names.insert(pass.name);
  return names;
}

// The trials of a search with what they do to passes. The job itself is one of them.
WorthTrials trials_of(const RecordedSearch& search, const Recipe& job) {
  WorthTrials found;
  const TuneTableRow* const own = search.table.job();
  found.step_ns = own->step_ns;
  found.peak_bytes = own->peak_bytes;
  Trial itself;
  itself.round = 1;
  itself.ratio = {1, 1, 1};
  itself.peak_bytes = own->peak_bytes;
  found.trials.push_back(itself);
  const std::set<std::string> of_job = pass_names(job);
  for (const Trial& trial : search.trials) {
    const bool only_passes =
        trial.changes.rfind("passes=", 0) == 0 && trial.changes.find(';') == std::string::npos;
    if (!only_passes) continue;
    const auto recipe = parse_recipe(trial.recipe_json);
    if (!recipe) continue;
    found.trials.push_back(trial);
    const std::set<std::string> names = pass_names(*recipe);
    const auto excluded = [](const RecipePass& p) { return !p.sites.except.empty(); };
    if (std::any_of(recipe->passes.begin(), recipe->passes.end(), excluded)) continue;  // instances
    std::vector<std::string> off;
    std::set_difference(of_job.begin(), of_job.end(), names.begin(), names.end(), std::back_inserter(off));
    if (off.size() == 1 && names.size() + 1 == of_job.size()) found.without[off[0]] = trial.changes;
    if (names.size() == 1) found.alone[*names.begin()] = trial.changes;
  }
  return found;
}

}  // namespace

WorthTable worth_of(const WorthTrials& job, const WorthTrials* none) {
  WorthTable table;
  table.step_ns = job.step_ns;
  table.peak_bytes = job.peak_bytes;
  table.all = side_between(job, "", kNoPasses);
  std::map<std::string, PassWorth> passes;
  for (const auto& [pass, changes] : job.without) passes[pass].among = side_between(job, "", changes);
  for (const auto& [pass, changes] : none != nullptr ? none->alone : job.alone)
    passes[pass].alone =
        none != nullptr ? side_between(*none, changes, "") : side_between(job, changes, kNoPasses);
  for (auto& [pass, worth] : passes) {
    worth.pass = pass;
    table.passes.push_back(std::move(worth));
  }
  std::stable_sort(table.passes.begin(), table.passes.end(), [](const PassWorth& a, const PassWorth& b) {
    return a.among.speed.value > b.among.speed.value;
  });
  return table;
}

WorthTable recorded_worth(const RecordedSearch& search, const std::vector<RecordedSearch>& all) {
  const auto recipe = parse_recipe(search.recipe_json);
  if (!recipe || search.table.job() == nullptr) return {};
  const WorthTrials job = trials_of(search, *recipe);
  Recipe none = *recipe;
  none.passes.clear();
  const std::string wanted = recipe_json(none);
  for (const RecordedSearch& other : all)
    if (&other != &search && other.recipe_json == wanted && other.table.job() != nullptr) {
      const WorthTrials of_none = trials_of(other, none);
      return worth_of(job, &of_none);
    }
  return worth_of(job);
}

Waterfall waterfall(const WorthTable& table, bool alone, bool memory) {
  Waterfall made;
  if (!table.all.measured() || table.step_ns <= 0) return made;
  using Kind = WaterfallBar::Kind;
  const auto saved_bytes = [](const WorthSide& side) { return static_cast<double>(side.peak_saved_bytes); };
  const double last = memory ? static_cast<double>(table.peak_bytes) : table.step_ns;
  const Interval& all = table.all.speed;
  const double first = memory ? last + saved_bytes(table.all) : last * all.value;
  WaterfallBar start{Kind::none, "", 0, first, first, first}, end{Kind::all, "", 0, last, last, last};
  if (!memory) start.low = last * all.low, start.high = last * all.high;
  std::vector<WaterfallBar> passes;
  double told = 0;
  for (const PassWorth& p : table.passes) {
    const WorthSide& side = alone ? p.alone : p.among;
    if (!side.measured()) continue;
    // Among the others: what the job would take more. Alone: what the step without passes takes less.
    const auto saving = [&](double speed) { return alone ? first * (1 - 1 / speed) : last * (speed - 1); };
    WaterfallBar bar{Kind::pass, p.pass};
    const double saved = memory ? saved_bytes(side) : saving(side.speed.value);
    bar.low = memory ? saved : saving(side.speed.low);
    bar.high = memory ? saved : saving(side.speed.high);
    bar.to = -saved;  // placed below
    told += saved;
    passes.push_back(bar);
  }
  std::stable_sort(passes.begin(), passes.end(),
                   [](const WaterfallBar& a, const WaterfallBar& b) { return a.to < b.to; });
  made.bars.push_back(start);
  double at = first;
  for (WaterfallBar& bar : passes) {
    bar.from = at;
    at += bar.to;
    bar.to = at;
    made.bars.push_back(bar);
  }
  const double rest = first - last - told;
  made.bars.push_back({Kind::together, "", at, last, rest, rest});
  made.bars.push_back(end);
  for (const WaterfallBar& bar : made.bars) {
    made.most = std::max({made.most, bar.from, bar.to});
    if (bar.kind == Kind::none) made.most = std::max(made.most, bar.high);
  }
  return made;
}

}  // namespace gradloom
