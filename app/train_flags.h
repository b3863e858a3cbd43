// The flags of `gradloom train` and what they ask for: what the command and libgradloom's jobs read words with.
#pragma once

#include <optional>
#include <string>

#include "app/checkpoint.h"
#include "app/recipe_flags.h"
#include "app/train_run.h"

namespace gradloom {

// A training that was asked for.
struct TrainRequest {
  Recipe recipe;
  TrainOptions options;
  std::optional<Checkpoint> from;  // with which it goes on
};

class TrainFlags {
 public:
  void declare(CLI::App& app);
  // Model or recipe present, options parsed. Errors: Errc::usage, and those of the recipe and the checkpoint.
  Result<TrainRequest> resolve() const;

 private:
  void declare_checkpoints(CLI::App& app);
  RecipeFlags recipe_;
  TrainOptions train_;
  std::string resume_;
};

}  // namespace gradloom
