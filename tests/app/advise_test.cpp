// What advice says beside its kinds of findings (advice_kinds_test.cpp): what it costs, proves and leaves out.
#include "app/advice/advice.h"

#include "app/advice/subject.h"
#include "engine/base/npz.h"
#include "tests/app/advice_support.h"

namespace gradloom {
namespace {

TEST_F(AdviceTest, MemoryThatCostsLittleWhereThereIsNoMore) {
  Recipe recipe = known_job("bert-tiny");
  const auto prepared = prepare(recipe);
  ASSERT_TRUE(prepared.ok());
  TestMachine small;
  small.facts.memory_bytes = (*prepared)->compiled.plan.peak_bytes();
  const auto advice = small.advise(recipe, false);
  ASSERT_TRUE(advice.ok());
  const auto found = std::find_if(advice->findings.begin(), advice->findings.end(),
                                  [](const Finding& f) { return f.rule == "recompute"; });
  ASSERT_NE(found, advice->findings.end()) << told(*advice);
  EXPECT_GT(found->saved_bytes, small.facts.memory_bytes / 12);
  EXPECT_EQ(found->change.rfind("memory-budget=", 0), 0u);
  EXPECT_NE(told(*advice).find("of the peak"), std::string::npos);
  const auto plenty = TestMachine().advise(recipe, false);
  ASSERT_TRUE(plenty.ok());
  for (const Finding& finding : plenty->findings) EXPECT_NE(finding.rule, "recompute") << told(*plenty);
}

TEST_F(AdviceTest, StepsThatWaitForTheirData) {
  const TestMachine machine;
  Recipe recipe = job_of(
      "g (float[64, 256] x) => (float loss) { a = MatMul(x, w0) b = Relu(a) y = MatMul(b, w1) z = Mul(y, y) "
      "loss = ReduceMean<keepdims=0>(z) }",
      {{"w0", {256, 256}}, {"w1", {256, 256}}});
  recipe.data = "npz:" + (folder_ / "data.npz");
  ASSERT_TRUE(write_npz(recipe.data.substr(4), {{"x", Tensor(DType::f32, {2, 64, 256})}}).ok());
  RunRecord run = run_of(recipe, machine, 0);
  AdviceOptions options;
  options.machine = machine.facts;
  const std::int64_t kernels_ns = run.summary.median_step_ns;
  options.trace = trace_of(run, kernels_ns, 0);  // half of a step
  const auto waits = advise(recipe, &run, options, {}, nullptr);
  ASSERT_TRUE(waits.ok()) << waits.error().message;
  ASSERT_FALSE(waits->findings.empty());
  const Finding& first = waits->findings[0];
  EXPECT_EQ(first.rule, "waits") << told(*waits);
  EXPECT_NE(first.title.find("data.npz"), std::string::npos) << first.title;
  EXPECT_EQ(first.change, "data=synthetic");
  EXPECT_NEAR(first.gain.high_ns, static_cast<double>(kernels_ns), 0.05 * static_cast<double>(kernels_ns));
  EXPECT_NE(first.command.find("--b data=synthetic"), std::string::npos) << first.command;
  EXPECT_GT(first.ratio, 1.4);
}

// A first step of a second is the most of a run of ten, and nothing of a training that is worth advice.
TEST_F(AdviceTest, WhatIsPaidOnceStandsBehindWhatEachStepGains) {
  const TestMachine machine;
  Recipe recipe = job_of(
      "g (float[64, 256] x) => (float loss) { a = MatMul(x, w0) b = Relu(a) y = MatMul(b, w1) z = Mul(y, y) "
      "loss = ReduceMean<keepdims=0>(z) }",
      {{"w0", {256, 256}}, {"w1", {256, 256}}});
  recipe.data = "npz:" + (folder_ / "data.npz");
  ASSERT_TRUE(write_npz(recipe.data.substr(4), {{"x", Tensor(DType::f32, {2, 64, 256})}}).ok());
  RunRecord run = run_of(recipe, machine, 1'000'000'000);
  AdviceOptions options;
  options.machine = machine.facts;
  options.trace = trace_of(run, run.summary.median_step_ns, 0);
  run.steps.front().step_ns = 1'000'000'000;
  const auto advice = advise(recipe, &run, options, {}, nullptr);
  ASSERT_TRUE(advice.ok()) << advice.error().message;
  ASSERT_GE(advice->findings.size(), 2u) << told(*advice);
  const Finding &first = advice->findings.front(), &last = advice->findings.back();
  EXPECT_EQ(first.rule, "waits") << told(*advice);
  EXPECT_EQ(last.rule, "first_step") << told(*advice);
  EXPECT_GT(last.gain.ns, first.gain.ns) << "it is most of so short a run";
  EXPECT_NE(last.numbers.front().find("of the run, and paid once"), std::string::npos) << told(*advice);
}

// Roofs that nothing is known of are measured by what the finding names first.
TEST_F(AdviceTest, TheRoofsOfASlowKernelAreMeasuredWhereTheyAreNot) {
  const Recipe recipe = job_of(
      "g (float[2048, 64] x) => (float loss) { h = MatMul(x, w0) s = Softmax<axis=-1>(h) z = Mul(s, s) "
      "loss = ReduceMean<keepdims=0>(z) }",
      {{"w0", {64, 64}}});
  TestMachine machine;
  machine.slower = [](const KernelInfo& k) { return k.op.rfind("Softmax", 0) == 0 ? 25.0 : 1.0; };
  for (const bool measured : {false, true}) {
    if (measured) machine.facts.types = {{"MatMul", "f32", 1e6, 1e4}};
    const auto advice = machine.advise(recipe, false);
    ASSERT_TRUE(advice.ok()) << advice.error().message;
    const auto found = std::find_if(advice->findings.begin(), advice->findings.end(),
                                    [](const Finding& f) { return f.rule == "efficiency"; });
    ASSERT_NE(found, advice->findings.end()) << told(*advice);
    const std::string plan = "gradloom plan ",
                      measure = "gradloom devices --measure --device cpu --threads 1 && ";
    EXPECT_EQ(found->command.rfind(measured ? plan : measure + plan, 0), 0u) << found->command;
    EXPECT_TRUE(found->command.ends_with(" --roofline")) << found->command;
  }
}

// A job that says no number of threads has as many as the environment says, not one for each processor.
TEST_F(AdviceTest, ThreadsThatTheEnvironmentSaysAreTheJobs) {
  const char* const variable = std::getenv("OMP_NUM_THREADS");
  const std::string before = variable == nullptr ? "" : variable;
  setenv("OMP_NUM_THREADS", "1", 1);
  Recipe recipe = known_job("bert-tiny");
  recipe.threads = 0;
  TestMachine machine;
  machine.facts.cores = 8;
  for (const std::int64_t ranks : {1, 2, 8}) {
    recipe.ranks = ranks;
    const auto advice = machine.advise(recipe, false);
    ASSERT_TRUE(advice.ok()) << advice.error().message;
    const auto found = std::find_if(advice->findings.begin(), advice->findings.end(),
                                    [](const Finding& f) { return f.rule == "threads"; });
    ASSERT_EQ(found == advice->findings.end(), ranks == 8) << told(*advice);
    if (ranks == 8) continue;
    EXPECT_EQ(found->change, ranks == 1 ? "threads=8" : "threads=4") << "ranks share the processors";
    EXPECT_EQ(found->title.rfind("1 thread on ", 0), 0u) << found->title;
    // Comparisons run one rank: several prove it in a training.
    EXPECT_EQ(found->command.rfind(ranks == 1 ? "gradloom compare " : "gradloom train ", 0), 0u)
        << found->command;
    EXPECT_EQ(found->command.find(" --ranks 2 ") != std::string::npos, ranks == 2) << found->command;
    EXPECT_EQ(found->ratio > 0, ranks == 1);
  }
  if (variable == nullptr)
    unsetenv("OMP_NUM_THREADS");
  else
    setenv("OMP_NUM_THREADS", before.c_str(), 1);
}

TEST_F(AdviceTest, WhatALoopHardlyWaitsForIsLeftOut) {
  const Advice quiet = advise_loop(loop_of({{"engine", "", 1e7, 1}, {"data", "", 1e3, 1}}), "s.db", {});
  EXPECT_TRUE(quiet.findings.empty());
  EXPECT_EQ(quiet.left_out, 1u);
  EXPECT_NE(told(quiet).find("nothing was found that is worth 1.0 % of a step"), std::string::npos)
      << told(quiet);
}

TEST_F(AdviceTest, WhatIsWellHasNoFindings) {
  TestMachine machine;
  machine.fixed_ns = 1;
  for (const char* name : {"gpt-char", "cnn-digits"})
    for (const bool timed : {false, true}) {
      const auto advice = machine.advise(known_job(name, 64), timed, 0.05);
      ASSERT_TRUE(advice.ok()) << advice.error().message;
      EXPECT_TRUE(advice->findings.empty()) << name << "\n" << told(*advice);
    }
}

TEST_F(AdviceTest, AStopEndsIt) {
  std::stop_source stop;
  stop.request_stop();
  TestMachine machine;
  AdviceOptions options;
  options.time = [&](const Recipe& recipe) { return machine.time(recipe); };
  const auto advice = advise(known_job("mlp"), nullptr, options, stop.get_token(), nullptr);
  ASSERT_FALSE(advice.ok());
  EXPECT_EQ(advice.error().code, Errc::interrupted);
}

TEST_F(AdviceTest, WithoutTimesItSaysSo) {
  const auto advice = advise(known_job("mlp"), nullptr, {}, {}, nullptr);
  ASSERT_FALSE(advice.ok());
  EXPECT_EQ(advice.error().code, Errc::usage);
  EXPECT_NE(advice.error().message.find("--costs"), std::string::npos);
}

TEST_F(AdviceTest, AChangeIsFlagsOfTrainToo) {
  EXPECT_EQ(train_flags("dim=batch=8;passes=default,-cse"), "--dim batch=8 --passes default,-cse");
  EXPECT_EQ(train_flags("recompute="), "--recompute ''");
}

}  // namespace
}  // namespace gradloom
