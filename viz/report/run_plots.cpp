// Pictures of a run among others: its kernels under the roofs, and the time per step from run to run.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "engine/base/text.h"
#include "viz/report/charts.h"
#include "viz/report/html.h"
#include "viz/report/svg.h"

namespace gradloom::report {
namespace {

constexpr std::size_t kMostDots = 800;
constexpr double kAxes = 1e-3;  // part of a step that decides what the axes show

struct Dot {
  const RooflineRow* row;
  double intensity, rate, ns;
};

// Those that take most, the smallest last: they lie on top.
std::vector<Dot> dots_of(const RooflineModel& model) {
  std::vector<Dot> dots;
  for (const RooflineRow& row : model.rows)
    if (const double rate = shown_rate(model, row); rate > 0 && row.intensity() > 0)
      dots.push_back({&row, row.intensity(), rate, shown_ns(model, row)});
  std::stable_sort(dots.begin(), dots.end(), [](const Dot& a, const Dot& b) { return a.ns > b.ns; });
  if (dots.size() > kMostDots) dots.resize(kMostDots);
  return dots;
}

std::string roofs(const RooflineModel& model, const SvgPlot& plot) {
  const RooflineRoofs over = roofs_over(model);
  std::string made;
  const double highest = over.level.empty() ? plot.y.max : over.level.rbegin()->first;
  double above = -1e9;
  for (auto at = over.level.rbegin(); at != over.level.rend(); ++at) {
    const double from =
        over.slopes.empty() ? plot.x.min : std::max(at->first / *over.slopes.rbegin(), plot.x.min);
    const double y = plot.at_y(at->first);
    if (from < plot.x.max) made += svg_line(plot.at_x(from), y, kWidth - kRight, y, "roof");
    if (y - above < 16) continue;  // two roofs that are nearly one have one label
    above = y;
    made += svg_label(kWidth - kRight - 4, y - 5, "end", at->second + " " + count_text(at->first, "FLOP/s"));
  }
  double below = -1e9;
  for (auto at = over.slopes.rbegin(); at != over.slopes.rend(); ++at) {
    // The part of the line that the plot shows.
    const double x0 = std::max(plot.x.min, plot.y.min / *at), x1 = std::min(plot.x.max, highest / *at);
    if (x0 >= x1) continue;
    made += svg_line(plot.at_x(x0), plot.at_y(x0 * *at), plot.at_x(x1), plot.at_y(x1 * *at), "roof");
    const double y = plot.at_y(x0 * *at) - 20;
    if (y - below < 15 || y > plot.bottom() - 8) continue;
    below = y;
    made += svg_label(plot.at_x(x0) + 6, y, "start", bytes_text(*at) + "/s");
  }
  return made;
}

}  // namespace

std::string roofline_plot(const RooflineModel& model) {
  const std::vector<Dot> dots = dots_of(model);
  if (dots.empty()) return {};
  const double whole = model.timed() ? model.sum.time_ns : model.sum.expected_ns;
  double first = std::numeric_limits<double>::max(), right = 0, low = first, high = 0;
  for (const Dot& dot : dots) {
    if (dot.ns < kAxes * whole && high > 0) continue;
    first = std::min(first, dot.intensity);
    right = std::max(right, dot.intensity);
    low = std::min(low, dot.rate);
    high = std::max(high, dot.rate);
  }
  for (const auto& [rate, _] : roofs_over(model).level) high = std::max(high, rate);
  const SvgPlot plot{
      {first / 2, right * 4, true, Unit::kPlain}, {low / 2, high * 3, true, Unit::kFlopRate}, 380, 96};
  std::string made = plot.grid("FLOP per byte; upwards FLOP/s") + roofs(model, plot);
  for (const Dot& dot : dots) {
    const double x = plot.at_x(dot.intensity), y = plot.at_y(dot.rate);
    if (x < plot.left || x > kWidth - kRight || y > plot.bottom() || y < kTop) continue;
    const RooflineRow& row = *dot.row;
    made += svg_circle(x, y, 2.5 + 34 * std::sqrt(std::clamp(dot.ns / whole, 0.0, 0.2)),
                       "kernel spot " + row.phase,
                       fmt::format("{} ({}): {}, at least {} under {}", row.name, row.op,
                                   duration_text(dot.ns), duration_text(row.least_ns), row.roof));
  }
  return svg(plot.height, "kernels by FLOP per byte and FLOP per second, under the roofs of the processor",
             made);
}

std::string trend_plot(const Trend& trend, std::int64_t shown) {
  double low = std::numeric_limits<double>::max(), high = 0;
  for (const TrendRun& run : trend.runs) {
    low = std::min(low, run.step_ns());
    high = std::max(high, run.step_ns());
  }
  if (trend.runs.empty() || high <= 0) return {};
  const double room = std::max(high - low, 0.02 * high), count = static_cast<double>(trend.runs.size());
  const SvgPlot plot{{0.5, count + 0.5, false, Unit::kCount},
                     {std::max(0.0, low - 0.12 * room), high + 0.25 * room, false, Unit::kNs},
                     280};
  const auto edge = [&](std::size_t run) { return plot.at_x(static_cast<double>(run) + 0.5); };
  std::string made = plot.grid("run, in the order in which they began");
  for (const TrendLevel& level : trend_levels(trend)) {
    const double x0 = edge(level.from), x1 = edge(level.to), top = plot.at_y(level.high_ns);
    made += svg_rect(x0, top, x1 - x0, std::max(1.0, plot.at_y(level.low_ns) - top), "band",
                     duration_text(level.low_ns) + " to " + duration_text(level.high_ns));
    const double line = plot.at_y(level.median_ns);
    made += svg_line(x0, line, x1, line, "level");
    made += svg_label(x1 - 4, (line - top > 32 ? line : top) - 6, "end", duration_text(level.median_ns),
                      "strong");
  }
  for (const TrendBaseline& b : trend_baselines(trend)) {
    const double y = plot.at_y(trend.runs[b.run].step_ns());
    made += svg_line(kLeft, y, kWidth - kRight, y, "baseline");
  }
  const bool several = trend.several_sessions();
  for (std::size_t i = 0; i < trend.runs.size(); ++i) {
    const TrendRun& run = trend.runs[i];
    const std::string classes =
        std::string("run") + (run.run.pinned ? " pinned" : "") + (run.run.id == shown ? " shown" : "");
    made += svg_circle(
        plot.at_x(static_cast<double>(i) + 1), plot.at_y(run.step_ns()), count > 200 ? 2 : 3.4, classes,
        trend_run_text(run, several) + ", " + run.run.started_utc + ": " + duration_text(run.step_ns()));
  }
  for (std::size_t i = 0; i < trend.changes.size(); ++i) {
    const TrendChange& change = trend.changes[i];
    const double x = edge(change.point.at);
    const char* const classes = change.slower() ? "slower" : "faster";
    made += svg_line(x, kTop + 18, x, plot.bottom(), classes) +
            svg_circle(x, kTop + 8, 9, classes, trend_cause_text(change)) +
            svg_label(x, kTop + 12, "middle", std::to_string(i + 1), "on") +
            svg_label(x + 14, kTop + 12, "start", fmt::format("{:.2f}x as long", change.ratio()), "strong");
  }
  return svg(plot.height, "time per step from run to run, with changes of level", made);
}

}  // namespace gradloom::report
