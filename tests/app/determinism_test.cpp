// Same build, seed and data: the same bits for any number of threads, with timing on or off, and after a
// reset of nothing.
#include <gtest/gtest.h>

#include <cstring>

#include "app/job.h"
#include "passes/compile.h"
#include "tests/app/model_job.h"

namespace gradloom {
namespace {

Recipe recipe_for(const std::string& model, const std::string& passes) {
  Recipe recipe = model_recipe(model);
  if (model == "gpt-char") recipe.dims = {{"batch", 4}};
  const auto pipeline = parse_pipeline(passes);
  if (pipeline.ok()) set_pipeline(recipe, *pipeline);
  return recipe;
}

std::vector<double> losses(Recipe recipe, std::int64_t threads, bool timed, bool poisoned) {
  recipe.threads = threads;
  const auto job = make_job(recipe);
  if (job == nullptr) return {};
  std::vector<double> result;
  for (std::int64_t step = 1; step <= 5; ++step) {
    if (poisoned) job->executor().poison();
    const auto r = job->step(step, timed);
    EXPECT_TRUE(r.ok()) << r.error().message;
    if (!r.ok()) return {};
    result.push_back(r->loss);
  }
  return result;
}

class Determinism : public testing::TestWithParam<std::tuple<const char*, const char*>> {};

TEST_P(Determinism, BitsDoNotDependOnThreadsTimingOrOldMemory) {
  const Recipe recipe = recipe_for(std::get<0>(GetParam()), std::get<1>(GetParam()));
  const std::vector<double> expected = losses(recipe, 1, false, false);
  ASSERT_EQ(expected.size(), 5u);
  for (const auto& other : {losses(recipe, 2, false, false), losses(recipe, 2, true, true)}) {
    ASSERT_EQ(other.size(), expected.size());
    for (std::size_t i = 0; i < expected.size(); ++i)
      EXPECT_EQ(std::memcmp(&expected[i], &other[i], sizeof(double)), 0)
          << "step " << i + 1 << ": " << expected[i] << " and " << other[i];
  }
}

INSTANTIATE_TEST_SUITE_P(Models, Determinism,
                         testing::Combine(testing::Values("mlp", "cnn-digits", "bert-tiny", "gpt-char"),
                                          testing::Values("default", "none")),
                         [](const auto& test) {
                           std::string name =
                               std::string(std::get<0>(test.param)) + "_" + std::get<1>(test.param);
                           for (char& ch : name)
                             if (ch == '-') ch = '_';
                           return name;
                         });

TEST(PlanOfModels, EveryPlannerPassesTheChecker) {
  for (const char* model : {"mlp", "cnn-digits", "bert-tiny", "gpt-char"})
    for (const char* planner : {"none", "reuse", "best-fit"})
      for (const bool in_place : {true, false}) {
        Recipe recipe = recipe_for(model, "default");
        recipe.planner = planner;
        recipe.in_place = in_place;
        recipe.accumulate = 2;
        recipe.clip_norm = 1.0;
        const auto prepared = prepare(recipe);
        ASSERT_TRUE(prepared.ok()) << prepared.error().message;
        const Compiled& c = (*prepared)->compiled;
        const Status status = check_plan(c.train.graph, c.plan);
        EXPECT_TRUE(status.ok()) << model << " " << planner << ": " << status.error().message;
        EXPECT_GE(c.plan.arena_bytes, c.plan.lower_bound_bytes) << model << " " << planner;
      }
}

}  // namespace
}  // namespace gradloom
