#include "viz/draw/budget_view.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <string>

#include "engine/base/text.h"
#include "viz/draw/graph_canvas.h"
#include "viz/draw/plots.h"
#include "viz/draw/widgets.h"

namespace gradloom {
namespace {

std::string point_text(const BudgetPoint& p) {
  std::string said = bytes_text(static_cast<double>(p.peak_bytes));
  if (p.again == 0) return said + ", nothing runs again";
  said += ", +" + percent_text(p.extra) + " time";
  if (p.step_ns > 0) said += " (" + duration_text(p.step_ns) + ")";
  return said + ", " + plural_text(static_cast<std::int64_t>(p.again), "node") + " run again";
}

// What a budget at the mouse would choose: the point under it, else the first that fits it.
std::size_t point_at(const std::vector<BudgetPoint>& points, const Plot& plot) {
  const float mouse = ImGui::GetIO().MousePos.x;
  std::size_t nearest = 0;
  float away = px(6);
  for (std::size_t i = 0; i < points.size(); ++i) {
    const float from = std::abs(plot.to_x(static_cast<double>(points[i].peak_bytes)) - mouse);
    if (from < away) away = from, nearest = i;
  }
  if (away < px(6)) return nearest;
  return budget_point(points, std::llround(plot.value_x(mouse)));
}

void draw_points(const Plot& plot, const std::vector<BudgetPoint>& points, std::size_t now) {
  for (std::size_t i = 0; i < points.size(); ++i) {
    const double peak = static_cast<double>(points[i].peak_bytes), time = 100 * points[i].extra;
    const ImVec2 at{plot.to_x(peak), plot.to_y(time)};
    // A budget between two points takes the smaller one's time.
    if (i > 0) {
      const ImVec2 before{plot.to_x(static_cast<double>(points[i - 1].peak_bytes)), at.y};
      plot.list->AddLine(at, before, palette().accent, px(1.4f));
      plot.list->AddLine(before, {before.x, plot.to_y(100 * points[i - 1].extra)},
                         with_alpha(palette().accent, 0.4f), px(1));
    }
    plot.list->AddCircleFilled(at, px(3), palette().accent, 16);
    register_rect("budget.point." + std::to_string(i + 1), {at.x - px(4), at.y - px(4)},
                  {at.x + px(4), at.y + px(4)}, "point", point_text(points[i]));
    if (i != now) continue;
    plot_marker(plot, peak, time, palette().good, "now " + bytes_text(peak));
  }
}

}  // namespace

std::size_t budget_point(const std::vector<BudgetPoint>& points, std::int64_t peak_bytes) {
  const auto fits = std::find_if(points.begin(), points.end(),
                                 [&](const BudgetPoint& p) { return p.peak_bytes <= peak_bytes; });
  return fits == points.end() ? points.size() - 1 : static_cast<std::size_t>(fits - points.begin());
}

void draw_budget(const std::vector<BudgetPoint>& points, std::int64_t peak_bytes, BudgetViewState& state,
                 float height) {
  if (points.empty()) return;
  const std::size_t now = budget_point(points, peak_bytes);
  ImGui::BeginDisabled(now == 0);
  if (button("budget.more", "More memory", ButtonKind::kPlain, "The next choice that runs less again"))
    state.chosen = now - 1;
  ImGui::EndDisabled();
  ImGui::SameLine(0, px(6));
  ImGui::BeginDisabled(now + 1 >= points.size());
  if (button("budget.less", "Less memory", ButtonKind::kPlain, "The next choice that needs less"))
    state.chosen = now + 1;
  ImGui::EndDisabled();
  ImGui::SameLine(0, px(12));
  ImGui::AlignTextToFramePadding();
  const std::string said = point_text(points[now]);
  text(said, palette().text);
  register_item("budget.now", said, said);

  double most = 0;
  for (const BudgetPoint& p : points) most = std::max(most, p.extra);
  const double least = static_cast<double>(points.back().peak_bytes),
               largest = static_cast<double>(points.front().peak_bytes),
               room = std::max(1.0, 0.06 * (largest - least));
  const float left = height - ImGui::GetFrameHeightWithSpacing();
  const Plot plot = begin_plot("budget.plot", {ImGui::GetContentRegionAvail().x, std::max(px(80), left)},
                               {std::max(0.0, least - room), largest + room, false, Unit::kBytes},
                               {0, std::max(1.0, 112 * most), false, Unit::kPlain}, "peak; added time in %");
  const bool over = ImGui::IsItemHovered();  // with the axis: the first point lies on it
  const bool held = ImGui::IsItemActive() && ImGui::IsMouseDown(0);
  const bool released = state.dragging && !held;
  draw_points(plot, points, now);
  if (over || held) {
    const std::size_t at = point_at(points, plot);
    const float x = std::clamp(ImGui::GetIO().MousePos.x, plot.min.x, plot.max.x);
    plot.list->AddLine({x, plot.min.y}, {x, plot.max.y}, palette().text, px(held ? 2.f : 1.f));
    plot.list->AddCircle(
        {plot.to_x(static_cast<double>(points[at].peak_bytes)), plot.to_y(100 * points[at].extra)}, px(6),
        palette().text, 20, px(1.5f));
    ImGui::SetTooltip("%s%s", point_text(points[at]).c_str(),
                      held ? "" : "\nclick: take this as the memory budget");
    if (released && at != now) state.chosen = at;
  }
  state.dragging = held;
  end_plot(plot);
}

}  // namespace gradloom
