#include <gtest/gtest.h>

#include "app/desktop/timeline.h"

namespace gradloom {
namespace {

TraceDocument sample() {
  TraceDocument t;
  for (const auto& [node, phase, scope] :
       {std::tuple("a", "forward", "l0/attn"), std::tuple("b", "forward", "l0/fc"),
        std::tuple("c", "backward", "l0/fc"), std::tuple("d", "optimizer", "")}) {
    KernelInfo k;
    k.plan_step = static_cast<std::int32_t>(t.kernels.size());
    k.node = node;
    k.phase = phase;
    k.scope = scope;
    t.kernels.push_back(k);
  }
  t.live_bytes = {10, 20, 30, 5};
  for (std::int64_t step : {1, 4}) {
    t.steps.push_back({step, step * 1000, 100});
    for (int i = 3; i >= 0; --i) {  // rows come in any order
      TraceRow r;
      r.start_ns = step * 1000 + i * 20;
      r.duration_ns = 15;
      r.plan_step = i;
      r.step = step;
      t.rows.push_back(r);
    }
  }
  return t;
}

TEST(Timeline, NestsPhasesScopesAndKernels) {
  const TraceDocument t = sample();
  EXPECT_EQ(timed_steps(t), (std::vector<std::int64_t>{1, 4}));
  const TimelineModel m = build_timeline(t, 4);
  ASSERT_EQ(m.lanes.size(), 4u);  // phase, two scope levels, kernels
  EXPECT_EQ(m.duration_ns, 100);
  EXPECT_EQ(m.busy_ns, 60);
  ASSERT_EQ(m.lanes[0].bars.size(), 3u);  // the two forward kernels are one bar
  EXPECT_EQ(m.lanes[0].bars[0].start_ns, 0);
  EXPECT_EQ(m.lanes[0].bars[0].end_ns, 35);
  ASSERT_EQ(m.lanes[1].bars.size(), 2u);  // l0 forward, l0 backward; the optimizer has no scope
  EXPECT_EQ(m.lanes[1].bars[0].label, "l0");
  ASSERT_EQ(m.lanes[2].bars.size(), 3u);
  EXPECT_EQ(m.lanes[2].bars[1].label, "l0/fc");
  ASSERT_EQ(m.lanes[3].bars.size(), 4u);
  EXPECT_EQ(m.lanes[3].bars[2].label, "c");
  EXPECT_EQ(m.lanes[3].bars[2].kernel, 2);
  EXPECT_EQ(m.live_bytes, (std::vector<double>{10, 20, 30, 5}));
}

TEST(Timeline, FindsTheFirstBarOfAView) {
  const TimelineModel m = build_timeline(sample(), 1);
  const TimelineLane& kernels = m.lanes.back();
  EXPECT_EQ(first_bar_after(kernels, -5), 0u);
  EXPECT_EQ(first_bar_after(kernels, 15), 1u);
  EXPECT_EQ(first_bar_after(kernels, 36), 2u);
  EXPECT_EQ(first_bar_after(kernels, 1e9), 4u);
}

TEST(Timeline, AnUnknownStepAndForeignRowsAreHarmless) {
  TraceDocument t = sample();
  EXPECT_TRUE(build_timeline(t, 7).lanes.empty());
  t.rows[0].plan_step = 99;
  t.rows[1].plan_step = -1;
  EXPECT_EQ(build_timeline(t, 1).lanes.back().bars.size(), 2u);
}

}  // namespace
}  // namespace gradloom
