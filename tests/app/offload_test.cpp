// Values that wait in the host's memory, end to end on host-gpu: nothing that is computed changes by a bit, memory is what was
// planned, and every wait between streams is there, whether copies run at once, as late or as early as they may.
#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>

#include "app/job.h"
#include "engine/base/text.h"
#include "engine/plan/streams.h"
#include "tests/app/command_fixture.h"
#include "tests/app/host_gpu_support.h"
#include "tests/app/model_job.h"
#include "tests/environment.h"
#include "tests/paths.h"

namespace gradloom {
namespace {

namespace fs = std::filesystem;

Recipe recipe_for(const std::string& model) {
  Recipe recipe = model_recipe(model);
  recipe.data = "synthetic";
  recipe.clip_norm = 1;
  recipe.dims = {{"batch", model == "gpt-char" ? 1 : 4}};
  recipe.device = "host-gpu";
  return recipe;
}

std::size_t copies_of(const Plan& plan) {
  return static_cast<std::size_t>(std::count_if(
      plan.steps.begin(), plan.steps.end(), [](const PlanStep& s) { return s.stream != kComputeStream; }));
}

struct Steps {
  std::vector<double> losses;
  std::map<std::string, Tensor> parameters;
  std::int64_t measured_bytes = 0, planned_bytes = 0, host_bytes = 0;
  std::size_t copies = 0;
};

// `change`: what is done to the plan before it runs.
Result<Steps> run_steps(const Recipe& recipe, const std::function<void(Plan&)>& change = {}) {
  Steps steps;
  auto prepared = TRY(prepare(recipe));
  TRY(check_plan(prepared->compiled.train.graph, prepared->compiled.plan));
  if (change) change(prepared->compiled.plan);
  const Plan& plan = prepared->compiled.plan;
  steps.planned_bytes = plan.peak_bytes();
  steps.host_bytes = plan.host_bytes;
  steps.copies = copies_of(plan);
  const auto job = TRY(Job::create(std::shared_ptr<const Prepared>(std::move(prepared))));
  job->executor().poison();
  for (std::int64_t step = 1; step <= 3; ++step) steps.losses.push_back(TRY(job->step(step)).loss);
  steps.parameters = TRY(job->parameters());
  steps.measured_bytes = job->measured_peak_bytes();
  return steps;
}

bool equal(const Steps& a, const Steps& b) {
  for (std::size_t i = 0; i < a.losses.size(); ++i)
    if (a.losses[i] != b.losses[i] && !(std::isnan(a.losses[i]) && std::isnan(b.losses[i]))) return false;
  return std::all_of(a.parameters.begin(), a.parameters.end(), [&](const auto& parameter) {
    return bit_equal(parameter.second, b.parameters.at(parameter.first));
  });
}

class OffloadedModel : public ::testing::TestWithParam<const char*> {};

TEST_P(OffloadedModel, ComputesTheSameToTheBit) {
  REQUIRE_HOST_GPU();
  Recipe recipe = recipe_for(GetParam());
  const auto whole = run_steps(recipe);
  ASSERT_TRUE(whole.ok()) << whole.error().message;
  recipe.offload = {"*"};
  for (const char* const lazy : {"0", "1", "compute"})
    for (const bool recorded : {true, false}) {
      const Setting late("GRADLOOM_HOSTGPU_LAZY", lazy);
      recipe.record = recorded;
      const auto offloaded = run_steps(recipe);
      ASSERT_TRUE(offloaded.ok()) << offloaded.error().message;
      EXPECT_GE(offloaded->copies, 6u);
      EXPECT_GT(offloaded->host_bytes, 0);
      EXPECT_TRUE(equal(*whole, *offloaded)) << "lazy=" << lazy << (recorded ? " recorded" : " launched");
      // Of the smallest model, and of one text of gpt-char, the peak is at the optimizer, among all gradients.
      const bool smaller = offloaded->planned_bytes < whole->planned_bytes;
      EXPECT_EQ(smaller, std::string(GetParam()) != "mlp" && std::string(GetParam()) != "gpt-char");
      EXPECT_EQ(whole->measured_bytes - offloaded->measured_bytes,
                whole->planned_bytes - offloaded->planned_bytes);
    }
}

TEST_P(OffloadedModel, ComputesTheSameWithAccumulation) {
  REQUIRE_HOST_GPU();
  Recipe recipe = recipe_for(GetParam());
  recipe.accumulate = 2;
  const auto whole = run_steps(recipe);
  ASSERT_TRUE(whole.ok()) << whole.error().message;
  recipe.offload = {"*"};
  for (const char* const lazy : {"1", "compute"}) {
    const Setting late("GRADLOOM_HOSTGPU_LAZY", lazy);
    const auto offloaded = run_steps(recipe);
    ASSERT_TRUE(offloaded.ok()) << offloaded.error().message;
    EXPECT_GT(offloaded->copies, 0u);
    EXPECT_TRUE(equal(*whole, *offloaded)) << lazy;
  }
}

TEST_P(OffloadedModel, ABudgetIsRespected) {
  REQUIRE_HOST_GPU();
  Recipe recipe = recipe_for(GetParam());
  const auto whole = run_steps(recipe);
  ASSERT_TRUE(whole.ok()) << whole.error().message;
  recipe.offload = {"*"};
  const auto least = run_steps(recipe);
  ASSERT_TRUE(least.ok()) << least.error().message;
  recipe.offload = {"auto"};
  const bool possible = least->planned_bytes < whole->planned_bytes;
  const std::int64_t budget =
      possible ? (whole->planned_bytes + least->planned_bytes) / 2 : whole->planned_bytes - 1;
  recipe.memory_budget = std::to_string(budget);
  const auto fitted = run_steps(recipe);
  if (!possible) {  // the peak is in the optimizer
    ASSERT_FALSE(fitted.ok());
    EXPECT_EQ(fitted.error().code, Errc::device);
    return;
  }
  ASSERT_TRUE(fitted.ok()) << fitted.error().message;
  EXPECT_LE(fitted->planned_bytes, budget);
  EXPECT_EQ(whole->measured_bytes - fitted->measured_bytes, whole->planned_bytes - fitted->planned_bytes);
  EXPECT_TRUE(equal(*whole, *fitted));
}

INSTANTIATE_TEST_SUITE_P(Models, OffloadedModel,
                         ::testing::Values("mlp", "cnn-digits", "bert-tiny", "gpt-char"),
                         [](const auto& model) {
                           std::string name = model.param;
                           std::replace(name.begin(), name.end(), '-', '_');
                           return name;
                         });

// Without the waits of one stream numbers are wrong in one of the orders that the waits would have forbidden.
TEST(Offload, AMissingWaitShows) {
  REQUIRE_HOST_GPU();
  Recipe recipe = recipe_for("mlp");
  const auto whole = run_steps(recipe);
  ASSERT_TRUE(whole.ok()) << whole.error().message;
  recipe.offload = {"*"};
  for (const bool recorded : {true, false})
    for (const std::int32_t stream : {kComputeStream, kUploadStream, kDownloadStream}) {
      recipe.record = recorded;
      bool shown = false;
      for (const char* const lazy : {"1", "compute"}) {
        const Setting late("GRADLOOM_HOSTGPU_LAZY", lazy);
        const auto loose = run_steps(recipe, [&](Plan& plan) {
          for (PlanStep& step : plan.steps)
            if (step.stream == stream) step.waits.clear();
        });
        shown = shown || !loose.ok() || !equal(*whole, *loose);
      }
      EXPECT_TRUE(shown) << "stream " << stream << (recorded ? " recorded" : " launched");
    }
}

TEST(Offload, ModulesOfTheTestsComputeTheSame) {
  REQUIRE_HOST_GPU();
  const Setting late("GRADLOOM_HOSTGPU_LAZY", "1");
  int tried = 0;
  for (const fs::directory_entry& entry : fs::directory_iterator(GRADLOOM_SOURCE_DIR "/tests/modules")) {
    Recipe recipe;
    recipe.model = entry.path() / "model.onnx";
    recipe.device = "host-gpu";
    set_pipeline(recipe, default_pipeline());
    const auto whole = run_steps(recipe);
    if (!whole) continue;  // it does not train
    recipe.offload = {"*"};
    const auto offloaded = run_steps(recipe);
    if (!offloaded) {
      ADD_FAILURE() << recipe.model << ": " << offloaded.error().message;
      continue;
    }
    if (offloaded->copies == 0) continue;
    ++tried;
    EXPECT_TRUE(equal(*whole, *offloaded)) << recipe.model;
  }
  EXPECT_GT(tried, 40);
}

TEST(Offload, ThePinnedMemoryIsWhatWasPlanned) {
  REQUIRE_HOST_GPU();
  Recipe recipe = recipe_for("mlp");
  std::int64_t pinned[2], planned = 0;
  for (const bool offload : {false, true}) {
    if (offload) recipe.offload = {"*"};
    const auto prepared = prepare(recipe);
    ASSERT_TRUE(prepared.ok());
    const auto device = open_device("host-gpu");
    ASSERT_TRUE(device.ok());
    const Compiled& c = (*prepared)->compiled;
    const auto executor = Executor::create(c.train.graph, c.plan, **device);
    ASSERT_TRUE(executor.ok());
    pinned[offload ? 1 : 0] = (*device)->pinned_bytes();
    planned = c.plan.host_bytes;
  }
  EXPECT_GT(planned, 0);
  EXPECT_EQ(pinned[1] - pinned[0], planned);
}

// The calls that the plugin got, by a checker that knows nothing of plans: events order all that shares memory.
TEST(Offload, QueuedWorkIsOrderedAsItsMemoryDemands) {
  REQUIRE_HOST_GPU();
  for (const bool recorded : {true, false}) {
    Recipe recipe = recipe_for("bert-tiny");
    recipe.record = recorded;
    recipe.offload = {"*"};
    const auto job = make_job(recipe);
    ASSERT_NE(job, nullptr);
    QueuedWork queued;
    ASSERT_NO_FATAL_FAILURE(queue_steps(*job, 3, queued));
    EXPECT_EQ(queued.plan_copies, 3 * copies_of(job->compiled().plan));
    EXPECT_EQ(first_disorder(queued.work), "") << (recorded ? "recorded" : "launched");
    EXPECT_NE(first_disorder(queued.loose()), "");
  }
}

TEST(Offload, TimedStepsHaveASampleOfEveryCopy) {
  REQUIRE_HOST_GPU();
  Recipe recipe = recipe_for("mlp");
  recipe.offload = {"*"};
  recipe.accumulate = 2;
  const auto job = make_job(recipe);
  ASSERT_NE(job, nullptr);
  ASSERT_TRUE(job->submit(1, true).ok());
  const auto outcome = job->collect();
  ASSERT_TRUE(outcome.ok()) << outcome.error().message;
  const Plan& plan = job->compiled().plan;
  std::map<std::pair<std::int32_t, std::int32_t>, int> seen;
  for (const KernelSample& sample : outcome->samples) ++seen[{sample.plan_step, sample.micro}];
  for (std::int32_t i = 0; i < static_cast<std::int32_t>(plan.steps.size()); ++i)
    for (std::int32_t micro = 0; micro < (plan.steps[static_cast<std::size_t>(i)].micro ? 2 : 1); ++micro)
      EXPECT_EQ((seen[{i, micro}]), 1) << "step " << i << ", micro-batch " << micro;
}

TEST_F(Commands, PlanTellsTheHostsMemoryAndTheCpuRefuses) {
  REQUIRE_HOST_GPU();
  std::vector<std::string> job{"plan",      model("mlp/model.onnx"),
                               "--dim",     "batch=8",
                               "--loss",    "ce:logits,labels",
                               "--offload", "*",
                               "--log",     "--kernels"};
  const Outcome cpu = run(job);
  EXPECT_EQ(cpu.code, 2);
  EXPECT_NE(cpu.err.find("--offload moves values from a GPU's memory"), std::string::npos) << cpu.err;
  job.insert(job.end(), {"--device", "host-gpu"});
  const Outcome gpu = run(job);
  EXPECT_EQ(gpu.code, 0) << gpu.err;
  EXPECT_NE(gpu.out.find("\nhost         "), std::string::npos) << gpu.out;
  EXPECT_NE(gpu.out.find("CopyToHost"), std::string::npos);
  job.push_back("--json");
  const Outcome told = run(job);
  ASSERT_EQ(told.lines().size(), 1u);
  EXPECT_GT(told.lines()[0]["offload"]["values"], 0);
  EXPECT_GT(told.lines()[0]["offload"]["host_bytes"], 0);
}

TEST_F(Commands, TracesHaveLanesOfTheCopies) {
  REQUIRE_HOST_GPU();
  const Outcome trained = run(train_mlp({"--device", "host-gpu", "--offload", "*", "--steps", "3",
                                         "--profile", "all", "--session", path("s.db")}));
  ASSERT_EQ(trained.code, 0) << trained.err;
  EXPECT_GT(trained.lines().back()["summary"]["plan_host_bytes"], 0);
  const Outcome traced = run({"trace", path("s.db"), "-o", path("trace.json")});
  ASSERT_EQ(traced.code, 0) << traced.err;
  const std::string trace = read_file(path("trace.json"));
  for (const char* const part :
       {"stream 1 (upload)", "stream 2 (download)", "copy to host", "copy from host"})
    EXPECT_NE(trace.find(part), std::string::npos) << part;
  const Outcome shown = run({"show", path("s.db"), "--group", "op"});
  EXPECT_NE(shown.out.find("CopyToHost"), std::string::npos) << shown.out;
}

}  // namespace
}  // namespace gradloom
