// gradloom trace: the timings of a run as a file for other tools.
#include <CLI/CLI.hpp>

#include "app/commands/commands.h"
#include "engine/base/text.h"
#include "profiler/trace_files.h"
#include "sessions/store.h"
#include "sessions/write_nsys.h"

namespace gradloom {
namespace {

struct TraceOptions {
  std::string session, run = "last", output, format;
  std::int32_t rank = -1;
};

constexpr std::pair<const char*, TraceFormat> kFormats[] = {
    {"chrome", TraceFormat::chrome}, {"perfetto", TraceFormat::perfetto}, {"csv", TraceFormat::csv}};

Result<TraceDocument> traced(const TraceOptions& options, Store& store, std::int64_t run) {
  TraceDocument document = TRY(store.load_trace(run));
  const auto ranks = static_cast<std::int32_t>(std::max<std::size_t>(document.ranks.size(), 1));
  if (options.rank >= ranks)
    return Error{Errc::usage, "--rank " + std::to_string(options.rank) + ": run " + std::to_string(run) +
                                  " has " + plural_text(ranks, "rank") + ", from 0"};
  return document;
}

constexpr const char* kNsys = "nsys";  // SQLite, so it is sessions/ that writes it

bool is_nsys(const TraceOptions& options) {
  return options.format == kNsys || (options.format.empty() && options.output.ends_with(".sqlite"));
}

// Of all but nsys.
TraceFormat format_of(const TraceOptions& options) {
  for (const auto& [name, known] : kFormats)
    if (options.format == name) return known;
  return trace_format_of(options.output);
}

Status write_file(const TraceOptions& options, const TraceDocument& document) {
  if (!is_nsys(options)) return write_trace(document, format_of(options), options.output);
  if (options.output.ends_with(".gz"))
    return Error{Errc::usage, "--format nsys is a database, which is not packed: name it without .gz"};
  return write_nsys_export(document, options.output);
}

Status trace_run(const TraceOptions& options, CommandContext& context) {
  const auto store = TRY(Store::open(options.session, StoreMode::read));
  const std::int64_t run = TRY(store->find_run(options.run));
  TraceDocument document = TRY(traced(options, *store, run));
  const std::int64_t of_steps = static_cast<std::int64_t>(document.steps.size());
  // A line of a CSV is what a kernel took on one rank.
  const bool of_one = options.rank < 0 && !is_nsys(options) && format_of(options) == TraceFormat::csv &&
                      document.ranks.size() > 1;
  if (of_one)
    context.out.note("the times are those of rank " + std::to_string(document.rank) +
                     ": --rank names another");
  if (options.rank >= 0 || of_one)
    document = of_rank(std::move(document), of_one ? document.rank : options.rank);
  if (document.rows.empty() && document.host.empty())
    return Error{Errc::bad_input, "run " + std::to_string(run) + " has no timed steps"};
  TRY(write_file(options, document));
  if (document.steps_left_out > 0)
    context.out.note("a trace holds at most " + std::to_string(kMaxTracedExecutions) +
                     " kernel executions: these are the first " + std::to_string(of_steps) +
                     " timed steps; " + plural_text(document.steps_left_out, "step") + " left out");
  context.out.object({{"trace", options.output},
                      {"run_id", run},
                      {"steps", of_steps},
                      {"steps_left_out", document.steps_left_out},
                      {"events", document.rows.size() + document.other_ranks.size()},
                      {"exchanges", document.exchanges.size()},
                      {"host_spans", document.host.size()}});
  context.out.text(
      "wrote " + options.output + ": " +
      plural_text(static_cast<std::int64_t>(document.rows.size() + document.other_ranks.size()),
                  "kernel execution") +
      (document.exchanges.empty()
           ? ""
           : " and " + plural_text(static_cast<std::int64_t>(document.exchanges.size()), "exchange")) +
      (document.host.empty() ? "" : " and the host's " + std::to_string(document.host.size()) + " spans") +
      " of " + plural_text(of_steps, "step"));
  return {};
}

}  // namespace

CommandRun declare_trace(CLI::App& app) {
  auto options = std::make_shared<TraceOptions>();
  app.add_option("SESSION", options->session, "session file")->required();
  app.add_option("--run", options->run, "number or name of a run, or last");
  app.add_option("-o,--output", options->output, "file to write; .gz behind its name packs it")->required();
  std::vector<std::string> names;
  for (const auto& [name, format] : kFormats) names.emplace_back(name);
  names.emplace_back(kNsys);
  app.add_option(
         "--format", options->format,
         "chrome (JSON: Perfetto, chrome://tracing, HolisticTraceAnalysis) | perfetto (.pftrace: its own "
         "format, a third of the size, exact) | csv (a line per kernel) | nsys (.sqlite: the tables that Nsight Systems exports); default: as the name ends, else chrome")
      ->check(CLI::IsMember(names));
  app.add_option(
         "--rank", options->rank,
         "of several ranks only this one (a trace has all of them; some readers want a file for each)")
      ->check(CLI::Range(0, 1048575));
  return [options](CommandContext& context) { return trace_run(*options, context); };
}

}  // namespace gradloom
