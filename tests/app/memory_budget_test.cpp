// --memory-budget on every model and module that trains: what is computed stays equal to the bit.
#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>

#include "app/job.h"
#include "engine/base/text.h"
#include "tests/app/command_fixture.h"

namespace gradloom {
namespace {

namespace fs = std::filesystem;

struct ThreeSteps {
  std::vector<double> losses;
  std::map<std::string, Tensor> parameters;
  std::int64_t peak_bytes = 0;
};

Result<ThreeSteps> run_three_steps(const Recipe& recipe) {
  ThreeSteps steps;
  const std::shared_ptr<const Prepared> prepared(TRY(prepare(recipe)));
  steps.peak_bytes = prepared->compiled.plan.peak_bytes();
  TRY(check_plan(prepared->compiled.train.graph, prepared->compiled.plan));
  const auto job = TRY(Job::create(prepared));
  job->executor().poison();
  for (std::int64_t step = 1; step <= 3; ++step) steps.losses.push_back(TRY(job->step(step)).loss);
  steps.parameters = TRY(job->parameters());
  return steps;
}

// Returns false where the model does not train or nothing can be run again.
bool stays_equal(Recipe recipe) {
  recipe.threads = 2;
  set_pipeline(recipe, default_pipeline());
  const auto prepared = prepare(recipe);
  if (!prepared) return false;
  const auto curve = memory_curve((*prepared)->compiled, (*prepared)->options);
  if (!curve) {
    ADD_FAILURE() << recipe.model << ": " << curve.error().message;
    return false;
  }
  if (curve->size() < 2) return false;
  const auto whole = run_three_steps(recipe);
  if (!whole) return false;
  bool tried = false;
  for (const std::size_t i : {curve->size() / 2, curve->size() - 1}) {
    // The planner may need a little more than its lower bound.
    recipe.memory_budget = std::to_string((*curve)[i].peak_bytes + (*curve)[i].peak_bytes / 20);
    const auto fitted = run_three_steps(recipe);
    if (!fitted) {
      EXPECT_EQ(fitted.error().code, Errc::device) << recipe.model << ": " << fitted.error().message;
      continue;
    }
    tried = true;
    EXPECT_LE(fitted->peak_bytes, whole->peak_bytes) << recipe.model;
    for (std::size_t step = 0; step < 3; ++step) {
      const double a = whole->losses[step], b = fitted->losses[step];
      EXPECT_TRUE(a == b || (std::isnan(a) && std::isnan(b))) << recipe.model << " step " << step + 1;
    }
    for (const auto& [name, tensor] : whole->parameters)
      EXPECT_TRUE(bit_equal(tensor, fitted->parameters.at(name))) << recipe.model << ": " << name;
  }
  return tried;
}

TEST(MemoryBudget, EveryModuleComputesTheSameWithAllOfItNamed) {
  int tried = 0;
  for (const fs::directory_entry& entry : fs::directory_iterator(GRADLOOM_SOURCE_DIR "/tests/modules")) {
    Recipe recipe;
    recipe.model = entry.path() / "model.onnx";
    recipe.threads = 2;
    set_pipeline(recipe, default_pipeline());
    const auto whole = run_three_steps(recipe);
    if (!whole) continue;  // it does not train
    recipe.recompute = {"*"};
    const auto again = run_three_steps(recipe);
    if (!again) {
      ADD_FAILURE() << recipe.model << ": " << again.error().message;
      continue;
    }
    ++tried;
    for (std::size_t step = 0; step < 3; ++step) {
      const double a = whole->losses[step], b = again->losses[step];
      EXPECT_TRUE(a == b || (std::isnan(a) && std::isnan(b))) << recipe.model << " step " << step + 1;
    }
    for (const auto& [name, tensor] : whole->parameters)
      EXPECT_TRUE(bit_equal(tensor, again->parameters.at(name))) << recipe.model << ": " << name;
  }
  EXPECT_GE(tried, 60);
}

TEST(MemoryBudget, EveryModuleComputesTheSame) {
  int tried = 0;
  for (const fs::directory_entry& entry : fs::directory_iterator(GRADLOOM_SOURCE_DIR "/tests/modules")) {
    Recipe recipe;
    recipe.model = entry.path() / "model.onnx";
    tried += stays_equal(recipe) ? 1 : 0;
  }
  EXPECT_GE(tried, 40);
}

TEST(MemoryBudget, EveryModelComputesTheSameInEachPrecision) {
  for (const char* model : {"cnn-digits", "gpt-char", "bert-tiny"})
    for (const char* precision : {"f32", "bf16"})
      for (const std::int64_t accumulate : {1, 2}) {
        Recipe recipe;
        recipe.model = std::string(GRADLOOM_SOURCE_DIR "/tests/models/") + model + "/model.onnx";
        recipe.dims = {{"batch", 4}};
        recipe.loss = "ce:logits,labels";
        recipe.optimizer = "adamw{lr=1e-3}";
        recipe.accumulate = accumulate;
        set_precision(recipe, precision);
        EXPECT_TRUE(stays_equal(recipe)) << model << " " << precision;
      }
}

TEST_F(Commands, MemoryBudgetIsASettingOfEveryJob) {
  const std::vector<std::string> job{
      "plan", model("gpt-char/model.onnx"), "--dim", "batch=4", "--loss", "ce:logits,labels"};
  const auto with = [&](std::vector<std::string> more) {
    more.insert(more.begin(), job.begin(), job.end());
    return more;
  };
  const Outcome curve = run(with({"--memory-curve"}));
  EXPECT_EQ(curve.code, 0) << curve.err;
  EXPECT_NE(curve.out.find("nodes that run again"), std::string::npos) << curve.out;
  // The text keeps the ends, and of the points between those that stand apart.
  const auto points = run(with({"--memory-curve", "--json"})).lines();
  const auto peak = [&](const json& point) { return bytes_text(point["peak_bytes"].get<double>()) + " "; };
  EXPECT_NE(curve.out.find("\n" + peak(points.front())), std::string::npos) << curve.out;
  EXPECT_NE(curve.out.find("\n" + peak(points.back())), std::string::npos) << curve.out;
  EXPECT_NE(curve.out.find(" of " + std::to_string(points.size()) + " points"), std::string::npos)
      << curve.out;
  EXPECT_NE(curve.out.find("no choice needs less than "), std::string::npos) << curve.out;
  for (const json& point : points) {
    EXPECT_LE(point["least_extra_time"], point["extra_time"]);
    EXPECT_LE(point["least_peak_bytes"], points.back()["peak_bytes"]);
  }
  const Outcome fitted = run(with({"--memory-budget", "12MiB"}));
  EXPECT_EQ(fitted.code, 0) << fitted.err;
  EXPECT_NE(fitted.out.find("recompute"), std::string::npos) << fitted.out;
  expect_error(with({"--memory-budget", "12"}), 6, "cannot be met");
  // What the planner makes of it is more than the budget, whatever another one could do.
  const Outcome none = run(with({"--memory-budget", "12MiB", "--planner", "none"}));
  EXPECT_EQ(none.code, 6) << none.err;
  const std::string said = "at least ";
  const std::size_t at = none.err.find(said);
  ASSERT_NE(at, std::string::npos) << none.err;
  EXPECT_NE(none.err.find(" MiB with planner none", at), std::string::npos) << none.err;
  EXPECT_GE(std::stod(none.err.substr(at + said.size())), 12) << none.err;
  expect_error(with({"--memory-budget", "much"}), 2, "is no size of memory");
}

}  // namespace
}  // namespace gradloom
