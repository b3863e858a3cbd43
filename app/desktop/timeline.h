// The timeline of one timed step: phases, scopes and kernels as nested bars over time. The model is pure;
// drawing is timeline_panel.cpp.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "profiler/trace.h"

namespace gradloom {

struct TimelineBar {
  double start_ns = 0, end_ns = 0;  // from the start of the step
  std::string label;
  std::string phase;
  std::int32_t kernel = -1;  // index in TraceDocument::kernels; -1: phase or scope
};

struct TimelineLane {
  std::string name;               // "Phase", "Scope 1", "Kernels", "Stream 1"
  std::vector<TimelineBar> bars;  // by start, not overlapping
};

struct TimelineModel {
  std::int64_t step = 0;                // optimizer step
  double duration_ns = 0, busy_ns = 0;  // busy: inside kernels
  std::vector<TimelineLane> lanes;
  std::vector<double> live_ns, live_bytes;  // arena in use from live_ns[i] on; empty when not recorded
};

std::vector<std::int64_t> timed_steps(const TraceDocument& trace);
constexpr int kMostScopeLanes = 3;
// One lane per level of scopes, as deep as the model's names go, up to kMostScopeLanes.
TimelineModel build_timeline(const TraceDocument& trace, std::int64_t step);
// First bar that ends after `time_ns`.
std::size_t first_bar_after(const TimelineLane& lane, double time_ns);

struct TimelineState {
  TimelineModel model;
  const void* source = nullptr;                     // snapshot the model was made of
  int step_index = 1 << 20;                         // index in timed_steps(); beyond the end: the last
  double from_ns = 0, to_ns = 0;                    // what is shown; empty: everything
  double measure_from_ns = -1, measure_to_ns = -1;  // dragged range
};

}  // namespace gradloom
