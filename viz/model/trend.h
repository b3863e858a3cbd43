// How long a step took from run to run: the runs of one model on one processor in the order in which they began, the changes of
// level among them with what changed there, and the levels between. Made by app/trends.h; the window, the report and `trends
// --json` show it.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "sessions/change_points.h"
#include "sessions/store.h"

namespace gradloom {

struct TrendRun {
  std::string session;
  RunSummary run;
  double step_ns() const { return static_cast<double>(run.median_step_ns); }
};
struct TrendKernel {
  std::string node, phase;
  double before_ns = 0, after_ns = 0;  // of a step, mean over the runs beside the change
  double change_ns() const { return after_ns - before_ns; }
};
struct TrendChange {
  ChangePoint point;
  std::vector<std::string> settings, machine;  // "passes: default -> none"
  std::vector<TrendKernel> kernels;            // by how much they change
  bool slower() const { return point.after > point.before; }
  double ratio() const { return point.after / point.before; }  // 1.3: a step takes 1.3 times as long
};
struct Trend {
  std::string model, model_hash, hardware;
  std::vector<TrendRun> runs;  // the oldest first
  std::vector<TrendChange> changes;
  bool several_sessions() const;
};

// Between two changes.
struct TrendLevel {
  std::size_t from = 0, to = 0;                   // runs; behind the last
  double median_ns = 0, low_ns = 0, high_ns = 0;  // of a step; eight in ten of its runs are between
};
std::vector<TrendLevel> trend_levels(const Trend& trend);

// The first kernels of a change that account for it: each for at least 2 % of it.
constexpr std::size_t kMostTrendKernels = 8;
std::vector<TrendKernel> causing_kernels(const TrendChange& change);

// What a pinned run says of the newest level: a baseline.
struct TrendBaseline {
  std::size_t run = 0;  // of the trend
  double ratio = 1;     // the newest level's step / this run's
};
std::vector<TrendBaseline> trend_baselines(const Trend& trend);

std::string trend_run_text(const TrendRun& run, bool several_sessions);  // "run 11 (nightly)", "a.db#11"
// The first of settings and machine that changed, "and 3 more"; empty: nothing is known that did.
std::string trend_cause_text(const TrendChange& change);

}  // namespace gradloom
