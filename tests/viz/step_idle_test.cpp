// Lanes with gaps whose causes are known.
#include "viz/model/step_idle.h"

#include <gtest/gtest.h>

#include <array>
#include <tuple>

#include "viz/model/critical_path.h"

namespace gradloom {
namespace {

constexpr std::int64_t kStep = 7, kStart = 1'000'000;

class IdleSplit : public testing::Test {
 protected:
  void step(std::int64_t number, std::int64_t start_ns, std::int64_t duration_ns, std::int64_t step_ns) {
    trace_.steps.push_back({number, start_ns, duration_ns});
    StepRow row;
    row.step = number;
    row.step_ns = step_ns;
    row.timed = true;
    run_.steps.push_back(row);
  }
  // Adds it to the plan, too. Times: from the start of the step.
  std::int32_t kernel(const std::string& op, std::int64_t start, std::int64_t end, std::int32_t stream = 0,
                      std::int32_t rank = 0) {
    const auto plan_step = static_cast<std::int32_t>(trace_.kernels.size());
    KernelInfo info;
    info.plan_step = plan_step;
    info.op = op;
    info.node = op + std::to_string(plan_step);
    info.phase = "forward";
    trace_.kernels.push_back(info);
    run_again(plan_step, start, end, stream, rank);
    return plan_step;
  }
  void run_again(std::int32_t plan_step, std::int64_t start, std::int64_t end, std::int32_t stream = 0,
                 std::int32_t rank = 0) {
    TraceRow row;
    row.start_ns = kStart + start;
    row.duration_ns = end - start;
    row.plan_step = plan_step;
    row.stream = stream;
    row.step = kStep;
    row.rank = rank;
    (rank == 0 ? trace_.rows : trace_.other_ranks).push_back(row);
  }
  void activity(Activity::Kind kind, std::int64_t start, std::int64_t end, std::int32_t stream,
                std::int32_t plan_step = -1) {
    trace_.activities.push_back({kind, stream, plan_step, 0, kStep, kStart + start, end - start, 0, "x"});
  }
  StepIdle read() const { return IdleReader(run_, trace_).step(kStep); }
  static double idle(const IdleSums& sums, IdleCause cause) {
    return sums.idle_ns[static_cast<std::size_t>(cause)];
  }

  RunRecord run_;
  TraceDocument trace_;
};

TEST_F(IdleSplit, OneLaneIsBusyOrLaunchesOrWaitsForTheHost) {
  step(kStep, kStart, 100, 130);
  kernel("A", 0, 40);
  kernel("B", 45, 60);
  kernel("C", 60, 100);
  const StepIdle found = read();
  ASSERT_EQ(found.lanes.size(), 1u);
  EXPECT_EQ(found.lanes[0].name, "Kernels");
  const IdleSums sums = found.lanes[0].sums();
  EXPECT_EQ(sums.wall_ns, 130) << "what the step took beyond its kernels is the host's";
  EXPECT_EQ(sums.busy_ns(), 95);
  EXPECT_EQ(idle(sums, IdleCause::kLaunch), 5);
  EXPECT_EQ(idle(sums, IdleCause::kHost), 30);
  const IdleSums part = found.lanes[0].sums(42, 50);
  EXPECT_EQ(part.wall_ns, 8);
  EXPECT_EQ(part.busy_ns(), 5);
  EXPECT_EQ(idle(part, IdleCause::kLaunch), 3);
  EXPECT_EQ(idle_text(sums), "busy 73.1 %, launch 3.8 %, host 23.1 %");
  const CriticalPath path = critical_path(found, trace_);
  EXPECT_TRUE(path.alone);
  EXPECT_EQ(path.kernels, 3u);
  EXPECT_EQ(path.length_ns(), 130);
  EXPECT_NE(path_text(path, found).find("one lane"), std::string::npos);
}

TEST_F(IdleSplit, TheStepBeginsWhereTheOneBeforeEnded) {
  step(kStep - 1, kStart - 500, 300, 300);
  step(kStep, kStart, 100, 110);
  kernel("A", 0, 100);
  TraceRow before = trace_.rows.front();
  before.step = kStep - 1;
  before.start_ns = kStart - 500;
  before.duration_ns = 300;
  trace_.rows.insert(trace_.rows.begin(), before);
  EXPECT_EQ(read().lanes[0].start_ns, -200);
  EXPECT_EQ(idle(read().lanes[0].sums(), IdleCause::kHost), 200);
  EvaluationRow evaluation;
  evaluation.step = kStep - 1;
  run_.evaluations.push_back(evaluation);
  EXPECT_EQ(read().lanes[0].start_ns, -10) << "an evaluation was between them";
}

// Compute on streams 0 and 3, a copy of the plan on 1; launches by the host.
TEST_F(IdleSplit, StreamsWaitForLaunchesCopiesAndOneAnother) {
  step(kStep, kStart, 200, 200);
  kernel("A", 0, 20);
  const std::int32_t late = kernel("B", 50, 60);
  activity(Activity::Kind::api, 40, 48, -1, late);
  kernel("CopyFromHost", 55, 80, 1);
  kernel("C", 85, 100);  // after the copy
  kernel("D", 60, 120, 3);
  kernel("E", 125, 150);  // after D
  activity(Activity::Kind::copy, 152, 160, 0);
  kernel("F", 160, 200);
  const StepIdle found = read();
  ASSERT_EQ(found.lanes.size(), 2u) << "what only copies is no lane";
  EXPECT_EQ(found.lanes[0].name, "Stream 0");
  EXPECT_EQ(found.lanes[1].name, "Stream 3");
  const std::vector<IdlePiece>& idle_pieces = found.lanes[0].idle;
  std::vector<std::pair<IdleCause, double>> causes;
  for (const IdlePiece& p : idle_pieces) causes.emplace_back(p.cause, p.end_ns - p.start_ns);
  EXPECT_EQ(causes, (std::vector<std::pair<IdleCause, double>>{{IdleCause::kLaunch, 28},
                                                               {IdleCause::kLaunch, 2},
                                                               {IdleCause::kCopy, 20},
                                                               {IdleCause::kLaunch, 5},
                                                               {IdleCause::kDependency, 20},
                                                               {IdleCause::kLaunch, 5},
                                                               {IdleCause::kLaunch, 2},
                                                               {IdleCause::kCopy, 8}}));
  const CriticalPath path = critical_path(found, trace_);
  EXPECT_FALSE(path.alone);
  std::string way;
  for (const PathPiece& p : path.pieces)
    if (p.kind == PathPiece::Kind::kKernel) {
      const LaneKernel& k =
          found.lanes[static_cast<std::size_t>(p.lane)].kernels[static_cast<std::size_t>(p.kernel)];
      way += trace_.kernels[static_cast<std::size_t>(k.plan_step)].op;
    }
  EXPECT_EQ(way, "DEF") << "what ran on stream 0 beside D could have taken longer";
  EXPECT_EQ(path.changes, 1u);
  EXPECT_EQ(path.kernels, 3u);
}

// Rank 1 computes longer, so rank 0 waits in its exchange; both then transfer.
TEST_F(IdleSplit, ARankThatWaitsForTheLastOneIsImbalance) {
  step(kStep, kStart, 100, 100);
  trace_.ranks = {{"a"}, {"b"}};
  const std::int32_t compute = kernel("A", 0, 30), mean = kernel("AllReduceMean", 30, 80),
                     update = kernel("B", 80, 100);
  run_again(compute, 0, 70, 0, 1);
  run_again(mean, 70, 80, 0, 1);
  run_again(update, 80, 90, 0, 1);
  trace_.exchanges = {{0, mean, 0, kStep, kStart + 30, 50, 40, 8},
                      {1, mean, 0, kStep, kStart + 70, 10, 0, 8}};
  const StepIdle found = read();
  ASSERT_EQ(found.lanes.size(), 2u);
  const IdleSums first = found.lanes[0].sums(), second = found.lanes[1].sums();
  EXPECT_EQ(idle(first, IdleCause::kImbalance), 40);
  EXPECT_EQ(idle(first, IdleCause::kCopy), 10);
  EXPECT_EQ(first.busy_ns(), 50);
  EXPECT_EQ(idle(second, IdleCause::kImbalance), 0);
  EXPECT_EQ(idle(second, IdleCause::kCopy), 10);
  EXPECT_EQ(second.wall_ns, 90) << "it may begin its next step";
  const CriticalPath path = critical_path(found, trace_);
  ASSERT_EQ(path.pieces.size(), 3u);
  EXPECT_EQ(path.pieces[0].lane, 1);
  EXPECT_EQ(path.pieces[0].end_ns, 70);
  EXPECT_EQ(path.pieces[1].kind, PathPiece::Kind::kTransfer);
  EXPECT_EQ(path.pieces[2].lane, 0);
  EXPECT_EQ(path.length_ns(), 100);
  EXPECT_TRUE(path.has(1, 0));
  EXPECT_FALSE(path.has(0, 0)) << "rank 0 was ready long before";
  const auto ops = path_by_op(path, found, trace_);
  ASSERT_EQ(ops.size(), 3u);
  EXPECT_EQ(ops[0], (std::pair<std::string, double>{"A", 70}));
  EXPECT_EQ(ops[1], (std::pair<std::string, double>{"B", 20}));
  EXPECT_EQ(ops[2], (std::pair<std::string, double>{"(transfer)", 10}));
}

// The exchange is begun early and goes on behind C; only the wait at its end stands still.
TEST_F(IdleSplit, AnExchangeBehindKernelsCostsWhatItIsWaitedFor) {
  step(kStep, kStart, 100, 100);
  trace_.ranks = {{"a"}, {"b"}};
  const std::int32_t begin = kernel("AllReduceBegin", 0, 10);
  const std::int32_t behind = kernel("C", 10, 50), wait = kernel("AllReduceWait", 50, 90);
  kernel("B", 90, 100);
  run_again(begin, 20, 30, 0, 1);
  run_again(behind, 30, 70, 0, 1);
  run_again(wait, 70, 90, 0, 1);
  trace_.exchanges = {{0, begin, 0, kStep, kStart + 8, 82, 20, 8},
                      {1, begin, 0, kStep, kStart + 28, 62, 0, 8}};
  const StepIdle found = read();
  const IdleSums first = found.lanes[0].sums();
  EXPECT_EQ(idle(first, IdleCause::kCopy), 40);
  EXPECT_EQ(idle(first, IdleCause::kImbalance), 0) << "it was ready by then";
  EXPECT_EQ(first.busy_ns(), 60) << "the kernel that begins it computes";
  const CriticalPath path = critical_path(found, trace_);
  ASSERT_EQ(path.pieces.size(), 3u);
  EXPECT_EQ(path.pieces[0].lane, 1) << "rank 1 began it last";
  EXPECT_EQ(path.pieces[0].start_ns, 20);
  EXPECT_EQ(path.pieces[1].start_ns, 28);
  EXPECT_EQ(path.pieces[1].end_ns, 90);
  EXPECT_EQ(path.pieces[2].end_ns, 100);
}

TEST_F(IdleSplit, AWaitForWhatHasNotBegunComputesNothing) {
  step(kStep, kStart, 100, 100);
  trace_.ranks = {{"a"}};
  const std::int32_t begin = kernel("AllReduceBegin", 0, 10), wait = kernel("AllReduceWait", 10, 100);
  EXPECT_EQ(wait, begin + 1);
  trace_.exchanges = {{0, begin, 0, kStep, kStart + 60, 38, 25, 8}};
  const IdleSums sums = read().lanes[0].sums();
  EXPECT_EQ(idle(sums, IdleCause::kImbalance), 25);
  EXPECT_EQ(idle(sums, IdleCause::kCopy), 50 + 13 + 2);
  EXPECT_EQ(sums.busy_ns(), 10);
}

TEST_F(IdleSplit, OfALoopWhatIsNotTheEnginesIsTheHosts) {
  step(kStep, kStart, 100, 100);
  kernel("A", 10, 30);
  kernel("B", 34, 40);
  kernel("C", 70, 90);
  trace_.host = nested_spans({{"engine", "f", kStart + 8, 34}, {"engine", "b", kStart + 68, 24}}, kStep,
                             kStart, kStart + 100);
  const IdleSums sums = read().lanes[0].sums();
  EXPECT_EQ(sums.wall_ns, 100);
  EXPECT_EQ(sums.busy_ns(), 46);
  EXPECT_EQ(idle(sums, IdleCause::kLaunch), 4 + 2 + 2)
      << "between kernels, and where the engine ends and begins";
  EXPECT_EQ(idle(sums, IdleCause::kHost), 10 + 26 + 10);
}

TEST_F(IdleSplit, ForeignNumbersAreHarmless) {
  EXPECT_TRUE(read().lanes.empty());
  EXPECT_EQ(IdleReader(run_, trace_).median_step(), 0);
  step(kStep, kStart, 100, -5);
  kernel("A", 0, 60);
  run_again(99, 20, 40);
  run_again(-1, 30, 30);
  trace_.exchanges = {{9, -3, 0, kStep, kStart, 5, 5, 0}};
  const StepIdle found = read();
  ASSERT_EQ(found.lanes.size(), 1u);
  EXPECT_EQ(found.lanes[0].sums().busy_ns(), 60);
  EXPECT_EQ(critical_path(found, trace_).length_ns(), 60);
  EXPECT_EQ(IdleReader(run_, trace_).median_step(), kStep);
}

TEST_F(IdleSplit, AThreadIsIdleWhileOthersCompute) {
  step(kStep, kStart, 100, 130);
  const std::int32_t a = kernel("A", 0, 40), b = kernel("B", 45, 100);
  trace_.threads = {{0, a, 0, kStep, kStart, 40, 34}, {1, a, 0, kStep, kStart + 2, 38, 30}};
  EXPECT_TRUE(read().threads.empty()) << "nothing says how many there are";
  run_.environment["threads"] = "3";
  const StepIdle found = read();
  ASSERT_EQ(found.threads.size(), 3u);
  const auto [wall, busy, waits] = std::tuple(130., std::array{89., 30., 0.}, std::array{6., 65., 95.});
  for (std::size_t t = 0; t < 3; ++t) {
    const IdleSums& sums = found.threads[t].sums;
    EXPECT_EQ(sums.wall_ns, wall) << t;
    EXPECT_EQ(sums.busy_ns(), busy[t]) << t;
    EXPECT_EQ(idle(sums, IdleCause::kImbalance), waits[t]) << t;
    EXPECT_EQ(idle(sums, IdleCause::kLaunch), 5) << t;
    EXPECT_EQ(idle(sums, IdleCause::kHost), 30) << t;
  }
  (void)b;
}

}  // namespace
}  // namespace gradloom
