// gradloom trends: how long a step took from run to run, where that changed, and what changed there with it.
//
// Runs of one model on one processor are a series, in the order in which they began, over any number of sessions. A change of
// level (sessions/change_points.h) is told with the settings and the parts of the machine record that differ between the run
// before it and the run after it, and with the kernels that account for it.
#pragma once

#include <stop_token>
#include <string>
#include <vector>

#include "app/output.h"
#include "viz/model/trend.h"

namespace gradloom {

struct TrendOptions {
  ChangePointOptions changes;
  std::string model = "*";  // glob over model labels and paths
};
constexpr std::size_t kMostTrendRuns = 2000;  // of a series; the newest

// Series by their newest run, the newest first. Errors: those of the sessions; Errc::interrupted.
Result<std::vector<Trend>> find_trends(const std::vector<std::string>& sessions, const TrendOptions& options,
                                       std::stop_token stop);

// Series, runs with pins and tags, levels, changes with what changed, baselines: all that the window shows.
Json trend_json(const Trend& trend);
std::string trends_text(const std::vector<Trend>& trends);

}  // namespace gradloom
