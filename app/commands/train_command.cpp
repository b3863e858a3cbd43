// gradloom train: real steps on a device, recorded into a session as they happen.
#include <CLI/CLI.hpp>

#include "app/commands/commands.h"
#include "app/ranks.h"
#include "app/train_flags.h"

namespace gradloom {
namespace {

struct TrainArguments {
  TrainFlags flags;
  bool paced = false;
  double silence_s = 600;
};

}  // namespace

CommandRun declare_train(CLI::App& app) {
  auto options = std::make_shared<TrainArguments>();
  options->flags.declare(app);
  app.add_flag("--paced", options->paced,
               "run the number of steps read from each line of stdin and report their time (for benchmarks)");
  app.add_option("--rank-timeout", options->silence_s,
                 "with several ranks, seconds that one may be missing or silent before the others end")
      ->capture_default_str()
      ->check(CLI::Range(0.1, 1e6));
  return [options](CommandContext& context) -> Status {
    TrainRequest request = TRY(options->flags.resolve());
    request.options.paced = options->paced;
    if (options->paced && (request.from || !request.options.checkpoints.folder.empty()))
      return Error{Errc::usage, "--paced takes no checkpoints"};
    const auto silence = std::chrono::milliseconds(static_cast<std::int64_t>(options->silence_s * 1000));
    return train_on_ranks(std::move(request), silence, context,
                          [](TrainRequest one, CommandContext& own, const EndOfTraining& end) {
                            TrainRun run(std::move(one.recipe), one.options, own, std::move(one.from));
                            return end(run.run());
                          });
  };
}

}  // namespace gradloom
