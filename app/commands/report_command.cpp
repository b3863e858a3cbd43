// gradloom report: a run as one page to send around.
#include <CLI/CLI.hpp>

#include "app/commands/commands.h"
#include "app/run_report.h"
#include "engine/base/text.h"

namespace gradloom {
namespace {

struct ReportOptions {
  std::string session, run = "last", against, output;
  bool advice = false;
};

}  // namespace

CommandRun declare_report(CLI::App& app) {
  auto options = std::make_shared<ReportOptions>();
  app.add_option("SESSION", options->session, "session file")->required();
  app.add_option("--run", options->run, "number or name of a run, or last");
  app.add_option("--against", options->against, "another run of the session: compares them, unpaired");
  app.add_flag("--advice", options->advice,
               "with what would make it faster (as advise says); compiles what would change");
  app.add_option("-o,--output", options->output,
                 "page to write: .html (self-contained), or .md for a pull request")
      ->required();
  return [options](CommandContext& context) -> Status {
    const WrittenReport written = TRY(write_run_report(options->session, options->run, options->against,
                                                       options->output, options->advice, context.stop));
    context.out.object({{"report", options->output}, {"run_id", written.run}, {"bytes", written.bytes}});
    context.out.text("wrote " + options->output + ": run " + std::to_string(written.run) + ", " +
                     bytes_text(static_cast<double>(written.bytes)));
    return {};
  };
}

}  // namespace gradloom
