#include <fmt/format.h>

#include "engine/base/markdown.h"
#include "engine/base/text.h"
#include "viz/model/kernel_table.h"
#include "viz/report/report.h"

namespace gradloom {
namespace {

constexpr std::size_t kOperators = 8, kKernels = 8, kComparisons = 3, kAdvice = 5, kAbove = 5;

// Foreign text in a paragraph: nothing of it is Markdown or HTML.
std::string plain(const std::string& foreign) {
  std::string made;
  for (const char c : escaped(foreign)) {
    if (std::string_view("\\`*_{}[]<>#|~&!").find(c) != std::string_view::npos) made += '\\';
    made += c;
  }
  return made;
}

std::string kernel_lines(KernelTableModel& model, KernelGroup group, std::size_t most) {
  model.set_group(group);
  const bool single = group == KernelGroup::kSingle;
  std::string made = markdown::head(
      {single ? "kernel" : "operator", single ? "phase" : "kernels", "time per step", "share"});
  for (const KernelLine& line : report::first_of(model.lines(), most)) {
    made += markdown::row({markdown::code(escaped(line.name)),
                           single ? plain(line.phase) : std::to_string(line.count),
                           duration_text(line.time_ns), percent_text(line.share)});
  }
  return made + "\n";
}

std::string above_lines(const RooflineModel& model) {
  std::string made = markdown::head({"above its roof", "under", "at least", "time per step", "above"});
  const std::vector<RooflineRow> above = grouped(model, RooflineGroup::node);
  for (const RooflineRow& row : report::first_of(above, kAbove)) {
    if (row.above_ns() <= 0) break;
    made += markdown::row({markdown::code(escaped(row.name)), plain(row.roof), duration_text(row.least_ns),
                           duration_text(row.time_ns), duration_text(row.above_ns())});
  }
  return made + "\n";
}

}  // namespace

std::string report_markdown(const Report& report) {
  const RunSummary& s = report.run.summary;
  std::string page =
      fmt::format("### {}{}\n\nrun {} of {}, {}, {}{}\n\n", plain(report::model_name(s)),
                  s.name.empty() ? "" : ": " + plain(s.name), s.id, markdown::code(escaped(report.session)),
                  plain(s.status), plain(s.device), s.precision.empty() ? "" : " in " + plain(s.precision));
  std::vector<std::string> names, values;
  for (const report::Figure& f : report::key_figures(report)) {
    names.push_back(f.name);
    values.push_back(fmt::format("{} ({})", f.value, f.note));
  }
  page += markdown::head(names) + markdown::row(values) + "\n";
  for (const std::string& found : report::findings(report.run)) page += "- " + plain(found) + "\n";
  if (report.roofline && report.roofline->timed())
    page += "- " + plain(report::roofline_sentence(*report.roofline)) + "\n";
  if (report.trend && report.trend->runs.size() > 1) {
    page += "- " + plain(report::trend_sentence(*report.trend)) + "\n";
    for (const TrendChange& change : report.trend->changes) {
      const std::string cause = trend_cause_text(change);
      page += fmt::format("  - {}{}\n", plain(report::change_sentence(*report.trend, change)),
                          cause.empty() ? "" : "; " + plain(cause));
    }
  }
  for (const ReportAdvice& a : report::first_of(report.advice, kAdvice))
    page += fmt::format("- could be faster: {}, {} of a step, {} ({})\n", plain(a.title),
                        duration_text(a.gain_ns), percent_text(a.gain), markdown::code(escaped(a.change)));
  for (const StoredComparison& c : report::first_of(report.comparisons, kComparisons))
    page += fmt::format("- {} (A: {}, B: {})\n", report::verdict_sentence(c.comparison),
                        markdown::code(escaped(c.comparison.a)), markdown::code(escaped(c.comparison.b)));
  page += "\n";
  KernelTableModel model;
  model.set_rows(report.run.kernels);
  if (model.timed())
    page += kernel_lines(model, KernelGroup::kOp, kOperators) +
            kernel_lines(model, KernelGroup::kSingle, kKernels);
  if (report.roofline && report.roofline->timed()) page += above_lines(*report.roofline);
  page += plain(report::signature(report)) + "\n";
  return page;
}

}  // namespace gradloom
