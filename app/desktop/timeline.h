// The timeline of timed steps, one or several in a row: phases, scopes and kernels as nested bars over time, of a recorded
// loop also what its thread did. The model is pure; drawing is timeline_panel.cpp and timeline_lanes.cpp.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <unordered_set>
#include <vector>

#include "profiler/trace.h"

namespace gradloom {

struct TimelineBar {
  double start_ns = 0, end_ns = 0;  // from the start of the first step
  std::string label;                // of kernels none: bar_name
  std::string phase;
  std::int32_t kernel = -1;    // index in TraceDocument::kernels; -1: phase, scope or activity
  std::int32_t activity = -1;  // index in TraceDocument::activities
  std::int32_t host = -1;      // index in TraceDocument::host
  std::int32_t exchange = -1;  // index in TraceDocument::exchanges
  std::int32_t thread = -1;    // index in TraceDocument::threads; of its kernel
  bool waits = false;          // of an exchange: until the last rank was ready
  std::int32_t step = 0;       // index in TimelineModel::steps
};
// Name of a kernel's node; of other bars their label.
const std::string& bar_name(const TraceDocument& trace, const TimelineBar& bar);

struct TimelineLane {
  std::string name;                    // "Host", "Phase", "Scope 1", "Kernels", "Launches", "Stream 1"
  std::vector<TimelineBar> bars;       // by start, not overlapping
  bool stream = false;                 // of a device, with its kernels and copies
  std::int32_t rank = 0, number = -1;  // and of a stream which one
  bool other_rank = false;             // of a training by several: not the one that all else is of
  bool thread = false;                 // of the CPU: its part of the kernels that several computed
  bool repeats() const { return other_rank || thread; }  // its kernels are not those that a step counts
};

struct TimelineStep {
  std::int64_t step = 0;             // optimizer step
  double start_ns = 0, end_ns = 0;   // from the start of the first one
  std::int64_t left_out_before = 0;  // steps between the one before and this, which are not timed
};

struct TimelineModel {
  std::int64_t step = 0;            // the first
  std::vector<TimelineStep> steps;  // with the real time between them
  double duration_ns = 0;           // to the end of the last
  double step_ns = 0;               // of all steps together
  std::vector<TimelineLane> lanes;
  int main_lane = -1;                       // find_main_lane
  std::vector<double> live_ns, live_bytes;  // arena in use from live_ns[i] on; empty when not recorded
  std::vector<double> live_most;            // of kLiveBlock of these each, the largest
  // Of the bytes in use from `from_ns` to `to_ns` the most.
  double most_live(double from_ns, double to_ns) const;
  const TimelineStep* step_at(double time_ns) const;  // or the last before it; null: there is none
};
constexpr std::size_t kLiveBlock = 64;
int find_main_lane(const TimelineModel& model);  // the stream on which most is computed; -1: there is none
std::string shown_steps_text(const TimelineModel& model);    // "step 4", "steps 4 to 9"
std::string shown_numbers_text(const TimelineModel& model);  // "4", "4 to 9"

std::vector<std::int64_t> timed_steps(const TraceDocument& trace);
constexpr int kMostScopeLanes = 3, kMostHostLanes = 4, kMostOtherRanks = 7, kMostThreadLanes = 16;
// One lane per level of scopes, as deep as the model's names go, up to kMostScopeLanes. Of several ranks each has its kernels and
// its exchanges, in two parts: waiting for the last rank, and the transfer; of the other ranks the first kMostOtherRanks. Below a CPU's
// kernels there is a lane for each of the first kMostThreadLanes threads; where the one that begins the kernels waits for the others, its
// bar ends so much earlier.
TimelineModel build_timeline(const TraceDocument& trace, std::int64_t first_step, std::int64_t last_step);
inline TimelineModel build_timeline(const TraceDocument& trace, std::int64_t step) {
  return build_timeline(trace, step, step);
}
// First bar, from `from` on, that ends after `time_ns`.
std::size_t first_bar_after(const TimelineLane& lane, double time_ns, std::size_t from = 0);

struct TimeRange {
  double from_ns = 0, to_ns = 0;  // from the start of the first step; empty unless from < to
  bool empty() const { return !(to_ns > from_ns); }
  double span() const { return to_ns - from_ns; }
  bool operator==(const TimeRange&) const = default;
};
TimeRange range_between(double a_ns, double b_ns);  // in either order
// From the first launch of the node's kernel to its end; empty when the step has none.
TimeRange launch_of(const TimelineModel& model, const TraceDocument& trace, const std::string& node);

// From a kernel of the forward pass to one that differentiates it: they share an ONNX node.
struct TimelineFlow {
  std::size_t from_lane = 0, to_lane = 0;  // of TimelineModel::lanes
  double from_ns = 0, to_ns = 0;           // end of the one, start of the other
};
constexpr std::size_t kMostFlows = 64;
// Those of a node's kernels, whichever side it is on; of the rank that all else is of.
std::vector<TimelineFlow> flows_of(const TimelineModel& model, const TraceDocument& trace,
                                   const std::string& node);

// Kernels that run at some time within a range: what the range filter lets through.
struct RangeFilter {
  TimeRange range;
  std::unordered_set<std::string> nodes;
  std::int32_t first_step = -1, last_step = -1;  // of the plan
};
RangeFilter filter_of(const TimelineModel& model, const TraceDocument& trace, const TimeRange& range);

struct TimelineState {
  TimelineModel model;
  std::int64_t made = 0;                // counts the models that were made
  const void* source = nullptr;         // snapshot the model was made of
  std::int64_t run = 0;                 // of the source
  int first_index = 0, last_index = 0;  // what is shown, as indices in timed_steps()
  bool newest_step = true;              // goes on to the newest step when the run does, alone
  TimeRange view;                       // what is shown; empty: everything
  TimeRange whole;                      // everything: the shown steps, and those of a run below them
  TimeRange ruler;
  std::shared_ptr<const RangeFilter> filter;  // null: no range is marked

  bool show_path = false;  // the critical path
  std::string flow_node;   // whose flows these are, of the model with the number
  std::int64_t flow_made = -1;
  std::vector<TimelineFlow> flows;

  enum class Drag : std::uint8_t { none, pan, ruler, range, zoom } drag = Drag::none;
  double drag_ns = 0;      // where the drag began
  std::string menu_node;   // of the open context menu
  std::string menu_speed;  // what its bar stands for, as --speed of what-if names it; empty: nothing
  TimeRange menu_range;    // its bar
};
// Takes what `state` shows over to a run: the model is made again when the run, what is known of it, or the
// step changed. View and range survive while the run is the same.
void show_run(TimelineState& state, const void* source, std::int64_t run, const TraceDocument& trace);
void set_range(TimelineState& state, const TraceDocument& trace, const TimeRange& range);  // empty: no filter
// Shows steps first .. last of timed_steps(), cut to what there is, in the next show_run.
void choose_steps(TimelineState& state, int first, int last, int count);

}  // namespace gradloom
