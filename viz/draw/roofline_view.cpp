// The roofline plot: kernels by FLOPs per byte and FLOPs per second, both on logarithmic axes, under the roofs of memory (slopes)
// and of arithmetic (level). The table below has the same kernels, those first that are furthest above their roofs.
#include <fmt/format.h>
#include <imgui_internal.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <set>
#include <utility>

#include "engine/base/text.h"
#include "viz/draw/graph_canvas.h"
#include "viz/draw/views.h"
#include "viz/draw/widgets.h"

namespace gradloom {
namespace {

constexpr RooflineGroup kGroups[] = {RooflineGroup::node, RooflineGroup::op, RooflineGroup::scope,
                                     RooflineGroup::roof};

constexpr double kShown = 1e-3;  // parts of a step that decide what the axes show

void summary(const RooflineModel& m) {
  bool first = true;
  const auto number = [&](const std::string& id, const std::string& label, const std::string& value,
                          ImU32 color) { figure(id, label, value, color, std::exchange(first, false)); };
  if (m.timed()) {
    number("roofline.time", "Kernels of a step", duration_text(m.sum.time_ns), palette().text);
    number("roofline.least", "At least", duration_text(m.sum.least_ns), palette().accent);
    number("roofline.reached", "Of the roofs", percent_text(m.sum.reached()),
           m.sum.reached() > 0.6 ? palette().good : palette().warn);
  } else {
    number("roofline.expected", "Expected, not measured", duration_text(m.sum.expected_ns), palette().text);
    number("roofline.least", "At least", duration_text(m.sum.least_ns), palette().accent);
  }
  const auto& by_roof = m.timed() ? m.time_by_roof : m.expected_by_roof;
  const double all = m.timed() ? m.sum.time_ns : m.sum.expected_ns;
  for (const auto& [roof, ns] : by_roof)
    number(("roofline.by." + roof).c_str(), ("Under " + roof).c_str(), percent_text(ns / all),
           palette().text);
}

struct Extent {
  double low = std::numeric_limits<double>::max(), high = 0;
  void take(double value) {
    if (!(value > 0) || !std::isfinite(value)) return;
    low = std::min(low, value);
    high = std::max(high, value);
  }
};

void draw_roofs(const Plot& plot, const RooflineRoofs& roofs) {
  const ImU32 color = palette().text_dim;
  const double highest = roofs.level.empty() ? plot.y.max : roofs.level.rbegin()->first;
  float above = -1e9f;
  for (auto at = roofs.level.rbegin(); at != roofs.level.rend(); ++at) {
    const double slope = roofs.slopes.empty() ? at->first : *roofs.slopes.rbegin();
    const double from = std::max(at->first / slope, plot.x.min);
    const float y = plot.to_y(at->first);
    plot.list->AddLine({plot.to_x(from), y}, {plot.max.x, y}, color, px(1.5f));
    if (y - above < px(14)) continue;  // two roofs that are nearly one have one label
    above = y;
    plot_label(plot, {plot.max.x, y - px(15)}, color, at->second + " " + count_text(at->first, "FLOP/s"));
  }
  for (const double rate : roofs.slopes) {
    const double x0 = plot.x.min, x1 = std::min(plot.x.max, highest / rate);
    plot.list->AddLine({plot.to_x(x0), plot.to_y(x0 * rate)}, {plot.to_x(x1), plot.to_y(x1 * rate)}, color,
                       px(1.5f));
  }
  // Levels of memory lie close together: the labels are where each line leaves the plot, from the fastest down.
  float below = plot.min.y - px(100);
  for (auto at = roofs.slopes.rbegin(); at != roofs.slopes.rend(); ++at) {
    const float y = std::max(plot.to_y(plot.x.min * *at), below + px(14));
    if (y > plot.max.y - px(16)) break;
    plot_label(plot, {plot.min.x + px(8), y - px(14)}, color, bytes_text(*at) + "/s");
    below = y;
  }
}

float radius_of(const RooflineModel& m, const RooflineRow& row) {
  const double all = m.timed() ? m.sum.time_ns : m.sum.expected_ns;
  const double part = all > 0 ? shown_ns(m, row) / all : 0;
  return px(2.5f + 34 * static_cast<float>(std::sqrt(std::clamp(part, 0.0, 0.2))));
}

void card(const RooflineModel& m, const RooflineRow& row) {
  ImGui::BeginTooltip();
  text(escaped(row.name), palette().text, theme().bold);
  const auto line = [](const std::string& said) { text(said, palette().text_dim, theme().small); };
  line(escaped(row.op + ", " + row.kernel));
  line(fmt::format("{}, {}: {:.3g} FLOP/B", count_text(row.flops, "FLOP"), bytes_text(row.bytes),
                   row.intensity()));
  if (row.time_ns > 0)
    line(fmt::format("took {}, at least {} under {}", duration_text(row.time_ns), duration_text(row.least_ns),
                     row.roof));
  else
    line(fmt::format("expected {}, at least {} under {}", duration_text(row.expected_ns),
                     duration_text(row.least_ns), row.roof));
  line(count_text(shown_rate(m, row), "FLOP/s") +
       (row.time_ns > 0 ? fmt::format(", {} of the roof; {} above it", percent_text(row.reached()),
                                      duration_text(row.above_ns()))
                        : ""));
  ImGui::EndTooltip();
}

// Kernels of the same ONNX node, forward and backward, joined.
void join_partners(const RooflineModel& m, const Plot& plot, const RooflineRow& row) {
  if (row.onnx_node.empty()) return;
  const ImVec2 from{plot.to_x(row.intensity()), plot.to_y(shown_rate(m, row))};
  for (const RooflineRow& other : m.rows) {
    if (&other == &row || other.onnx_node != row.onnx_node || std::isnan(shown_rate(m, other))) continue;
    const ImVec2 to{plot.to_x(other.intensity()), plot.to_y(shown_rate(m, other))};
    plot.list->AddLine(from, to, palette().text_dim, px(1));
    plot.list->AddCircle(to, radius_of(m, other) + px(2), palette().text_dim, 0, px(1));
  }
}

void draw_plot(const RooflineModel& m, RooflineViewState& state, ImVec2 size, Actions& actions) {
  Extent x, y;
  const double whole = m.timed() ? m.sum.time_ns : m.sum.expected_ns;
  for (const RooflineRow& row : m.rows)
    if (const double rate = shown_rate(m, row); !std::isnan(rate) && shown_ns(m, row) > kShown * whole) {
      x.take(row.intensity());
      y.take(rate);
    }
  if (x.high <= 0) return muted("No kernel computes anything.");
  const RooflineRoofs roofs = roofs_over(m);
  for (const auto& [rate, _] : roofs.level) y.take(rate);
  const Axis across{x.low / 2, x.high * 4, true, Unit::kPlain}, up{y.low / 2, y.high * 3, true, Unit::kFlop};
  const Plot plot = begin_plot("roofline.plot", size, across, up, "FLOP/s by FLOP per byte", &state.view);
  draw_roofs(plot, roofs);
  const ImVec2 mouse = ImGui::GetIO().MousePos;
  const RooflineRow* hovered = nullptr;
  const RooflineRow* selected = nullptr;
  float nearest = px(14);
  for (const RooflineRow& row : m.rows) {
    const double rate = shown_rate(m, row);
    if (std::isnan(rate)) continue;
    const ImVec2 at{plot.to_x(row.intensity()), plot.to_y(rate)};
    if (at.x < plot.min.x - px(20) || at.x > plot.max.x + px(20)) continue;
    const float radius = radius_of(m, row);
    const ImU32 color = phase_color(row.phase);
    plot.list->AddCircleFilled(at, radius, with_alpha(color, 0.45f));
    plot.list->AddCircle(at, radius, color, 0, px(1));
    if (row.name == state.selected) selected = &row;
    const float away = std::hypot(mouse.x - at.x, mouse.y - at.y) - radius;
    if (plot.hovered && away < nearest) nearest = away, hovered = &row;
  }
  for (const RooflineRow* row : {selected, hovered}) {
    if (row == nullptr) continue;
    join_partners(m, plot, *row);
    plot.list->AddCircle({plot.to_x(row->intensity()), plot.to_y(shown_rate(m, *row))},
                         radius_of(m, *row) + px(3), palette().text, 0, px(2));
  }
  end_plot(plot);
  if (hovered == nullptr) return;
  card(m, *hovered);
  actions.hover_node = hovered->name;
  if (ImGui::IsMouseReleased(0) && !ImGui::IsMouseDragPastThreshold(0)) actions.go_to_node = hovered->name;
}

// What the plot cannot show.
void tell_movers(const RooflineModel& m) {
  double ns = 0, least = 0, count = 0;
  for (const RooflineRow& row : m.rows) {
    if (row.flops > 0 && row.bytes > 0) continue;
    if (shown_ns(m, row) > 0) ns += shown_ns(m, row);
    least += row.least_ns;
    count += row.count;
  }
  if (count == 0) return;
  muted(fmt::format("{} that only move data are not in the plot: {}, at least {}",
                    plural_text(static_cast<std::int64_t>(count), "kernel"), duration_text(ns),
                    duration_text(least)));
}

void draw_rows(const RooflineModel& m, RooflineViewState& state, Actions& actions) {
  const bool timed = m.timed();
  ImGui::AlignTextToFramePadding();
  text(timed ? "Time above the roofs" : "Expected time", palette().text, theme().bold);
  ImGui::SameLine(0, px(12));
  int group = state.group;
  segmented("roofline.group", &group, {"Kernel", "Operator", "Scope", "Roof"});
  if (group != state.group || state.of != &m) {
    state.group = group;
    state.of = &m;
    state.rows = grouped(m, kGroups[group]);
  }
  const std::vector<RooflineRow>& rows = state.rows;
  const auto of_bar = [&](const RooflineRow& row) { return timed ? row.above_ns() : row.expected_ns; };
  const double largest = rows.empty() ? 1 : std::max(1.0, of_bar(rows.front()));
  TableRows table;
  table.sortable = false;
  table.count = static_cast<int>(rows.size());
  table.id = [&](int r) { return rows[r].name; };
  table.value = [&](int r) { return duration_text(of_bar(rows[r])); };
  table.cell = [&](int r, int c) {
    const RooflineRow& row = rows[r];
    if (c == 0) name_cell(row.name);
    if (c == 1 && !row.phase.empty()) badge(row.phase, phase_color(row.phase));
    if (c == 2) text(row.roof, palette().text_dim);
    if (c == 3) number_cell(duration_text(row.least_ns));
    if (c == 4) number_cell(shown_ns(m, row) > 0 ? duration_text(shown_ns(m, row)) : "-");
    if (c == 5) number_cell(timed && row.time_ns > 0 ? percent_text(row.reached()) : "-");
    if (c == 6)
      cell_bar(of_bar(row) / largest, timed ? palette().warn : palette().accent, duration_text(of_bar(row)));
  };
  const TableEvents events = draw_table("roofline.rows",
                                        {{"Name"},
                                         {"Phase", 100, false, false, "", 3},
                                         {"Roof", 120, false, false, "what holds it down", 2},
                                         {"At least", 90, true},
                                         {timed ? "Time" : "Expected", 90, true},
                                         {"Reaches", 80, true, !timed, "of its roof", 1},
                                         {timed ? "Above" : "Share", 130, true}},
                                        table, state.table);
  const bool nodes = kGroups[state.group] == RooflineGroup::node;
  if (nodes && events.hovered >= 0) actions.hover_node = rows[events.hovered].name;
  if (nodes && events.clicked >= 0) {
    actions.go_to_node = rows[events.clicked].name;
    actions.show_node_panel = true;
  }
}

}  // namespace

void draw_roofline_view(const RooflineModel& model, RooflineViewState& state, Actions& actions) {
  summary(model);
  spacer(4);
  const ImVec2 space = ImGui::GetContentRegionAvail();
  const float table = std::clamp(space.y * 0.33f, px(110), px(340));
  draw_plot(model, state, {space.x, std::max(px(140), space.y - table - px(24))}, actions);
  tell_movers(model);
  draw_rows(model, state, actions);
}

}  // namespace gradloom
