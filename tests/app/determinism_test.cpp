// Same build, seed and data: the same bits for any number of threads, with timing on or off, and after a
// reset of nothing.
#include <gtest/gtest.h>

#include <cstring>
#include <optional>
#include <random>

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

std::vector<double> losses(Recipe recipe, std::int64_t threads, bool timed,
                           std::optional<std::uint8_t> poison = std::nullopt) {
  recipe.threads = threads;
  const auto job = make_job(recipe);
  if (job == nullptr) return {};
  std::vector<double> result;
  for (std::int64_t step = 1; step <= 5; ++step) {
    if (poison) job->executor().poison(*poison);
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
  const std::vector<double> expected = losses(recipe, 1, false);
  ASSERT_EQ(expected.size(), 5u);
  for (const auto& other : {losses(recipe, 2, false), losses(recipe, 2, true, 0xff),
                            losses(recipe, 1, false, 0x7f), losses(recipe, 1, false, 0x01)}) {
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

// A buffer that is written while another one still holds what is read later, moved onto it.
TEST(PlanOfModels, TwentyPlansThatOverlapAreFound) {
  std::mt19937 random(20261124);
  int found = 0;
  for (const char* model : {"mlp", "cnn-digits", "bert-tiny", "gpt-char"}) {
    const auto prepared = prepare(recipe_for(model, "default"));
    ASSERT_TRUE(prepared.ok()) << prepared.error().message;
    const Compiled& c = (*prepared)->compiled;
    std::vector<std::pair<std::size_t, std::size_t>> pairs;
    const std::vector<Buffer>& buffers = c.plan.buffers;
    for (std::size_t i = 0; i < buffers.size(); ++i)
      for (std::size_t j = 0; j < buffers.size(); ++j) {
        const Buffer &held = buffers[i], &written = buffers[j];
        if (i != j && held.place == Place::arena && written.place == Place::arena && held.bytes > 0 &&
            written.bytes > 0 && held.first_step < written.first_step && written.first_step < held.last_step)
          pairs.emplace_back(i, j);
      }
    ASSERT_FALSE(pairs.empty()) << model;
    for (int k = 0; k < 5; ++k) {
      const auto [held, written] = pairs[random() % pairs.size()];
      Plan bad = c.plan;
      bad.buffers[written].offset = bad.buffers[held].offset;
      bad.arena_bytes += bad.buffers[written].bytes;  // it is inside
      const Status status = check_plan(c.train.graph, bad);
      EXPECT_FALSE(status.ok()) << model << ": buffer " << written << " over " << held;
      found += status.ok() ? 0 : 1;
    }
  }
  EXPECT_EQ(found, 20);
}

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
