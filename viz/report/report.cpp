#include "viz/report/report.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <sstream>

#include "engine/base/text.h"
#include "profiler/import/imported_trace.h"
#include "sessions/comparison_noise.h"
#include "sessions/rank_lines.h"
#include "viz/model/axis.h"
#include "viz/model/kernel_table.h"
#include "viz/model/memory_model.h"
#include "viz/report/charts.h"
#include "viz/report/html.h"

namespace gradloom {
namespace {

using html::Column, html::element, html::text;

constexpr std::size_t kKernels = 25, kGroups = 12, kBlocks = 10, kComparisons = 6, kChanges = 8, kRuns = 40,
                      kAdvice = 12, kAbove = 15, kRecipeBytes = 200'000;

// Two colour schemes of the same names; tables scroll by themselves on narrow screens.
constexpr const char* kStyle = R"(
:root{--page:#fff;--card:#f6f7f9;--line:#e3e6ea;--ink:#1c2128;--soft:#5d6773;--forward:#3572c6;--loss:#8a5cd0;
--backward:#c9701a;--optimizer:#2f8f63;--good:#1f7f4f;--bad:#b93a32}
@media(prefers-color-scheme:dark){:root{--page:#14171b;--card:#1d2126;--line:#31373f;--ink:#e4e7eb;--soft:#9aa4b0;
--forward:#6ea3ec;--loss:#b294ee;--backward:#e8a04f;--optimizer:#62c193;--good:#62c193;--bad:#f08078}}
*{box-sizing:border-box}
body{margin:0;background:var(--page);color:var(--ink);font:15px/1.5 system-ui,-apple-system,"Segoe UI",sans-serif}
main{max-width:1040px;margin:0 auto;padding:28px 18px 60px}
h1{font-size:24px;line-height:1.25;margin:0 0 4px;overflow-wrap:anywhere}
h2{font-size:18px;margin:40px 0 10px;padding-top:14px;border-top:1px solid var(--line)}
h3{font-size:15px;margin:22px 0 6px}
p{margin:6px 0}.soft,caption,small{color:var(--soft)}
code,pre{font:13px/1.45 ui-monospace,"DejaVu Sans Mono",monospace}
pre{background:var(--card);padding:10px 12px;border-radius:6px;overflow-x:auto;margin:8px 0}
.figures{display:flex;flex-wrap:wrap;gap:10px;margin:18px 0}
.figures div{background:var(--card);border-radius:8px;padding:10px 16px;min-width:130px;flex:1 1 130px}
.figures span{color:var(--soft);font-size:13px}.figures b{display:block;font-size:21px;font-weight:600;white-space:nowrap}
.scroll{overflow-x:auto}table{border-collapse:collapse;width:100%;font-size:14px}
th{text-align:left;font-weight:600;color:var(--soft);font-size:13px}
th,td{padding:4px 12px 4px 0;border-bottom:1px solid var(--line);vertical-align:top}
td:first-child{overflow-wrap:anywhere;min-width:10em}.n{text-align:right;white-space:nowrap;font-variant-numeric:tabular-nums}
.bar{position:relative;display:inline-block;width:110px;text-align:right}
.bar i{position:absolute;left:0;top:3px;bottom:3px;background:var(--forward);opacity:.28;border-radius:2px}
.bar b{position:relative;font-weight:400}.phase{white-space:nowrap}
.phase::before{content:"";display:inline-block;width:9px;height:9px;border-radius:2px;margin-right:6px;background:var(--soft)}
.phase.forward::before,.bar i.forward{background:var(--forward)}.phase.loss::before,.bar i.loss{background:var(--loss)}
.phase.backward::before,.bar i.backward{background:var(--backward)}
.phase.optimizer::before,.bar i.optimizer{background:var(--optimizer)}
svg{width:100%;min-width:640px;height:auto;display:block;margin:8px 0}svg text{font-size:12px;fill:var(--soft)}svg .strong{fill:var(--ink)}
.grid{stroke:var(--line)}.curve{fill:none;stroke-width:1.6;stroke:var(--forward);stroke-linejoin:round}
.dot{fill:var(--forward)}.dot.held{fill:var(--backward)}.area{fill:var(--forward);fill-opacity:.22;stroke:var(--forward)}
.mark{stroke:var(--ink);stroke-dasharray:3 3}.kernel{fill:var(--soft);stroke:var(--page);stroke-width:.4}
.kernel.forward{fill:var(--forward)}.kernel.loss{fill:var(--loss)}.kernel.backward{fill:var(--backward)}
.kernel.optimizer{fill:var(--optimizer)}.spot{fill-opacity:.5;stroke-width:0}
.roof{stroke:var(--soft);stroke-width:1.5}.band{fill:var(--forward);fill-opacity:.15}.level{stroke:var(--forward);stroke-width:2}
.run{fill:var(--ink)}.run.shown{stroke:var(--forward);stroke-width:3}.run.pinned{stroke:var(--backward);stroke-width:2}
.baseline{stroke:var(--backward);stroke-dasharray:4 4}.slower{stroke:var(--bad);fill:var(--bad);stroke-dasharray:4 3}
.faster{stroke:var(--good);fill:var(--good);stroke-dasharray:4 3}circle.slower,circle.faster{stroke:none}svg text.on{fill:var(--page);font-weight:600}.good{color:var(--good)}.bad{color:var(--bad)}li{margin:3px 0}
details summary{cursor:pointer;color:var(--soft)}footer{margin-top:48px;color:var(--soft);font-size:13px}
@media print{details{display:none}h2{break-after:avoid}}
)";

std::string phase(const std::string& name) { return element("span", "phase " + text(name), text(name)); }
std::string duration(double ns) { return ns > 0 ? duration_text(ns) : "-"; }

std::string section(const char* title, const std::string& inside) {
  return inside.empty() ? std::string() : element("h2", "", title) + "\n" + inside;
}

std::string header(const Report& report) {
  const RunSummary& s = report.run.summary;
  std::string made =
      element("h1", "", text(report::model_name(s)) + (s.name.empty() ? "" : ": " + text(s.name)));
  std::string line =
      fmt::format("run {} of {}, {}, {}", s.id, text(report.session), text(s.status), text(s.started_utc));
  if (s.is_import()) line += "; recorded by " + text(s.kind_text());
  if (!s.device.empty()) line += "; " + text(s.device);
  if (!s.precision.empty()) line += " in " + text(s.precision);
  if (!s.optimizer.empty()) line += ", " + text(s.optimizer);
  made += element("p", "soft", line);
  if (!s.message.empty()) made += element("p", "bad", text(s.message));
  if (!report.model_note.empty()) made += element("p", "bad", text(report.model_note));
  for (const auto& [name, value] : report.run.environment)
    if (name.starts_with(kImportNote)) made += element("p", "soft", text(value));
  made += "<div class=\"figures\">";
  for (const report::Figure& f : report::key_figures(report))
    made += fmt::format("<div><span>{}</span><b>{}</b><span>{}</span></div>", text(f.name), text(f.value),
                        text(f.note));
  return made + "</div>\n";
}

std::string findings_list(const RunRecord& run) {
  std::string items;
  for (const std::string& found : report::findings(run)) items += element("li", "", text(found)) + "\n";
  return items.empty() ? items : element("ul", "", items);
}

std::string advice(const Report& report) {
  if (!report.advised) return {};
  if (report.advice.empty()) return element("p", "soft", "Nothing was found that is worth 1 % of a step.");
  std::vector<std::vector<std::string>> rows;
  const double largest = report.advice.front().gain;
  for (const ReportAdvice& a : report::first_of(report.advice, kAdvice))
    rows.push_back({text(a.title) + (a.change.empty() ? "" : "<br>" + element("code", "", text(a.change))),
                    duration(a.gain_ns), html::share_bar(a.gain, largest),
                    fmt::format("{:.1f} to {:.1f} %", 100 * a.low, 100 * a.high)});
  return element("p", "soft",
                 "Predicted from the times of the run's kernels, each by itself. "
                 "<code>gradloom compare MODEL .. --b CHANGE</code> proves one.") +
         html::table({{"finding and change"}, {"gain per step", true}, {"share", true}, {"range", true}},
                     rows);
}

std::string losses(const RunRecord& run) {
  if (!run.summary.has_loss()) return {};
  report::Curve loss{"loss", "", {}, {}}, held{"held-out loss", "held", {}, {}, true};
  for (const StepRow& row : run.steps) {
    loss.x.push_back(static_cast<double>(row.step));
    loss.y.push_back(row.loss);
  }
  for (const EvaluationRow& row : run.evaluations) {
    held.x.push_back(static_cast<double>(row.step));
    held.y.push_back(row.loss);
  }
  std::vector<report::Curve> all{std::move(loss)};
  if (!held.y.empty()) all.push_back(std::move(held));
  return report::curves(all, "optimizer step", Unit::kPlain);
}

std::string loop_table(const LoopShares& loop) {
  std::vector<std::vector<std::string>> rows;
  for (const LoopRow& row : loop_rows(loop))
    rows.push_back({text(row.title), duration(row.ns), html::share_bar(row.share, 1)});
  return element("p", "", text(loop_verdict(loop))) +
         html::table({{"part of a step"}, {"time per step", true}, {"share", true}}, rows);
}

std::string ranks_table(const RunRecord& run) {
  const std::vector<RankShares>& ranks = run.ranks;
  constexpr std::size_t kMostRanks = 64;
  if (ranks.empty()) return {};
  std::vector<std::vector<std::string>> rows;
  for (const RankShares& r : report::first_of(ranks, kMostRanks))
    rows.push_back({std::to_string(r.rank.rank), text(r.rank.host), std::to_string(r.rank.threads),
                    duration(r.kernels_ns), duration(r.exposed_ns), duration(r.wait_ns),
                    duration(r.transfer_ns()), bytes_text(r.sent_bytes)});
  std::string said;
  for (const std::string& one : rank_lines(run)) said += element("p", "", text(one));
  return said +
         html::table({{"rank", true},
                      {"machine"},
                      {"threads", true},
                      {"computes", true},
                      {"stands still", true},
                      {"waits for ranks", true},
                      {"transfers", true},
                      {"sends", true}},
                     rows) +
         (ranks.size() > kMostRanks
              ? element("p", "soft", fmt::format("the first {} of {} ranks", kMostRanks, ranks.size()))
              : "");
}

// C++ names of kernels are as long as their template arguments.
std::string brief(const std::string& name) {
  constexpr std::size_t kLongest = 140;
  if (name.size() <= kLongest) return text(name);
  std::size_t kept = kLongest - 3;
  while (kept > 0 && (name[kept] & 0xc0) == 0x80) --kept;
  return text(name.substr(0, kept)) + "...";
}

// The first lines of the kernels, grouped.
std::string kernel_table(KernelTableModel& model, KernelGroup group, const char* title, std::size_t most) {
  model.set_group(group);
  const bool single = group == KernelGroup::kSingle, phases = group == KernelGroup::kPhase;
  const double largest = model.lines().empty() ? 0 : model.lines().front().share;
  const bool rates = std::any_of(model.lines().begin(), model.lines().end(),
                                 [](const KernelLine& line) { return line.flops > 0 || line.bytes > 0; });
  std::vector<std::vector<std::string>> rows;
  for (const KernelLine& line : report::first_of(model.lines(), most)) {
    std::vector<std::string> row{phases ? phase(line.name) : text(line.name.empty() ? "(top)" : line.name)};
    if (single) {
      row.push_back(brief(line.kernel));
      row.push_back(phase(line.phase));
    } else {
      row.push_back(std::to_string(line.count));
    }
    row.push_back(duration(line.time_ns));
    row.push_back(html::share_bar(line.share, largest,
                                  single   ? text(line.phase)
                                  : phases ? text(line.name)
                                           : ""));
    if (rates) {
      row.push_back(line.flops > 0 ? count_text(line.rate() * 1e9, "FLOP/s") : "-");
      row.push_back(line.bytes > 0 ? bytes_text(line.bandwidth() * 1e9) + "/s" : "-");
    }
    rows.push_back(std::move(row));
  }
  std::vector<Column> columns{{title}};
  if (single)
    columns.insert(columns.end(), {{"implementation"}, {"phase"}});
  else
    columns.push_back({"kernels", true});
  columns.insert(columns.end(), {{"time per step", true}, {"share", true}});
  if (rates) columns.insert(columns.end(), {{"rate", true}, {"bandwidth", true}});
  return html::table(columns, rows);
}

std::string times(const RunRecord& run) {
  KernelTableModel model;
  model.set_rows(run.kernels);
  if (!model.timed())
    return run.kernels.empty()
               ? ""
               : element("p", "soft", "No step was timed kernel by kernel (train --profile sampled does).");
  std::string made =
      element("p", "soft",
              fmt::format("{}: {} in {}.",
                          run.summary.is_import()
                              ? "Per step, as its profiler saw it"
                              : "Per optimizer step, from the steps that were timed kernel by kernel",
                          duration_text(model.total_ns()),
                          plural_text(static_cast<std::int64_t>(run.kernels.size()), "kernel")));
  made += report::kernel_strip(run.kernels);
  made += element("h3", "", "By phase") + kernel_table(model, KernelGroup::kPhase, "phase", kGroups);
  made += element("h3", "", "By operator") + kernel_table(model, KernelGroup::kOp, "operator", kGroups);
  made +=
      element("h3", "", "By part of the model") + kernel_table(model, KernelGroup::kScope, "scope", kGroups);
  return made + element("h3", "", "Kernels") + kernel_table(model, KernelGroup::kSingle, "kernel", kKernels);
}

// Those that are furthest above their roofs first, as the window has them.
std::string roofline(const Report& report) {
  if (!report.roofline || !report.roofline->timed()) return {};
  const RooflineModel& model = *report.roofline;
  const std::vector<RooflineRow> above = grouped(model, RooflineGroup::node);
  std::vector<std::vector<std::string>> rows;
  for (const RooflineRow& row : report::first_of(above, kAbove)) {
    if (row.above_ns() <= 0) break;
    rows.push_back({text(row.name), phase(row.phase), text(row.roof), duration(row.least_ns),
                    duration(row.time_ns), percent_text(row.reached()),
                    html::share_bar(row.above_ns() / model.sum.time_ns,
                                    above.front().above_ns() / model.sum.time_ns, text(row.phase)),
                    duration(row.above_ns())});
  }
  return element("p", "", text(report::roofline_sentence(model)) + ".") +
         element(
             "p", "soft",
             "Roofs: " + text(model.hardware.source) +
                 ". A dot is a kernel, as large as its time; the space above it is what a better kernel could gain.") +
         report::roofline_plot(model) + element("h3", "", "Time above the roofs") +
         html::table({{"kernel"},
                      {"phase"},
                      {"under"},
                      {"at least", true},
                      {"time per step", true},
                      {"reaches", true},
                      {"of a step", true},
                      {"above", true}},
                     rows);
}

// What came with a change, and the kernels that account for it.
std::string causes(const TrendChange& change) {
  std::string items;
  for (const std::vector<std::string>* lines : {&change.settings, &change.machine})
    for (const std::string& line : *lines) items += element("li", "", text(line));
  std::vector<std::vector<std::string>> rows;
  for (const TrendKernel& k : causing_kernels(change)) {
    const std::string by = format_change(k.change_ns(), Unit::kNs);
    rows.push_back({text(k.node), phase(k.phase), duration(k.before_ns), duration(k.after_ns),
                    element("span", k.change_ns() < 0 ? "good" : "bad", by)});
  }
  return (items.empty()
              ? element("p", "soft", "Nothing that is recorded of settings and machine changed with it.")
              : element("ul", "", items)) +
         html::table({{"kernel"}, {"phase"}, {"before", true}, {"after", true}, {"change", true}}, rows);
}

std::string trend(const Report& report) {
  if (!report.trend || report.trend->runs.size() < 2) return {};
  const Trend& t = *report.trend;
  std::string made = element("p", "", text(report::trend_sentence(t)) + ".");
  for (const TrendBaseline& b : trend_baselines(t))
    made += element("p", "",
                    fmt::format("Against the pinned {}: {:.2f}x as long.",
                                text(trend_run_text(t.runs[b.run], false)), b.ratio));
  made += report::trend_plot(t, report.run.summary.id);
  if (t.changes.empty()) made += element("p", "soft", "No change of level.");
  for (std::size_t i = 0; i < t.changes.size(); ++i) {
    const TrendChange& c = t.changes[i];
    made += element("h3", c.slower() ? "bad" : "good",
                    std::to_string(i + 1) + ". " + text(report::change_sentence(t, c))) +
            element("p", "soft",
                    fmt::format("{}; p {:.4f}", text(t.runs[c.point.at].run.started_utc), c.point.p)) +
            causes(c);
  }
  return made;
}

std::string memory(const RunRecord& run) {
  if (run.buffers.empty() || !run.summary.has_recipe()) return {};
  const MemoryModel model = build_memory_model(run);
  const auto bytes = [](std::int64_t b) { return bytes_text(static_cast<double>(b)); };
  std::string made = element(
      "p", "soft",
      fmt::format("Planned {}: arena {} (its lower bound {}), states {}, inputs {}, constants {}.",
                  bytes(model.total_bytes()), bytes(model.arena_bytes), bytes(model.lower_bound_bytes),
                  bytes(model.state_bytes), bytes(model.input_bytes), bytes(model.constant_bytes)));
  made += report::memory_curve(model, run.kernels);
  std::vector<std::vector<std::string>> rows;
  for (const std::int32_t i : report::first_of(model.live_at_peak, kBlocks)) {
    const MemoryBlock& block = model.blocks[static_cast<std::size_t>(i)];
    rows.push_back(
        {text(block.name), bytes(block.bytes), fmt::format("{} to {}", block.first_step, block.last_step)});
  }
  return made + element("h3", "", "Largest at the peak") +
         html::table({{"value"}, {"bytes", true}, {"held, kernels", true}}, rows);
}

std::string passes(const RunRecord& run) {
  std::vector<std::vector<std::string>> rows;
  for (const PassRow& pass : run.passes) {
    if (pass.matched == 0 && pass.rejected == 0) continue;
    const auto why = std::find_if(pass.log.begin(), pass.log.end(),
                                  [](const RewriteRecord& r) { return !r.matched && !r.why.empty(); });
    rows.push_back({text(pass.name), std::to_string(pass.matched), std::to_string(pass.rejected),
                    std::to_string(pass.nodes_after - pass.nodes_before),
                    why == pass.log.end() ? "" : text(why->why)});
  }
  return html::table(
      {{"pass"}, {"matched", true}, {"left", true}, {"nodes", true}, {"the first that was left"}}, rows);
}

std::string change(const ComparedRow& row) {
  if (!row.measured()) return "-";
  if (row.a_ns <= 0 || row.b_ns <= 0) return row.b_ns <= 0 ? "gone" : "new";
  const double share = row.b_ns / row.a_ns - 1;
  return element("span", share < 0 ? "good" : "bad", fmt::format("{:+.1f} %", share * 100));
}

std::string comparison_part(const Comparison& c) {
  std::string made = element("h3", "", text(report::verdict_sentence(c)));
  made += element("p", "soft",
                  fmt::format("A: {}, {} a step. B: {}, {} a step. {}{}", text(c.a),
                              duration_text(c.a_step_ns), text(c.b), duration_text(c.b_step_ns),
                              !c.has_losses() ? "Losses are not compared: no step has one in both"
                              : c.first_different_step == 0
                                  ? "Losses equal to the bit"
                                  : fmt::format("Losses differ from step {} on, by {} at most",
                                                c.first_different_step, short_text(c.max_loss_difference)),
                              c.note.empty() ? "." : "; " + text(c.note) + "."));
  const ComparisonNoise noise = explain_noise(c);
  std::string sure = "Why: " + noise.why;
  for (const std::string& line : noise_lines(noise, c)) sure += "; " + line;
  made += element("p", "soft", text(sure + "."));
  std::vector<std::vector<std::string>> rows;
  for (const ComparedRow& row : report::first_of(c.kernels, kChanges)) {
    rows.push_back({text(row.name), phase(row.phase), duration(row.a_ns), duration(row.b_ns), change(row)});
  }
  return made +
         html::table(
             {{c.by_scope ? "module" : "kernels"}, {"phase"}, {"A", true}, {"B", true}, {"change", true}},
             rows);
}

std::string comparisons(const Report& report) {
  std::string made;
  for (const StoredComparison& c : report::first_of(report.comparisons, kComparisons))
    made += comparison_part(c.comparison);
  return made;
}

std::string all_runs(const Report& report) {
  if (report.runs.size() < 2) return {};
  std::vector<std::vector<std::string>> rows;
  for (const RunSummary& s : report::first_of(report.runs, kRuns)) {
    const std::string number = std::to_string(s.id), name = s.name.empty() ? "-" : text(s.name);
    rows.push_back(
        {s.id == report.run.summary.id ? element("b", "", number) : number, name, text(report::model_name(s)),
         text(s.status), std::to_string(s.steps), s.has_loss() ? short_text(s.last_loss) : "-",
         duration(static_cast<double>(s.median_step_ns)),
         s.measured_peak_bytes > 0 ? bytes_text(static_cast<double>(s.measured_peak_bytes)) : "-"});
  }
  return html::table({{"run"},
                      {"name"},
                      {"model"},
                      {"status"},
                      {"steps", true},
                      {"last loss", true},
                      {"step", true},
                      {"peak", true}},
                     rows);
}

std::string lines_of(const std::string& all) {
  std::istringstream in(all);
  std::string made;
  for (std::string line; std::getline(in, line);) made += text(line) + "\n";
  return made;
}

std::string again(const Report& report) {
  const RunSummary& s = report.run.summary;
  std::string made;
  if (!s.command.empty()) made += element("p", "", "It was started as") + element("pre", "", text(s.command));
  if (report.replay.empty()) return made;
  made += element("p", "", "It runs again, and says what no longer agrees, with") +
          element("pre", "", lines_of(report.replay));
  if (report.run.recipe_json.size() > kRecipeBytes) return made;
  const auto recipe = nlohmann::json::parse(report.run.recipe_json, nullptr, false);
  if (recipe.is_discarded()) return made;
  return made + "<details><summary>The recipe</summary>" + element("pre", "", lines_of(recipe.dump(2))) +
         "</details>\n";
}

std::string environment(const RunRecord& run) {
  std::vector<std::vector<std::string>> rows;
  for (const auto& [name, value] : run.environment) rows.push_back({text(name), text(value)});
  const std::string table = html::table({{"what"}, {"value"}}, rows);
  return table.empty() ? table : "<details><summary>All of it</summary>" + table + "</details>\n";
}

}  // namespace

std::string report_html(const Report& report) {
  const RunRecord& run = report.run;
  std::string page =
      "<!DOCTYPE html>\n<html lang=\"en\"><head><meta charset=\"utf-8\">"
      "<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\"><title>" +
      text(report::model_name(run.summary)) + " \u00b7 Gradloom</title><style>" + kStyle +
      "</style></head><body><main>\n";
  page += header(report);
  page += section("What stands out", findings_list(run));
  page += section("What would make it faster", advice(report));
  page += section("Loss", losses(run));
  if (run.loop)
    page +=
        section(run.summary.is_loop() ? "Where a step of the loop goes" : "Where a step of the program goes",
                loop_table(*run.loop));
  page += section("What each rank does in a step", ranks_table(run));
  page += section("Where the time goes", times(run));
  page += section("Under the roofs", roofline(report));
  page += section("Where the memory goes", memory(run));
  page += section("From run to run", trend(report));
  page += section("Comparisons", comparisons(report));
  page += section("What the passes did", passes(run));
  page += section("Runs of this session", all_runs(report));
  page += section("Run it again", again(report));
  page += section("Environment", environment(run));
  page += element("footer", "", text(report::signature(report)));
  return page + "\n</main></body></html>\n";
}

}  // namespace gradloom
