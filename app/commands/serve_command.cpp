// gradloom serve: the far end of `gradloom open ssh://..`.
#include <CLI/CLI.hpp>
#include <unistd.h>

#include "app/commands/commands.h"
#include "app/remote/serve.h"

namespace gradloom {

CommandRun declare_serve(CLI::App& app) {
  auto session = std::make_shared<std::string>();
  app.add_option("SESSION", *session, "session file; one that is not there yet is waited for")->required();
  return [session](CommandContext& context) -> Status {
    const Finishing finishing(context);  // its copy of the session goes with it
    return serve_session(*session, STDIN_FILENO, STDOUT_FILENO, context.stop);
  };
}

}  // namespace gradloom
