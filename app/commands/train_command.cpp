// gradloom train: real steps on a device, recorded into a session as they happen.
#include <CLI/CLI.hpp>

#include "app/commands/commands.h"
#include "app/train_flags.h"

namespace gradloom {
namespace {

struct Options {
  TrainFlags flags;
  bool paced = false;
};

}  // namespace

CommandRun declare_train(CLI::App& app) {
  auto options = std::make_shared<Options>();
  options->flags.declare(app);
  app.add_flag("--paced", options->paced,
               "run the number of steps read from each line of stdin and report their time (for benchmarks)");
  return [options](CommandContext& context) -> Status {
    TrainRequest request = TRY(options->flags.resolve());
    request.options.paced = options->paced;
    if (options->paced && (request.from || !request.options.checkpoints.folder.empty()))
      return Error{Errc::usage, "--paced takes no checkpoints"};
    return TrainRun(std::move(request.recipe), request.options, context, std::move(request.from)).run();
  };
}

}  // namespace gradloom
