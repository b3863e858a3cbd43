// Which lanes of the timeline fold where a pane is too low for all of them.
#include "app/desktop/timeline_rows.h"

#include <gtest/gtest.h>

namespace gradloom {
namespace {

TimelineLane lane(const char* name, bool stream = false, double ns = 10) {
  TimelineLane made;
  made.name = name;
  made.stream = stream;
  if (ns > 0) {
    TimelineBar bar;
    bar.end_ns = ns;
    bar.kernel = stream ? 0 : -1;
    made.bars = {bar};
  }
  return made;
}

TimelineModel ours() {
  TimelineModel m;
  m.lanes = {lane("Phase"), lane("Scope 1"), lane("Scope 2"), lane("Scope 3"), lane("Kernels", true)};
  m.main_lane = find_main_lane(m);
  return m;
}
TimelineModel theirs() {
  TimelineModel m = ours();
  m.lanes.insert(m.lanes.begin(), {lane("Host"), lane("Host 2"), lane("Host 3"), lane("Host 4")});
  m.main_lane = find_main_lane(m);
  return m;
}

std::string folded(const std::vector<LaneRow>& rows, const TimelineModel& a, const TimelineModel* b) {
  std::string names;
  for (const LaneRow& row : rows)
    if (row.folded)
      names += (names.empty() ? "" : " ") + lane_key((row.of_b ? *b : a).lanes[row.lane], row.of_b);
  return names;
}
float height(const std::vector<LaneRow>& rows) { return rows_height(rows, false) + rows_height(rows, true); }

TEST(TimelineRows, AllAreOpenWhereThereIsRoom) {
  const TimelineModel a = ours(), b = theirs();
  const auto rows = lane_rows(a, &b, {}, 600);
  EXPECT_EQ(rows.size(), 14u);
  EXPECT_EQ(folded(rows, a, &b), "");
  EXPECT_EQ(rows.back().height, kKernelHeight);
}

TEST(TimelineRows, HostFoldsBeforeScopesAndThoseOfBothRunsTogether) {
  const TimelineModel a = ours(), b = theirs();
  EXPECT_EQ(folded(lane_rows(a, &b, {}, 420), a, &b), "beside.Host 3 beside.Host 4");
  EXPECT_EQ(folded(lane_rows(a, &b, {}, 370), a, &b),
            "beside.Host beside.Host 2 beside.Host 3 beside.Host 4");
  EXPECT_EQ(folded(lane_rows(a, &b, {}, 350), a, &b),
            "Scope 3 beside.Host beside.Host 2 beside.Host 3 beside.Host 4 beside.Scope 3");
}

// However low the pane is, kernels are never strips, and the rows only get lower as the room does.
TEST(TimelineRows, KernelsNeverFoldBySize) {
  const TimelineModel a = ours(), b = theirs();
  float last = 1e9f;
  for (float room = 600; room >= 0; room -= 10) {
    const auto rows = lane_rows(a, &b, {}, room);
    for (const LaneRow& row : rows)
      if ((row.of_b ? b : a).lanes[row.lane].name == "Kernels") {
        EXPECT_FALSE(row.folded) << room;
        EXPECT_GE(row.height, kLaneHeight) << room;
      }
    EXPECT_LE(height(rows), last);
    last = height(rows);
    if (room >= 100) {
      EXPECT_LE(last, room) << "nothing is left to be scrolled to";
    }
  }
}

TEST(TimelineRows, WhatTheUserChoseHolds) {
  const TimelineModel a = ours(), b = theirs();
  const LaneFolds folds{{"Kernels", true}, {"beside.Host", false}, {"Phase", true}};
  EXPECT_EQ(folded(lane_rows(a, &b, folds, 1000), a, &b), "Phase Kernels");
  const std::string low = folded(lane_rows(a, &b, folds, 0), a, &b);
  EXPECT_EQ(low.find("beside.Host "), low.find("beside.Host 2")) << "only the others of its kind: " << low;
  EXPECT_NE(low.find("beside.Phase"), std::string::npos);
}

TEST(TimelineRows, TheStreamThatComputesMostStaysOpen) {
  TimelineModel m;
  m.lanes = {lane("Phase"), lane("Stream 0", true, 5), lane("Stream 1", true, 50), lane("Stream 2", true, 0)};
  m.main_lane = find_main_lane(m);
  EXPECT_EQ(folded(lane_rows(m, nullptr, {}, 0), m, nullptr), "Phase Stream 0 Stream 2");
  EXPECT_EQ(lane_rows(m, &m, {}, 1000).size(), 7u) << "of the run below empty lanes are left out";
}

// Seven ranks beside the own one: all are in sight as strips, the first the longest.
TEST(TimelineRows, RanksFoldFromTheLastOn) {
  TimelineModel m = ours();
  for (int rank = 1; rank < 8; ++rank) {
    m.lanes.push_back(lane(("Rank " + std::to_string(rank)).c_str(), true));
    m.lanes.back().other_rank = true;
    m.lanes.push_back(lane("exchanges"));
    m.lanes.back().rank = rank;
    m.lanes.back().other_rank = true;
  }
  const auto rows = lane_rows(m, nullptr, {}, 330);
  const std::string low = folded(rows, m, nullptr);
  EXPECT_NE(low.find("exchanges of rank 1"), std::string::npos) << low;
  EXPECT_NE(low.find("Rank 7"), std::string::npos) << low;
  EXPECT_EQ(low.find("Rank 1 "), std::string::npos) << low;
  EXPECT_LE(height(rows), 330);
}

TEST(TimelineRows, StripsInARowShareAName) {
  const TimelineModel a = ours(), b = theirs();
  const auto rows = lane_rows(a, &b, {{"Phase", false}, {"Kernels", true}}, 0);
  const auto names = names_of_rows(rows, a, &b);
  std::string all;
  std::size_t next = 0;
  for (const RowsOfName& of : names) {
    EXPECT_EQ(of.first, next);
    next += of.count;
    all += (all.empty() ? "" : ", ") + of.name;
    float tall = -rows[of.first + of.count - 1].gap;
    for (std::size_t i = of.first; i < of.first + of.count; ++i) tall += rows[i].height + rows[i].gap;
    EXPECT_GE(tall, 13.9f) << of.name << " has no room";
  }
  EXPECT_EQ(next, rows.size());
  EXPECT_EQ(all, "Phase, 4 lanes, 8 lanes, Kernels");
  const auto few = lane_rows(a, &b, {}, 370);
  EXPECT_EQ(names_of_rows(few, a, &b)[5].name, "Host 1\u20134");
}

}  // namespace
}  // namespace gradloom
