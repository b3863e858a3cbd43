// Causes that are built into jobs come first in their advice; jobs without them have no such finding.
#include "app/advice/advice.h"

#include "app/advice/subject.h"
#include "engine/base/npz.h"
#include "tests/app/advice_support.h"

namespace gradloom {
namespace {

// ---- Passes ----

TEST_F(AdviceTest, AnOptimizerThatIsNotFused) {
  Recipe recipe = job_of(
      "g (float[8, 64] x) => (float loss) { a = MatMul(x, w0) b = Relu(a) c = MatMul(b, w1) "
      "d = Relu(c) y = MatMul(d, w2) z = Mul(y, y) loss = ReduceMean<keepdims=0>(z) }",
      {{"w0", {64, 64}}, {"w1", {64, 64}}, {"w2", {64, 64}}});
  TestMachine machine;
  machine.fixed_ns = 4000;
  expect_none(recipe, machine, "passes_off");
  set_passes(recipe, "default,-fuse-optimizer");
  // Where every kernel is small, only steps tell what a launch takes.
  const auto advice = machine.advise(recipe, true);
  ASSERT_TRUE(advice.ok()) << advice.error().message;
  ASSERT_FALSE(advice->findings.empty());
  EXPECT_EQ(advice->findings[0].title, "fuse-optimizer is off") << told(*advice);
  EXPECT_EQ(advice->findings[0].change, "passes=default");
}

TEST_F(AdviceTest, AllPassesAreOff) {
  Recipe recipe = known_job("gpt-char", 8);
  set_passes(recipe, "none");
  expect_first(recipe, {}, "passes_off", "passes=default");
}

// A machine on which softmaxes take long, and so the attention that has one of its own.
TestMachine slow_at_softmax() {
  TestMachine machine;
  machine.slower = [](const KernelInfo& k) {
    return k.op == "Softmax" || k.op == "SoftmaxGrad" ? 20.0 : 1.0;
  };
  return machine;
}

TEST_F(AdviceTest, APassIsKeptOutOfItsPlaces) {
  Recipe recipe = known_job("bert-tiny");
  set_passes(recipe, "default,fuse-attention{min_keys=1}");
  expect_none(recipe, slow_at_softmax(), "kept_out");
  set_passes(recipe, "default,fuse-attention{min_keys=1,except=*}");
  expect_first(recipe, slow_at_softmax(), "kept_out", "fuse-attention is switched off at places (*)");
}

TEST_F(AdviceTest, APassThatCosts) {
  Recipe recipe = known_job("bert-tiny");
  TestMachine machine;
  machine.slower = [](const KernelInfo& k) { return k.op.rfind("Gelu", 0) == 0 ? 40.0 : 1.0; };
  const auto advice = machine.advise(recipe, true);
  ASSERT_TRUE(advice.ok());
  ASSERT_FALSE(advice->findings.empty());
  EXPECT_EQ(advice->findings[0].rule, "passes_on") << told(*advice);
  EXPECT_EQ(advice->findings[0].change, "passes=default,-fuse-gelu");
  EXPECT_GT(advice->findings[0].gain.low_ns, 0);
  expect_none(recipe, {}, "passes_on");
}

TEST_F(AdviceTest, AnOptionKeepsAPassAway) {
  Recipe recipe = known_job("bert-tiny");
  expect_first(recipe, slow_at_softmax(), "left_alone", "fuse-attention{min_keys=1}");
  set_passes(recipe, "default,fuse-attention{min_keys=1}");
  expect_none(recipe, slow_at_softmax(), "left_alone");
}

constexpr const char* kAttention =
    "g (float[4, 2, 256, 32] q, float[4, 2, 32, 256] k, float[4, 2, 256, 32] v) => (float loss) { "
    "qw = MatMul(q, w) s = MatMul(qw, k) sm = Add(s, mask) p = Softmax<axis=-1>(sm) y = MatMul(p, v) "
    "z = Mul(y, y) loss = ReduceMean<keepdims=0>(z) }";

TEST_F(AdviceTest, ATrainedMaskKeepsAttentionApart) {
  Recipe recipe = job_of(kAttention, {{"w", {32, 32}}, {"mask", {1, 2, 256, 256}}});
  expect_first(recipe, slow_at_softmax(), "left_alone", "freeze=mask");
  recipe.freeze = {"mask"};
  expect_none(recipe, slow_at_softmax(), "left_alone");
  recipe.freeze.clear();
  recipe.train = {"mask"};
  expect_first(recipe, slow_at_softmax(), "left_alone", "freeze=mask;train=");
}

// ---- Moves ----

TEST_F(AdviceTest, ACastAndBack) {
  const auto text = [](const std::string& between) {
    return "g (float[8192, 16] x) => (float loss) { h = MatMul(x, w0) " + between +
           " y = MatMul(b, w1) z = Mul(y, y) loss = ReduceMean<keepdims=0>(z) }";
  };
  const std::map<std::string, std::vector<std::int64_t>> weights{{"w0", {16, 16}}, {"w1", {16, 16}}};
  expect_first(job_of(text("a = Cast<to=10>(h) b = Cast<to=1>(a)"), weights), {}, "moves",
               "Cast of f32 to itself");
  expect_none(job_of(text("b = Relu(h)"), weights), {}, "moves");
}

TEST_F(AdviceTest, ATransposeThatNothingTakesIn) {
  const auto job = [&](const std::string& between) {
    return job_of("g (float[64, 128, 96] x) => (float loss) { h = MatMul(x, w0) a = Softmax<axis=-1>(h) " +
                      between + " z = Mul(b, b) loss = ReduceMean<keepdims=0>(z) }",
                  {{"w0", {96, 128}}});
  };
  TestMachine machine;
  machine.slower = [](const KernelInfo& k) { return k.op == "Transpose" ? 4.0 : 1.0; };
  expect_first(job("t = Transpose<perm=[0, 2, 1]>(a) b = Softmax<axis=-1>(t)"), machine, "moves",
               "Transpose");
  expect_none(job("b = Softmax<axis=-1>(a)"), machine, "moves");
}

TEST_F(AdviceTest, PartsThatAreCopied) {
  Recipe recipe = known_job("mlp");
  recipe.model = GRADLOOM_SOURCE_DIR "/tests/modules/lstm-bidirectional/model.onnx";
  recipe.loss.clear();
  recipe.dims.clear();
  TestMachine machine;
  machine.fixed_ns = 4000;
  expect_none(recipe, machine, "pieces");
  recipe.pieces = false;
  expect_first(recipe, machine, "pieces", "pieces=on");
}

// ---- Sizes ----

TEST_F(AdviceTest, ABatchTooSmallForItsKernels) {
  TestMachine machine;
  machine.fixed_ns = 4000;
  expect_first(known_job("bert-tiny", 1), machine, "batch", "dim=batch=");
  machine.fixed_ns = 1;
  expect_none(known_job("bert-tiny"), machine, "batch");
}

TEST_F(AdviceTest, ALargerBatchHasToFit) {
  TestMachine machine;
  machine.fixed_ns = 4000;
  const auto prepared = prepare(known_job("bert-tiny", 1));
  ASSERT_TRUE(prepared.ok());
  machine.facts.memory_bytes = (*prepared)->compiled.plan.peak_bytes();
  expect_none(known_job("bert-tiny", 1), machine, "batch");
}

TEST_F(AdviceTest, AnOddVocabulary) {
  const auto job = [&](std::int64_t classes) {
    return job_of(
        "g (float[256, 256] x) => (float loss) { h = MatMul(x, w0) r = Relu(h) y = MatMul(r, w1) z = "
        "Mul(y, y) loss = ReduceMean<keepdims=0>(z) }",
        {{"w0", {256, 256}}, {"w1", {256, classes}}});
  };
  TestMachine machine;
  machine.slower = [](const KernelInfo& k) {
    return k.op != "Relu" && k.flops > 1e7 && (k.types.find("1003") != std::string::npos || k.flops > 1.3e8)
               ? 3.0
               : 1.0;
  };
  expect_first(job(1003), machine, "odd_sizes", "size 1003 of w1");
  expect_none(job(1008), machine, "odd_sizes");
}

TEST_F(AdviceTest, AKernelFarBelowOthersOfItsSize) {
  const Recipe recipe = job_of(
      "g (float[2048, 64] x) => (float loss) { h = MatMul(x, w0) s = Softmax<axis=-1>(h) z = Mul(s, s) "
      "loss = ReduceMean<keepdims=0>(z) }",
      {{"w0", {64, 64}}});
  TestMachine machine;
  machine.slower = [](const KernelInfo& k) { return k.op == "Softmax" ? 25.0 : 1.0; };
  expect_first(recipe, machine, "efficiency", "Softmax");
  expect_none(recipe, {}, "efficiency");
  // Of what another finding takes away it has nothing to say.
  machine.slower = [](const KernelInfo& k) { return k.op == "Transpose" ? 25.0 : 1.0; };
  expect_none(job_of("g (float[64, 128, 96] x) => (float loss) { h = MatMul(x, w0) a = Softmax<axis=-1>(h) "
                     "t = Transpose<perm=[0, 2, 1]>(a) b = Softmax<axis=-1>(t) z = Mul(b, b) "
                     "loss = ReduceMean<keepdims=0>(z) }",
                     {{"w0", {96, 128}}}),
              machine, "efficiency");
}

// A layer of a transformer over texts of up to 32 tokens, of which the loss reads the first.
constexpr const char* kPadded =
    "g (int64[8, 32] ids, int64[8, 32] mask) => (float loss) { x = Gather<axis=0>(table, ids) q = MatMul(x, wq) "
    "k = MatMul(x, wk) v = MatMul(x, wv) kt = Transpose<perm=[0, 2, 1]>(k) s = MatMul(q, kt) "
    "m = Reshape(mask, keys) keep = Cast<to=9>(m) sm = Where(keep, s, low) p = Softmax<axis=-1>(sm) "
    "y = MatMul(p, v) o = MatMul(y, wo) r = Add(x, o) f = MatMul(r, w1) g1 = Relu(f) h = MatMul(g1, w2) "
    "first = Gather<axis=1>(h, zero) pooled = MatMul(first, wp) z = Mul(pooled, pooled) "
    "loss = ReduceMean<keepdims=0>(z) }";

TEST_F(AdviceTest, PaddingThatIsComputed) {
  const auto job = [&](std::int64_t tokens) {
    Recipe recipe = job_of(kPadded, {{"table", {100, 64}},
                                     {"wq", {64, 64}},
                                     {"wk", {64, 64}},
                                     {"wv", {64, 64}},
                                     {"wo", {64, 64}},
                                     {"w1", {64, 1024}},
                                     {"w2", {1024, 64}},
                                     {"wp", {64, 16}}});
    onnx::ModelProto model;
    EXPECT_TRUE(model.ParseFromString(test::read_bytes(recipe.model)));
    test::add_ints(model, "keys", {3}, {8, 1, 32});
    test::add_ints(model, "zero", {}, {0});
    test::add_floats(model, "low", {}, {-1e30f});
    test::write_bytes(recipe.model, model.SerializeAsString());
    recipe.freeze = {"low"};
    Tensor ids(DType::i64, {2, 8, 32}), mask(DType::i64, {2, 8, 32});
    for (std::int64_t i = 0; i < mask.count(); ++i)
      mask.mutable_as<std::int64_t>()[i] = i % 32 < tokens ? 1 : 0;
    recipe.data = "npz:" + (folder_ / ("data" + std::to_string(tokens) + ".npz"));
    EXPECT_TRUE(write_npz(recipe.data.substr(4), {{"ids", ids}, {"mask", mask}}).ok());
    return recipe;
  };
  TestMachine machine;
  // Its kernels compute a fifth of the rows.
  machine.slower = [](const KernelInfo& k) { return k.op == "PackedRows" ? 0.2 : 1.0; };
  expect_first(job(6), machine, "padding", "81.2 % of the positions are padding");
  expect_none(job(32), machine, "padding");
  Recipe made_up = job(6);
  made_up.data = "synthetic";
  expect_none(made_up, machine, "padding");
}

// ---- Settings ----

TEST_F(AdviceTest, RecomputeThatIsNotNeeded) {
  Recipe recipe = known_job("bert-tiny");
  recipe.recompute = {"*"};
  expect_first(recipe, {}, "recompute", "recompute=");
  expect_none(known_job("bert-tiny"), {}, "recompute");
}

TEST_F(AdviceTest, AMemoryBudgetThatIsNotNeeded) {
  Recipe recipe = known_job("bert-tiny");
  const auto prepared = prepare(recipe);
  ASSERT_TRUE(prepared.ok());
  const std::int64_t peak = (*prepared)->compiled.plan.peak_bytes();
  recipe.memory_budget = std::to_string(peak * 6 / 10);
  expect_first(recipe, {}, "recompute", "memory-budget=");
  TestMachine small;
  small.facts.memory_bytes = peak;
  expect_none(recipe, small, "recompute");
}

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
}

TEST_F(AdviceTest, TwiceTheWidthThatIsNeeded) {
  Recipe recipe = known_job("bert-tiny");
  set_precision(recipe, "f64");
  expect_first(recipe, {}, "precision", "precision=f32");
  expect_none(known_job("bert-tiny"), {}, "precision");
}

TEST_F(AdviceTest, Bf16WhereTheProcessorHasItAndNowhereElse) {
  Recipe recipe = known_job("bert-tiny");
  TestMachine machine;
  machine.facts.fast_bf16 = true;
  machine.flops_per_ns = 2;
  machine.slower = [](const KernelInfo& k) { return k.types.rfind("bf16", 0) == 0 ? 0.3 : 1.0; };
  expect_first(recipe, machine, "precision", "precision=bf16");
  set_precision(recipe, "bf16");
  expect_none(recipe, machine, "precision");
  machine.facts.fast_bf16 = false;
  machine.slower = [](const KernelInfo& k) { return k.types.rfind("bf16", 0) == 0 ? 4.0 : 1.0; };
  expect_first(recipe, machine, "precision", "precision=f32");
}

TEST_F(AdviceTest, OneThreadOfEight) {
  TestMachine machine;
  machine.facts.cores = 8;
  expect_first(known_job("bert-tiny"), machine, "threads", "threads=8");
  Recipe all = known_job("bert-tiny");
  all.threads = 8;
  expect_none(all, machine, "threads");
}

TEST_F(AdviceTest, SmallExchanges) {
  Recipe recipe = known_job("bert-tiny");
  recipe.ranks = 8;
  set_passes(recipe, "default,data-parallel{bucket_mb=0,overlap=false}");
  TestMachine machine;
  machine.flops_per_ns = 400;
  machine.bytes_per_ns = 400;
  expect_first(recipe, machine, "ranks", "data-parallel");
  recipe.ranks = 1;
  set_passes(recipe, "default");
  expect_none(recipe, machine, "ranks");
}

// ---- Runs and loops ----

RunRecord run_of(const Recipe& recipe, const TestMachine& machine, std::int64_t first_step_ns) {
  RunRecord run;
  const auto timed = machine.time(recipe);
  EXPECT_TRUE(timed.ok());
  const auto prepared = prepare(recipe);
  EXPECT_TRUE(prepared.ok());
  if (!timed.ok() || !prepared.ok()) return run;
  for (const KernelInfo& kernel : timed->kernels) {
    KernelRow row;
    row.info = kernel;
    row.samples = 5;
    row.median_ns = row.step_ns = static_cast<std::int64_t>(machine.ns(kernel));
    run.kernels.push_back(row);
  }
  run.summary.id = 1;
  run.summary.plan_hash = (*prepared)->compiled.plan.hash;
  run.summary.median_step_ns = static_cast<std::int64_t>(timed->kernels_ns);
  for (std::int64_t step = 1; step <= 10; ++step)
    run.steps.push_back({step, 1, step == 1 ? first_step_ns : run.summary.median_step_ns});
  return run;
}

TEST_F(AdviceTest, ARunTooShortForItsFirstStep) {
  const TestMachine machine;
  const Recipe recipe = known_job("mlp");
  AdviceOptions options;
  options.machine = machine.facts;
  const RunRecord slow = run_of(recipe, machine, std::int64_t{4'000'000'000});
  const auto advice = advise(recipe, &slow, options, {}, nullptr);
  ASSERT_TRUE(advice.ok()) << advice.error().message;
  ASSERT_FALSE(advice->findings.empty());
  EXPECT_EQ(advice->findings[0].rule, "first_step") << told(*advice);
  EXPECT_EQ(advice->times, "run 1");
  const RunRecord even = run_of(recipe, machine, slow.summary.median_step_ns);
  const auto quiet = advise(recipe, &even, options, {}, nullptr);
  ASSERT_TRUE(quiet.ok());
  for (const Finding& finding : quiet->findings) EXPECT_NE(finding.rule, "first_step");
}

// The run's steps from the fourth on, timed: the host has `host_ns` before the first kernel, each kernel `launch_ns` before it.
std::shared_ptr<const TraceDocument> trace_of(RunRecord& run, std::int64_t host_ns, std::int64_t launch_ns) {
  auto trace = std::make_shared<TraceDocument>();
  for (const KernelRow& row : run.kernels) trace->kernels.push_back(row.info);
  std::int64_t step_ns = host_ns;
  for (const KernelRow& row : run.kernels) step_ns += row.median_ns + launch_ns;
  run.summary.median_step_ns = step_ns;
  for (StepRow& step : run.steps) {
    step.step_ns = step_ns;
    step.timed = step.step > 3;
    if (!step.timed) continue;
    std::int64_t at = step.step * step_ns;
    trace->steps.push_back({step.step, at, step_ns});
    at += host_ns;
    for (std::size_t i = 0; i < run.kernels.size(); ++i) {
      TraceRow row;
      row.step = step.step;
      row.plan_step = static_cast<std::int32_t>(i);
      row.start_ns = at += i == 0 ? 0 : launch_ns;
      row.duration_ns = run.kernels[i].median_ns;
      at += row.duration_ns;
      trace->rows.push_back(row);
    }
  }
  return trace;
}

const Finding* found_by(const Advice& advice, const std::string& rule) {
  for (const Finding& finding : advice.findings)
    if (finding.rule == rule) return &finding;
  return nullptr;
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
  options.trace = trace_of(run, kernels_ns / 100, 0);
  const auto quiet = advise(recipe, &run, options, {}, nullptr);
  ASSERT_TRUE(quiet.ok());
  EXPECT_EQ(found_by(*quiet, "waits"), nullptr) << told(*quiet);
}

TEST_F(AdviceTest, StepsThatWaitForTheNextLaunch) {
  const TestMachine machine;
  const Recipe recipe = known_job("mlp");
  RunRecord run = run_of(recipe, machine, 0);
  AdviceOptions options;
  options.machine = machine.facts;
  const auto each = run.summary.median_step_ns / static_cast<std::int64_t>(run.kernels.size());
  options.trace = trace_of(run, 0, each);
  const auto waits = advise(recipe, &run, options, {}, nullptr);
  ASSERT_TRUE(waits.ok()) << waits.error().message;
  const Finding* const found = found_by(*waits, "waits");
  ASSERT_NE(found, nullptr) << told(*waits);
  EXPECT_NE(found->title.find("launched"), std::string::npos) << found->title;
  EXPECT_EQ(found->change, "");
  options.trace = trace_of(run, 0, 0);
  const auto quiet = advise(recipe, &run, options, {}, nullptr);
  ASSERT_TRUE(quiet.ok());
  EXPECT_EQ(found_by(*quiet, "waits"), nullptr) << told(*quiet);
}

RunRecord loop_of(const std::vector<LoopPart>& parts) {
  RunRecord run;
  run.summary.id = 3;
  run.summary.data = kLoopData;
  LoopShares loop;
  loop.steps = 10;
  for (const LoopPart& part : parts) loop.step_ns += part.ns;
  loop.parts = parts;
  run.loop = loop;
  return run;
}

TEST_F(AdviceTest, LoopsThatWaitForSomethingElse) {
  const struct {
    const char* kind;
    const char* part;  // of the remedy
  } cases[] = {{"data", "num_workers"}, {"optimizer", "TrainStep"}, {"compile", "plans="},
               {"outside", "fallback"}, {"module", "wrap"},         {"record", "profile"}};
  for (const auto& c : cases) {
    SCOPED_TRACE(c.kind);
    const RunRecord run = loop_of({{"engine", "", 1e6, 1}, {c.kind, "part", 9e6, 1}, {"step", "", 1e4, 1}});
    const Advice advice = advise_loop(run, "s.db", {});
    ASSERT_EQ(advice.findings.size(), 1u) << told(advice);
    EXPECT_EQ(advice.findings[0].rule, std::string("loop_") + c.kind);
    EXPECT_NE(advice.findings[0].remedy.find(c.part), std::string::npos);
    EXPECT_NE(advice.findings[0].command.find("s.db --run 3"), std::string::npos);
  }
  const Advice quiet = advise_loop(loop_of({{"engine", "", 1e7, 1}, {"data", "", 1e3, 1}}), "s.db", {});
  EXPECT_TRUE(quiet.findings.empty());
  EXPECT_EQ(quiet.left_out, 1u);
  EXPECT_NE(told(quiet).find("nothing was found that is worth 1.0 % of a step"), std::string::npos)
      << told(quiet);
}

// ---- What holds for all ----

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
