#include "engine/device/gpu/runtime/recorder.h"

#include <gtest/gtest.h>

#include <memory>

namespace gradloom::kernels::gpu {
namespace {

TEST(PlanSteps, CorrelationsKeepTheLatest) {
  const auto steps = std::make_unique<PlanSteps>();
  EXPECT_EQ(steps->of_correlation(7), -1);
  steps->queued(7, 12);
  steps->queued(8, -1);
  steps->queued(0xffffffff, 0xfffffe);
  EXPECT_EQ(steps->of_correlation(7), 12);
  EXPECT_EQ(steps->of_correlation(8), -1);
  EXPECT_EQ(steps->of_correlation(0xffffffff), 0xfffffe);
  steps->queued(7 + 65536, 13);  // the same slot
  EXPECT_EQ(steps->of_correlation(7), -1);
  EXPECT_EQ(steps->of_correlation(7 + 65536), 13);
}

TEST(WorkNames, OfTheLatest) {
  const auto names = std::make_unique<WorkNames>();
  EXPECT_EQ(names->of(7), nullptr);
  names->queued(7, "first");
  names->queued(8, nullptr);
  EXPECT_STREQ(names->of(7), "first");
  EXPECT_EQ(names->of(8), nullptr);
  names->queued(7 + 65536, "second");  // the same slot
  EXPECT_EQ(names->of(7), nullptr);
  EXPECT_STREQ(names->of(7 + 65536), "second");
}

TEST(PlanSteps, CopiedNodesKeepTheirStep) {
  const auto steps = std::make_unique<PlanSteps>();
  steps->node(100, 3);
  steps->node_copied(100, 200);
  steps->node_copied(101, 201);  // made while nobody looked
  EXPECT_EQ(steps->of_node(100), 3);
  EXPECT_EQ(steps->of_node(200), 3);
  EXPECT_EQ(steps->of_node(201), -1);
}

TEST(ActivityQueue, OldestFirstInPortions) {
  ActivityQueue queue;
  for (int i = 0; i < 5; ++i) queue.add(activity_of(GPU_ACTIVITY_KERNEL, i, i + 1, "kernel"));
  GpuActivity taken[3];
  ASSERT_EQ(queue.take(taken, 3), 3u);
  EXPECT_EQ(taken[0].start_ns, 0);
  EXPECT_EQ(taken[2].start_ns, 2);
  ASSERT_EQ(queue.take(taken, 3), 2u);
  EXPECT_EQ(taken[1].start_ns, 4);
  EXPECT_EQ(queue.take(taken, 3), 0u);
}

TEST(ActivityOf, CutsLongNames) {
  const GpuActivity activity = activity_of(GPU_ACTIVITY_COPY, 1, 2, std::string(300, 'n').c_str());
  EXPECT_EQ(std::string(activity.name), std::string(95, 'n'));
  EXPECT_EQ(activity.plan_step, -1);
  EXPECT_EQ(std::string(activity_of(GPU_ACTIVITY_API, 1, 2, nullptr).name), "");
}

}  // namespace
}  // namespace gradloom::kernels::gpu
