#include "sessions/change_points.h"

#include <gtest/gtest.h>

#include <random>

namespace gradloom {
namespace {

// Noise of `part` around levels of so many values each.
std::vector<double> levels(const std::vector<std::pair<double, int>>& of, double part, unsigned seed) {
  std::mt19937 random(seed);
  std::normal_distribution<double> noise(0, part);
  std::vector<double> values;
  for (const auto& [level, count] : of)
    for (int i = 0; i < count; ++i) values.push_back(level * std::exp(noise(random)));
  return values;
}

TEST(ChangePoints, AreWhereTheLevelChanges) {
  int exact = 0;
  for (unsigned seed = 1; seed <= 20; ++seed) {
    const auto found = change_points(levels({{100, 15}, {110, 12}, {90, 10}}, 0.01, seed), {});
    ASSERT_EQ(found.size(), 2u) << seed;
    exact += found[0].at == 15 && found[1].at == 27 ? 1 : 0;
    EXPECT_NEAR(found[0].before, 100, 2);
    EXPECT_NEAR(found[0].after, 110, 2);
    EXPECT_NEAR(found[1].before, 110, 2) << "the level between both";
    EXPECT_NEAR(found[1].after, 90, 2);
    EXPECT_LT(found[0].p, 0.01);
  }
  EXPECT_GE(exact, 19);
}

// By construction one series in a hundred is cut.
TEST(ChangePoints, NoiseHasNone) {
  int cut = 0;
  constexpr int kSeries = 300;
  for (unsigned seed = 1; seed <= kSeries; ++seed)
    cut += change_points(levels({{100, 25}}, 0.05, seed), {.least_change = 0}).empty() ? 0 : 1;
  EXPECT_LE(cut, 10);
}

TEST(ChangePoints, AreFoundSoonAfterTheyHappened) {
  EXPECT_EQ(change_points(levels({{100, 30}, {130, 3}}, 0.01, 3), {}).size(), 1u);
  EXPECT_TRUE(change_points(levels({{100, 30}, {130, 1}}, 0.01, 3), {}).empty()) << "one run may be chance";
}

// Slower for some time, then as before: no place divides such a series in two levels.
TEST(ChangePoints, ALevelThatWasLeftAgain) {
  for (const int slow : {10, 15})
    for (unsigned seed = 1; seed <= 10; ++seed) {
      const auto found = change_points(levels({{100, 20}, {130, slow}, {100, 20}}, 0.01, seed), {});
      ASSERT_EQ(found.size(), 2u) << slow << " " << seed;
      EXPECT_EQ(found[0].at, 20u);
      EXPECT_EQ(found[1].at, static_cast<std::size_t>(20 + slow));
      EXPECT_NEAR(found[0].after, 130, 3);
      EXPECT_NEAR(found[1].after, 100, 3);
    }
  std::vector<double> one = levels({{100, 40}}, 0.01, 1);
  one[20] = 130;
  EXPECT_TRUE(change_points(one, {}).empty()) << "one run may be chance";
}

TEST(ChangePoints, OutliersAndSmallChangesAreNone) {
  std::vector<double> values = levels({{100, 30}}, 0.005, 5);
  values[7] = 900;
  values[20] = 700;
  EXPECT_TRUE(change_points(values, {}).empty());
  const auto small = levels({{100, 30}, {101, 30}}, 0.001, 7);
  EXPECT_TRUE(change_points(small, {}).empty());
  EXPECT_EQ(change_points(small, {.least_change = 0.005}).size(), 1u);
}

TEST(ChangePoints, ShortAndEqualSeriesHaveNone) {
  EXPECT_TRUE(change_points({}, {}).empty());
  EXPECT_TRUE(change_points({1}, {}).empty());
  EXPECT_TRUE(change_points({1, 2, 3}, {}).empty());
  EXPECT_TRUE(change_points(std::vector<double>(50, 3.0), {}).empty());
}

}  // namespace
}  // namespace gradloom
