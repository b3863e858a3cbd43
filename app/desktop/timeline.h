// The timeline of one timed step: phases, scopes and kernels as nested bars over time, of a recorded loop also what its
// thread did. The model is pure;
// drawing is timeline_panel.cpp.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <unordered_set>
#include <vector>

#include "profiler/trace.h"

namespace gradloom {

struct TimelineBar {
  double start_ns = 0, end_ns = 0;  // from the start of the step
  std::string label;
  std::string phase;
  std::int32_t kernel = -1;    // index in TraceDocument::kernels; -1: phase, scope or activity
  std::int32_t activity = -1;  // index in TraceDocument::activities
  std::int32_t host = -1;      // index in TraceDocument::host
  std::int32_t exchange = -1;  // index in TraceDocument::exchanges
  bool waits = false;          // of an exchange: until the last rank was ready
};

struct TimelineLane {
  std::string name;               // "Host", "Phase", "Scope 1", "Kernels", "Launches", "Stream 1"
  std::vector<TimelineBar> bars;  // by start, not overlapping
  bool stream = false;            // of a device, with its kernels and copies
  bool other_rank = false;        // of a training by several: not the one that all else is of
};

struct TimelineModel {
  std::int64_t step = 0;                // optimizer step
  double duration_ns = 0, busy_ns = 0;  // busy: inside kernels
  std::vector<TimelineLane> lanes;
  std::vector<double> live_ns, live_bytes;  // arena in use from live_ns[i] on; empty when not recorded
};

std::vector<std::int64_t> timed_steps(const TraceDocument& trace);
constexpr int kMostScopeLanes = 3, kMostHostLanes = 4, kMostOtherRanks = 7;
// One lane per level of scopes, as deep as the model's names go, up to kMostScopeLanes. Of several ranks each has its kernels and
// its exchanges, in two parts: waiting for the last rank, and the transfer; of the other ranks the first kMostOtherRanks.
TimelineModel build_timeline(const TraceDocument& trace, std::int64_t step);
// First bar that ends after `time_ns`.
std::size_t first_bar_after(const TimelineLane& lane, double time_ns);

struct TimeRange {
  double from_ns = 0, to_ns = 0;  // from the start of the step; empty unless from < to
  bool empty() const { return !(to_ns > from_ns); }
  double span() const { return to_ns - from_ns; }
  bool operator==(const TimeRange&) const = default;
};
TimeRange range_between(double a_ns, double b_ns);  // in either order
// From the first launch of the node's kernel to its end; empty when the step has none.
TimeRange launch_of(const TimelineModel& model, const TraceDocument& trace, const std::string& node);

// Kernels that run at some time within a range of a step: what the range filter lets through.
struct RangeFilter {
  TimeRange range;
  std::unordered_set<std::string> nodes;
  std::int32_t first_step = -1, last_step = -1;  // of the plan
};
RangeFilter filter_of(const TimelineModel& model, const TraceDocument& trace, const TimeRange& range);

struct TimelineState {
  TimelineModel model;
  const void* source = nullptr;  // snapshot the model was made of
  std::int64_t run = 0;          // of the source
  int step_index = 0;            // index in timed_steps()
  bool newest_step = true;       // goes on to the newest step when the run does
  TimeRange view;                // what is shown; empty: everything
  TimeRange ruler;
  std::shared_ptr<const RangeFilter> filter;  // null: no range is marked

  enum class Drag : std::uint8_t { none, pan, ruler, range, zoom } drag = Drag::none;
  double drag_ns = 0;     // where the drag began
  std::string menu_node;  // of the open context menu
  TimeRange menu_range;   // its bar
};
// Takes what `state` shows over to a run: the model is made again when the run, what is known of it, or the
// step changed. View and range survive while the run is the same.
void show_run(TimelineState& state, const void* source, std::int64_t run, const TraceDocument& trace);
void set_range(TimelineState& state, const TraceDocument& trace, const TimeRange& range);  // empty: no filter

}  // namespace gradloom
