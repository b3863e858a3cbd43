// gradloom train: real steps on a device, recorded into a session as they happen.
#include <CLI/CLI.hpp>

#include "app/commands/commands.h"
#include "app/recipe_flags.h"
#include "app/train_run.h"

namespace gradloom {

CommandRun declare_train(CLI::App& app) {
  struct Options {
    RecipeFlags recipe;
    TrainOptions train;
  };
  auto options = std::make_shared<Options>();
  TrainOptions& train = options->train;
  options->recipe.declare(app);
  app.add_option("--session", train.session,
                 "session file in which the run is recorded (created when missing)");
  app.add_option("--name", train.name, "name of the run in the session");
  app.add_option("--save-params", train.files.params,
                 ".npz file for the trained parameters, written also when the run is stopped or fails");
  app.add_option(
      "--export-onnx", train.files.onnx,
      ".onnx file for the model with the trained parameters, written also when the run is stopped or fails");
  app.add_flag("--paced", train.paced,
               "run the number of steps read from each line of stdin and report their time (for benchmarks)");
  return [options](CommandContext& context) -> Status {
    TrainOptions& given = options->train;
    given.files.session = given.session;
    return TrainRun(TRY(options->recipe.resolve()), given, context).run();
  };
}

}  // namespace gradloom
