#include "sessions/stats.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "sessions/random.h"

namespace gradloom {
namespace {

double normal(Pcg32& random) {
  const double u = (random.next() + 1.0) / 4294967296.0, v = random.next() / 4294967296.0;
  return std::sqrt(-2 * std::log(u)) * std::cos(6.283185307179586 * v);
}

TEST(Random, KnownAnswers) {
  // Random123's known answers of philox4x32-10.
  EXPECT_EQ(philox4x32(0, 0, 0),
            (std::array<std::uint32_t, 4>{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}));
  EXPECT_EQ(philox4x32(0x299f31d0a4093822u, 0x85a308d3243f6a88u, 0x0370734413198a2eu),
            (std::array<std::uint32_t, 4>{0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}));
  Pcg32 random(1);
  int counts[3] = {};
  for (int i = 0; i < 30000; ++i) ++counts[random.below(3)];
  for (const int count : counts) EXPECT_NEAR(count, 10000, 400);
}

TEST(Stats, Median) {
  EXPECT_EQ(median({}), 0);
  EXPECT_EQ(median({3}), 3);
  EXPECT_EQ(median({1, 9, 5}), 5);
  EXPECT_EQ(median({4, 1, 3, 2}), 2.5);
}

TEST(Stats, BootstrapCoversAndRepeats) {
  std::vector<double> values;
  for (int i = 1; i <= 99; ++i) values.push_back(i);
  const Interval interval = bootstrap_median(values), again = bootstrap_median(values);
  EXPECT_EQ(interval.value, 50);
  EXPECT_EQ(interval.low, again.low);
  EXPECT_EQ(interval.high, again.high);
  // Exact order-statistic interval of the median for n = 99: [x(40), x(60)].
  EXPECT_NEAR(interval.low, 40, 2);
  EXPECT_NEAR(interval.high, 60, 2);
  const Interval wider = bootstrap_median(values, 0.995);
  EXPECT_LT(wider.low, interval.low);
  EXPECT_GT(wider.high, interval.high);

  int covered = 0;
  Pcg32 random(7);
  constexpr int kTrials = 400;
  for (int trial = 0; trial < kTrials; ++trial) {
    std::vector<double> sample(25);
    for (double& x : sample) x = normal(random);
    const Interval i = bootstrap_median(sample, 0.95, 1000);
    covered += i.low <= 0 && 0 <= i.high;
  }
  EXPECT_GE(covered, kTrials * 91 / 100);
}

TEST(Stats, RatioOfUnpairedSamples) {
  Pcg32 random(3);
  std::vector<double> a, b;
  for (int i = 0; i < 100; ++i) {
    a.push_back(200 + normal(random));
    b.push_back(100 + normal(random));
  }
  const Interval ratio = bootstrap_ratio(a, b);
  EXPECT_NEAR(ratio.value, 2, 0.02);
  EXPECT_LT(ratio.low, 2.0);
  EXPECT_GT(ratio.high, 2.0);
  EXPECT_LT(ratio.high - ratio.low, 0.02);
  EXPECT_EQ(bootstrap_ratio({}, b).value, 0);
}

TEST(Stats, Verdicts) {
  EXPECT_EQ(decide({1.10, 1.05, 1.15}, 0.01), Verdict::faster);
  EXPECT_EQ(decide({0.90, 0.85, 0.95}, 0.01), Verdict::slower);
  EXPECT_EQ(decide({1.001, 0.99, 1.01}, 0.01), Verdict::same);
  EXPECT_EQ(decide({1.015, 1.012, 1.018}, 0.001), Verdict::same) << "below the margin, however sure";
  EXPECT_EQ(decide({1.03, 0.98, 1.08}, 0.01), Verdict::unsure) << "the interval contains 1";
  EXPECT_EQ(decide({1.10, 1.05, 1.15}, 0.12), Verdict::unsure) << "within the noise of A against A";
  EXPECT_EQ(decide({1.015, 1.005, 1.03}, 0), Verdict::unsure);
  EXPECT_EQ(decide({}, 0), Verdict::unsure);
  EXPECT_EQ(decide({1.5, 1.2, HUGE_VAL}, 0), Verdict::unsure);
  EXPECT_STREQ(verdict_name(Verdict::unsure), "UNSURE");
}

TEST(Stats, MannWhitney) {
  // scipy.stats.mannwhitneyu(x, y, method="asymptotic"), scipy 1.10.
  EXPECT_NEAR(mann_whitney_p({1, 2, 3, 4, 5}, {6, 7, 8, 9, 10}), 0.012185780355344813, 1e-12);
  EXPECT_NEAR(mann_whitney_p({1, 2, 2, 3}, {2, 3, 4, 4, 5}), 0.07854585095119067, 1e-12);
  EXPECT_EQ(mann_whitney_p({1, 1, 1}, {1, 1}), 1);
  EXPECT_EQ(mann_whitney_p({}, {1}), 1);
}

TEST(Stats, Holm) {
  const std::vector<double> adjusted = holm({0.01, 0.04, 0.03, 0.005});
  const std::vector<double> expected = {0.03, 0.06, 0.06, 0.02};
  for (std::size_t i = 0; i < expected.size(); ++i) EXPECT_NEAR(adjusted[i], expected[i], 1e-15);
  EXPECT_EQ(holm({0.9, 0.8}), (std::vector<double>{1, 1}));
  EXPECT_TRUE(holm({}).empty());
}

TEST(Stats, IntervalsOfManyValuesAgreeWithThoseOfFew) {
  // 4096 values are resampled one by one, 4097 by the place of the median: the intervals hardly differ.
  Pcg32 random(3);
  std::vector<double> values;
  for (int i = 0; i < 4096; ++i) values.push_back(1000 + random.below(1000));
  const Interval drawn = bootstrap_median(values);
  values.push_back(1500);
  const Interval placed = bootstrap_median(values);
  EXPECT_NEAR(placed.low, drawn.low, 3);
  EXPECT_NEAR(placed.high, drawn.high, 3);
  EXPECT_LT(placed.low, placed.value);
  EXPECT_LT(placed.value, placed.high);
  const Interval ratio = bootstrap_ratio(values, values);
  EXPECT_EQ(ratio.value, 1);
  EXPECT_NEAR(ratio.low, drawn.low / drawn.high, 0.02);
  EXPECT_NEAR(ratio.high, drawn.high / drawn.low, 0.02);
}

}  // namespace
}  // namespace gradloom
