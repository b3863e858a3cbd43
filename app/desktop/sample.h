// The sample job that the program brings: a small BERT that classifies, with batches that it can learn.
#pragma once

#include <optional>
#include <string>

#include "sessions/recipe.h"

namespace gradloom {

// Its files lie in share/gradloom/samples/bert-tiny, in the folder of the program (build folders, the archive of ./dev bundle) or
// beside that folder (an installed package); nothing: they are in neither. `program_folder` empty: that of this process.
std::optional<Recipe> sample_job(const std::string& program_folder = {});

}  // namespace gradloom
