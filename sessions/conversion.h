// What conversions between recipes and the configurations of other programs share: what one side has no equal of is listed with
// its reason, nothing is left out silently.
#pragma once

#include <set>
#include <string>
#include <vector>

#include "sessions/recipe.h"

namespace gradloom {

// One key or setting that the other side has no equal of.
struct ConversionNote {
  std::string where;  // "/zero_optimization/stage", or a setting: "ema"
  std::string value;  // as it stands there, shortened
  std::string why;
};

// A file for another program.
struct ConvertedFile {
  std::string text;
  std::vector<ConversionNote> notes;
};

// Notes on all settings that are not at their default, but for those that were `said`.
void note_unsaid(const Recipe& recipe, const std::set<std::string>& said, std::vector<ConversionNote>& notes);

}  // namespace gradloom
