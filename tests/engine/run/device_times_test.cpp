#include "engine/run/device_times.h"

#include <gtest/gtest.h>

namespace gradloom {
namespace {

Activity kernel(std::int32_t plan_step, std::int64_t start_ns, std::int64_t end_ns) {
  Activity a;
  a.plan_step = plan_step;
  a.start_ns = start_ns;
  a.end_ns = end_ns;
  return a;
}
Activity other(Activity::Kind kind, std::int64_t start_ns, std::int64_t bytes = 0) {
  Activity a = kernel(-1, start_ns, start_ns + 1);
  a.kind = kind;
  a.bytes = bytes;
  return a;
}

constexpr std::size_t kSteps = 3;
bool in_micro(std::int32_t plan_step) { return plan_step < 2; }  // the last one runs once per optimizer step

TEST(DeviceTimes, SortsKernelsIntoPlanStepsAndMicroBatches) {
  StepOutcome outcome;
  // As the device tells them: in any order. Plan step 1 launches two kernels in each micro-batch.
  add_device_times({kernel(2, 60, 65), kernel(0, 10, 12), kernel(1, 13, 15), kernel(1, 16, 19),
                    kernel(0, 30, 31), kernel(1, 40, 44), kernel(1, 45, 46)},
                   kSteps, in_micro, outcome);
  ASSERT_EQ(outcome.samples.size(), 5u);
  const auto sample = [&](std::size_t i) {
    const KernelSample& s = outcome.samples[i];
    return std::vector<std::int64_t>{s.plan_step, s.micro, s.start_ns, s.duration_ns};
  };
  using Numbers = std::vector<std::int64_t>;
  EXPECT_EQ(sample(0), (Numbers{0, 0, 10, 2}));
  EXPECT_EQ(sample(1), (Numbers{1, 0, 13, 5})) << "both kernels";
  EXPECT_EQ(sample(2), (Numbers{0, 1, 30, 1}));
  EXPECT_EQ(sample(3), (Numbers{1, 1, 40, 5}));
  EXPECT_EQ(sample(4), (Numbers{2, 0, 60, 5})) << "of no micro-batch";
  EXPECT_TRUE(outcome.activities.empty());
}

// Copies that are steps run beside kernels: they neither end a micro-batch nor part the kernels of a step.
TEST(DeviceTimes, CopiesBesideTheKernelsHaveSamplesOfTheirOwn) {
  StepOutcome outcome;
  const auto copy = [](std::int64_t start_ns, std::int64_t end_ns) {
    return Activity{Activity::Kind::copy, 1, 2, start_ns, end_ns, 64, "copy"};
  };
  const auto before_last = [](std::int32_t plan_step) { return plan_step < 3; };
  const auto queue_of = [](std::int32_t plan_step) {
    return plan_step == 1 ? Queue::download : Queue::compute;
  };
  add_device_times({kernel(0, 10, 12), kernel(2, 13, 15), copy(14, 20), kernel(2, 16, 17), kernel(0, 30, 33),
                    kernel(2, 34, 36), copy(35, 38), kernel(3, 40, 41)},
                   4, before_last, outcome, queue_of);
  ASSERT_EQ(outcome.samples.size(), 7u);
  const auto sample = [&](std::size_t i) {
    const KernelSample& s = outcome.samples[i];
    return std::vector<std::int64_t>{s.plan_step, s.micro, s.start_ns, s.duration_ns};
  };
  using Numbers = std::vector<std::int64_t>;
  EXPECT_EQ(sample(1), (Numbers{2, 0, 13, 3})) << "both kernels";
  EXPECT_EQ(sample(2), (Numbers{1, 0, 14, 6}));
  EXPECT_EQ(sample(3), (Numbers{0, 1, 30, 3}));
  EXPECT_EQ(sample(5), (Numbers{1, 1, 35, 3}));
  EXPECT_EQ(sample(6), (Numbers{3, 0, 40, 1}));
  EXPECT_TRUE(outcome.activities.empty());
}

// An exchange that goes on beside the kernels is what its stream does between the copies, which are told as they are.
TEST(DeviceTimes, ExchangesBesideTheKernelsNeitherEndAMicroBatchNorAreTheirCopies) {
  StepOutcome outcome;
  const auto on_exchange = [](Activity::Kind kind, std::int64_t start_ns, std::int64_t end_ns) {
    return Activity{kind, 0, 3, start_ns, end_ns, 64, "exchange"};
  };
  const auto queue_of = [](std::int32_t plan_step) {
    return plan_step == 0 ? Queue::exchange : Queue::compute;
  };
  add_device_times({on_exchange(Activity::Kind::copy, 10, 12), kernel(1, 11, 15),
                    on_exchange(Activity::Kind::kernel, 12, 30), on_exchange(Activity::Kind::copy, 30, 31),
                    kernel(1, 16, 18), kernel(2, 40, 41)},
                   kSteps, in_micro, outcome, queue_of);
  ASSERT_EQ(outcome.samples.size(), 3u);
  EXPECT_EQ(outcome.samples[0].plan_step, 1);
  EXPECT_EQ(outcome.samples[0].duration_ns, 6);
  EXPECT_EQ(outcome.samples[1].plan_step, 0);
  EXPECT_EQ(outcome.samples[1].duration_ns, 18);
  EXPECT_EQ(outcome.samples[1].micro, 0);
  EXPECT_EQ(outcome.samples[2].plan_step, 2);
  EXPECT_EQ(outcome.activities.size(), 2u);
}

TEST(DeviceTimes, OtherWorkIsKeptAndATraceWithGapsTellsNothing) {
  StepOutcome outcome;
  outcome.times_from = "trace";
  add_device_times(
      {other(Activity::Kind::copy, 5), other(Activity::Kind::api, 6), kernel(-1, 7, 8), kernel(99, 9, 10)},
      kSteps, in_micro, outcome);
  EXPECT_TRUE(outcome.samples.empty());
  EXPECT_EQ(outcome.activities.size(), 3u) << "without the launch by the host";
  EXPECT_EQ(outcome.times_from, "trace");
  add_device_times({kernel(0, 3, 4), other(Activity::Kind::lost, 5, 17)}, kSteps, in_micro, outcome);
  EXPECT_TRUE(outcome.samples.empty());
  EXPECT_EQ(outcome.times_from, "none: the device's trace lost 17 records");
}

}  // namespace
}  // namespace gradloom
