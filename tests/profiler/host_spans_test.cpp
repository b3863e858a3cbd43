// Spans of a recorded loop: what lies in what, and that own times add up to the step.
#include "profiler/host_spans.h"

#include <gtest/gtest.h>

#include <numeric>

namespace gradloom {
namespace {

HostSpan span(const char* kind, const char* name, std::int64_t from, std::int64_t to) {
  return {kind, name, from, to - from};
}

std::int64_t sum(const std::vector<std::int64_t>& numbers) {
  return std::accumulate(numbers.begin(), numbers.end(), std::int64_t{0});
}

TEST(HostSpans, NestByTheirTimesInAnyOrder) {
  const auto spans = nested_spans(
      {span("engine", "backward", 60, 80), span("data", "set", 5, 20), span("backward", "", 50, 90),
       span("gradloom", "net", 55, 85), span("optimizer", "SGD", 90, 100)},
      7, 0, 100);
  ASSERT_EQ(spans.size(), 6u);
  const char* const kinds[] = {"step", "data", "backward", "gradloom", "engine", "optimizer"};
  const std::int32_t parents[] = {-1, 0, 0, 2, 3, 0};
  const int expected_depths[] = {0, 1, 1, 2, 3, 1};
  const std::int64_t own[] = {100 - 15 - 40 - 10, 15, 10, 10, 20, 10};
  for (std::size_t i = 0; i < spans.size(); ++i) {
    EXPECT_EQ(spans[i].kind, kinds[i]);
    EXPECT_EQ(spans[i].parent, parents[i]) << i;
    EXPECT_EQ(spans[i].step, 7);
    EXPECT_EQ(depths(spans)[i], expected_depths[i]) << i;
    EXPECT_EQ(own_ns(spans)[i], own[i]) << i;
  }
}

TEST(HostSpans, WhatReachesOutIsCut) {
  const auto spans = nested_spans(
      {span("data", "before", -30, -10), span("data", "into", -10, 10), span("module", "outer", 20, 50),
       span("python", "crosses", 40, 70), span("record", "", 90, 130), span("record", "after", 130, 140)},
      1, 0, 100);
  ASSERT_EQ(spans.size(), 5u);
  EXPECT_EQ(spans[1].start_ns, 0);
  EXPECT_EQ(spans[1].duration_ns, 10);
  EXPECT_EQ(spans[3].name, "crosses");
  EXPECT_EQ(spans[3].parent, 2);
  EXPECT_EQ(spans[3].duration_ns, 10);
  EXPECT_EQ(spans[4].duration_ns, 10);
  EXPECT_EQ(sum(own_ns(spans)), 100);
}

TEST(HostSpans, OwnTimesAddUpWhateverTheSpansAre) {
  std::uint64_t state = 12345;
  const auto random = [&](std::int64_t below) {
    state = state * 6364136223846793005u + 1442695040888963407u;
    return static_cast<std::int64_t>((state >> 33) % static_cast<std::uint64_t>(below));
  };
  for (int round = 0; round < 200; ++round) {
    std::vector<HostSpan> some;
    for (std::int64_t i = random(40); i > 0; --i) {
      const std::int64_t from = random(120) - 10;
      some.push_back(span("python", "", from, from + random(60)));
    }
    const auto spans = nested_spans(some, 1, 0, 100);
    EXPECT_EQ(sum(own_ns(spans)), 100);
    for (const std::int64_t ns : own_ns(spans)) EXPECT_GE(ns, 0);
  }
}

TEST(HostSpans, OneThatIsEqualLiesInTheOther) {
  const auto spans = nested_spans({span("module", "a", 10, 20), span("engine", "b", 10, 20)}, 1, 0, 30);
  EXPECT_EQ(spans[2].parent, 1);
  EXPECT_EQ(own_ns(spans), (std::vector<std::int64_t>{20, 0, 10}));
}

}  // namespace
}  // namespace gradloom
