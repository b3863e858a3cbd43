// --costs: what kernels took in a run of a session decides what runs again, and the recipe keeps it.
#include "app/measured_costs.h"

#include <filesystem>

#include "app/job.h"
#include "profiler/environment.h"
#include "sessions/store.h"
#include "tests/app/command_fixture.h"
#include "tests/app/model_job.h"

namespace gradloom {
namespace {

using Time = std::function<std::int64_t(const KernelInfo&)>;  // ns; 0: not timed

class MeasuredCostsTest : public Commands {
 protected:
  static Recipe job() {
    Recipe recipe = model_recipe("gpt-char");
    recipe.threads = 2;
    return recipe;
  }

  // A run of the job whose kernels took what `time` says: its number in the session.
  std::int64_t record(const Recipe& recipe, const Time& time) const {
    const auto prepared = prepare(recipe);
    EXPECT_TRUE(prepared.ok()) << prepared.error().message;
    if (!prepared.ok()) return 0;
    const Compiled& compiled = (*prepared)->compiled;
    RunStart start;
    start.model_hash = (*prepared)->recipe.model_hash;
    start.device = recipe.device;
    start.precision = recipe.precision;
    start.environment = environment_rows(read_environment());
    const auto store = Store::open(session(), StoreMode::write);
    EXPECT_TRUE(store.ok());
    const auto run = (*store)->begin_run(start);
    EXPECT_TRUE(run.ok());
    EXPECT_TRUE((*run)->write_plan(compiled.train.graph, compiled.plan, compiled.reports).ok());
    const auto kernels = kernel_infos(compiled.train.graph, compiled.plan);
    for (std::int64_t step = 1; step <= 5; ++step) {
      std::vector<KernelSample> samples;
      for (const KernelInfo& kernel : kernels)
        if (const std::int64_t ns = time(kernel); ns > 0)
          samples.push_back({kernel.plan_step, 0, step * 1'000'000, step <= 3 ? ns * 50 : ns});  // warming up
      EXPECT_TRUE((*run)->add_step({step, 1, 1'000'000, 0.1, -1, !samples.empty()}, samples).ok());
    }
    EXPECT_TRUE((*run)->finish({}).ok());
    return (*run)->id();
  }

  std::string session() const { return path("runs.gls"); }
};

// How often each operator runs again.
std::map<std::string, int> again(const Compiled& compiled) {
  std::map<std::string, int> counts;
  for (const Node& node : compiled.train.graph.nodes)
    if (node.alive() && node.name.find("/again") != std::string::npos) ++counts[node.op->name];
  return counts;
}

TEST_F(MeasuredCostsTest, WhatTookLongIsKept) {
  Recipe recipe = job();
  const auto plain = prepare(recipe);
  ASSERT_TRUE(plain.ok());
  const std::int64_t peak = (*plain)->compiled.plan.peak_bytes();
  recipe.memory_budget = std::to_string(peak * 8 / 10);
  const auto guessed = prepare(recipe);
  ASSERT_TRUE(guessed.ok()) << guessed.error().message;
  const auto counts = again((*guessed)->compiled);
  ASSERT_FALSE(counts.empty());
  EXPECT_FALSE(measured_costs((*guessed)->recipe, (*guessed)->compiled));
  const auto cheap = std::max_element(counts.begin(), counts.end(),
                                      [](const auto& a, const auto& b) { return a.second < b.second; });
  const auto is_cheap = [&](const KernelInfo& kernel) { return kernel.op == cheap->first; };

  ASSERT_EQ(record(job(), [&](const KernelInfo& k) { return is_cheap(k) ? 9'000'000 : 1000; }), 1);
  recipe.costs = session();
  const auto measured = prepare(recipe);
  ASSERT_TRUE(measured.ok()) << measured.error().message;
  const auto now = again((*measured)->compiled);
  EXPECT_LT(now.count(cheap->first) ? now.at(cheap->first) : 0, cheap->second) << cheap->first;
  EXPECT_LE((*measured)->compiled.plan.peak_bytes(), peak * 8 / 10);
  EXPECT_TRUE(check_plan((*measured)->compiled.train.graph, (*measured)->compiled.plan).ok());

  // Every kernel that runs again ran once in the session's run.
  EXPECT_EQ((*measured)->recipe.costs, session() + "#1");
  const auto told = measured_costs((*measured)->recipe, (*measured)->compiled);
  ASSERT_TRUE(told.has_value());
  EXPECT_EQ(told->measured, told->kernels);
  EXPECT_EQ(told->kernels, (*measured)->compiled.plan.steps.size());

  // The curve's times are sums of what was recorded.
  const auto curve = memory_curve((*measured)->compiled, (*measured)->options);
  ASSERT_TRUE(curve.ok());
  double sum = 0;
  for (const KernelInfo& k : kernel_infos((*plain)->compiled.train.graph, (*plain)->compiled.plan))
    sum += is_cheap(k) ? 9e6 : 1e3;
  EXPECT_GE(curve->front().step_ns, sum);
  for (const RecomputeChoice& choice : *curve)
    EXPECT_NEAR(choice.step_ns, curve->front().step_ns * (1 + choice.cost), 1);
}

TEST_F(MeasuredCostsTest, TheRecipeChoosesTheSameWithoutTheSession) {
  Recipe recipe = job();
  record(recipe, [](const KernelInfo& k) { return 1000 + 7919 * k.plan_step % 100'000; });
  const auto plain = prepare(recipe);
  ASSERT_TRUE(plain.ok());
  recipe.memory_budget = std::to_string((*plain)->compiled.plan.peak_bytes() * 8 / 10);
  recipe.costs = session();
  const auto measured = prepare(recipe);
  ASSERT_TRUE(measured.ok()) << measured.error().message;
  fs::remove(session());
  const std::string text = recipe_json((*measured)->recipe);
  const auto back = parse_recipe(text);
  ASSERT_TRUE(back.ok()) << back.error().message;
  EXPECT_EQ(*back, (*measured)->recipe);
  const auto replayed = prepare(*back);
  ASSERT_TRUE(replayed.ok()) << replayed.error().message;
  EXPECT_EQ((*replayed)->compiled.plan.hash, (*measured)->compiled.plan.hash);
  // A session that is named anew is read anew.
  Recipe renamed = *back;
  set_costs(renamed, session());
  const auto gone = prepare(renamed);
  ASSERT_FALSE(gone.ok());
  EXPECT_EQ(gone.error().code, Errc::io) << gone.error().message;
}

TEST_F(MeasuredCostsTest, TheNewestRunOfTheJobIsTaken) {
  const auto all = [](const KernelInfo&) { return 1000; };
  Recipe bf16 = job(), alone = job();
  set_precision(bf16, "bf16");
  alone.threads = 1;
  record(job(), all);
  record(job(), [](const KernelInfo& k) { return k.flops > 4 * k.bytes_read ? 500 : 0; });
  record(bf16, all);
  record(alone, all);
  record(job(), [](const KernelInfo&) { return 0; });
  Recipe recipe = job();
  recipe.costs = session();
  const auto taken = prepare(recipe);
  ASSERT_TRUE(taken.ok()) << taken.error().message;
  EXPECT_EQ((*taken)->recipe.costs, session() + "#2");
  const auto told = measured_costs((*taken)->recipe, (*taken)->compiled);
  ASSERT_TRUE(told.has_value());
  EXPECT_GT(told->measured, 0u);
  EXPECT_LT(told->measured, told->kernels) << "only products were timed";

  const auto refused = [&](const char* run, const Recipe& of) {
    Recipe named = of;
    named.costs = session() + run;
    const auto prepared = prepare(named);
    EXPECT_FALSE(prepared.ok()) << run;
    return prepared.ok() ? "" : prepared.error().message;
  };
  EXPECT_NE(refused("#3", job()).find("#3 was measured with precision bf16, the job has f32"),
            std::string::npos)
      << refused("#3", job());
  EXPECT_NE(refused("#4", job()).find("was measured with threads 1, the job has 2"), std::string::npos);
  EXPECT_NE(refused("#5", job()).find("has no times of kernels"), std::string::npos);
  EXPECT_NE(refused("#6", job()).find("no run 6"), std::string::npos);
  EXPECT_NE(refused("#1", model_recipe("mlp")).find("is a run of another model"), std::string::npos);
  EXPECT_NE(refused("", model_recipe("mlp")).find("no run of"), std::string::npos);
}

TEST_F(MeasuredCostsTest, OtherShapesAreScaledFromThoseThatWereMeasured) {
  record(job(), [](const KernelInfo& k) { return k.flops > 4 * k.bytes_read ? 100'000 : 1000; });
  Recipe recipe = job();
  recipe.dims["batch"] = 4;
  recipe.costs = session();
  const auto prepared = prepare(recipe);
  ASSERT_TRUE(prepared.ok()) << prepared.error().message;
  const auto told = measured_costs((*prepared)->recipe, (*prepared)->compiled);
  ASSERT_TRUE(told.has_value());
  EXPECT_LT(told->measured, told->kernels / 2);
  const auto ns =
      (*prepared)->options.kernel_ns((*prepared)->compiled.train.graph, (*prepared)->compiled.plan);
  for (const double one : ns) EXPECT_GT(one, 0);
}

TEST_F(MeasuredCostsTest, ATrainingTakesThemAndItsRecipeReplays) {
  const std::vector<std::string> flags{model("gpt-char/model.onnx"),
                                       "--dim",
                                       "batch=4",
                                       "--loss",
                                       "ce:logits,labels",
                                       "--threads",
                                       "2",
                                       "--steps",
                                       "7",
                                       "--optimizer",
                                       "adam"};
  const auto with = [&](const char* command, const std::vector<std::string>& more) {
    std::vector<std::string> args{command};
    args.insert(args.end(), flags.begin(), flags.end());
    args.insert(args.end(), more.begin(), more.end());
    return args;
  };
  ASSERT_EQ(run(with("train", {"--session", session()})).code, 0);
  const Outcome curve = run(with("plan", {"--memory-curve", "--costs", session(), "--json"}));
  ASSERT_EQ(curve.code, 0) << curve.err;
  const auto lines = curve.lines();
  EXPECT_EQ(lines.back()["costs"]["from"], session() + "#1");
  EXPECT_EQ(lines.back()["costs"]["measured_kernels"], lines.back()["costs"]["kernels"]);
  EXPECT_GT(lines.front()["kernels_ns"], 0);
  const std::string budget = lines[lines.size() / 2]["peak_bytes"].dump();
  const Outcome trained = run(with("train", {"--memory-budget", budget, "--costs", session() + "#1",
                                             "--session", path("b.gls"), "--json"}));
  ASSERT_EQ(trained.code, 0) << trained.err;
  EXPECT_EQ(trained.lines().front()["costs"]["from"], session() + "#1");
  ASSERT_EQ(run({"export", path("b.gls"), "-o", path("r.json")}).code, 0);
  fs::remove(session());
  const Outcome replayed = run({"train", "--recipe", path("r.json")});
  EXPECT_NE(replayed.out.find("kernels as "), std::string::npos) << replayed.out;
  const auto plan = run({"plan", "--recipe", path("r.json"), "--json"}).lines();
  EXPECT_EQ(plan[0]["plan_hash"], json::parse(read_file(path("r.json")))["expect"]["plan_hash"]);
  expect_error(with("plan", {"--costs", session()}), 5, "runs.gls");
  expect_error(with("plan", {"--costs", "#3"}), 2, "is not SESSION#RUN");
}

}  // namespace
}  // namespace gradloom
