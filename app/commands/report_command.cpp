// gradloom report: a run as one page to send around.
#include <CLI/CLI.hpp>
#include <filesystem>

#include "app/commands/commands.h"
#include "app/recipe_flags.h"
#include "engine/base/file.h"
#include "engine/base/text.h"
#include "sessions/find_model.h"
#include "viz/report/report.h"

namespace gradloom {
namespace {

struct ReportOptions {
  std::string session, run = "last", output;
};

Result<std::string> page_of(const Report& report, const std::string& output) {
  const std::string kind = std::filesystem::path(output).extension().string();
  if (kind == ".html" || kind == ".htm") return report_html(report);
  if (kind == ".md") return report_markdown(report);
  return Error{Errc::usage, "report: '" + escaped(output) + "' ends in none of .html, .htm, .md"};
}

Status write_report(const ReportOptions& options, CommandContext& context) {
  const auto store = TRY(Store::open(options.session, StoreMode::read));
  Report report;
  report.run = TRY(store->load_run(TRY(store->find_run(options.run))));
  report.runs = TRY(store->list_runs());
  report.comparisons = TRY(store->list_comparisons());
  report.session = std::filesystem::path(options.session).filename().string();
  report.model_note = model_note(find_model(report.run, options.session), report.run);
  report.now_utc = utc_timestamp();
  if (!report.run.summary.is_loop() && !report.run.recipe_json.empty())
    report.replay = "gradloom export " + shell_quoted(report.session) + " --run " +
                    std::to_string(report.run.summary.id) +
                    " -o recipe.json\ngradloom train --recipe recipe.json";
  const std::string page = TRY(page_of(report, options.output));
  TRY(atomic_write_file(options.output, page));
  context.out.object({{"report", options.output}, {"run_id", report.run.summary.id}, {"bytes", page.size()}});
  context.out.text("wrote " + options.output + ": run " + std::to_string(report.run.summary.id) + ", " +
                   bytes_text(static_cast<double>(page.size())));
  return {};
}

}  // namespace

CommandRun declare_report(CLI::App& app) {
  auto options = std::make_shared<ReportOptions>();
  app.add_option("SESSION", options->session, "session file")->required();
  app.add_option("--run", options->run, "number or name of a run, or last");
  app.add_option("-o,--output", options->output,
                 "page to write: .html (self-contained), or .md for a pull request")
      ->required();
  return [options](CommandContext& context) { return write_report(*options, context); };
}

}  // namespace gradloom
