// What the planner promises of every network here: an arena within a hundredth of the lower bound.
#include <gtest/gtest.h>

#include <filesystem>

#include "app/job.h"
#include "tests/paths.h"

namespace gradloom {
namespace {

namespace fs = std::filesystem;

// How many of the networks train.
int expect_near_the_bound(const std::string& precision, const std::string& passes) {
  int trained = 0;
  for (const char* root : {"tests/models", "tests/modules"})
    for (const fs::directory_entry& entry :
         fs::directory_iterator(std::string(GRADLOOM_SOURCE_DIR "/") + root)) {
      Recipe recipe;
      recipe.model = (entry.path() / "model.onnx").string();
      if (!fs::exists(recipe.model)) continue;
      set_pipeline(recipe, *parse_pipeline(passes));
      set_precision(recipe, precision);
      auto prepared = prepare(recipe);
      if (!prepared) {
        recipe.dims = {{"batch", 8}};
        prepared = prepare(recipe);
      }
      if (!prepared) continue;
      ++trained;
      const Plan& plan = (*prepared)->compiled.plan;
      const Status checked = check_plan((*prepared)->compiled.train.graph, plan);
      EXPECT_TRUE(checked.ok()) << recipe.model << ": " << checked.error().message;
      EXPECT_LE(static_cast<double>(plan.arena_bytes), 1.01 * static_cast<double>(plan.lower_bound_bytes))
          << recipe.model << " in " << precision << ", passes " << passes;
    }
  return trained;
}

TEST(PlannedMemory, EveryNetworkIsWithinAHundredthOfItsBound) {
  EXPECT_GE(expect_near_the_bound("f32", "default"), 100);
  EXPECT_GE(expect_near_the_bound("bf16", "default"), 100);
}
TEST(PlannedMemory, EveryNetworkIsWithinAHundredthOfItsBoundWithoutPasses) {
  EXPECT_GE(expect_near_the_bound("f32", "none"), 100);
}

}  // namespace
}  // namespace gradloom
