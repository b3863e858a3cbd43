#include "app/trends.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>

#include "app/recipe_flags.h"
#include "app/source_commit.h"
#include "engine/base/text.h"
#include "sessions/find_model.h"
#include "sessions/recipe.h"

namespace gradloom {
namespace {

constexpr std::size_t kRunsBeside = 3;  // a change, whose kernels are compared
// What differs from run to run without being a cause.
constexpr const char* kNoCauses[] = {"available_bytes", "load_before",        "load_after",
                                     "frequency_mhz",   "model.from_session", "gpu.looked_ns"};
constexpr const char* kNoSettings[] = {"steps", "seed", "expect", "kernel_times", "model", "version"};

std::string row_of(const std::map<std::string, std::string>& rows, const char* name) {
  const auto at = rows.find(name);
  return at == rows.end() ? "" : at->second;
}

// Paths and values of a recipe; the passes as one text.
std::map<std::string, std::string> flat_settings(const RunRecord& run) {
  std::map<std::string, std::string> flat;
  const Json root = Json::parse(run.recipe_json, nullptr, false);
  if (!root.is_object()) return flat;
  for (const auto& [key, value] : root.items()) {
    if (std::find(std::begin(kNoSettings), std::end(kNoSettings), key) != std::end(kNoSettings)) continue;
    if (value.is_object())
      for (const auto& [name, inner] : value.items()) flat[key + "." + name] = inner.dump();
    else
      flat[key] = value.is_string() ? value.get<std::string>() : value.dump();
  }
  if (const auto recipe = parse_recipe(run.recipe_json); recipe.ok())
    if (const auto pipeline = recipe_pipeline(*recipe); pipeline.ok())
      flat["passes"] = pipeline_flag(*pipeline);
  if (const std::string commit = source_text(run.environment); !commit.empty())
    flat["commit of the recipe"] = commit;
  return flat;
}

std::vector<std::string> differences(const std::map<std::string, std::string>& before,
                                     const std::map<std::string, std::string>& after) {
  std::vector<std::string> found;
  const auto told = [](const std::string& text) {
    return text.empty() ? std::string("none") : escaped(text);
  };
  std::map<std::string, std::string> all = before;
  all.insert(after.begin(), after.end());
  for (const auto& [name, _] : all) {
    const std::string a = row_of(before, name.c_str()), b = row_of(after, name.c_str());
    if (a != b) found.push_back(escaped(name) + ": " + told(a) + " -> " + told(b));
  }
  return found;
}

std::map<std::string, std::string> machine_rows(const RunRecord& run) {
  std::map<std::string, std::string> rows = run.environment;
  for (const char* name : kNoCauses) rows.erase(name);
  std::erase_if(rows, [](const auto& row) {
    if (row.first.starts_with("source.")) return true;  // a setting, told as one
    // clocks, temperatures, ..: what the run met, not what it was made on
    return row.first.starts_with("gpu.") && row.first != "gpu.driver" && row.first != "gpu.libraries" &&
           row.first != "gpu.throttle";
  });
  return rows;
}

using Stores = std::map<std::string, std::unique_ptr<Store>>;

class TrendFinder {
 public:
  TrendFinder(const TrendOptions& options, std::stop_token stop)
      : options_(options), stop_(std::move(stop)) {}

  Status read(const std::string& session) {
    auto& store = stores_[session];
    if (store) return {};  // named twice
    store = TRY(Store::open(session, StoreMode::read));
    for (const RunSummary& run : TRY(store->list_runs())) {
      if (stop_.stop_requested()) return Error{Errc::interrupted, "interrupted"};
      if (!run.has_recipe() || run.status != "done" || run.median_step_ns <= 0) continue;
      if (!glob_match(options_.model, model_label(run.model)) && !glob_match(options_.model, run.model))
        continue;
      const auto rows = TRY(store->environment(run.id));
      const std::string gpu = row_of(rows, "gpu.name");
      const std::string hardware = gpu.empty() ? row_of(rows, "cpu_model") : gpu;
      Trend& trend = series_[run.model_hash + " " + run.device + " " + hardware];
      trend.model = model_label(run.model);
      trend.model_hash = run.model_hash;
      trend.hardware = run.device + " (" + hardware + ")";
      trend.runs.push_back({session, run});
    }
    return {};
  }

  Result<std::vector<Trend>> trends() {
    std::vector<Trend> all;
    for (auto& [_, trend] : series_) {
      std::stable_sort(trend.runs.begin(), trend.runs.end(), [](const TrendRun& a, const TrendRun& b) {
        return a.run.started_utc < b.run.started_utc;
      });
      if (trend.runs.size() > kMostTrendRuns)
        trend.runs.erase(trend.runs.begin(), trend.runs.end() - static_cast<std::ptrdiff_t>(kMostTrendRuns));
      std::vector<double> ns;
      for (const TrendRun& run : trend.runs) ns.push_back(run.step_ns());
      for (const ChangePoint& point : change_points(ns, options_.changes))
        trend.changes.push_back(TRY(explain(trend, point)));
      all.push_back(std::move(trend));
    }
    std::stable_sort(all.begin(), all.end(), [](const Trend& a, const Trend& b) {
      return a.runs.back().run.started_utc > b.runs.back().run.started_utc;
    });
    return all;
  }

 private:
  Result<std::vector<RunRecord>> load(const Trend& trend, std::size_t from, std::size_t to) {
    std::vector<RunRecord> runs;
    for (std::size_t i = from; i < to; ++i) {
      if (stop_.stop_requested()) return Error{Errc::interrupted, "interrupted"};
      runs.push_back(TRY(stores_.at(trend.runs[i].session)->load_run(trend.runs[i].run.id)));
    }
    return runs;
  }

  // Adds the mean of what kernels take in these runs. False: none of them was timed kernel by kernel.
  static bool add_means(const std::vector<RunRecord>& runs, double TrendKernel::*ns,
                        std::map<std::string, TrendKernel>& kernels) {
    const auto timed =
        std::count_if(runs.begin(), runs.end(), [](const RunRecord& r) { return r.has_times(); });
    for (const RunRecord& run : runs) {
      if (!run.has_times()) continue;
      for (const KernelRow& row : run.kernels) {
        TrendKernel& kernel = kernels[row.info.node];
        kernel.node = row.info.node;
        kernel.phase = row.info.phase;
        kernel.*ns += static_cast<double>(row.step_ns) / static_cast<double>(timed);
      }
    }
    return timed > 0;
  }

  Result<TrendChange> explain(const Trend& trend, const ChangePoint& point) {
    TrendChange change{point};
    const std::vector<RunRecord> before =
                                     TRY(load(trend, point.at - std::min(point.at, kRunsBeside), point.at)),
                                 after = TRY(load(trend, point.at,
                                                  std::min(point.at + kRunsBeside, trend.runs.size())));
    change.settings = differences(flat_settings(before.back()), flat_settings(after.front()));
    change.machine = differences(machine_rows(before.back()), machine_rows(after.front()));
    std::map<std::string, TrendKernel> kernels;
    const bool told_before = add_means(before, &TrendKernel::before_ns, kernels),
               told_after = add_means(after, &TrendKernel::after_ns, kernels);
    if (!told_before || !told_after) kernels.clear();  // all would seem to have come or gone
    for (const auto& [_, kernel] : kernels) change.kernels.push_back(kernel);
    std::stable_sort(change.kernels.begin(), change.kernels.end(), [](const auto& a, const auto& b) {
      return std::abs(a.change_ns()) > std::abs(b.change_ns());
    });
    return change;
  }

  const TrendOptions& options_;
  std::stop_token stop_;
  Stores stores_;
  std::map<std::string, Trend> series_;
};

// "12.1 ms -> 16.0 ms, 1.32x as long"
std::string level_text(const ChangePoint& p) {
  return fmt::format("{} -> {}, {:.2f}x as long", duration_text(p.before), duration_text(p.after),
                     p.after / p.before);
}

std::string change_text(const Trend& trend, const TrendChange& change, bool several_sessions) {
  std::string text = fmt::format("  {} since {}: {} (p {:.4f})\n", change.slower() ? "SLOWER" : "FASTER",
                                 trend_run_text(trend.runs[change.point.at], several_sessions) + ", " +
                                     escaped(trend.runs[change.point.at].run.started_utc),
                                 level_text(change.point), change.point.p);
  for (const std::string& setting : change.settings) text += "    setting  " + setting + "\n";
  for (const std::string& part : change.machine) text += "    machine  " + part + "\n";
  for (const TrendKernel& k : causing_kernels(change)) {
    const double ns = k.change_ns();
    text +=
        fmt::format("    kernel   {}{} {} ({}): {} -> {}\n", ns < 0 ? "-" : "+", duration_text(std::abs(ns)),
                    escaped(k.node), escaped(k.phase), duration_text(k.before_ns), duration_text(k.after_ns));
  }
  return text;
}

}  // namespace

Result<std::vector<Trend>> find_trends(const std::vector<std::string>& sessions, const TrendOptions& options,
                                       std::stop_token stop) {
  TrendFinder finder(options, std::move(stop));
  for (const std::string& session : sessions) TRY(finder.read(session));
  return finder.trends();
}

namespace {

Json change_json(const TrendChange& c) {
  Json kernels = Json::array();
  for (const TrendKernel& k : causing_kernels(c))
    kernels.push_back(
        {{"node", k.node}, {"phase", k.phase}, {"before_ns", k.before_ns}, {"after_ns", k.after_ns}});
  return {{"at", c.point.at},
          {"verdict", c.slower() ? "SLOWER" : "FASTER"},
          {"before_ns", c.point.before},
          {"after_ns", c.point.after},
          {"ratio", c.ratio()},
          {"p", c.point.p},
          {"settings", c.settings},
          {"machine", c.machine},
          {"kernels", kernels}};
}

}  // namespace

Json trend_json(const Trend& trend) {
  Json runs = Json::array(), levels = Json::array(), changes = Json::array(), baselines = Json::array();
  for (const TrendRun& r : trend.runs)
    runs.push_back({{"session", r.session},
                    {"run", r.run.id},
                    {"name", r.run.name},
                    {"started", r.run.started_utc},
                    {"steps", r.run.steps},
                    {"median_step_ns", r.run.median_step_ns},
                    {"plan_peak_bytes", r.run.plan_peak_bytes},
                    {"passes", r.run.passes},
                    {"tags", r.run.tags},
                    {"note", r.run.note},
                    {"pinned", r.run.pinned}});
  for (const TrendLevel& l : trend_levels(trend))
    levels.push_back({{"from", l.from},
                      {"to", l.to},
                      {"median_ns", l.median_ns},
                      {"low_ns", l.low_ns},
                      {"high_ns", l.high_ns}});
  for (const TrendChange& c : trend.changes) changes.push_back(change_json(c));
  for (const TrendBaseline& b : trend_baselines(trend))
    baselines.push_back({{"at", b.run}, {"ratio", b.ratio}});
  return {{"model", trend.model}, {"hardware", trend.hardware}, {"runs", runs},
          {"levels", levels},     {"changes", changes},         {"baselines", baselines}};
}

std::string trends_text(const std::vector<Trend>& trends) {
  if (trends.empty()) return "no finished runs";
  std::string text;
  for (const Trend& trend : trends) {
    text +=
        fmt::format("{} on {}: {}, {} to {}\n", escaped(trend.model), escaped(trend.hardware),
                    plural_text(static_cast<std::int64_t>(trend.runs.size()), "run"),
                    duration_text(trend.runs.front().step_ns()), duration_text(trend.runs.back().step_ns()));
    if (trend.changes.empty()) text += "  no change of level\n";
    for (const TrendChange& change : trend.changes)
      text += change_text(trend, change, trend.several_sessions());
    for (const TrendBaseline& b : trend_baselines(trend))
      text += fmt::format("  the newest level is {:.2f}x as long as the pinned {}\n", b.ratio,
                          trend_run_text(trend.runs[b.run], trend.several_sessions()));
  }
  text.pop_back();
  return text;
}

}  // namespace gradloom
