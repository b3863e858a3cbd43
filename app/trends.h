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
#include "sessions/change_points.h"
#include "sessions/store.h"

namespace gradloom {

struct TrendRun {
  std::string session;
  RunSummary run;
};
struct TrendKernel {
  std::string node, phase;
  double before_ns = 0, after_ns = 0;  // of a step, mean over the runs beside the change
};
struct TrendChange {
  ChangePoint point;
  std::vector<std::string> settings, machine;  // "passes: default -> none"
  std::vector<TrendKernel> kernels;            // by how much they change
  bool slower() const { return point.after > point.before; }
};
struct Trend {
  std::string model, hardware;
  std::vector<TrendRun> runs;  // the oldest first
  std::vector<TrendChange> changes;
};

struct TrendOptions {
  ChangePointOptions changes;
  std::string model = "*";  // glob over model labels and paths
};
constexpr std::size_t kMostTrendRuns = 2000;  // of a series; the newest

// Series by their newest run, the newest first. Errors: those of the sessions; Errc::interrupted.
Result<std::vector<Trend>> find_trends(const std::vector<std::string>& sessions, const TrendOptions& options,
                                       std::stop_token stop);

Json trend_json(const Trend& trend);
std::string trends_text(const std::vector<Trend>& trends);

}  // namespace gradloom
