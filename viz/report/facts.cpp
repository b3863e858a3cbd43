// What a report tells, in HTML as in Markdown.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <map>

#include "engine/base/text.h"
#include "sessions/find_model.h"
#include "viz/model/kernel_table.h"
#include "viz/report/report.h"

namespace gradloom::report {
namespace {

// Its row counts no arithmetic (engine/ops/costs.h): it copies, converts or rearranges.
bool moves_data(const KernelRow& k) { return k.info.flops == 0; }

double step_ns(const KernelRow& k) { return static_cast<double>(k.step_ns); }

std::string of_a_step(double ns, double total) {
  return duration_text(ns) + " of a step, " + percent_text(ns / total);
}

std::string largest_operator(KernelTableModel& model) {
  model.set_group(KernelGroup::kOp);
  const KernelLine& first = model.lines().front();
  std::string text =
      fmt::format("{} takes the most: {} ({})", first.name, of_a_step(first.time_ns, model.total_ns()),
                  plural_text(first.count, "kernel"));
  if (first.flops > 0 && first.rate() >= 1) text += ", at " + count_text(first.rate() * 1e9, "FLOP/s");
  return text;
}

// A few microseconds are what starting the threads or launching a kernel costs.
constexpr double kSmallNs = 5000;

void add_small(const RunRecord& run, double total, std::vector<std::string>& found) {
  std::int64_t count = 0;
  double ns = 0;
  for (const KernelRow& k : run.kernels)
    if (step_ns(k) > 0 && step_ns(k) < kSmallNs) {
      ++count;
      ns += step_ns(k);
    }
  if (count < 8) return;
  found.push_back(fmt::format("{} of {} take less than {} each: {}", count,
                              plural_text(static_cast<std::int64_t>(run.kernels.size()), "kernel"),
                              duration_text(kSmallNs), of_a_step(ns, total)));
}

void add_moves(const RunRecord& run, double total, std::vector<std::string>& found) {
  std::map<std::string, double> by_op;
  double ns = 0;
  std::int64_t count = 0;
  for (const KernelRow& k : run.kernels)
    if (moves_data(k)) {
      ++count;
      ns += step_ns(k);
      by_op[k.info.op] += step_ns(k);
    }
  if (ns < 0.01 * total) return;
  const auto most = std::max_element(by_op.begin(), by_op.end(),
                                     [](const auto& a, const auto& b) { return a.second < b.second; });
  found.push_back(fmt::format("{} that only copy, convert or rearrange: {}; most of it {}",
                              plural_text(count, "kernel"), of_a_step(ns, total), most->first));
}

// The reason that kept most of the time from being fused: of kernels at whose nodes a pass for this device saw a candidate.
void add_rejections(const RunRecord& run, double total, std::vector<std::string>& found) {
  std::map<std::string, double> ns_of;
  for (const KernelRow& k : run.kernels) ns_of[k.info.node] += step_ns(k);
  struct Reason {
    std::int64_t places = 0;
    double ns = 0;
  };
  std::map<std::pair<std::string, std::string>, Reason> reasons;
  const kernels::Target here = run.summary.device == "cpu" ? kernels::Target::cpu : kernels::Target::gpu;
  for (const PassRow& pass : run.passes) {
    const PassDef* const def = find_pass(pass.name);
    if (def != nullptr && def->target && *def->target != here) continue;
    for (const RewriteRecord& record : pass.log) {
      const auto kernel = ns_of.find(record.site);
      if (record.matched || record.why.empty() || kernel == ns_of.end()) continue;
      Reason& reason = reasons[{pass.name, record.why}];
      ++reason.places;
      reason.ns += kernel->second;
    }
  }
  const auto most = std::max_element(reasons.begin(), reasons.end(),
                                     [](const auto& a, const auto& b) { return a.second.ns < b.second.ns; });
  if (most == reasons.end() || most->second.ns < 0.005 * total) return;
  found.push_back(fmt::format("{} left alone {}, whose kernels take {}: {}", most->first.first,
                              plural_text(most->second.places, "place"), of_a_step(most->second.ns, total),
                              most->first.second));
}

}  // namespace

std::string model_name(const RunSummary& run) {
  if (run.is_loop()) return "A recorded loop";
  if (run.is_import() && run.model.empty()) return "A run of " + run.kind_text();
  const std::filesystem::path path(run.model);
  const std::string label = model_label(run.model);
  return (label == path.stem() ? "" : label + "/") + path.filename().string();
}

std::string signature(const Report& report) {
  const auto version = report.run.environment.find("version");
  return "Gradloom " + (version == report.run.environment.end() ? "" : version->second + ", ") + "written " +
         report.now_utc;
}

std::vector<Figure> key_figures(const Report& report) {
  const RunSummary& s = report.run.summary;
  std::vector<Figure> figures;
  figures.push_back({"step", duration_text(static_cast<double>(s.median_step_ns)),
                     "median of " + plural_text(s.steps, "step")});
  if (std::isfinite(s.last_loss))
    figures.push_back({"loss", short_text(s.last_loss), "from " + short_text(s.first_loss)});
  if (!report.run.evaluations.empty())
    figures.push_back({"held-out loss", short_text(report.run.evaluations.back().loss),
                       "after step " + std::to_string(report.run.evaluations.back().step)});
  if (s.measured_peak_bytes > 0)
    figures.push_back(
        {"memory", bytes_text(static_cast<double>(s.measured_peak_bytes)),
         s.has_recipe() ? "peak; planned " + bytes_text(static_cast<double>(s.plan_peak_bytes)) : "peak"});
  figures.push_back({"kernels", std::to_string(s.kernels_per_step),
                     s.is_loop()     ? "in all plans"
                     : s.is_import() ? "different ones"
                                     : "per step"});
  return figures;
}

std::vector<std::string> findings(const RunRecord& run) {
  KernelTableModel model;
  model.set_rows(run.kernels);
  const double total = model.total_ns();
  std::vector<std::string> found;
  if (total <= 0) return found;
  found.push_back(largest_operator(model));
  if (!run.summary.is_import()) add_moves(run, total, found);  // profilers of others count no arithmetic
  add_small(run, total, found);
  add_rejections(run, total, found);
  return found;
}

std::string roofline_sentence(const RooflineModel& model) {
  return fmt::format("Kernels reach {} of the roofs of {}: {} of a step, at least {}",
                     percent_text(model.sum.reached()), model.hardware.name, duration_text(model.sum.time_ns),
                     duration_text(model.sum.least_ns));
}

std::string trend_sentence(const Trend& trend) {
  const TrendLevel newest = trend_levels(trend).back();
  return fmt::format("{}; the newest level takes {} a step, eight in ten of its runs {} to {}",
                     plural_text(static_cast<std::int64_t>(trend.runs.size()), "run"),
                     duration_text(newest.median_ns), duration_text(newest.low_ns),
                     duration_text(newest.high_ns));
}

std::string change_sentence(const Trend& trend, const TrendChange& change) {
  return fmt::format("{} since {}: {} \u2192 {}, {:.2f}x as long", change.slower() ? "Slower" : "Faster",
                     trend_run_text(trend.runs[change.point.at], trend.several_sessions()),
                     duration_text(change.point.before), duration_text(change.point.after), change.ratio());
}

std::string verdict_sentence(const Comparison& c) {
  const std::string interval = fmt::format("[{:.3f}, {:.3f}]", c.ratio.low, c.ratio.high);
  switch (c.verdict) {
    case Verdict::faster: return fmt::format("B is {:.3f}x as fast as A {}", c.ratio.value, interval);
    case Verdict::slower:
      return fmt::format("B takes {:.3f}x the time of A [{:.3f}, {:.3f}]", 1 / c.ratio.value,
                         1 / c.ratio.high, 1 / c.ratio.low);
    case Verdict::same:
      return fmt::format("A and B are as fast as each other: {:.3f}x {}", c.ratio.value, interval);
    default: return fmt::format("undecided: {:.3f}x {}", c.ratio.value, interval);
  }
}

}  // namespace gradloom::report
