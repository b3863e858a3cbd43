#include "viz/draw/noise_view.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <optional>

#include "engine/base/text.h"
#include "sessions/comparison_noise.h"
#include "viz/draw/graph_canvas.h"
#include "viz/draw/widgets.h"

namespace gradloom {
namespace {

constexpr std::size_t kManyGroups = 2000;  // more are dots without names

// Holds 1, the last interval and most dots: a group that something disturbed by far is drawn at the edge.
Axis ratio_axis(const std::vector<ComparedGroup>& groups, const std::optional<Interval>& last) {
  double low = 1 - 1.2 * kSameMargin, high = 1 + 1.2 * kSameMargin;
  if (last && std::isfinite(last->low)) low = std::min(low, last->low);
  if (last && std::isfinite(last->high)) high = std::max(high, last->high);
  std::vector<double> ratios;
  for (const ComparedGroup& group : groups)
    if (std::isfinite(group.ratio())) ratios.push_back(group.ratio());
  if (!ratios.empty()) {
    std::sort(ratios.begin(), ratios.end());
    const std::size_t few = ratios.size() / 20;
    low = std::min(low, ratios[few]);
    high = std::max(high, ratios[ratios.size() - 1 - few]);
  }
  const double room = 0.08 * (high - low);
  return {std::max(0.0, low - room), high + room, false, Unit::kPlain};
}

// Each interval holds from its group to the next.
void draw_funnel(const Plot& plot, const std::vector<ComparedGroup>& groups,
                 const std::vector<Interval>& intervals, double end_s, ImU32 color) {
  const std::size_t first = groups.size() - intervals.size();
  ImVec2 before{};
  for (std::size_t i = 0; i < intervals.size(); ++i) {
    const double until = first + i + 1 < groups.size() ? groups[first + i + 1].at_s : end_s;
    const auto y_of = [&](double value) { return std::clamp(plot.to_y(value), plot.min.y, plot.max.y); };
    const float x0 = plot.to_x(groups[first + i].at_s), x1 = std::max(plot.to_x(until), x0 + px(1)),
                middle = y_of(intervals[i].value);
    plot.list->AddRectFilled({x0, y_of(intervals[i].high)}, {x1, y_of(intervals[i].low)},
                             with_alpha(color, 0.22f));
    if (i > 0) plot.list->AddLine(before, {x0, middle}, color, px(1.8f));
    plot.list->AddLine({x0, middle}, {x1, middle}, color, px(1.8f));
    before = {x1, middle};
  }
}

void draw_reference(const Plot& plot) {
  const float y0 = plot.to_y(1 + kSameMargin), y1 = plot.to_y(1 - kSameMargin);
  plot.list->AddRectFilled({plot.min.x, y0}, {plot.max.x, y1}, with_alpha(palette().text_faint, 0.13f));
  plot_rule(plot, 1, palette().text_faint, "no difference");
}

// The group under the mouse, or -1.
int draw_groups(const Plot& plot, const std::vector<ComparedGroup>& groups,
                const std::vector<bool>& disturbed) {
  const ImVec2 mouse = ImGui::GetIO().MousePos;
  const float radius = px(groups.size() > 200 ? 2.f : 3.f);
  float nearest = px(10);
  int hovered = -1;
  for (std::size_t i = 0; i < groups.size(); ++i) {
    const double ratio = groups[i].ratio();
    if (!std::isfinite(ratio)) continue;
    const ImVec2 at{plot.to_x(groups[i].at_s),
                    std::clamp(plot.to_y(ratio), plot.min.y + radius, plot.max.y - radius)};
    if (at.x < plot.min.x - radius || at.x > plot.max.x + radius) continue;
    const bool strange = i < disturbed.size() && disturbed[i];
    if (strange)
      plot.list->AddCircle(at, radius + px(1), palette().warn, 16, px(1.6f));
    else
      plot.list->AddCircleFilled(at, radius, with_alpha(palette().text, 0.75f), 16);
    if (groups.size() > kManyGroups) continue;
    register_rect("compare.group." + std::to_string(i + 1), {at.x - radius, at.y - radius},
                  {at.x + radius, at.y + radius}, strange ? "disturbed" : "group",
                  fmt::format("{:.3f}", ratio));
    const float away = std::hypot(mouse.x - at.x, mouse.y - at.y);
    if (plot.hovered && away < nearest) nearest = away, hovered = static_cast<int>(i);
  }
  return hovered;
}

// The interval of the verdict, behind the last group.
void draw_result(const Plot& plot, const Comparison& c, double end) {
  const auto y_of = [&](double value, float otherwise) {
    return std::isfinite(value) ? std::clamp(plot.to_y(value), plot.min.y, plot.max.y) : otherwise;
  };
  const float x = plot.to_x(end * 1.03), top = y_of(c.ratio.high, plot.min.y),
              bottom = y_of(c.ratio.low, plot.max.y);
  plot.list->AddLine({x, top}, {x, bottom}, palette().text, px(2));
  for (const float y : {top, bottom})
    plot.list->AddLine({x - px(4), y}, {x + px(4), y}, palette().text, px(2));
  plot.list->AddCircleFilled({x, y_of(c.ratio.value, bottom)}, px(4), palette().text, 16);
  register_rect("compare.result", {x - px(4), top}, {x + px(4), bottom}, verdict_name(c.verdict),
                fmt::format("{:.3f} [{:.3f}, {:.3f}]", c.ratio.value, c.ratio.low, c.ratio.high));
}

// Explained once for each comparison.
const ComparisonNoise& known_noise(const Comparison& c, NoiseViewState& state) {
  const auto equal = [](double x, double y) { return x == y || (std::isnan(x) && std::isnan(y)); };
  const bool same = !state.noise.why.empty() && state.groups == c.measured.size() &&
                    equal(state.ratio, c.ratio.value) && equal(state.seconds, c.seconds);
  if (same) return state.noise;
  state.ratio = c.ratio.value;
  state.groups = c.measured.size();
  state.seconds = c.seconds;
  state.noise = explain_noise(c);
  state.intervals = running_intervals(c.measured);
  return state.noise;
}

void group_tip(const Comparison& c, const std::vector<bool>& disturbed, std::size_t i) {
  const ComparedGroup& g = c.measured[i];
  const auto pair = [](const double(&ns)[2]) {
    return duration_text(ns[0]) + " and " + duration_text(ns[1]);
  };
  std::string said = fmt::format("group {} of {}, {:.1f} s: {:.3f}\u00d7\nA {}\nB {} a step", i + 1,
                                 c.measured.size(), g.at_s, g.ratio(), pair(g.a_ns), pair(g.b_ns));
  if (i < disturbed.size() && disturbed[i]) said += "\na block took far longer than its side's usually do";
  ImGui::SetTooltip("%s", said.c_str());
}

}  // namespace

void draw_groups_so_far(const std::vector<ComparedGroup>& groups, const std::vector<Interval>& intervals,
                        double most_seconds, float height) {
  const double last = groups.empty() ? 0 : groups.back().at_s;
  const std::optional<Interval> now = intervals.empty() ? std::nullopt : std::optional(intervals.back());
  // It grows by halves, so that there is always room to come and the dots stand apart.
  double end = 4;
  while (end < std::min(last * 1.25, most_seconds)) end *= 1.5;
  const Axis x{0, std::max(last, std::min(end, std::max(1.0, most_seconds))), false, Unit::kPlain};
  const Plot plot = begin_plot("compare.live", {ImGui::GetContentRegionAvail().x, height}, x,
                               ratio_axis(groups, now), "seconds measured");
  draw_reference(plot);
  draw_funnel(plot, groups, intervals, last, palette().accent);
  draw_groups(plot, groups, {});
  if (now)
    plot_marker(plot, last, now->value, palette().accent,
                fmt::format("{:.3f}\u00d7 after {}", now->value,
                            plural_text(static_cast<std::int64_t>(groups.size()), "group")));
  end_plot(plot);
}

void draw_comparison_noise(const Comparison& c, NoiseViewState& state) {
  const ComparisonNoise& noise = known_noise(c, state);
  wrapped(std::string(verdict_name(c.verdict)) + ": " + noise.why + ".", palette().text);
  register_item("compare.why", noise.why, noise.why);
  const std::vector<std::string> lines = noise_lines(noise, c);
  for (std::size_t i = 0; i < lines.size(); ++i) {
    wrapped(lines[i], palette().text_dim);
    register_item("compare.noise." + std::to_string(i + 1), lines[i], lines[i]);
  }
  spacer(4);
  if (c.measured.empty())
    return muted(c.interleaved
                     ? "This comparison kept no groups: it was made by an older version."
                     : "Stored runs have no groups of blocks; an interleaved comparison shows its own.");
  const double end = std::max(0.001, c.measured.back().at_s);
  const float legend = ImGui::GetTextLineHeightWithSpacing() + px(4);
  const ImVec2 space = ImGui::GetContentRegionAvail();
  const Plot plot = begin_plot("compare.noise-plot", {space.x, std::max(px(150), space.y - legend)},
                               {0, end * 1.06, false, Unit::kPlain}, ratio_axis(c.measured, c.ratio),
                               "seconds measured", &state.view);
  draw_reference(plot);
  draw_funnel(plot, c.measured, state.intervals.all(), end, palette().accent);
  draw_result(plot, c, end);
  const int hovered = draw_groups(plot, c.measured, noise.disturbed);
  end_plot(plot);
  if (hovered >= 0) group_tip(c, noise.disturbed, static_cast<std::size_t>(hovered));
  text("\u25cf", with_alpha(palette().text, 0.75f), theme().small);
  ImGui::SameLine(0, px(5));
  muted("time A / time B of a group");
  ImGui::SameLine(0, px(14));
  text("\u25cb", palette().warn, theme().small);
  ImGui::SameLine(0, px(5));
  muted("disturbed");
  ImGui::SameLine(0, px(14));
  text("\u25a0", palette().accent, theme().small);
  ImGui::SameLine(0, px(5));
  muted("median and its 95 % interval, as it shrank; grey: counts as the same");
}

}  // namespace gradloom
