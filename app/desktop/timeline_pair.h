// A second run below the one that the timeline shows, on the same clock: which of their kernels compute the same, and how
// far its steps are moved so that both begin together. Pure; drawn by timeline_beside.cpp.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "app/desktop/timeline.h"
#include "sessions/store.h"

namespace gradloom {

// Kernels that compute the same, as `compare` matches them: one phase, and ONNX nodes in common.
struct KernelPair {
  std::string name, phase;
  double a_ns = 0, b_ns = 0;  // per step
  double change_ns() const { return b_ns - a_ns; }
};
struct TimelinePair {
  std::vector<KernelPair> pairs;         // by |change|, the largest first
  std::vector<std::int32_t> of_a, of_b;  // by plan step: index in `pairs`, -1: of none
};
// The pair that a bar's kernel is of, by of_a or of_b; -1: of none.
std::int32_t pair_of(const std::vector<std::int32_t>& of, const TimelineBar& bar);
// Errors: as compare_runs has them.
Result<TimelinePair> pair_runs(const RunRecord& a, const RunRecord& b);

// "step" aligns where steps begin, a phase where its first kernel begins.
std::vector<std::string> alignments(const TimelineModel& a, const TimelineModel& b);
// The steps of `b` moved to those of `a` with the same place in the row; what else is of them goes along. Where a step has
// no such phase it is aligned where it begins.
void align(TimelineModel& b, const TimelineModel& a, const std::string& to);

// The first bars of a pair's kernels, from the first one's start to the last one's end; empty where there is none.
TimeRange bars_of_pair(const TimelineModel& model, const std::vector<std::int32_t>& of, std::int32_t pair);
// Of the timed steps of another run as many as are shown, from the one with the nearest number on.
std::pair<std::int64_t, std::int64_t> steps_beside(const TimelineModel& shown, const TraceDocument& other);

}  // namespace gradloom
