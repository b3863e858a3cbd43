// Regressions are told once, with what they are.
#include "viz/model/trend_news.h"

#include <gtest/gtest.h>

namespace gradloom {
namespace {

Trend trend_of(std::size_t runs, const std::vector<ChangePoint>& changes) {
  Trend trend;
  trend.model = "mlp";
  trend.model_hash = "h";
  trend.hardware = "cpu (x)";
  for (std::size_t i = 0; i < runs; ++i) {
    TrendRun run;
    run.session = "s.db";
    run.run.id = static_cast<std::int64_t>(i) + 1;
    trend.runs.push_back(run);
  }
  for (const ChangePoint& point : changes)
    trend.changes.push_back(
        {point, {"clip_norm: 1 -> 0"}, {"git_id: a -> b"}, {{"MatMul_1", "forward", 100, 90'100}}});
  return trend;
}

const std::vector<std::string> kSession = {"s.db"};

TEST(TrendNews, ARegressionIsToldOnceWithItsNames) {
  TrendNews news;
  EXPECT_TRUE(news.of(kSession, {trend_of(12, {})}).empty());
  const auto told = news.of(kSession, {trend_of(16, {{12, 100'000, 190'000, 0.001}})});
  ASSERT_EQ(told.size(), 1u);
  EXPECT_EQ(told[0],
            "mlp on cpu (x): a step takes 1.90x as long since run 13: MatMul_1 +90.0 us (forward); "
            "clip_norm: 1 -> 0 and 1 more");
  EXPECT_TRUE(news.of(kSession, {trend_of(16, {{12, 100'000, 190'000, 0.001}})}).empty());
  // With more runs the same change lies one run on.
  EXPECT_TRUE(news.of(kSession, {trend_of(18, {{13, 100'000, 190'000, 0.001}})}).empty());
  EXPECT_EQ(news.of(kSession, {trend_of(40, {{13, 100'000, 190'000, 0.001}, {30, 190'000, 300'000, 0.001}})})
                .size(),
            1u);
}

TEST(TrendNews, WhatWasThereIsNoNewsNorIsWhatGotFaster) {
  TrendNews news;
  EXPECT_TRUE(news.of(kSession, {trend_of(16, {{12, 100, 190, 0.001}})}).empty()) << "seen first";
  EXPECT_TRUE(news.of(kSession, {trend_of(30, {{12, 100, 190, 0.001}, {24, 190, 100, 0.001}})}).empty());
  // Other sessions have another past.
  EXPECT_TRUE(news.of({"s.db", "t.db"}, {trend_of(60, {{50, 100, 190, 0.001}})}).empty());
  EXPECT_EQ(news.of({"s.db", "t.db"}, {trend_of(90, {{50, 100, 190, 0.001}, {80, 190, 290, 0.001}})}).size(),
            1u);
}

TEST(TrendNews, ACauseAloneIsToldWhereNoKernelWasTimed) {
  Trend trend = trend_of(16, {{12, 100, 190, 0.001}});
  trend.changes[0].kernels.clear();
  EXPECT_EQ(regression_text(trend, trend.changes[0]),
            "mlp on cpu (x): a step takes 1.90x as long since run 13: clip_norm: 1 -> 0 and 1 more");
}

}  // namespace
}  // namespace gradloom
