#include "viz/model/trend_news.h"

#include <fmt/format.h>

#include <algorithm>

#include "engine/base/text.h"

namespace gradloom {
namespace {

std::string key_of(const TrendRun& run) { return run.session + "#" + std::to_string(run.run.id); }

}  // namespace

std::string regression_text(const Trend& trend, const TrendChange& change) {
  std::string text = fmt::format("{} on {}: a step takes {:.2f}x as long since {}", escaped(trend.model),
                                 escaped(trend.hardware), change.ratio(),
                                 trend_run_text(trend.runs[change.point.at], trend.several_sessions()));
  const std::vector<TrendKernel> kernels = causing_kernels(change);
  if (!kernels.empty()) {
    const TrendKernel& most = kernels.front();
    text += fmt::format(": {} {}{}{}", escaped(most.node), most.change_ns() < 0 ? "-" : "+",
                        duration_text(std::abs(most.change_ns())),
                        most.phase.empty() ? "" : " (" + escaped(most.phase) + ")");
  }
  if (const std::string cause = trend_cause_text(change); !cause.empty())
    text += (kernels.empty() ? ": " : "; ") + cause;
  return text;
}

std::vector<std::string> TrendNews::of(const std::vector<std::string>& sessions,
                                       const std::vector<Trend>& trends) {
  if (sessions != sessions_) known_.clear();
  sessions_ = sessions;
  std::vector<std::string> news;
  for (const Trend& trend : trends) {
    const auto [at, first] = known_.try_emplace(trend.model_hash + " " + trend.hardware);
    std::set<std::string>& known = at->second;
    for (const TrendChange& change : trend.changes) {
      const std::size_t begin = change.point.at, from = begin - std::min(begin, kDrift),
                        to = std::min(trend.runs.size(), begin + kDrift + 1);
      bool is_known = first;
      for (std::size_t i = from; i < to && !is_known; ++i) is_known = known.count(key_of(trend.runs[i])) != 0;
      known.insert(key_of(trend.runs[begin]));
      if (!is_known && change.slower()) news.push_back(regression_text(trend, change));
    }
  }
  return news;
}

}  // namespace gradloom
