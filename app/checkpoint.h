// A checkpoint: all that goes on with a training as if it had never ended. A folder of these files:
//   model.safetensors       parameters, running statistics and buffers by their names in the module (load_state_dict)
//   optimizer.safetensors   what the optimizer keeps, "<parameter>.exp_avg", "<parameter>.exp_avg_sq", ..; where ranks keep it apart
//                           (pass zero), a file for each rank instead (checkpoint_shards.h)
//   recipe.json             the run as a recipe, with absolute paths
//   state.json              step, place in the data, random numbers, loss scale, evaluations; size and hash of the other files, and
//                           of itself
// State does not depend on device, passes or planner: names are those of the model, tensors are row-major and as
// wide as training keeps them. Errors: Errc::bad_input, naming file and reason, for whatever is damaged, incomplete
// or no checkpoint; Errc::io.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "app/checkpoint_shards.h"
#include "engine/base/safetensors.h"
#include "engine/train/early_stop.h"
#include "sessions/recipe.h"

namespace gradloom {

// Loss scaling after the last step (LossScaleSpec).
struct LossScaleState {
  double scale = 0;
  std::int64_t good_steps = 0,
               skipped_steps = 0;  // in a row: made since the scale changed; skipped up to now
  bool operator==(const LossScaleState&) const = default;
};

struct Checkpoint {
  std::string path;             // of the folder it was read from
  std::string hash;             // of its files, wherever they lie
  std::int64_t step = 0;        // that were made
  std::int64_t next_batch = 0;  // of the data
  std::uint64_t seed = 0;       // with which random numbers go on from `step`
  std::int64_t made_steps = 0;  // that the optimizer counts: all but the skipped ones
  std::optional<LossScaleState> loss_scale;
  std::optional<EarlyStop::State> early_stop;  // with held-out data, once they were evaluated
  Recipe recipe;
  Safetensors model, optimizer;
  std::shared_ptr<ShardedStates> shards;  // that `optimizer` reads from, where several ranks wrote it
};

constexpr const char *kStateFile = "state.json", *kModelFile = "model.safetensors",
                     *kOptimizerFile = "optimizer.safetensors", *kRecipeFile = "recipe.json";

// Into a folder that is there; every file is flushed to disk, state.json as the last. `shards`: of the ranks, which are in the folder
// already; none: the states of the optimizer are written too, and the folder is empty.
Status write_checkpoint(const std::string& folder, const Checkpoint& checkpoint,
                        const std::vector<WrittenFile>& shards = {});
// Everything is checked before anything is returned, but the contents of shards: a rank checks those that it needs
// (ShardedStates::check). Tensors stay in their files, which may be deleted meanwhile.
Result<Checkpoint> read_checkpoint(const std::string& folder);

}  // namespace gradloom
