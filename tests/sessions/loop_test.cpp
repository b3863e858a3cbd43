// Recorded loops: several plans in one run, spans, and the shares that are made of them.
#include "sessions/loop.h"

#include "tests/sessions/session_fixture.h"

namespace gradloom {
namespace {

using test::error_of;
using test::SessionTest;
using test::TinyStep;

using test::write_tiny_loop;

class LoopTest : public SessionTest {};

TEST_F(LoopTest, SharesAreOfTheTimedStepsAndAddUp) {
  const std::string path = file("s.db");
  const std::int64_t id = write_tiny_loop(path, 9, true);
  auto store = Store::open(path, StoreMode::read);
  ASSERT_TRUE(store.ok());
  EXPECT_TRUE((*store)->check(id).ok()) << error_of((*store)->check(id));
  const auto run = (*store)->load_run(id);
  ASSERT_TRUE(run.ok()) << error_of(run);
  EXPECT_TRUE(run->summary.is_loop());
  ASSERT_TRUE(run->loop.has_value());
  const LoopShares& loop = *run->loop;
  EXPECT_EQ(loop.steps, 2) << "5 and 8";
  EXPECT_DOUBLE_EQ(loop.step_ns, 1e6);
  EXPECT_DOUBLE_EQ(loop.kernel_ns, 3e5);
  EXPECT_DOUBLE_EQ(loop.ns_of("engine"), 4e5);
  EXPECT_DOUBLE_EQ(loop.ns_of("gradloom"), 5e4);
  EXPECT_DOUBLE_EQ(loop.ns_of("step"), 2.5e5);
  EXPECT_DOUBLE_EQ(loop.engine_share(), 0.4);
  EXPECT_DOUBLE_EQ(loop.loop_speedup(2), 1 / 0.8);
  EXPECT_EQ(loop_verdict(loop),
            "the engine computes 40.0 % of a step: twice as fast would make the loop 1.25x");
  double share = 0;
  for (const LoopRow& row : loop_rows(loop)) share += row.share;
  EXPECT_NEAR(share, 1, 1e-12);
  EXPECT_EQ(loop_rows(loop)[0].title, "engine: kernels");
  EXPECT_DOUBLE_EQ(loop_rows(loop)[1].ns, 1e5);
}

TEST_F(LoopTest, WhatPyTorchComputesIsToldWhereItIsMuch) {
  LoopSums sums;
  sums.add(nested_spans({{"engine", "net", 0, 100}, {"backward", "", 100, 300}, {"outside", "part", 200, 50}},
                        1, 0, 1000));
  const LoopShares loop = sums.shares(0);
  EXPECT_DOUBLE_EQ(loop.torch_share(), 0.3);
  EXPECT_EQ(
      loop_verdict(loop),
      "the engine computes 10.0 % of a step: twice as fast would make the loop 1.05x; PyTorch computes 30.0 % in "
      "modules and autograd");
}

TEST_F(LoopTest, WithoutTimedStepsAllCount) {
  const std::string path = file("s.db");
  const std::int64_t id = write_tiny_loop(path, 5, false);
  auto store = Store::open(path, StoreMode::read);
  const auto run = (*store)->load_run(id);
  ASSERT_TRUE(run.ok()) << error_of(run);
  EXPECT_EQ(run->loop->steps, 2) << "4 and 5";
  EXPECT_EQ(loop_rows(*run->loop)[0].title, "engine");
  const auto trace = (*store)->load_trace(id);
  ASSERT_TRUE(trace.ok()) << error_of(trace);
  EXPECT_EQ(trace->steps.size(), 5u);
  EXPECT_EQ(trace->host.size(), 25u);
  EXPECT_TRUE(trace->rows.empty());
}

TEST_F(LoopTest, PlansOfARunAreNumberedOneBehindTheOther) {
  const std::string path = file("s.db");
  const std::int64_t id = write_tiny_loop(path, 9, true);
  auto store = Store::open(path, StoreMode::read);
  const auto run = (*store)->load_run(id);
  ASSERT_TRUE(run.ok()) << error_of(run);
  const TinyStep one = test::tiny_step(true), two = test::tiny_step(false);
  ASSERT_EQ(run->kernels.size(), one.plan.steps.size() + two.plan.steps.size());
  EXPECT_EQ(run->kernels[0].info.node, "net/fc+act");
  EXPECT_EQ(run->kernels[0].info.scope, "net/fc");
  EXPECT_EQ(run->kernels[0].info.onnx_nodes, (std::vector<std::string>{"net/fc/MatMul", "net/act/Relu"}));
  const KernelRow& second = run->kernels[one.plan.steps.size()];
  EXPECT_EQ(second.info.node, "net#2/fc");
  EXPECT_EQ(second.info.onnx_nodes, (std::vector<std::string>{"net#2/fc/MatMul"}));
  EXPECT_EQ(second.median_ns, 200'000);
  EXPECT_EQ(run->passes.size(), 2u);
  EXPECT_EQ(run->passes[1].log[0].sources, (std::vector<std::uint32_t>{2, 3}));
  EXPECT_EQ(run->summary.plan_peak_bytes, std::max(one.plan.peak_bytes(), two.plan.peak_bytes()));
  const auto trace = (*store)->load_trace(id);
  ASSERT_TRUE(trace.ok()) << error_of(trace);
  ASSERT_EQ(trace->steps.size(), 3u) << "those with kernels";
  EXPECT_EQ(trace->steps[0].start_ns, 2'000'000) << "the step's, not its first kernel's";
  EXPECT_EQ(trace->steps[0].duration_ns, 1'000'000);
  EXPECT_EQ(trace->host.size(), 15u);
}

TEST_F(LoopTest, RunsOfTheEngineHaveNoShares) {
  const std::string path = file("s.db");
  auto store = Store::open(path, StoreMode::write);
  const std::int64_t id = test::write_tiny_run(**store, "plain", 5);
  const auto run = (*store)->load_run(id);
  ASSERT_TRUE(run.ok()) << error_of(run);
  EXPECT_FALSE(run->loop.has_value());
  EXPECT_FALSE(run->summary.is_loop());
}

}  // namespace
}  // namespace gradloom
