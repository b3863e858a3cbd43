// Whether all ranks of a training have the same text: a build, a setting, the version of a library.
#pragma once

#include <optional>
#include <string>

#include "engine/ranks/world.h"

namespace gradloom {

// Of the lowest rank whose text is another than rank 0's.
struct OtherText {
  int rank = 0;
  std::string first, theirs;  // rank 0's, and that rank's
};
// The same answer at every rank; all call. Nothing: they agree. Errors: those of World::exchange.
Result<std::optional<OtherText>> other_text(World& world, std::string mine);

}  // namespace gradloom
