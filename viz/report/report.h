// A run as one page to send around: what a step costs, where its time and memory go, what the passes did, what
// comparisons found, and how to run it again. `gradloom report`.
#pragma once

#include <algorithm>
#include <cstddef>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "sessions/store.h"
#include "viz/model/roofline_model.h"
#include "viz/model/trend.h"

namespace gradloom {

// What would make the run faster, as `gradloom advise` says it.
struct ReportAdvice {
  std::string title, change, command;
  double gain_ns = 0, gain = 0, low = 0, high = 0;  // parts of a step
};

struct Report {
  RunRecord run;
  std::vector<RunSummary> runs;               // of the session, newest first
  std::vector<StoredComparison> comparisons;  // the same
  std::string session;                        // file name
  std::string replay;                         // command lines that run it again; empty: it has no recipe
  std::string model_note;                     // find_model.h: where it is not what it was
  std::string now_utc;
  bool advised = false;                   // `advice` was asked for
  std::vector<ReportAdvice> advice;       // the most gain first
  std::optional<RooflineModel> roofline;  // where kernels were timed
  std::optional<Trend> trend;             // runs of the job on its processor, where there are several
};

// Self-contained: no script, nothing loaded from elsewhere. Names from files are escaped.
std::string report_html(const Report& report);
// For a pull request: the figures and the tables without the pictures.
std::string report_markdown(const Report& report);

// What both tell.
namespace report {

// "model.onnx" says nothing: with the folder then.
std::string model_name(const RunSummary& run);

// "Gradloom 0.1.0, written 2026-11-27T08:00:00Z"; the version is the one that recorded the run.
std::string signature(const Report& report);

template <class T>
std::span<const T> first_of(const std::vector<T>& all, std::size_t most) {
  return std::span(all).first(std::min(most, all.size()));
}

struct Figure {
  std::string name, value, note;
};
std::vector<Figure> key_figures(const Report& report);

// What of a step stands out, each with its numbers: the operator that takes most, kernels that only move data, kernels that
// take less than a launch is worth, the reason why a pass left most of the time as it was.
std::vector<std::string> findings(const RunRecord& run);

// "kernels reach 43 % of the roofs of X: 1.2 ms of a step, at least 0.52 ms".
std::string roofline_sentence(const RooflineModel& model);
// "12 runs; the newest level takes 1.2 ms a step, eight in ten runs 1.1 ms to 1.3 ms".
std::string trend_sentence(const Trend& trend);
// "slower since run 11 (nightly): 20.1 us -> 30.1 us, 1.50x as long".
std::string change_sentence(const Trend& trend, const TrendChange& change);

// "B is 1.31x as fast as A [1.28, 1.33]".
std::string verdict_sentence(const Comparison& comparison);

}  // namespace report
}  // namespace gradloom
