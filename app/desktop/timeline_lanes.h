// Parts of the timeline panel: lanes with their bars, time on the axis, marks over them, the strip of all steps.
#pragma once

#include <string>

#include "app/desktop/timeline_rows.h"
#include "app/desktop/ui.h"

namespace gradloom {

// Where the bars are on the screen, and which time that is.
struct TimelineView {
  ImVec2 min, max;
  TimeRange shown;
  float x(double ns) const {
    return min.x + static_cast<float>((ns - shown.from_ns) / shown.span()) * (max.x - min.x);
  }
  double ns(float at) const { return shown.from_ns + (at - min.x) / (max.x - min.x) * shown.span(); }
};

constexpr float kLaneNames = 64;  // points, left of the bars

void draw_ticks(const TimelineView& view, ImVec2 top);
// Steps that are shown together: where each begins, what lies between them and is not timed, and above `top` which they are. Of
// the run below (not `named`) where each begins and ends.
void draw_step_bounds(const TimelineModel& model, const TimelineView& view, float top, float bottom,
                      bool named);
// Where the lanes were drawn, by their number.
struct LanePlace {
  float y = 0, height = 0;
};
// Which kernels are outlined because they compute what the one under the mouse does.
struct LaneMarks {
  const std::vector<std::int32_t>* pair_of = nullptr;  // by plan step
  std::int32_t lit = -1;
  const char* prefix = "";  // of the names in the item registry
};
// One of the runs whose lanes are drawn.
struct DrawnRun {
  const TraceDocument& trace;
  const TimelineModel& model;
  const TimelineIdle& idle;
  LaneMarks marks;
};
// The bar under the mouse, or null.
const TimelineBar* draw_lane(Ui& ui, const TimelineView& view, const TraceDocument& trace,
                             const TimelineLane& lane, LanePlace place, bool hovered, const LaneMarks& marks);
// Bytes of the arena in use, on the same clock.
void draw_live(const TimelineModel& model, const TimelineView& view, float top, float bottom);
// `more`: of a kernel, further lines.
void bar_tooltip(const TraceDocument& trace, const TimelineModel& model, const TimelineBar& bar,
                 const std::string& more);
// A label on a pill, centred at x, kept inside the view.
void pill(const TimelineView& view, float x, float y, const std::string& label, ImU32 fill);
// The range is clear, the time around it veiled.
void draw_range(const TimelineView& view, const TimeRange& range, float top);
// The measured time: a band with its length on an arrow.
void draw_measure(const TimelineView& view, const TimeRange& range, float y, ImU32 color);

// From the kernel that is selected, or under the mouse in any view, to those of its other pass.
void draw_flows(Ui& ui, const TimelineView& view, const std::vector<LanePlace>& lanes);

// Makes what a run's lanes wait for, of its model with the number `made`; with `paths` what their ends waited for, too.
void follow_idle(TimelineIdle& idle, const std::shared_ptr<const RunSnapshot>& run,
                 const TimelineModel& model, std::int64_t made, bool paths);
// Of its first lane in the shown steps or in the marked time, "busy 97.1 %, launch 2.9 %"; empty: it has none.
std::string idle_words(TimelineIdle& idle, const TimelineModel& model,
                       const std::shared_ptr<const RangeFilter>& filter);
// What the lanes wait for, of the shown steps or of the marked time: in numbers, and as a bar for each lane that computes.
void draw_idle_legend(Ui& ui);
void draw_idle_bars(const Ui& ui);
// The gaps of a lane in the colour of their cause, below its bars; over them, what stands still for other ranks.
void draw_gaps(const DrawnRun& run, const TimelineView& view, const TimelineLane& lane, LanePlace place,
               bool over_bars);
// A line along what the shown steps' ends waited for, and from lane to lane.
void draw_path(const DrawnRun& run, const TimelineView& view, const std::vector<LanePlace>& lanes);

// A second run below the shown one: null where none is.
const RunBeside* shown_beside(const AppState& s);
const RunBeside* drawn_beside(const Ui& ui);  // the same, once its lanes are made
void draw_beside_line(Ui& ui);                // chooses it, and lists the largest differences
void draw_beside_head(Ui& ui, const TimelineView& view,
                      float y);  // which run it is, and how long its steps take
// What a kernel of either run takes in both; empty where there is nothing to say.
std::string pair_text(const Ui& ui, bool of_b, const TimelineBar& bar);
void light_pair(Ui& ui, const TimelineBar* a, const TimelineBar* b);  // the bars under the mouse

// The step of the last answer of what-if, where that is of the shown run, below the first shown one and to its scale; `names`:
// what stands left of it.
void draw_prediction(const Ui& ui, const TimelineView& view, float y,
                     std::vector<std::pair<float, std::string>>& names);
// Of its range, from the start of the first shown step; 0: there is none.
double prediction_end_ns(const Ui& ui);

// Where everything below the axis is drawn: from the upper edge of the canvas, or of the screen once moved there.
struct CanvasRows {
  std::vector<LaneRow> rows;
  std::vector<LanePlace> places;  // by row
  std::vector<RowsOfName> names;
  bool notes = false;
  // The first lane, the head of the run below, the prediction, the arena's bytes (no room: there are none).
  float lanes_top = 0, head = 0, prediction = 0, live_top = 0, live_bottom = 0;
  float height = 0;  // of all
};
CanvasRows canvas_rows(const Ui& ui, float height);  // `height`: pixels that are in sight
void move_rows(CanvasRows& on, float by);
struct UnderPointer {
  const TimelineBar *bar = nullptr, *beside = nullptr;
  bool over_note = false;
};
void draw_lane_names(Ui& ui, const CanvasRows& on, float left);
UnderPointer draw_canvas_rows(Ui& ui, const TimelineView& view, const CanvasRows& on, const TimeRange& drag,
                              bool hovered);

// The bar that the keys are at: null: they are at none. Arrows lead from bar to bar and lane to lane, with Shift they measure.
const TimelineBar* cursor_bar(const Ui& ui);
void cursor_keys(Ui& ui);
void draw_cursor(Ui& ui, const TimelineView& view, const CanvasRows& on);
void tell_cursor(Ui& ui);  // what it is

// All steps of the run as a strip: a click shows the nearest timed step, with Shift all from the shown ones to it.
void draw_step_strip(Ui& ui);

}  // namespace gradloom
