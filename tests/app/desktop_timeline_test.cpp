#include <gtest/gtest.h>

#include "app/desktop/timeline.h"
#include "app/desktop/timeline_pair.h"

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
  ASSERT_EQ(m.lanes[0].bars.size(), 3u);  // the two forward kernels are one bar
  EXPECT_EQ(m.lanes[0].bars[0].start_ns, 0);
  EXPECT_EQ(m.lanes[0].bars[0].end_ns, 35);
  ASSERT_EQ(m.lanes[1].bars.size(), 2u);  // l0 forward, l0 backward; the optimizer has no scope
  EXPECT_EQ(m.lanes[1].bars[0].label, "l0");
  ASSERT_EQ(m.lanes[2].bars.size(), 3u);
  EXPECT_EQ(m.lanes[2].bars[1].label, "l0/fc");
  ASSERT_EQ(m.lanes[3].bars.size(), 4u);
  EXPECT_EQ(bar_name(t, m.lanes[3].bars[2]), "c");
  EXPECT_EQ(m.lanes[3].bars[2].kernel, 2);
  EXPECT_EQ(m.live_bytes, (std::vector<double>{10, 20, 30, 5}));
}

TEST(Timeline, WithoutAnArenaThereIsNone) {
  TraceDocument t = sample();
  t.live_bytes = {0, 0, 0, 0};
  EXPECT_TRUE(build_timeline(t, 4).live_ns.empty());
}

TEST(Timeline, RanksHaveLanesOfTheirOwn) {
  TraceDocument t = sample();
  t.ranks = {{"a"}, {"b"}};
  for (TraceRow row : t.rows) {
    row.rank = 1;
    row.start_ns += 30;
    t.other_ranks.push_back(row);
  }
  t.exchanges = {{1, 2, 0, 4, 4070, 20, 0, 8}, {0, 2, 0, 4, 4040, 50, 30, 8}};
  const TimelineModel m = build_timeline(t, 4);
  ASSERT_EQ(m.lanes.size(), 7u);
  EXPECT_EQ(m.lanes[3].name, "Rank 0");
  EXPECT_FALSE(m.lanes[3].other_rank);
  EXPECT_EQ(m.lanes[4].name, "exchanges");
  ASSERT_EQ(m.lanes[4].bars.size(), 2u);
  EXPECT_TRUE(m.lanes[4].bars[0].waits);
  EXPECT_EQ(m.lanes[4].bars[0].end_ns, 70);
  EXPECT_EQ(m.lanes[4].bars[1].label, "transfer");
  EXPECT_EQ(m.lanes[4].bars[1].end_ns, 90);
  EXPECT_EQ(m.lanes[5].name, "Rank 1");
  EXPECT_TRUE(m.lanes[5].other_rank && m.lanes[5].stream);
  ASSERT_EQ(m.lanes[5].bars.size(), 4u);
  EXPECT_EQ(m.lanes[5].bars[0].start_ns, 30);
  ASSERT_EQ(m.lanes[6].bars.size(), 1u) << "who is ready last does not wait";
  EXPECT_EQ(m.duration_ns, 105) << "to the end of the last rank";
  EXPECT_EQ(launch_of(m, t, "c").from_ns, 40) << "where all else is of";
  EXPECT_EQ(filter_of(m, t, {0, 20}).nodes.size(), 1u);
  t.ranks.resize(100, {"c"});
  EXPECT_EQ(build_timeline(t, 4).lanes.size(), 3u + 2u * (kMostOtherRanks + 1)) << "no more than can be seen";
}

TEST(Timeline, TheHostOfALoopStandsAboveItsKernels) {
  TraceDocument t = sample();
  for (const std::int64_t step : {1, 4})
    for (HostSpan& s : nested_spans({{"data", "set", step * 1000, 4},
                                     {"backward", "", step * 1000 + 10, 70},
                                     {"outside", "Mine backward", step * 1000 + 30, 20}},
                                    step, step * 1000, step * 1000 + 100))
      t.host.push_back(s);
  const TimelineModel m = build_timeline(t, 4);
  ASSERT_EQ(m.lanes.size(), 6u);
  EXPECT_EQ(m.lanes[0].name, "Host");
  ASSERT_EQ(m.lanes[0].bars.size(), 2u);
  EXPECT_EQ(m.lanes[0].bars[0].label, "set");
  EXPECT_EQ(m.lanes[0].bars[1].label, "autograd") << "without a name its kind says what it is";
  EXPECT_EQ(m.lanes[0].bars[1].start_ns, 10);
  EXPECT_EQ(m.lanes[0].bars[1].end_ns, 80);
  EXPECT_EQ(m.lanes[1].name, "Host 2");
  ASSERT_EQ(m.lanes[1].bars.size(), 1u);
  EXPECT_EQ(t.host[static_cast<std::size_t>(m.lanes[1].bars[0].host)].name, "Mine backward");
  EXPECT_EQ(t.host[static_cast<std::size_t>(m.lanes[1].bars[0].host)].step, 4);
  EXPECT_EQ(m.lanes[2].name, "Phase");
  EXPECT_EQ(m.lanes[5].bars[2].kernel, 2);
}

// A copy on each of two streams, before and between the kernels; two launches.
TEST(Timeline, StreamsOfAGpuStandBelowTheLaunches) {
  TraceDocument t = sample();
  const auto add = [&](Activity::Kind kind, std::int32_t stream, std::int32_t plan_step,
                       std::int64_t start_ns) {
    t.activities.push_back(
        {kind, stream, plan_step, 0, 4, start_ns, 5, 64, kind == Activity::Kind::copy ? "copy" : "launch"});
  };
  add(Activity::Kind::api, -1, 2, 4030);
  add(Activity::Kind::api, -1, 0, 3985);
  add(Activity::Kind::copy, 1, -1, 3980);
  add(Activity::Kind::copy, 0, -1, 3990);
  add(Activity::Kind::fill, 0, -1, 4035);
  t.steps[1] = {4, 3980, 120};
  const TimelineModel m = build_timeline(t, 4);
  ASSERT_EQ(m.lanes.size(), 6u);  // phase, two scope levels, launches, two streams
  EXPECT_EQ(m.lanes[3].name, "Launches");
  ASSERT_EQ(m.lanes[3].bars.size(), 2u);
  EXPECT_EQ(m.lanes[3].bars[0].activity, 1) << "by start";
  EXPECT_EQ(m.lanes[3].bars[0].start_ns, 5);
  EXPECT_FALSE(m.lanes[3].stream);
  EXPECT_EQ(m.lanes[4].name, "Stream 0");
  ASSERT_EQ(m.lanes[4].bars.size(), 6u);
  EXPECT_EQ(m.lanes[4].bars[0].activity, 3);
  EXPECT_EQ(m.lanes[4].bars[1].kernel, 0);
  EXPECT_EQ(m.lanes[4].bars[3].activity, 4);
  EXPECT_EQ(m.lanes[4].bars[3].kernel, -1);
  EXPECT_TRUE(m.lanes[4].stream && m.lanes[5].stream);
  EXPECT_EQ(m.lanes[5].name, "Stream 1");
  ASSERT_EQ(m.lanes[5].bars.size(), 1u);
  EXPECT_EQ(filter_of(m, t, {0, 22}).nodes, std::unordered_set<std::string>{"a"})
      << "only kernels are filtered by";
  EXPECT_EQ(build_timeline(t, 1).lanes.size(), 4u) << "another step had none";
}

TEST(Timeline, SeveralStepsStandWithTheirRealGaps) {
  const TraceDocument t = sample();
  const TimelineModel m = build_timeline(t, 1, 4);
  ASSERT_EQ(m.steps.size(), 2u);
  EXPECT_EQ(m.steps[0].step, 1);
  EXPECT_EQ(m.steps[1].start_ns, 3000);
  EXPECT_EQ(m.steps[1].end_ns, 3100);
  EXPECT_EQ(m.steps[1].left_out_before, 2);
  EXPECT_EQ(m.duration_ns, 3100);
  EXPECT_EQ(m.step_ns, 200);
  EXPECT_EQ(shown_steps_text(m), "steps 1 to 4");
  EXPECT_EQ(m.step_at(-5)->step, 1);
  EXPECT_EQ(m.step_at(2999)->step, 1);
  EXPECT_EQ(m.step_at(3000)->step, 4);
  ASSERT_EQ(m.lanes[3].bars.size(), 8u);
  EXPECT_EQ(m.lanes[3].bars[4].start_ns, 3000);
  EXPECT_EQ(m.lanes[3].bars[4].step, 1);
  ASSERT_EQ(m.lanes[0].bars.size(), 6u) << "phases of two steps are not one";
  ASSERT_EQ(m.lanes[1].bars.size(), 4u);
  EXPECT_EQ(m.most_live(0, 25), 20);
  EXPECT_EQ(m.most_live(45, 3001), 30) << "what goes on counts";
  EXPECT_EQ(launch_of(m, t, "c").from_ns, 40) << "of the first step";
  EXPECT_EQ(filter_of(m, t, {100, 3001}).nodes, std::unordered_set<std::string>{"a"});
}

TEST(Timeline, TheMostOfManyLiveBytesIsFoundByBlocks) {
  TimelineModel m;
  for (int i = 0; i < 1000; ++i) {
    m.live_ns.push_back(i);
    m.live_bytes.push_back(i == 500 ? 99 : i % 7);
    if (i % static_cast<int>(kLiveBlock) == 0) m.live_most.push_back(0);
    m.live_most.back() = std::max(m.live_most.back(), m.live_bytes.back());
  }
  for (const auto& [from, to] :
       {std::pair(0., 500.), std::pair(3., 501.), std::pair(500.5, 900.), std::pair(501., 502.)}) {
    double most = 0;
    for (int i = 0; i < 1000; ++i)
      if (i < to && i + 1 > from) most = std::max(most, m.live_bytes[static_cast<std::size_t>(i)]);
    EXPECT_EQ(m.most_live(from, to), most) << from;
  }
}

TEST(Timeline, StepsAreChosenOneOrSeveral) {
  const TraceDocument t = sample();
  TimelineState state;
  const int one = 1;
  show_run(state, &one, 7, t);
  set_range(state, t, {20, 45});
  state.view = {1, 2};
  choose_steps(state, 5, -3, 2);  // in any order, cut to what there is
  show_run(state, &one, 7, t);
  EXPECT_EQ(state.model.steps.size(), 2u);
  EXPECT_TRUE(state.view.empty()) << "the time shown was of one step";
  EXPECT_FALSE(state.filter);
  EXPECT_FALSE(state.newest_step);
  state.view = {1, 2};
  choose_steps(state, 1, 1, 2);
  EXPECT_TRUE(state.newest_step);
  choose_steps(state, 0, 0, 2);
  show_run(state, &one, 7, t);
  EXPECT_EQ(state.model.step, 1);
  EXPECT_FALSE(state.newest_step);
}

TEST(Timeline, FlowsLeadFromForwardToBackward) {
  TraceDocument t = sample();
  t.kernels[0].sources = {1};
  t.kernels[1].sources = {2, 3};
  t.kernels[2].sources = {3};
  const TimelineModel m = build_timeline(t, 1, 4);
  for (const char* end : {"b", "c"}) {
    const std::vector<TimelineFlow> flows = flows_of(m, t, end);
    ASSERT_EQ(flows.size(), 2u) << "one in each step";
    EXPECT_EQ(flows[0].from_ns, 35);
    EXPECT_EQ(flows[0].to_ns, 40);
    EXPECT_EQ(flows[1].from_ns, 3035);
    EXPECT_EQ(flows[0].from_lane, 3u);
  }
  EXPECT_TRUE(flows_of(m, t, "a").empty());
  EXPECT_TRUE(flows_of(m, t, "d").empty()) << "the optimizer differentiates nothing";
  EXPECT_TRUE(flows_of(m, t, "nobody").empty());
}

// The other run has one kernel for a and b, and is slower at c.
TEST(TimelinePair, KernelsThatComputeTheSameAreOnePair) {
  RunRecord runs[2];
  for (int side = 0; side < 2; ++side) {
    StepRow step;
    step.step = 1;
    step.step_ns = 100;
    runs[side].steps.push_back(step);
    const auto add = [&](const char* node, const char* phase, std::vector<std::string> onnx,
                         std::int64_t ns) {
      KernelRow row;
      row.info.node = node;
      row.info.phase = phase;
      row.info.onnx_nodes = std::move(onnx);
      row.samples = 1;
      row.step_ns = row.median_ns = ns;
      runs[side].kernels.push_back(row);
    };
    if (side == 0) add("a", "forward", {"A"}, 10), add("b", "loss", {"B"}, 10);
    if (side == 1) add("ab", "forward", {"A", "B"}, 15);
    add("c", "backward", {"B"}, side == 0 ? 20 : 60);
    add(side == 0 ? "own" : "other", "optimizer", {}, 5);
  }
  const Result<TimelinePair> made = pair_runs(runs[0], runs[1]);
  ASSERT_TRUE(made.ok());
  ASSERT_EQ(made->of_a.size(), 4u);
  EXPECT_EQ(made->of_a[0], made->of_a[1]);
  EXPECT_EQ(made->of_a[0], made->of_b[0]);
  EXPECT_EQ(made->of_a[2], made->of_b[1]);
  EXPECT_EQ(made->of_a[2], 0) << "the largest change first";
  EXPECT_EQ(made->pairs[0].change_ns(), 40);
  EXPECT_NE(made->of_a[0], made->of_a[2]) << "another phase";
}

TEST(TimelinePair, StepsAreAlignedWhereTheyOrAPhaseBegin) {
  const TraceDocument t = sample();
  TraceDocument other = t;  // its second step comes later, and its backward pass too
  for (TraceStep& s : other.steps)
    if (s.step == 4) s.start_ns += 500;
  for (TraceRow& row : other.rows) row.start_ns += (row.step == 4 ? 500 : 0) + (row.plan_step >= 2 ? 7 : 0);
  const TimelineModel a = build_timeline(t, 1, 4);
  EXPECT_EQ(steps_beside(a, other), (std::pair<std::int64_t, std::int64_t>{1, 4}));
  const TimelineModel b = build_timeline(other, 1, 4);
  EXPECT_EQ(alignments(a, b), (std::vector<std::string>{"step", "backward", "optimizer"}));
  TimelineModel by_step = b, by_phase = b;
  align(by_step, a, "step");
  align(by_phase, a, "backward");
  const auto starts = [](const TimelineModel& m) {
    std::vector<double> out;
    for (const TimelineBar& bar : m.lanes[3].bars) out.push_back(bar.start_ns);
    return out;
  };
  EXPECT_EQ(starts(by_step), (std::vector<double>{0, 20, 47, 67, 3000, 3020, 3047, 3067}));
  EXPECT_EQ(starts(by_phase), (std::vector<double>{-7, 13, 40, 60, 2993, 3013, 3040, 3060}));
  EXPECT_EQ(by_phase.steps[1].start_ns, 2993);
  std::vector<std::int32_t> of{-1, -1, 0, 0};
  EXPECT_EQ(bars_of_pair(by_step, of, 0), (TimeRange{47, 82}));
  EXPECT_TRUE(bars_of_pair(by_step, of, 3).empty());
}

TEST(TimelinePair, TheNearestStepsStandBeside) {
  TraceDocument t = sample();
  const TimelineModel fourth = build_timeline(t, 4, 4);
  TraceDocument other;
  EXPECT_EQ(steps_beside(fourth, other).second, -1);
  for (const std::int64_t step : {2, 5, 8}) other.steps.push_back({step, 0, 1});
  EXPECT_EQ(steps_beside(fourth, other), (std::pair<std::int64_t, std::int64_t>{5, 5}));
  EXPECT_EQ(steps_beside(build_timeline(t, 1, 4), other), (std::pair<std::int64_t, std::int64_t>{2, 5}));
}

TEST(Timeline, FindsTheFirstBarOfAView) {
  const TimelineModel m = build_timeline(sample(), 1);
  const TimelineLane& kernels = m.lanes.back();
  EXPECT_EQ(first_bar_after(kernels, -5), 0u);
  EXPECT_EQ(first_bar_after(kernels, 15), 1u);
  EXPECT_EQ(first_bar_after(kernels, 36), 2u);
  EXPECT_EQ(first_bar_after(kernels, 1e9), 4u);
}

TEST(Timeline, ARangeLetsThroughWhatRunsInIt) {
  const TraceDocument t = sample();
  const TimelineModel m = build_timeline(t, 4);
  const RangeFilter filter = filter_of(m, t, range_between(45, 20));  // b starts at 20, c at 40
  EXPECT_EQ(filter.range, (TimeRange{20, 45}));
  EXPECT_EQ(filter.nodes, (std::unordered_set<std::string>{"b", "c"}));
  EXPECT_EQ(filter.first_step, 1);
  EXPECT_EQ(filter.last_step, 2);
  EXPECT_TRUE(filter_of(m, t, {16, 19}).nodes.empty());  // between two kernels
  EXPECT_EQ(launch_of(m, t, "c"), (TimeRange{40, 55}));
  EXPECT_TRUE(launch_of(m, t, "nobody").empty());
}

TEST(Timeline, TheRangeSurvivesTheSameRunAndNotAnother) {
  const TraceDocument t = sample();
  TimelineState state;
  const int one = 1, two = 2, three = 3;  // stand for snapshots
  show_run(state, &one, 7, t);
  EXPECT_EQ(state.model.step, 4);  // the newest
  set_range(state, t, {20, 45});
  state.view = {10, 60};
  const auto filter = state.filter;
  show_run(state, &one, 7, t);
  EXPECT_EQ(state.filter, filter) << "nothing changed";
  TraceDocument longer = t;  // the run went on
  longer.steps.push_back({9, 9000, 100});
  TraceRow row = t.rows.front();  // kernel d
  row.step = 9;
  row.start_ns = 9030;
  longer.rows.push_back(row);
  show_run(state, &two, 7, longer);
  EXPECT_EQ(state.model.step, 9);
  EXPECT_EQ(state.view, (TimeRange{10, 60}));
  ASSERT_TRUE(state.filter);
  EXPECT_EQ(state.filter->nodes, std::unordered_set<std::string>{"d"});
  state.newest_step = false;
  state.first_index = state.last_index = 0;
  state.ruler = {1, 2};
  show_run(state, &two, 7, longer);
  EXPECT_EQ(state.model.step, 1);
  EXPECT_TRUE(state.ruler.empty()) << "it measured another step";
  EXPECT_TRUE(state.filter);
  show_run(state, &three, 8, t);
  EXPECT_EQ(state.model.step, 4);
  EXPECT_FALSE(state.filter);
  EXPECT_TRUE(state.view.empty());
  show_run(state, nullptr, 0, TraceDocument());
  EXPECT_TRUE(state.model.lanes.empty());
}

TEST(Timeline, AnUnknownStepAndForeignRowsAreHarmless) {
  TraceDocument t = sample();
  EXPECT_TRUE(build_timeline(t, 7).lanes.empty());
  t.rows[0].plan_step = 99;
  t.rows[1].plan_step = -1;
  EXPECT_EQ(build_timeline(t, 1).lanes.back().bars.size(), 2u);
}

TEST(Timeline, ThreadsHaveLanesBelowTheKernels) {
  TraceDocument t = sample();
  t.threads = {{0, 2, 0, 4, 4040, 15, 11},
               {1, 2, 0, 4, 4042, 12, 12},
               {1, 0, 0, 4, 4001, 5, 5},
               {1, 2, 0, 1, 1041, 9, 9},
               {40, 0, 0, 4, 4000, 5, 5}};
  const TimelineModel m = build_timeline(t, 4);
  ASSERT_EQ(m.lanes.size(), 6u);
  EXPECT_EQ(m.lanes[4].name, "Thread 1");
  ASSERT_EQ(m.lanes[4].bars.size(), 1u);
  EXPECT_EQ(m.lanes[4].bars[0].end_ns, 51) << "then it waits";
  EXPECT_EQ(m.lanes[5].name, "Thread 2");
  ASSERT_EQ(m.lanes[5].bars.size(), 2u) << "of this step";
  EXPECT_EQ(m.lanes[5].bars[0].start_ns, 1);
  EXPECT_EQ(bar_name(t, m.lanes[5].bars[1]), "c");
  EXPECT_EQ(m.lanes[5].bars[1].phase, "backward");
  const TimelineModel plain = build_timeline(sample(), 4);
  EXPECT_EQ(launch_of(m, t, "c"), launch_of(plain, t, "c")) << "a thread's part is no launch";
  EXPECT_EQ(filter_of(m, t, {0, 100}).nodes, filter_of(plain, t, {0, 100}).nodes);
}

}  // namespace
}  // namespace gradloom
