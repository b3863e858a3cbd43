#include "viz/model/run_steps.h"

#include <gtest/gtest.h>

#include "profiler/import/imported_trace.h"

namespace gradloom {
namespace {

// 40 steps of 1000 to 1004 ns, every third timed and 200 ns longer.
RunRecord sample() {
  RunRecord run;
  for (std::int64_t step = 1; step <= 40; ++step) {
    StepRow row;
    row.step = step;
    row.timed = step % 3 == 2;
    row.step_ns = 1000 + step % 5 + (row.timed ? 200 : 0);
    row.loss = 2;
    run.steps.push_back(row);
  }
  return run;
}
StepRow& at(RunRecord& run, std::int64_t step) { return run.steps[static_cast<std::size_t>(step - 1)]; }
const RunStep& at(const RunSteps& steps, std::int64_t step) {
  return steps.steps[static_cast<std::size_t>(step - 1)];
}

TEST(RunSteps, TimedStepsAreJudgedByTimedOnes) {
  const RunSteps steps = run_steps(sample());
  ASSERT_EQ(steps.steps.size(), 40u);
  EXPECT_EQ(steps.slow + steps.fast, 0u) << "200 ns more are what timing costs";
  EXPECT_EQ(steps.untimed.median_ns, 1002);
  EXPECT_EQ(steps.timed.median_ns, 1202);
  EXPECT_EQ(steps.untimed.steps + steps.timed.steps, 37u) << "without the first three";
  EXPECT_TRUE(at(steps, 3).first);
  EXPECT_FALSE(at(steps, 4).first);
  EXPECT_EQ(outliers_text(steps).rfind("none of 40 steps stands out", 0), 0u) << outliers_text(steps);
}

TEST(RunSteps, WhatStandsOutIsFarFromTheMedianByBothRules) {
  RunRecord run = sample();
  at(run, 1).step_ns = 9000;
  at(run, 20).step_ns = 1310;  // timed: 9 % above the median, many spreads
  at(run, 21).step_ns = 1150;  // 15 % above
  at(run, 22).step_ns = 700;
  const RunSteps steps = run_steps(run);
  EXPECT_EQ(at(steps, 1).stands_out, 1);
  EXPECT_EQ(at(steps, 20).stands_out, 0);
  EXPECT_EQ(at(steps, 21).stands_out, 1);
  EXPECT_EQ(at(steps, 22).stands_out, -1);
  EXPECT_EQ(steps.slow, 2u);
  EXPECT_EQ(steps.fast, 1u);
  EXPECT_NEAR(at(steps, 21).ratio, 1150. / 1002, 1e-3);
  // Times that scatter: the tenth is no longer what decides.
  RunRecord wide = sample();
  for (StepRow& row : wide.steps) row.step_ns = 1000 + (row.step * 37 % 40) * 10;
  wide.steps[20].step_ns = 1700;
  EXPECT_EQ(run_steps(wide).slow, 0u);
  wide.steps[20].step_ns = 3000;
  EXPECT_EQ(run_steps(wide).slow, 1u);
}

TEST(RunSteps, WhatAnotherProfilerRecordedHasNoFirstSteps) {
  RunRecord run = sample();
  run.summary.data = import_origins().front().name;
  EXPECT_FALSE(at(run_steps(run), 2).first);
  EXPECT_TRUE(at(run_steps(sample()), 2).first);
}

TEST(RunSteps, SaysWhatIsKnown) {
  RunRecord run = sample();
  run.summary.command = "gradloom train m.onnx --steps 40 --checkpoint c --checkpoint-every 10";
  EvaluationRow evaluation;
  evaluation.step = 20;
  evaluation.eval_ns = 5'000'000;
  run.evaluations.push_back(evaluation);
  at(run, 30).skipped = 1;
  const RunSteps steps = run_steps(run);
  EXPECT_EQ(known_causes(at(steps, 2)), std::vector<std::string>{"one of the first steps"});
  EXPECT_EQ(known_causes(at(steps, 21)),
            (std::vector<std::string>{"after an evaluation of 5.00 ms", "after a checkpoint was due"}));
  EXPECT_TRUE(known_causes(at(steps, 20)).empty());
  EXPECT_EQ(known_causes(at(steps, 30)), std::vector<std::string>{"skipped by loss scaling"});
  EXPECT_TRUE(at(steps, 11).checkpoint);
  run.summary.command = "gradloom train m.onnx --checkpoint-every=7";
  EXPECT_TRUE(at(run_steps(run), 15).checkpoint);
  run.summary.command = "gradloom train m.onnx --checkpoint-every";
  EXPECT_FALSE(at(run_steps(run), 15).checkpoint);
}

TEST(RunSteps, ColumnsHaveAllStepsAndTheLongestOfEach) {
  RunRecord run = sample();
  at(run, 25).step_ns = 5000;
  const RunSteps steps = run_steps(run);
  const std::vector<StepColumn> all = step_columns(steps, 1000);
  ASSERT_EQ(all.size(), 40u);
  EXPECT_EQ(all[7].first, 7u);
  EXPECT_EQ(all[7].last, 7u);
  const std::vector<StepColumn> few = step_columns(steps, 7);
  ASSERT_EQ(few.size(), 7u);
  std::size_t next = 0, slow = 0;
  for (const StepColumn& c : few) {
    EXPECT_EQ(c.first, next);
    next = c.last + 1;
    slow += steps.steps[c.longest].stands_out > 0 ? 1 : 0;
  }
  EXPECT_EQ(next, 40u);
  EXPECT_EQ(slow, 1u);
  EXPECT_TRUE(step_columns(run_steps(RunRecord()), 7).empty());
}

}  // namespace
}  // namespace gradloom
