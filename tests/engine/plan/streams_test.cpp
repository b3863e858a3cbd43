// When copies of values that leave a GPU begin, who waits for them, and how long they occupy memory.
#include "engine/plan/streams.h"

#include "tests/engine/plan/offloaded_plan.h"

namespace gradloom {
namespace {

using Steps = std::vector<std::int32_t>;

TEST(Streams, CopiesBeginWhenTheyMustAndAreWaitedForWhereTheyAreOver) {
  OffloadedPlan p;
  const Steps order{p.step_of(p.a),    p.step_of(p.away), p.step_of(p.c), p.step_of(p.d),
                    p.step_of(p.back), p.step_of(p.e),    p.step_of(p.y)};
  EXPECT_EQ(order, (Steps{0, 1, 2, 3, 4, 5, 6}));
  EXPECT_EQ(p.step(p.away).stream, kDownloadStream);
  EXPECT_EQ(p.step(p.back).stream, kUploadStream);
  EXPECT_EQ(p.step(p.away).waits, Steps{0}) << "for what makes it";
  EXPECT_EQ(p.step(p.c).waits, Steps{}) << "both read";
  EXPECT_EQ(p.step(p.d).waits, Steps{1}) << "the copy is over by then";
  EXPECT_EQ(p.step(p.back).waits, Steps{3}) << "and so for the copy out, which that step waited for";
  EXPECT_EQ(p.step(p.y).waits, Steps{4});
  EXPECT_EQ(last_busy_steps(p.plan), (Steps{0, 2, 2, 3, 5, 5, 6}));
  EXPECT_TRUE(check_plan(p.graph, p.plan).ok()) << check_plan(p.graph, p.plan).error().message;
}

TEST(Streams, LifetimesLastAsLongAsCopiesMayRun) {
  OffloadedPlan p;
  EXPECT_EQ(p.buffer(p.away).place, Place::host);
  EXPECT_EQ(p.plan.host_bytes, 4096);
  EXPECT_EQ(p.buffer(p.away).first_step, 1);
  EXPECT_EQ(p.buffer(p.away).last_step, 5) << "until what reads the copy back waits for it";
  EXPECT_EQ(p.buffer(p.a).last_step, 2);
  EXPECT_EQ(p.buffer(p.back).first_step, 4) << "filled from the copy's beginning";
  EXPECT_EQ(p.plan.buffer_of[p.y], p.plan.buffer_of[p.e]) << "in place, as ever";
  EXPECT_NE(p.plan.buffer_of[p.c], p.plan.buffer_of[p.a]) << "not in place: a copy still reads it";
}

TEST(Streams, TheHostsMemoryIsNoPartOfThePeak) {
  OffloadedPlan p;
  EXPECT_EQ(p.plan.peak_bytes(), p.plan.arena_bytes + p.plan.input_bytes);
}

TEST(Streams, AnotherPlaceOrWaitIsAnotherHash) {
  OffloadedPlan one, other;
  EXPECT_EQ(one.plan.hash, other.plan.hash);
  OffloadedPlan cpu(kernels::Target::cpu);
  EXPECT_NE(one.plan.hash, cpu.plan.hash);
}

TEST(Streams, OnTheCpuCopiesAreStepsLikeOthers) {
  OffloadedPlan p(kernels::Target::cpu);
  for (const PlanStep& step : p.plan.steps) EXPECT_TRUE(step.stream == kComputeStream && step.waits.empty());
  EXPECT_EQ(p.plan.host_bytes, 0);
  EXPECT_EQ(p.buffer(p.away).place, Place::arena);
  EXPECT_TRUE(check_plan(p.graph, p.plan).ok());
}

// What makes each condition false leaves an ordinary copy, and a valid plan.
TEST(Streams, WhatIsNotIdleBetweenItsReadersStaysOnTheComputeStream) {
  const auto build = [](const std::function<void(GraphBuilder&, ValueId, ValueId, Graph&)>& rest) {
    Graph graph;
    GraphBuilder b(graph);
    const ValueId x = b.input("x", {DType::f32, {1024}});
    const ValueId a = b.op("Exp", {x});
    rest(b, x, a, graph);
    PlanOptions options{stack_all, "stack", true, kernels::Target::gpu};
    options.speeds = even_speeds();
    const auto plan = make_plan(graph, options);
    EXPECT_TRUE(plan.ok());
    EXPECT_TRUE(check_plan(graph, *plan).ok()) << check_plan(graph, *plan).error().message;
    return std::count_if(plan->steps.begin(), plan->steps.end(),
                         [](const PlanStep& step) { return step.stream != kComputeStream; });
  };
  const auto there_and_back = [](GraphBuilder& b, ValueId v) {
    return b.op("CopyFromHost", {b.op("CopyToHost", {v})});
  };
  EXPECT_EQ(build([&](GraphBuilder& b, ValueId, ValueId a, Graph& g) {
              const ValueId c = b.op("Exp", {a});
              g.outputs = {b.op("Mul", {c, there_and_back(b, a)})};
            }),
            2);
  EXPECT_EQ(build([&](GraphBuilder& b, ValueId x, ValueId a, Graph& g) {
              g.outputs = {b.op("Mul", {a, there_and_back(b, x)})};
            }),
            0)
      << "an input";
  EXPECT_EQ(build([&](GraphBuilder& b, ValueId, ValueId a, Graph& g) {
              g.outputs = {b.op("Mul", {b.op("Exp", {a}), there_and_back(b, a)}), a};
            }),
            0)
      << "an output, which stays";
  EXPECT_EQ(build([&](GraphBuilder& b, ValueId, ValueId a, Graph& g) {
              const ValueId away = b.op("CopyToHost", {a});
              g.outputs = {b.op("Mul", {b.op("Exp", {a}), b.op("CopyFromHost", {away})}), away};
            }),
            0)
      << "what is away is an output";
  EXPECT_EQ(build([&](GraphBuilder& b, ValueId, ValueId a, Graph& g) {
              const ValueId back = there_and_back(b, a);
              g.outputs = {b.op("Mul", {b.op("Exp", {a}), b.op("Exp", {back})}), back};
            }),
            2)
      << "what came back may be an output";
  EXPECT_EQ(build([&](GraphBuilder& b, ValueId, ValueId a, Graph& g) {
              g.outputs = {b.op("Exp", {b.op("CopyToHost", {a})})};
            }),
            0)
      << "nothing brings it back";
  EXPECT_EQ(build([&](GraphBuilder& b, ValueId, ValueId a, Graph& g) {
              const ValueId first = b.op("Exp", {there_and_back(b, a)});
              g.outputs = {b.op("Mul", {b.op("Add", {first, a}), a})};
            }),
            0)
      << "read by turns";
  EXPECT_EQ(build([&](GraphBuilder& b, ValueId, ValueId a, Graph& g) {
              const ValueId again = there_and_back(b, there_and_back(b, a));
              g.outputs = {b.op("Mul", {b.op("Exp", {a}), again})};
            }),
            2)
      << "what came back does not leave at once";
}

TEST(Streams, TwoCopiesOfOneValueAndViewsOfWhatComesBack) {
  Graph graph;
  GraphBuilder b(graph);
  const ValueId x = b.input("x", {DType::f32, {1024}});
  const ValueId a = b.op("Exp", {x});
  const ValueId first = b.op("CopyFromHost", {b.op("CopyToHost", {a})});
  const ValueId second = b.op("CopyFromHost", {b.op("CopyToHost", {a})});
  const ValueId view = b.op("Reshape", {first, b.i64s({32, 32})});
  ValueId y = b.op("Exp", {a});
  for (int i = 0; i < 6; ++i) y = b.op("Exp", {y});
  y = b.op("Mul", {y, second});
  graph.outputs = {b.op("Mul", {b.op("Reshape", {y, b.i64s({32, 32})}), view})};
  PlanOptions options{stack_all, "stack", true, kernels::Target::gpu};
  options.speeds = even_speeds();
  const auto plan = make_plan(graph, options);
  ASSERT_TRUE(plan.ok()) << plan.error().message;
  EXPECT_TRUE(check_plan(graph, *plan).ok()) << check_plan(graph, *plan).error().message;
  EXPECT_EQ(plan->host_bytes, 8192);
}

TEST(Streams, PredictedTimesCountWhatIsNotHidden) {
  OffloadedPlan p;
  const StepTimes times = predict_times(p.graph, p.plan, even_speeds());
  EXPECT_EQ(times.total_ns, 5000) << "five kernels, and all copies hidden";
  EXPECT_EQ(times.exposed_ns, 0);
  EXPECT_EQ(times.start_ns[4], 3000) << "the copy back";
  StepSpeeds slow = even_speeds();
  slow.link /= 3;  // copies of 3000 ns: out from 1000 to 4000, back from there to 7000
  OffloadedPlan late;
  PlanOptions options{stack_all, "stack", true, kernels::Target::gpu};
  options.speeds = slow;
  const auto plan = make_plan(late.graph, options);
  ASSERT_TRUE(plan.ok());
  EXPECT_TRUE(check_plan(late.graph, *plan).ok());
  const StepTimes exposed = predict_times(late.graph, *plan, slow);
  EXPECT_EQ(exposed.total_ns, 8000);
  EXPECT_EQ(exposed.exposed_ns, 3000);
}

// A link that is too slow costs memory, or time where copies may not hold it.
TEST(Streams, CopiesHoldMemoryNoLongerThanTheyMay) {
  StepSpeeds slow = even_speeds();
  slow.link /= 2.5;  // copies of 2500 ns: out from 1000 to 3500
  PlanOptions options{stack_all, "stack", true, kernels::Target::gpu};
  std::int32_t last[2];
  double exposed_ns[2];
  for (const bool waits : {false, true}) {
    OffloadedPlan p;
    options.speeds = slow;
    if (waits) options.speeds.hold_ns = 0;
    const auto plan = make_plan(p.graph, options);
    ASSERT_TRUE(plan.ok());
    EXPECT_TRUE(check_plan(p.graph, *plan).ok()) << check_plan(p.graph, *plan).error().message;
    last[waits ? 1 : 0] = plan->buffers[static_cast<std::size_t>(plan->buffer_of[p.a])].last_step;
    exposed_ns[waits ? 1 : 0] = predict_times(p.graph, *plan, slow).exposed_ns;
  }
  EXPECT_GT(last[0], 2) << "until the copy is over";
  EXPECT_EQ(last[1], 2) << "behind its last reader";
  EXPECT_GT(exposed_ns[1], exposed_ns[0]);
}

TEST(Streams, WithoutTimesFlopsAndBytesTell) {
  OffloadedPlan p;
  StepSpeeds speeds;
  const StepTimes times = predict_times(p.graph, p.plan, speeds);
  EXPECT_NEAR(times.end_ns[0], 2 * 4096 / speeds.memory, 1e-9);
  EXPECT_NEAR(times.end_ns[1] - times.start_ns[1], speeds.latency_ns + 4096 / speeds.link, 1e-9);
}

}  // namespace
}  // namespace gradloom
