// An interleaved comparison of two recipes: both jobs resident in this process,
// one measured block after the other.
#pragma once

#include <functional>
#include <stop_token>
#include <string>

#include "sessions/compare.h"
#include "sessions/recipe.h"

namespace gradloom {

Result<Comparison> compare_recipes(const Recipe& a, const Recipe& b, const std::string& name_a,
                                   const std::string& name_b, const CompareOptions& options,
                                   std::stop_token stop = {},
                                   const std::function<void(const CompareProgress&)>& progress = {});

}  // namespace gradloom
