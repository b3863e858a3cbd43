// What is told of a trend besides its runs: levels, baselines, kernels that account for a change.
#include "viz/model/trend.h"

#include <gtest/gtest.h>

namespace gradloom {
namespace {

Trend trend_of(const std::vector<std::int64_t>& ns, const std::vector<std::size_t>& changes) {
  Trend trend;
  for (std::size_t i = 0; i < ns.size(); ++i) {
    TrendRun run;
    run.session = "s.db";
    run.run.id = static_cast<std::int64_t>(i) + 1;
    run.run.median_step_ns = ns[i];
    trend.runs.push_back(run);
  }
  for (const std::size_t at : changes) trend.changes.push_back({{at, 100, 200, 0.001}, {}, {}, {}});
  return trend;
}

TEST(TrendModel, LevelsAreWhatLiesBetweenChanges) {
  const Trend trend = trend_of({100, 110, 120, 200, 210, 50}, {3, 5});
  const auto levels = trend_levels(trend);
  ASSERT_EQ(levels.size(), 3u);
  EXPECT_EQ(levels[0].from, 0u);
  EXPECT_EQ(levels[0].to, 3u);
  EXPECT_DOUBLE_EQ(levels[0].median_ns, 110);
  EXPECT_DOUBLE_EQ(levels[0].low_ns, 102) << "a tenth of the way from the first to the second of three";
  EXPECT_DOUBLE_EQ(levels[0].high_ns, 118);
  EXPECT_DOUBLE_EQ(levels[1].median_ns, 205);
  EXPECT_DOUBLE_EQ(levels[2].low_ns, 50);
  EXPECT_DOUBLE_EQ(levels[2].high_ns, 50);
  EXPECT_TRUE(trend_levels(Trend()).empty());
  EXPECT_EQ(trend_levels(trend_of({100, 90}, {})).size(), 1u);
}

TEST(TrendModel, PinnedRunsAreHeldAgainstTheNewestLevel) {
  Trend trend = trend_of({100, 110, 120, 200, 220, 240}, {3});
  EXPECT_TRUE(trend_baselines(trend).empty());
  trend.runs[1].run.pinned = true;
  trend.runs[5].run.pinned = true;
  const auto baselines = trend_baselines(trend);
  ASSERT_EQ(baselines.size(), 2u);
  EXPECT_EQ(baselines[0].run, 1u);
  EXPECT_DOUBLE_EQ(baselines[0].ratio, 2);
  EXPECT_DOUBLE_EQ(baselines[1].ratio, 220.0 / 240);
}

TEST(TrendModel, KernelsAccountForAChangeFromTwoPerCentOn) {
  TrendChange change{{3, 1000, 2000, 0.001}, {"clip_norm: 1 -> 0"}, {"git_id: a -> b", "os: c -> d"}, {}};
  change.kernels = {{"a", "forward", 100, 900}, {"b", "backward", 500, 480}, {"c", "forward", 10, 29}};
  const auto causing = causing_kernels(change);
  ASSERT_EQ(causing.size(), 2u);
  EXPECT_DOUBLE_EQ(causing[1].change_ns(), -20);
  for (int i = 0; i < 20; ++i) change.kernels.insert(change.kernels.begin(), {"k", "forward", 0, 1000});
  EXPECT_EQ(causing_kernels(change).size(), kMostTrendKernels);
  EXPECT_EQ(trend_cause_text(change), "clip_norm: 1 -> 0 and 2 more");
  change.settings.clear();
  change.machine.pop_back();
  EXPECT_EQ(trend_cause_text(change), "git_id: a -> b");
  change.machine.clear();
  EXPECT_EQ(trend_cause_text(change), "");
}

TEST(TrendModel, RunsAreCalledByTheirSessionWhereThereAreSeveral) {
  Trend trend = trend_of({100, 110}, {});
  trend.runs[1].run.name = "night\nly";
  EXPECT_FALSE(trend.several_sessions());
  EXPECT_EQ(trend_run_text(trend.runs[0], false), "run 1");
  EXPECT_EQ(trend_run_text(trend.runs[1], true), "s.db#2 (night\\x0aly)");
  trend.runs[1].session = "t.db";
  EXPECT_TRUE(trend.several_sessions());
}

}  // namespace
}  // namespace gradloom
