#include "app/run_report.h"

#include <algorithm>
#include <filesystem>

#include "app/advice/advice.h"
#include "app/recipe_flags.h"
#include "app/roofline.h"
#include "app/trends.h"
#include "engine/base/file.h"
#include "engine/base/text.h"
#include "sessions/find_model.h"
#include "viz/report/report.h"

namespace gradloom {
namespace {

Status add_advice(Report& report, const std::string& session, std::stop_token stop) {
  AdviceOptions options;
  const Advice advice = TRY(advise_run(report.run, session, options, std::move(stop)));
  report.advised = true;
  for (const Finding& f : advice.findings) {
    const auto part = [&](double ns) { return ns / advice.step_ns; };
    report.advice.push_back({f.title, f.change, f.command, f.gain.ns, part(f.gain.ns), part(f.gain.low_ns),
                             part(f.gain.high_ns)});
  }
  return {};
}

// Under the roofs that are known of its processor, else those that its own kernels reached.
void add_roofline(Report& report) {
  if (!report.run.has_times() || !report.run.summary.has_recipe()) return;
  if (const auto hardware = hardware_of_run(report.run, ""); hardware.ok())
    report.roofline = roofline_of_run(report.run, *hardware);
}

// The series of the session that the run is one of. A page without it is better than none: another run may be damaged.
void add_trend(Report& report, const std::string& session, std::stop_token stop) {
  auto trends = find_trends({session}, {}, std::move(stop));
  if (!trends.ok()) return;
  for (Trend& trend : *trends)
    if (std::any_of(trend.runs.begin(), trend.runs.end(),
                    [&](const TrendRun& run) { return run.run.id == report.run.summary.id; }))
      report.trend = std::move(trend);
}

}  // namespace

Result<WrittenReport> write_run_report(const std::string& session, const std::string& run,
                                       const std::string& against, const std::string& output, bool advise,
                                       std::stop_token stop) {
  const std::string kind = std::filesystem::path(output).extension().string();
  const bool markdown = kind == ".md";
  if (!markdown && kind != ".html" && kind != ".htm")
    return Error{Errc::usage, "report: '" + escaped(output) + "' ends in none of .html, .htm, .md"};
  const auto store = TRY(Store::open(session, StoreMode::read));
  Report report;
  report.run = TRY(store->load_run(TRY(store->find_run(run))));
  report.runs = TRY(store->list_runs());
  report.comparisons = TRY(store->list_comparisons());
  if (!against.empty()) {
    const RunRecord other = TRY(store->load_run(TRY(store->find_run(against))));
    report.comparisons.push_back({.run_a = other.summary.id,
                                  .run_b = report.run.summary.id,
                                  .comparison = TRY(compare_runs(other, report.run))});
  }
  std::reverse(report.runs.begin(), report.runs.end());
  std::reverse(report.comparisons.begin(), report.comparisons.end());
  report.session = std::filesystem::path(session).filename().string();
  if (report.run.summary.has_recipe() || !report.run.summary.model.empty())
    report.model_note = model_note(find_model(report.run, session), report.run);
  report.now_utc = utc_timestamp();
  const RunSummary& summary = report.run.summary;
  if (summary.has_recipe() && !report.run.recipe_json.empty())
    report.replay = "gradloom export " + shell_quoted(report.session) + " --run " +
                    std::to_string(summary.id) + " -o recipe.json\ngradloom train --recipe recipe.json";
  add_roofline(report);
  add_trend(report, session, stop);
  if (advise) TRY(add_advice(report, session, std::move(stop)));
  const std::string page = markdown ? report_markdown(report) : report_html(report);
  TRY(atomic_write_file(output, page));
  return WrittenReport{summary.id, page.size()};
}

}  // namespace gradloom
