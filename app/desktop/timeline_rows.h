// The rows of the timeline: one for each lane of the shown run, then of the one below it. Where a pane is too low for all of them,
// lanes fold to thin strips until the kernels of both runs are in sight; the user folds and opens the others. Pure.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "app/desktop/timeline.h"

namespace gradloom {

struct LaneRow {
  bool of_b = false;
  std::size_t lane = 0;  // of its model
  bool folded = false;
  float height = 0, gap = 0;  // points; the gap is below it
};

// What the user chose, by lane_key: true folds, false opens; of all others the room decides.
using LaneFolds = std::map<std::string, bool>;
std::string lane_key(const TimelineLane& lane, bool of_b);  // "Scope 2"; of the run below "beside.Scope 2"

constexpr float kLaneHeight = 24, kKernelHeight = 40, kFoldedHeight = 5;  // points
// `b`: null, or the run below, of which empty lanes are left out; `room`: points for the rows of both.
std::vector<LaneRow> lane_rows(const TimelineModel& a, const TimelineModel* b, const LaneFolds& folds,
                               float room);
float rows_height(const std::vector<LaneRow>& rows, bool of_b);  // with the gaps

// One row that is open, or folded ones of one run that follow each other and have a name in common.
struct RowsOfName {
  std::size_t first = 0, count = 1;  // of the rows
  std::string name;                  // "Kernels"; of folded ones "Scope 1\u20133", else "4 lanes"
};
std::vector<RowsOfName> names_of_rows(const std::vector<LaneRow>& rows, const TimelineModel& a,
                                      const TimelineModel* b);

}  // namespace gradloom
