// gradloom train: real steps on a device, recorded into a session as they happen.
#include <CLI/CLI.hpp>

#include "app/checkpoint_folder.h"
#include "app/commands/commands.h"
#include "app/recipe_flags.h"
#include "app/train_run.h"

namespace gradloom {
namespace {

struct Options {
  RecipeFlags recipe;
  TrainOptions train;
  std::string resume;
};

void declare_checkpoints(CLI::App& app, Options& options) {
  CheckpointOptions& checkpoints = options.train.checkpoints;
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
      "--resume", options.resume,
      "go on from a checkpoint, or from the newest in a folder of them; what no flag says is as it was "
      "there, --steps counts from the training's start");
}

}  // namespace

CommandRun declare_train(CLI::App& app) {
  auto options = std::make_shared<Options>();
  TrainOptions& train = options->train;
  options->recipe.declare(app);
  app.add_option("--session", train.session,
                 "session file in which the run is recorded (created when missing)");
  app.add_option("--name", train.name, "name of the run in the session");
  app.add_option(
      "--save-params", train.files.params,
      ".npz or .safetensors file for the trained parameters, written also when the run is stopped or fails");
  app.add_option(
      "--export-onnx", train.files.onnx,
      ".onnx file for the model with the trained parameters, written also when the run is stopped or fails");
  declare_checkpoints(app, *options);
  app.add_flag("--paced", train.paced,
               "run the number of steps read from each line of stdin and report their time (for benchmarks)");
  return [options](CommandContext& context) -> Status {
    TrainOptions& given = options->train;
    given.files.session = given.session;
    if (given.paced && !(options->resume.empty() && given.checkpoints.folder.empty()))
      return Error{Errc::usage, "--paced takes no checkpoints"};
    if (options->resume.empty()) return TrainRun(TRY(options->recipe.resolve()), given, context).run();
    Checkpoint from = TRY(open_checkpoint(options->resume));
    Recipe recipe = TRY(options->recipe.resolve(&from.recipe));
    return TrainRun(std::move(recipe), given, context, std::move(from)).run();
  };
}

}  // namespace gradloom
