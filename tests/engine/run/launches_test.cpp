#include "engine/run/launches.h"

#include <gtest/gtest.h>

#include "tests/engine/run/queued_device.h"

namespace gradloom {
namespace {

using Strings = std::vector<std::string>;

struct LaunchesTest : ::testing::Test {
  SmallPlan small;
  QueuedDevice device;
  Blocks blocks{small.plan, device};
  Launches launches{device};

  void SetUp() override {
    ASSERT_TRUE(blocks.allocate(256).ok());
    ASSERT_TRUE(launches.prepare(small.graph, small.plan, blocks, nullptr).ok());
  }
  Strings step(bool one_range, std::int32_t micro_batches, StepOutcome* timed = nullptr) {
    for (std::int32_t k = 0; k < micro_batches; ++k)
      EXPECT_TRUE(launches.run_micro(launches.recorded(), one_range, k, timed).ok());
    EXPECT_TRUE(launches.run_once(launches.recorded(), one_range, timed).ok());
    return device.take_notes();
  }
};

TEST_F(LaunchesTest, MicroBatchesThenWhatRunsOnce) {
  EXPECT_EQ(launches.size(), 2u);
  EXPECT_TRUE(launches.in_micro(0));
  EXPECT_FALSE(launches.in_micro(1));
  EXPECT_EQ(step(false, 2), (Strings{"launch Add 0", "launch Add 0", "launch Mul 1"}));
  EXPECT_EQ(step(true, 1), (Strings{"launch Add 0", "launch Mul 1"}));
}

TEST_F(LaunchesTest, ARecordingIsMadeOnceAndRunAsAWhole) {
  ASSERT_TRUE(launches.record_missing(launches.recorded(), true).ok());
  EXPECT_EQ(device.take_notes(), (Strings{"record", "launch Add 0", "launch Mul 1", "recorded"}));
  ASSERT_TRUE(launches.record_missing(launches.recorded(), true).ok());
  EXPECT_EQ(device.take_notes(), Strings{});
  EXPECT_EQ(step(true, 1), Strings{"replay"});
  ASSERT_TRUE(launches.record_missing(launches.recorded(), false).ok());
  device.take_notes();
  EXPECT_EQ(step(false, 3), (Strings{"replay", "replay", "replay", "replay"}))
      << "three batches, then the rest";
}

// Where kernels count rows a recording is of so many.
TEST_F(LaunchesTest, EachNumberOfRowsHasItsRecording) {
  EXPECT_FALSE(launches.launched());
  step(true, 1);
  EXPECT_TRUE(launches.launched());
  ASSERT_TRUE(launches.record_missing(launches.recorded(), true).ok());
  EXPECT_EQ(device.take_notes().front(), "record");
  launches.set_rows(8);
  EXPECT_FALSE(launches.launched());
  EXPECT_EQ(step(true, 1), (Strings{"launch Add 0", "launch Mul 1"}));
  EXPECT_TRUE(launches.launched());
  ASSERT_TRUE(launches.record_missing(launches.recorded(), true).ok());
  EXPECT_EQ(device.take_notes().front(), "record");
  launches.set_rows(RowCounts::kAll);
  ASSERT_TRUE(launches.record_missing(launches.recorded(), true).ok());
  EXPECT_EQ(step(true, 1), Strings{"replay"});
  launches.forget_recordings();
  EXPECT_EQ(step(true, 1), (Strings{"launch Add 0", "launch Mul 1"}));
}

// On a queued device the host can time its launches alone.
TEST_F(LaunchesTest, TimedLaunchesAreActivities) {
  StepOutcome outcome;
  step(false, 2, &outcome);
  EXPECT_TRUE(outcome.samples.empty());
  ASSERT_EQ(outcome.activities.size(), 3u);
  EXPECT_EQ(outcome.activities[1].micro, 1);
  EXPECT_EQ(outcome.activities[2].plan_step, 1);
  ASSERT_TRUE(launches.record_missing(launches.recorded(), true).ok());
  StepOutcome recorded;
  step(true, 1, &recorded);
  ASSERT_EQ(recorded.activities.size(), 1u);
  EXPECT_EQ(recorded.activities[0].name, "launch of the recorded step");
}

}  // namespace
}  // namespace gradloom
