#include "viz/model/trend.h"

#include <algorithm>
#include <cmath>

#include "engine/base/text.h"

namespace gradloom {
namespace {

// Of sorted values; between two of them in proportion.
double part_of(const std::vector<double>& sorted, double part) {
  const double at = part * static_cast<double>(sorted.size() - 1);
  const auto below = static_cast<std::size_t>(at);
  const std::size_t above = std::min(below + 1, sorted.size() - 1);
  return sorted[below] + (at - static_cast<double>(below)) * (sorted[above] - sorted[below]);
}

}  // namespace

bool Trend::several_sessions() const {
  return std::any_of(runs.begin(), runs.end(),
                     [&](const TrendRun& run) { return run.session != runs.front().session; });
}

std::vector<TrendLevel> trend_levels(const Trend& trend) {
  std::vector<TrendLevel> levels;
  std::size_t from = 0;
  for (std::size_t i = 0; i <= trend.changes.size(); ++i) {
    const std::size_t to = i < trend.changes.size() ? trend.changes[i].point.at : trend.runs.size();
    std::vector<double> ns;
    for (std::size_t r = from; r < to; ++r) ns.push_back(trend.runs[r].step_ns());
    std::sort(ns.begin(), ns.end());
    if (!ns.empty()) levels.push_back({from, to, median(ns), part_of(ns, 0.1), part_of(ns, 0.9)});
    from = to;
  }
  return levels;
}

std::vector<TrendKernel> causing_kernels(const TrendChange& change) {
  std::vector<TrendKernel> causing;
  const double whole = std::abs(change.point.after - change.point.before);
  for (const TrendKernel& kernel : change.kernels) {
    if (causing.size() >= kMostTrendKernels || std::abs(kernel.change_ns()) < 0.02 * whole) break;
    causing.push_back(kernel);
  }
  return causing;
}

std::vector<TrendBaseline> trend_baselines(const Trend& trend) {
  std::vector<TrendBaseline> baselines;
  const std::vector<TrendLevel> levels = trend_levels(trend);
  for (std::size_t i = 0; i < trend.runs.size(); ++i)
    if (trend.runs[i].run.pinned && trend.runs[i].step_ns() > 0)
      baselines.push_back({i, levels.back().median_ns / trend.runs[i].step_ns()});
  return baselines;
}

std::string trend_run_text(const TrendRun& run, bool several_sessions) {
  return (several_sessions ? escaped(run.session) + "#" : "run ") + std::to_string(run.run.id) +
         (run.run.name.empty() ? "" : " (" + escaped(run.run.name) + ")");
}

std::string trend_cause_text(const TrendChange& change) {
  const std::size_t count = change.settings.size() + change.machine.size();
  if (count == 0) return {};
  const std::string& first = change.settings.empty() ? change.machine.front() : change.settings.front();
  return first + (count > 1 ? " and " + std::to_string(count - 1) + " more" : "");
}

}  // namespace gradloom
