// gradloom trends: steps from run to run, with a check for scripts that look for regressions.
#include <CLI/CLI.hpp>

#include "app/commands/commands.h"
#include "app/trends.h"
#include "engine/base/text.h"

namespace gradloom {
namespace {

struct TrendFlags {
  std::vector<std::string> sessions;
  TrendOptions trends;
  double least_percent = 2;
  bool check = false;
};

}  // namespace

CommandRun declare_trends(CLI::App& app) {
  auto options = std::make_shared<TrendFlags>();
  app.add_option("SESSION", options->sessions, "session files")->required();
  app.add_option("--models", options->trends.model, "only models whose name or path fits this glob")
      ->capture_default_str();
  app.add_option("--least", options->least_percent,
                 "per cent: changes of level that are smaller count as none")
      ->capture_default_str()
      ->check(CLI::Range(0.0, 1000.0));
  app.add_option("--significance", options->trends.changes.significance,
                 "how often so large a change may come up by chance")
      ->capture_default_str()
      ->check(CLI::Range(0.0005, 0.5));
  app.add_flag("--check", options->check,
               "end with 1 where the newest runs are slower than those before them");
  return [options](CommandContext& context) -> Status {
    options->trends.changes.least_change = options->least_percent / 100;
    const std::vector<Trend> trends = TRY(find_trends(options->sessions, options->trends, context.stop));
    for (const Trend& trend : trends) context.out.object(trend_json(trend));
    context.out.text(trends_text(trends));
    if (!options->check) return {};
    for (const Trend& trend : trends)
      if (!trend.changes.empty() && trend.changes.back().slower())
        return Error{Errc::check_failed,
                     escaped(trend.model) + " on " + escaped(trend.hardware) +
                         " became slower: " + duration_text(trend.changes.back().point.before) + " -> " +
                         duration_text(trend.changes.back().point.after)};
    return {};
  };
}

}  // namespace gradloom
