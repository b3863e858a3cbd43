// A recorded run as a recipe that promises what the run measured.
#pragma once

#include "sessions/recipe.h"
#include "sessions/store.h"

namespace gradloom {

// The recipe as it was recorded. Error: the run has none, as a recorded loop.
Result<Recipe> recipe_of(const RunRecord& run);
// Error: the run recorded no recipe or did not finish a step.
Result<Recipe> recipe_with_expectations(const RunRecord& run);

}  // namespace gradloom
