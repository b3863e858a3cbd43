#include "profiler/sampler.h"

#include <gtest/gtest.h>

namespace gradloom {
namespace {

TEST(Sampler, Levels) {
  for (const ProfileLevel level : {ProfileLevel::step, ProfileLevel::sampled, ProfileLevel::all}) {
    EXPECT_EQ(*parse_profile_level(profile_level_name(level)), level);
  }
  EXPECT_EQ(parse_profile_level("some").error().code, Errc::usage);
  int timed[3] = {};
  for (std::int64_t step = 1; step <= 300; ++step) {
    for (int level = 0; level < 3; ++level)
      timed[level] += Sampler(static_cast<ProfileLevel>(level)).timed(step);
  }
  EXPECT_EQ(timed[0], 0);
  EXPECT_EQ(timed[1], 100) << "a third";
  EXPECT_EQ(timed[2], 300);
  const Sampler sampled(ProfileLevel::sampled);
  for (std::int64_t step = 1; step < 300; ++step)
    EXPECT_FALSE(sampled.timed(step) && sampled.timed(step + 1));
}

// Timed steps take 3 % longer on a machine that slows down steadily: drift cancels.
TEST(Sampler, OverheadIsMeasuredAgainstNeighbours) {
  Sampler sampler(ProfileLevel::sampled);
  EXPECT_FALSE(sampler.overhead().known);
  for (std::int64_t step = 1; step <= 120; ++step) {
    const double base = 1e6 * (1 + 0.01 * static_cast<double>(step));
    sampler.record(step, static_cast<std::int64_t>(step <= 3             ? 50 * base
                                                   : sampler.timed(step) ? 1.03 * base
                                                                         : base));
  }
  const Overhead overhead = sampler.overhead();
  ASSERT_TRUE(overhead.known);
  EXPECT_EQ(overhead.timed_steps, 39) << "the group of the warm-up steps is left out";
  EXPECT_NEAR(overhead.fraction, 0.03, 1e-6);
  EXPECT_NEAR(overhead.low, 0.03, 1e-5);
  EXPECT_NEAR(overhead.high, 0.03, 1e-5);
}

// A timed step of a pipeline takes 3 % longer and makes the next one start late, by 10 %: the cost is 13 %.
// Against its neighbours the timed step would seem faster than one without timing.
TEST(Sampler, DrainingAPipelineIsPartOfTheCost) {
  Sampler sampler(ProfileLevel::sampled, true);
  for (std::int64_t step = 1; step <= 121; ++step) {
    const double base = 1e6 * (1 + 0.01 * static_cast<double>(step));
    const double cost = sampler.timed(step) ? 1.03 : step % 3 == 0 ? 1.10 : 1;
    sampler.record(step, static_cast<std::int64_t>(step <= 3 ? 50 * base : cost * base));
    EXPECT_FALSE(sampler.overhead().known && step < 22) << "6 groups after warm-up";
  }
  const Overhead overhead = sampler.overhead();
  ASSERT_TRUE(overhead.known);
  EXPECT_EQ(overhead.timed_steps, 39);
  EXPECT_NEAR(overhead.fraction, 0.13, 1e-3)
      << "the late step lies half a step after the middle of its group";
  EXPECT_LE(overhead.low, overhead.fraction);
  EXPECT_GE(overhead.high, overhead.fraction);
}

TEST(Sampler, IntervalOfManySteps) {
  Sampler sampler(ProfileLevel::sampled);
  std::uint32_t state = 1;
  for (std::int64_t step = 1; step <= 30'000; ++step) {
    state = state * 1664525u + 1013904223u;
    sampler.record(step, 1'000'000 + static_cast<std::int64_t>(state >> 12) / 10);  // +- 5 %
  }
  const Overhead overhead = sampler.overhead();
  ASSERT_TRUE(overhead.known);
  EXPECT_LE(overhead.low, overhead.fraction);
  EXPECT_GE(overhead.high, overhead.fraction);
  EXPECT_NEAR(overhead.fraction, 0, 0.01);
  EXPECT_LT(overhead.high - overhead.low, 0.01);
  EXPECT_GT(overhead.high - overhead.low, 0);
}

TEST(Sampler, TooFewStepsAreUnknown) {
  Sampler few(ProfileLevel::sampled), all(ProfileLevel::all);
  for (std::int64_t step = 1; step <= 20; ++step) {
    few.record(step, 100);
    all.record(step, 100);
  }
  EXPECT_FALSE(few.overhead().known) << "5 groups after warm-up";
  few.record(21, 100);
  EXPECT_TRUE(few.overhead().known);
  EXPECT_FALSE(all.overhead().known) << "nothing to compare with";
}

}  // namespace
}  // namespace gradloom
