// The roofline plot: kernels by FLOPs per byte and FLOPs per second, both on logarithmic axes, under the roofs of memory (slopes)
// and of arithmetic (level). The table below has the same kernels, those first that are furthest above their roofs.
#include <GLFW/glfw3.h>
#include <fmt/format.h>
#include <imgui_internal.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <set>
#include <utility>

#include "engine/base/text.h"
#include "viz/draw/graph_canvas.h"
#include "viz/draw/keys.h"
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
  for (auto at = roofs.level.rbegin(); at != roofs.level.rend(); ++at) {
    const double slope = roofs.slopes.empty() ? at->first : *roofs.slopes.rbegin();
    const double from = std::max(at->first / slope, plot.x.min);
    const float y = plot.to_y(at->first);
    plot.list->AddLine({plot.to_x(from), y}, {plot.max.x, y}, color, px(1.5f));
  }
  for (const double rate : roofs.slopes) {
    const double x0 = plot.x.min, x1 = std::min(plot.x.max, highest / rate);
    plot.list->AddLine({plot.to_x(x0), plot.to_y(x0 * rate)}, {plot.to_x(x1), plot.to_y(x1 * rate)}, color,
                       px(1.5f));
  }
}

// Over the dots, which would hide them.
void label_roofs(const Plot& plot, const RooflineRoofs& roofs) {
  const ImU32 color = palette().text_dim;
  float above = -1e9f;
  for (auto at = roofs.level.rbegin(); at != roofs.level.rend(); ++at) {
    const float y = plot.to_y(at->first);
    if (y - above < px(14)) continue;  // two roofs that are nearly one have one label
    above = y;
    plot_label(plot, {plot.max.x, y - px(15)}, color, at->second + " " + count_text(at->first, "FLOP/s"));
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

// Puts a rectangle between where the drag began and the mouse, or ends it. True: other kernels are chosen.
bool drag_area(const RooflineModel& m, const Plot& plot, RooflineViewState& state) {
  const ImGuiIO& io = ImGui::GetIO();
  if (plot.hovered && ImGui::IsMouseClicked(0)) state.drag = io.MousePos;
  if (!state.drag) return false;
  const bool far = ImGui::IsMouseDragPastThreshold(0, px(4)), released = !ImGui::IsMouseDown(0);
  const ImVec2 mouse{std::clamp(io.MousePos.x, plot.min.x, plot.max.x),
                     std::clamp(io.MousePos.y, plot.min.y, plot.max.y)};
  const ImVec2 from = *state.drag, min{std::min(from.x, mouse.x), std::min(from.y, mouse.y)},
               max{std::max(from.x, mouse.x), std::max(from.y, mouse.y)};
  if (released) state.drag.reset();
  if (!far) return false;
  if (!released) {
    plot.list->AddRectFilled(min, max, with_alpha(palette().accent, 0.12f));
    plot.list->AddRect(min, max, palette().accent, 0, 0, px(1));
    register_rect("roofline.drag", min, max, "area");
    return false;
  }
  std::vector<RooflineArea> areas;
  if (io.KeyShift && state.selection) areas = state.selection->areas;
  const auto rate = [&](float y) {
    return plot.y.from_fraction((plot.max.y - y) / (plot.max.y - plot.min.y));
  };
  areas.push_back(area_between(plot.value_x(min.x), rate(max.y), plot.value_x(max.x), rate(min.y)));
  // A rectangle around nothing adds nothing, and without Shift chooses none: that is all of them.
  if (select_inside(m, {areas.back()}).nodes.empty()) areas.pop_back();
  roofline_select(m, std::move(areas), state);
  return true;
}

void draw_areas(const Plot& plot, const RooflineViewState& state) {
  if (!state.selection) return;
  for (const RooflineArea& a : state.selection->areas) {
    const ImVec2 min{plot.to_x(a.from_intensity), plot.to_y(a.to_rate)},
        max{plot.to_x(a.to_intensity), plot.to_y(a.from_rate)};
    plot.list->AddRectFilled(min, max, with_alpha(palette().accent, 0.06f), px(2));
    plot.list->AddRect(min, max, with_alpha(palette().accent, 0.7f), px(2), 0, px(1));
  }
}

struct Dots {
  const RooflineRow* selected = nullptr;  // in all views
  const RooflineRow* hovered = nullptr;
};

struct Axes {
  Axis x, y;
};

// Those that are not chosen are faint, and below the others. Keys go to those that the whole axes show: a kernel of next to no
// time may lie beyond them.
Dots draw_dots(const RooflineModel& m, const Plot& plot, const Axes& full, RooflineViewState& state) {
  const auto inside = [](const Axis& axis, double value) { return value >= axis.min && value <= axis.max; };
  const ImVec2 mouse = ImGui::GetIO().MousePos;
  Dots dots;
  float nearest = px(14);
  state.dots.clear();
  state.dot_names.clear();
  const RooflineSelection* const chosen = state.selection.get();
  const auto draw = [&](const RooflineRow& row, bool in) {
    const double rate = shown_rate(m, row);
    if (std::isnan(rate)) return;
    const ImVec2 at{plot.to_x(row.intensity()), plot.to_y(rate)};
    if (inside(full.x, row.intensity()) && inside(full.y, rate)) {
      state.dots.emplace_back(plot.x.to_fraction(row.intensity()), plot.y.to_fraction(rate));
      state.dot_names.push_back(row.name);
    }
    if (at.x < plot.min.x - px(20) || at.x > plot.max.x + px(20)) return;
    const float radius = radius_of(m, row);
    const ImU32 color = in ? phase_color(row.phase) : palette().text_faint;
    plot.list->AddCircleFilled(at, radius, with_alpha(color, in ? 0.45f : 0.12f));
    plot.list->AddCircle(at, radius, with_alpha(color, in ? 1.f : 0.4f), 0, px(1));
    if (row.name == state.selected) dots.selected = &row;
    const float away = std::hypot(mouse.x - at.x, mouse.y - at.y) - radius;
    if (plot.hovered && !state.drag && away < nearest) nearest = away, dots.hovered = &row;
  };
  for (const bool in : {false, true})
    for (const RooflineRow& row : m.rows)
      if (in == (chosen == nullptr || chosen->nodes.count(row.name) != 0)) draw(row, in);
  return dots;
}

// True: other kernels are chosen.
bool draw_plot(const RooflineModel& m, RooflineViewState& state, ImVec2 size, Actions& actions) {
  Extent x, y;
  const double whole = m.timed() ? m.sum.time_ns : m.sum.expected_ns;
  for (const RooflineRow& row : m.rows)
    if (const double rate = shown_rate(m, row); !std::isnan(rate) && shown_ns(m, row) > kShown * whole) {
      x.take(row.intensity());
      y.take(rate);
    }
  if (x.high <= 0) {
    muted("No kernel computes anything.");
    return false;
  }
  const RooflineRoofs roofs = roofs_over(m);
  for (const auto& [rate, _] : roofs.level) y.take(rate);
  const Axes full{{x.low / 2, x.high * 4, true, Unit::kPlain},
                  {y.low / 2, y.high * 3, true, Unit::kFlopRate}};
  if (const double zoom = std::exchange(state.zoom_wanted, 1.0); zoom != 1) {
    const auto at = std::find(state.dot_names.begin(), state.dot_names.end(), state.selected);
    const bool there = at != state.dot_names.end();
    const double t = there ? state.dots[static_cast<std::size_t>(at - state.dot_names.begin())].first : 0.5;
    plot_move(state.view, full.x, t, zoom, 0);
  }
  if (const double pan = std::exchange(state.pan_wanted, 0.0); pan != 0)
    plot_move(state.view, full.x, 0.5, 1, pan);
  const Plot plot = begin_plot("roofline.plot", size, full.x, full.y, "FLOP per byte", &state.view);
  draw_roofs(plot, roofs);
  draw_areas(plot, state);
  // A click that ends here is one on a dot, unless it was the end of a drag.
  const bool clicked = state.drag && ImGui::IsMouseReleased(0) && !ImGui::IsMouseDragPastThreshold(0, px(4));
  const bool changed = drag_area(m, plot, state);
  const auto [selected, hovered] = draw_dots(m, plot, full, state);
  label_roofs(plot, roofs);
  for (const RooflineRow* row : {selected, hovered}) {
    if (row == nullptr) continue;
    join_partners(m, plot, *row);
    const ImVec2 at{plot.to_x(row->intensity()), plot.to_y(shown_rate(m, *row))};
    const float radius = radius_of(m, *row) + px(3);
    plot.list->AddCircle(at, radius, palette().text, 0, px(2));
    if (row == selected)
      register_rect("roofline.dot", {at.x - radius, at.y - radius}, {at.x + radius, at.y + radius}, row->op,
                    row->name);
  }
  end_plot(plot);
  if (hovered == nullptr) return changed;
  card(m, *hovered);
  actions.hover_node = hovered->name;
  if (clicked) actions.go_to_node = hovered->name;
  return changed;
}

// What the plot cannot show.
std::string movers_text(const RooflineModel& m) {
  double ns = 0, least = 0, count = 0;
  for (const RooflineRow& row : m.rows) {
    if (row.flops > 0 && row.bytes > 0) continue;
    if (shown_ns(m, row) > 0) ns += shown_ns(m, row);
    least += row.least_ns;
    count += row.count;
  }
  if (count == 0) return {};
  return fmt::format("{} that only move data are not in the plot: {}, at least {}",
                     plural_text(static_cast<std::int64_t>(count), "kernel"), duration_text(ns),
                     duration_text(least));
}

// Below the plot: what is chosen, or how that is done. True: nothing is any more.
bool draw_chosen(const RooflineModel& m, const std::string& command, const RooflineViewState& state,
                 Actions& actions) {
  ImFont* font = theme().small;
  if (!state.selection) {
    ImGui::AlignTextToFramePadding();
    text("Drag selects kernels, Shift + drag adds", palette().text_faint, font);
    const std::string movers = movers_text(m);
    if (movers.empty()) return false;
    ImGui::SameLine(0, px(14));
    text(fit_text(font, font->FontSize, movers, ImGui::GetContentRegionAvail().x), palette().text_dim, font);
    return false;
  }
  const float copy = button_width("Copy command"), room = ImGui::GetContentRegionAvail().x - copy - px(40);
  const std::string said = selection_text(*state.selection);
  const ImVec2 at = ImGui::GetCursorScreenPos();
  const bool all = chip("roofline.selection", fit_text(font, font->FontSize, said, room), palette().accent,
                        "The other views show these alone (" + key_label("roofline.clear") + " ends it)");
  register_rect("roofline.sum", at, ImGui::GetItemRectMax(), "selection", said);
  ImGui::SameLine(0, px(8));
  if (button("roofline.copy", "Copy command", ButtonKind::kGhost, command)) {
    ImGui::SetClipboardText(command.c_str());
    actions.copied = command;
  }
  register_rect("roofline.command", ImGui::GetItemRectMin(), ImGui::GetItemRectMax(), "command", command);
  return all;
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
    state.rows = grouped(state.selection ? state.selection->inside : m, kGroups[group]);
  }
  const std::vector<RooflineRow>& rows = state.rows;
  const auto of_bar = [&](const RooflineRow& row) { return timed ? row.above_ns() : row.expected_ns; };
  const double largest = rows.empty() ? 1 : std::max(1.0, of_bar(rows.front()));
  TableRows table;
  table.sortable = false;
  table.arrows_of_pane = false;  // they move from dot to dot
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

bool draw_roofline_view(const RooflineModel& model, const std::string& command, RooflineViewState& state,
                        Actions& actions) {
  summary(model);
  spacer(4);
  const ImVec2 space = ImGui::GetContentRegionAvail();
  const float table = std::clamp(space.y * 0.33f, px(110), px(340)),
              line = ImGui::GetFrameHeightWithSpacing();
  bool changed = draw_plot(model, state, {space.x, std::max(px(140), space.y - table - line)}, actions);
  if (draw_chosen(model, command, state, actions)) {
    roofline_clear(state);
    changed = true;
  }
  draw_rows(model, state, actions);
  return changed;
}

bool roofline_keys(RooflineViewState& state, Actions& actions) {
  if (ImGui::IsPopupOpen(nullptr, ImGuiPopupFlags_AnyPopupId | ImGuiPopupFlags_AnyPopupLevel)) return false;
  if (key_pressed("roofline.all")) state.view = {};
  const bool clears = key_pressed("roofline.clear") && (state.selection || state.drag);
  if (clears) {
    roofline_clear(state);
    state.drag.reset();
  }
  const ImGuiIO& io = ImGui::GetIO();
  if (io.WantTextInput || io.KeyCtrl || io.KeyAlt || table_has_arrows()) return clears;
  const auto at_selected = std::find(state.dot_names.begin(), state.dot_names.end(), state.selected);
  const int by = (key_pressed("roofline.zoom_in") ? 1 : 0) - (key_pressed("roofline.zoom_out") ? 1 : 0);
  if (by != 0) state.zoom_wanted = std::pow(0.8, by);
  struct Arrow {
    int key, dx, dy;
  };
  for (const auto& [key, dx, dy] :
       {Arrow{GLFW_KEY_LEFT, -1, 0}, {GLFW_KEY_RIGHT, 1, 0}, {GLFW_KEY_UP, 0, 1}, {GLFW_KEY_DOWN, 0, -1}}) {
    if (!ImGui::IsKeyPressed(key, true)) continue;
    const int from =
        at_selected == state.dot_names.end() ? -1 : static_cast<int>(at_selected - state.dot_names.begin());
    const int to = next_point(state.dots, from, dx, dy);
    if (to < 0 || to == from) continue;
    actions.go_to_node = state.dot_names[static_cast<std::size_t>(to)];
    const double t = state.dots[static_cast<std::size_t>(to)].first;  // outside 0 to 1: beside a zoomed part
    if (t < 0 || t > 1) state.pan_wanted = t - 0.5;
  }
  return clears;
}

void roofline_clear(RooflineViewState& state) {
  state.of = nullptr;  // the table is of the chosen ones
  state.selection.reset();
}

void roofline_select(const RooflineModel& model, std::vector<RooflineArea> areas, RooflineViewState& state) {
  roofline_clear(state);
  if (areas.empty()) return;
  state.selection = std::make_shared<const RooflineSelection>(select_inside(model, std::move(areas)));
}

}  // namespace gradloom
