// The steps of a run one by one: how long each took, which stand out, and what is known of why. The strip above the timeline
// and `show --steps` are made of it.
//
// A step stands out when it is further from the median than five times the spread (1.4826 x the median distance from it, which
// is the standard deviation of times that are normally distributed), and than a tenth of the median. Steps timed kernel by
// kernel and others are judged each by their own median and spread, because timing costs something; the first kWarmupSteps
// of a run are judged and count for neither.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "sessions/store.h"

namespace gradloom {

struct RunStep {
  std::int64_t step = 0;
  double ns = 0, loss = 0;
  bool timed = false;
  int stands_out = 0;         // 1: slow, -1: fast
  double ratio = 1;           // of the median of its kind
  bool first = false;         // of this run, or one of the warm-up
  bool skipped = false;       // by loss scaling
  bool checkpoint = false;    // one was due right before it, as the run's command says
  double evaluation_ns = -1;  // that was made right before it; -1: none
};

struct RunStepKind {
  std::size_t steps = 0;  // that median and spread are of
  double median_ns = 0, spread_ns = 0;
  double slow_ns() const;  // what stands out is above it, or below
  double fast_ns() const;
};

struct RunSteps {
  std::vector<RunStep> steps;  // in order
  RunStepKind untimed, timed;
  std::size_t slow = 0, fast = 0;
  const RunStepKind& kind_of(const RunStep& step) const { return step.timed ? timed : untimed; }
};
RunSteps run_steps(const RunRecord& run);

// "first steps", "after an evaluation of 12 ms", ..
std::vector<std::string> known_causes(const RunStep& step);
// "3 of 400 steps stand out: 5 spreads of 12 us, and 10 %, from the median of 1.2 ms"
std::string outliers_text(const RunSteps& steps);
// The steps with the longest of each of `columns` groups of neighbours, as far as they are that many: indices in `steps`, and
// where the groups begin. What a strip of so many pixels draws.
struct StepColumn {
  std::size_t first = 0, last = 0;  // inclusive
  std::size_t longest = 0;
  bool timed = false, evaluation = false;
};
std::vector<StepColumn> step_columns(const RunSteps& steps, std::size_t columns);

}  // namespace gradloom
