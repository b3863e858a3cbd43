#include "sessions/comparison_noise.h"

#include <gtest/gtest.h>

#include <cmath>
#include <string>

#include "sessions/random.h"

namespace gradloom::test {
namespace {

double normal(Pcg32& random) {
  double sum = -6;
  for (int i = 0; i < 12; ++i) sum += random.next() * 0x1p-32;
  return sum;
}

// What a comparison of `groups` groups finds where B takes 1 / `ratio` of A's time and blocks stray by `spread`.
Comparison measured(std::uint64_t seed, std::int64_t groups, double ratio, double spread, double drift = 0) {
  Pcg32 random{seed};
  Comparison c;
  std::vector<double> ratios, own;
  for (std::int64_t i = 0; i < groups; ++i) {
    ComparedGroup g;
    g.at_s = 0.2 * static_cast<double>(i + 1);
    const double slow = 1 + drift * static_cast<double>(i) / static_cast<double>(groups);
    for (int k = 0; k < 2; ++k) {
      g.a_ns[k] = 1e7 * slow * std::exp(spread * normal(random));
      g.b_ns[k] = 1e7 / ratio * slow * std::exp(spread * normal(random));
    }
    c.measured.push_back(g);
    ratios.push_back(g.ratio());
    own.push_back(g.a_ns[0] / g.a_ns[1]);
    own.push_back(g.b_ns[1] / g.b_ns[0]);
  }
  c.groups = groups;
  c.ratio = bootstrap_median(ratios);
  const Interval self = bootstrap_median(own);
  c.noise = std::max(std::abs(self.low - 1), std::abs(self.high - 1));
  c.verdict = decide(c.ratio, c.noise);
  return c;
}

bool has(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }

TEST(ComparisonNoise, SaysWhatTheVerdictRestsOn) {
  const Comparison faster = measured(1, 40, 1.3, 0.02);
  ASSERT_EQ(faster.verdict, Verdict::faster);
  EXPECT_TRUE(has(explain_noise(faster).why, "the whole interval lies above 1")) << explain_noise(faster).why;
  EXPECT_EQ(explain_noise(faster).groups_needed, 0);
  const Comparison same = measured(2, 200, 1, 0.01);
  ASSERT_EQ(same.verdict, Verdict::same);
  EXPECT_EQ(explain_noise(same).why, "the whole interval lies within 2.0 % of 1");
  const Comparison unsure = measured(3, 14, 1, 0.2);
  ASSERT_EQ(unsure.verdict, Verdict::unsure);
  EXPECT_TRUE(has(explain_noise(unsure).why, "the interval holds 1")) << explain_noise(unsure).why;
  Comparison near = measured(4, 40, 1.06, 0.01);
  near.noise = 0.08;  // what A against A shows, with little luck
  near.verdict = Verdict::unsure;
  EXPECT_TRUE(has(explain_noise(near).why, "is not more than the 8.0 % that A against A shows"));
  Comparison few = same;  // its interval alone would decide
  few.verdict = Verdict::unsure;
  EXPECT_EQ(explain_noise(few).why, "there are too few measurements for a verdict");
}

TEST(ComparisonNoise, KnowsHowMuchSingleGroupsStray) {
  for (const double spread : {0.01, 0.04}) {
    // A group's ratio is one of two means of two blocks.
    EXPECT_NEAR(explain_noise(measured(5, 400, 1.2, spread)).spread, spread, 0.15 * spread);
  }
}

TEST(ComparisonNoise, NamesATimeThatDecides) {
  int named = 0, decided = 0;
  for (std::uint64_t seed = 0; seed < 60; ++seed) {
    const Comparison c = measured(100 + seed, 14, 1.05, 0.1);
    if (c.verdict != Verdict::unsure) continue;
    const ComparisonNoise noise = explain_noise(c);
    if (noise.groups_needed == 0 || noise.groups_needed > 2000)
      continue;  // by bad luck it looks like no difference
    EXPECT_GT(noise.groups_needed, 14);
    EXPECT_NEAR(noise.seconds_needed, 0.2 * static_cast<double>(noise.groups_needed),
                0.2);  // each takes 0.2 s
    ++named;
    decided += measured(1000 + seed, noise.groups_needed, 1.05, 0.1).verdict != Verdict::unsure;
  }
  EXPECT_GE(named, 30);
  EXPECT_GE(decided, named / 2) << "of " << named;
}

TEST(ComparisonNoise, NoTimeIsNamedAtTheLimit) {
  Comparison c = measured(6, 60, 1, 0.02);
  c.ratio = {1.02 - 1e-9, 1.01, 1.03};
  c.verdict = Verdict::unsure;
  const ComparisonNoise noise = explain_noise(c);
  EXPECT_EQ(noise.seconds_needed, 0);
  EXPECT_TRUE(has(noise_lines(noise, c).back(), "no time can be named"));
}

TEST(ComparisonNoise, SaysWhyNoTimeIsNamed) {
  Comparison c = measured(13, 60, 1, 0.02);
  c.verdict = Verdict::unsure;
  c.ratio = {1.001, 0.2, 30};
  for (ComparedGroup& group : c.measured) group.at_s *= 100;
  EXPECT_TRUE(has(noise_lines(explain_noise(c), c).back(), "more than a day"));
  c.ratio = {1.1, 1.1, HUGE_VAL};
  EXPECT_TRUE(has(noise_lines(explain_noise(c), c).back(), "too few groups"));
}

// B is slower by the same rule as it is faster by: 1 / ratio against the noise.
TEST(ComparisonNoise, SlowerIsToldByTheNumberThatDecides) {
  Comparison c;
  c.ratio = {0.97, 0.965, 0.975};
  c.noise = 0.0305;
  c.verdict = decide(c.ratio, c.noise);
  ASSERT_EQ(c.verdict, Verdict::slower);
  EXPECT_TRUE(has(explain_noise(c).why, "below 1, and 3.1 % of difference are more than the 3.0 %"))
      << explain_noise(c).why;
}

TEST(ComparisonNoise, FindsDriftDisturbancesAndWhatLasts) {
  EXPECT_NEAR(explain_noise(measured(7, 60, 1, 0.01, 0.3)).drift, 0.2, 0.03) << "thirds: two thirds of 30 %";
  EXPECT_LT(std::abs(explain_noise(measured(8, 60, 1, 0.01)).drift), 0.01);
  Comparison c = measured(9, 60, 1, 0.01);
  EXPECT_EQ(explain_noise(c).disturbed_groups, 0);
  c.measured[7].a_ns[1] *= 1.5;
  c.measured[30].b_ns[0] *= 3;
  const ComparisonNoise noise = explain_noise(c);
  EXPECT_EQ(noise.disturbed_groups, 2);
  EXPECT_TRUE(noise.disturbed[7] && noise.disturbed[30]);
  EXPECT_LT(noise.lasting, ComparisonNoise::kLasting);
  // Another process slows side B for twelve groups, then not.
  for (std::size_t i = 0; i < c.measured.size(); ++i)
    for (double& ns : c.measured[i].b_ns) ns *= i / 12 % 2 == 0 ? 1.2 : 1;
  EXPECT_GT(explain_noise(c).lasting, ComparisonNoise::kLasting);
}

TEST(ComparisonNoise, IsKeptAndReadAgain) {
  Comparison c = measured(10, 20, 1.1, 0.05);
  const auto again = parse_comparison(comparison_json(c));
  ASSERT_TRUE(again.ok()) << again.error().message;
  ASSERT_EQ(again->measured.size(), 20u);
  EXPECT_EQ(again->measured[19].b_ns[1], c.measured[19].b_ns[1]);
  EXPECT_EQ(explain_noise(*again).why, explain_noise(c).why);
}

TEST(ComparisonNoise, StrangersRowsAreLeftOut) {
  const auto read = parse_comparison(
      R"({"verdict": "UNSURE", "ratio": 1, "ratio_low": 0.9, "ratio_high": 1.1, "noise": 0.1, "a_step_ns": 1, "b_step_ns": 1,
          "seconds": 1, "max_loss_difference": 0, "max_relative_loss_difference": 0, "measured": [[1, 2, 3, 4], "x", [1, 0, 0, 0, 0], [1, 2, 3, 4, 5], {}, [1, 1e17, 1e17, 5e-324, 5e-324],
          [2, 1e14, 1e14, 1e-3, 1e-3], [3, 1e-3, 1e-3, 1e14, 1e14], [-1, 1, 1, 1, 1], [4, 1, 1, 1, 1]]})");
  ASSERT_TRUE(read.ok());
  ASSERT_EQ(read->measured.size(), 4u) << "no block takes no time, or years";
  EXPECT_EQ(read->measured[0].ratio(), 5.0 / 9);
  EXPECT_TRUE(std::isfinite(explain_noise(*read).spread));
  EXPECT_EQ(comparison_text(*read).find("nan"), std::string::npos) << comparison_text(*read);
  const auto stored = parse_comparison(R"({"interleaved": false, "measured": [[1, 2, 3, 4, 5]]})");
  ASSERT_TRUE(stored.ok());
  EXPECT_TRUE(stored->measured.empty());
  std::string many = R"({"measured": [[1, 1, 1, 1, 1])";
  for (int i = 0; i < 30'000; ++i) many += ",[1,1,1,1,1]";
  const auto long_one = parse_comparison(many + "]}");
  ASSERT_TRUE(long_one.ok());
  EXPECT_EQ(long_one->measured.size(), 20'000u);
}

// In 95 of 100 comparisons or more the interval holds what is true, and it shrinks with the root of the groups.
TEST(ComparisonNoise, IntervalsHoldWhatTheySayAndShrink) {
  EXPECT_TRUE(running_intervals(measured(1, 7, 1, 0.1).measured).all().empty());
  int holds = 0, all = 0;
  double early = 0, late = 0;
  for (std::uint64_t seed = 0; seed < 200; ++seed) {
    const std::vector<Interval> intervals = running_intervals(measured(seed, 128, 1.2, 0.1).measured).all();
    ASSERT_EQ(intervals.size(), 128 - kFewestForInterval + 1);
    for (const std::size_t groups : {std::size_t{8}, std::size_t{32}, std::size_t{128}}) {
      const Interval& interval = intervals[groups - kFewestForInterval];
      EXPECT_LE(interval.low, interval.value);
      EXPECT_LE(interval.value, interval.high);
      holds += interval.low <= 1.2 && 1.2 <= interval.high;
      ++all;
    }
    early += intervals[32 - kFewestForInterval].high - intervals[32 - kFewestForInterval].low;
    late += intervals.back().high - intervals.back().low;
  }
  EXPECT_GE(holds, all * 94 / 100) << "of " << all;
  EXPECT_LT(late, 0.6 * early);
  EXPECT_GT(late, 0.4 * early);
}

TEST(ComparisonNoise, StoredRunsHaveNone) {
  Comparison c = measured(11, 30, 1.1, 0.01);
  c.interleaved = false;
  c.measured.clear();
  EXPECT_TRUE(noise_lines(explain_noise(c), c).empty());
  EXPECT_TRUE(has(explain_noise(c).why, "each run against itself"));
}

}  // namespace
}  // namespace gradloom::test
