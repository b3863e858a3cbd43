#include "app/train_flags.h"

#include <CLI/CLI.hpp>
#include <filesystem>
#include <system_error>

#include "app/checkpoint_folder.h"
#include "sessions/find_model.h"

namespace gradloom {

void TrainFlags::declare(CLI::App& app) {
  recipe_.declare(app);
  app.add_option("--session", train_.session,
                 "session file in which the run is recorded (created when missing)");
  app.add_option("--name", train_.name, "name of the run in the session");
  app.add_option(
      "--save-params", train_.files.params,
      ".npz or .safetensors file for the trained parameters, written also when the run is stopped or fails");
  app.add_option(
      "--export-onnx", train_.files.onnx,
      ".onnx file for the model with the trained parameters, written also when the run is stopped or fails");
  declare_checkpoints(app);
}

void TrainFlags::declare_checkpoints(CLI::App& app) {
  CheckpointOptions& checkpoints = train_.checkpoints;
  auto* const folder = app.add_option(
      "--checkpoint", checkpoints.folder,
      "folder for checkpoints FOLDER/step-NNNNNNNN: all that --resume goes on from, bit for bit");
  app.add_option("--checkpoint-every", checkpoints.every,
                 "steps between two checkpoints; 0: only at the end, also of a run that is stopped")
      ->needs(folder)
      ->check(CLI::Range(std::int64_t{0}, std::int64_t{1'000'000'000'000}));
  app.add_option("--checkpoint-keep", checkpoints.keep, "how many of the newest checkpoints stay; 0: all")
      ->needs(folder)
      ->capture_default_str()
      ->check(CLI::Range(std::int64_t{0}, std::int64_t{1'000'000'000}));
  app.add_option(
      "--resume", resume_,
      "go on from a checkpoint, or from the newest in a folder of them; what no flag says is as it was "
      "there, --steps counts from the training's start");
}

Result<TrainRequest> TrainFlags::resolve() const {
  TrainRequest request;
  std::error_code failed;
  request.options = train_;
  request.options.files.session = train_.session;
  if (!train_.session.empty() && recipe_.given("recipe"))
    if (const auto named = TRY(recipe_.source());
        named && std::filesystem::is_regular_file(named->name, failed))
      request.options.source = std::filesystem::path(absolute_path(named->name)).parent_path().string();
  if (!resume_.empty()) request.from = TRY(open_checkpoint(resume_));
  request.recipe = TRY(recipe_.resolve(request.from ? &request.from->recipe : nullptr));
  return request;
}

}  // namespace gradloom
