#include <fmt/format.h>
#include <imgui_internal.h>

#include <algorithm>
#include <cmath>
#include <utility>

#include "engine/base/text.h"
#include "viz/draw/graph_canvas.h"
#include "viz/draw/key_focus.h"
#include "viz/draw/views.h"
#include "viz/draw/widgets.h"
#include "viz/model/selection_sums.h"

namespace gradloom {
namespace {

// Planned, measured and lower bound side by side, on as few lines as have room for them.
void summary(const MemoryModel& m, int64_t measured) {
  bool first = true;
  const auto number = [&](const char* id, const std::string& label, const std::string& value, ImU32 color) {
    figure(id, label, value, color, std::exchange(first, false));
  };
  auto bytes = [](int64_t b) { return format_value(static_cast<double>(b), Unit::kBytes); };
  number("memory.peak", "Planned peak", bytes(m.total_bytes()), palette().text);
  number("memory.measured", "Measured peak", measured > 0 ? bytes(measured) : "not measured",
         measured > 0 ? palette().text : palette().text_faint);
  number("memory.arena", m.planner.empty() ? "Arena" : "Arena, " + m.planner, bytes(m.arena_bytes),
         palette().accent);
  number("memory.bound", "Arena's lower bound", bytes(m.lower_bound_bytes), palette().warn);
  number("memory.waste", "Above the bound", percent_text(m.waste()),
         m.waste() > 0.05 ? palette().warn : palette().good);
  number("memory.state", "Parameters, state", bytes(m.state_bytes), palette().text);
  number("memory.input", "Inputs, constants", bytes(m.input_bytes + m.constant_bytes), palette().text);
  if (m.host_bytes > 0) number("memory.host", "In the host's memory", bytes(m.host_bytes), palette().text);
}

ImU32 block_color(const MemoryBlock& block) {
  return block.workspace ? palette().text_faint : phase_color(block.phase);
}

int hovered_block(const MemoryModel& m, const Plot& plot) {
  if (!plot.hovered) return -1;
  const ImVec2 mouse = ImGui::GetIO().MousePos;
  const double step = plot.value_x(mouse.x);
  const double offset = plot.y.from_fraction((plot.max.y - mouse.y) / (plot.max.y - plot.min.y));
  for (size_t b = 0; b < m.blocks.size(); ++b) {
    const MemoryBlock& block = m.blocks[b];
    if (step >= block.first_step && step < block.last_step + 1 &&
        offset >= static_cast<double>(block.offset) &&
        offset < static_cast<double>(block.offset + block.bytes)) {
      return static_cast<int>(b);
    }
  }
  return -1;
}

void block_tooltip(const MemoryModel& m, int index) {
  const MemoryBlock& block = m.blocks[index];
  ImGui::BeginTooltip();
  text(escaped(block.name), palette().text, theme().bold);
  text(fmt::format("{} at offset {}", format_value(static_cast<double>(block.bytes), Unit::kBytes),
                   format_value(static_cast<double>(block.offset), Unit::kBytes)),
       palette().text_dim, theme().small);
  const auto name = [&](int32_t step) {
    return step >= 0 && step < static_cast<int32_t>(m.step_names.size()) ? escaped(m.step_names[step])
                                                                         : std::to_string(step);
  };
  text(fmt::format("live from step {} ({})", block.first_step, name(block.first_step)), palette().text_dim,
       theme().small);
  text(fmt::format("to step {} ({})", block.last_step, name(block.last_step)), palette().text_dim,
       theme().small);
  if (block.values.size() > 1)
    text(fmt::format("shared by {} values", block.values.size()), palette().text_dim, theme().small);
  constexpr size_t kMostParts = 6;
  for (size_t i = 0; i < std::min(block.parts.size(), kMostParts); ++i)
    text(escaped(block.parts[i]), palette().text_dim, theme().small);
  if (block.parts.size() > kMostParts)
    text(fmt::format("and {} parts more", block.parts.size() - kMostParts), palette().text_dim,
         theme().small);
  ImGui::EndTooltip();
}

void dim_outside(const MemoryViewState& state, const Plot& plot) {
  if (state.first_step < 0) return;
  const ImU32 veil = with_alpha(palette().panel, 0.62f);
  const float x0 = std::clamp(plot.to_x(state.first_step), plot.min.x, plot.max.x),
              x1 = std::clamp(plot.to_x(state.last_step + 1), plot.min.x, plot.max.x);
  plot.list->AddRectFilled(plot.min, {x0, plot.max.y}, veil);
  plot.list->AddRectFilled({x1, plot.min.y}, plot.max, veil);
  for (const float x : {x0, x1})
    plot.list->AddLine({x, plot.min.y}, {x, plot.max.y}, palette().accent, px(1));
}

Axis arena_axis(const MemoryModel& m, float height) {
  // The label of the lower bound finds room above the arena, however low the plot is.
  const double free = std::clamp(px(18) / std::max(height, px(60)), 0.05f, 0.25f);
  return {0, static_cast<double>(std::max<int64_t>(m.arena_bytes, 64)) / (1 - free), false, Unit::kBytes};
}

Axis live_axis(const MemoryModel& m) {
  const int64_t top = m.live.empty() ? 0 : *std::max_element(m.live.begin(), m.live.end());
  return {0, 1.12 * static_cast<double>(std::max<int64_t>(top, 1)), false, Unit::kBytes};
}

// `labels`: room of the labels of y, so that one step is at one place in both plots.
void arena(const MemoryModel& m, MemoryViewState& state, ImVec2 size, Actions& actions, float labels = 0) {
  const Axis x{0, std::max(1.0, static_cast<double>(m.live.size())), false, Unit::kCount};
  Plot plot =
      begin_plot("memory.arena-plot", size, x, arena_axis(m, size.y), "schedule step", &state.view, labels);
  const int hovered = hovered_block(m, plot);
  for (size_t b = 0; b < m.blocks.size(); ++b) {
    const MemoryBlock& block = m.blocks[b];
    const float x0 = plot.to_x(block.first_step), x1 = std::max(plot.to_x(block.last_step + 1), x0 + 1);
    if (x1 < plot.min.x || x0 > plot.max.x) continue;
    const float y0 = plot.to_y(static_cast<double>(block.offset + block.bytes)),
                y1 = plot.to_y(static_cast<double>(block.offset));
    const bool chosen = static_cast<int>(b) == state.selected, over = static_cast<int>(b) == hovered;
    const ImU32 color = block_color(block);
    plot.list->AddRectFilled({x0, y0}, {x1, std::max(y1, y0 + 1)},
                             mix(palette().panel, color, over || chosen ? 0.75f : 0.42f));
    if (y1 - y0 > px(4) && x1 - x0 > px(4))
      plot.list->AddRect({x0, y0}, {x1, y1}, mix(palette().panel, color, 0.85f));
    if (chosen) plot.list->AddRect({x0 - 1, y0 - 1}, {x1 + 1, y1 + 1}, palette().text, 0, 0, px(1.5f));
    const std::string label =
        y1 - y0 > px(15) && x1 - x0 > px(60)
            ? fit_text(theme().small, theme().small->FontSize, escaped(block.name), x1 - x0 - px(8))
            : "";
    if (!label.empty()) {
      plot.list->AddText(theme().small, theme().small->FontSize,
                         {std::max(x0, plot.min.x) + px(4), (y0 + y1 - theme().small->FontSize) / 2},
                         palette().text, label.c_str());
    }
  }
  dim_outside(state, plot);
  plot_rule(plot, static_cast<double>(m.lower_bound_bytes), palette().warn,
            "lower bound " + format_value(static_cast<double>(m.lower_bound_bytes), Unit::kBytes),
            plot.to_x(m.peak_step) > (plot.min.x + plot.max.x) / 2);  // away from the peak's label
  const int shown = state.step >= 0 ? state.step : m.peak_step;
  const float at = std::round(plot.to_x(shown + 0.5)) + 0.5f;
  plot.list->AddLine({at, plot.min.y}, {at, plot.max.y}, with_alpha(palette().text, 0.5f), px(1));
  if (!m.live.empty()) {
    plot_marker(plot, m.peak_step + 0.5, static_cast<double>(m.live[m.peak_step]), palette().bad,
                "peak " + format_value(static_cast<double>(m.live[m.peak_step]), Unit::kBytes));
  }
  end_plot(plot);
  if (hovered >= 0) {
    block_tooltip(m, hovered);
    actions.hover_node = m.blocks[hovered].node;
  }
  if (plot.hovered && ImGui::IsMouseReleased(0) && !ImGui::IsMouseDragPastThreshold(0)) {
    state.selected = hovered;
    state.step = std::clamp(static_cast<int>(plot.value_x(ImGui::GetIO().MousePos.x)), 0,
                            static_cast<int>(m.live.size()) - 1);
    if (hovered >= 0) actions.go_to_node = m.blocks[hovered].node;
  }
}

void live_curve(const MemoryModel& m, MemoryViewState& state, ImVec2 size, float labels) {
  std::vector<double> x(m.live.size() + 1), y(m.live.size());
  for (size_t i = 0; i < m.live.size(); ++i) {
    x[i] = static_cast<double>(i);
    y[i] = static_cast<double>(m.live[i]);
  }
  x.back() = static_cast<double>(m.live.size());
  const Plot plot = begin_plot("memory.live-plot", size, {0, std::max(1.0, x.back()), false, Unit::kCount},
                               live_axis(m), "schedule step", &state.view, labels);
  plot_steps(plot, x, y, palette().accent, 0.2f);
  plot_label(plot, {plot.min.x, plot.min.y}, palette().text_dim, "live bytes");
  dim_outside(state, plot);
  x.pop_back();
  const int at = plot_hover(plot, x, y, palette().accent);
  end_plot(plot);
  if (at < 0) return;
  const std::string name = at < static_cast<int>(m.step_names.size()) ? escaped(m.step_names[at]) : "";
  ImGui::SetTooltip("step %d  %s\n%s live", at, name.c_str(), format_value(y[at], Unit::kBytes).c_str());
  if (ImGui::IsMouseClicked(0)) state.step = at;
}

void live_table(const MemoryModel& m, MemoryViewState& state, Actions& actions) {
  const int step = state.step >= 0 && state.step < static_cast<int>(m.live.size()) ? state.step : m.peak_step;
  const std::vector<int32_t> live = step == m.peak_step ? m.live_at_peak : m.live_at(step);
  const std::string name = step < static_cast<int>(m.step_names.size()) ? escaped(m.step_names[step]) : "";
  text(step == m.peak_step ? "Live at the peak" : fmt::format("Live at step {}", step), palette().text,
       theme().bold);
  ImGui::SameLine();
  muted(fmt::format("{}  \u00b7  {} buffers", name, live.size()));
  if (state.step >= 0 && state.step != m.peak_step) {
    ImGui::SameLine();
    if (button("memory.to-peak", "Back to the peak", ButtonKind::kGhost)) state.step = -1;
  }
  const double largest =
      live.empty() ? 1 : static_cast<double>(std::max<int64_t>(1, m.blocks[live.front()].bytes));
  const double all = std::max<double>(1, m.live.empty() ? 1 : static_cast<double>(m.live[step]));
  TableRows rows;
  rows.sortable = false;
  rows.count = static_cast<int>(live.size());
  rows.id = [&](int r) { return m.blocks[live[r]].name; };
  rows.value = [&](int r) { return std::to_string(m.blocks[live[r]].bytes); };
  rows.cell = [&](int r, int c) {
    const MemoryBlock& block = m.blocks[live[r]];
    const auto bytes = static_cast<double>(block.bytes);
    if (c == 0) name_cell(block.name);
    if (c == 1) badge(block.workspace ? "workspace" : phase_name(block.phase), block_color(block));
    if (c == 2) number_cell(format_value(bytes, Unit::kBytes));
    if (c == 3) cell_bar(bytes / largest, palette().accent, percent_text(bytes / all));
    if (c == 4) number_cell(fmt::format("{} \u2013 {}", block.first_step, block.last_step));
  };
  rows.several = true;
  const TableEvents events = draw_table("memory.live",
                                        {{"Value"},
                                         {"Made in", 100, false, false, "", 3},
                                         {"Size", 100, true},
                                         {"Share", 120, true, false, "", 1},
                                         {"Steps", 110, true, false, "", 2}},
                                        rows, state.table);
  std::vector<const MemoryBlock*> chosen;
  for (const int row : chosen_rows(state.table, rows)) chosen.push_back(&m.blocks[live[row]]);
  if (!chosen.empty()) actions.selection_sum = buffers_sum_text(chosen, all);
  if (events.hovered >= 0) actions.hover_node = m.blocks[live[events.hovered]].node;
  if (events.clicked >= 0) {
    state.selected = live[events.clicked];
    actions.go_to_node = m.blocks[live[events.clicked]].node;
    actions.show_node_panel = true;
  }
}

// What making it again takes, to be pressed.
bool again_link(const MemoryFinding& f) {
  const std::string id = "memory.again." + f.node, label = "+" + percent_text(f.again);
  const ImVec2 size = ImGui::CalcTextSize(label.c_str()), at = ImGui::GetCursorScreenPos();
  const float left = std::max(0.f, ImGui::GetContentRegionAvail().x - size.x);
  ImGui::SetCursorScreenPos({at.x + left, at.y});
  const bool pressed =
      ImGui::InvisibleButton(id.c_str(), {std::max(size.x, 1.f), ImGui::GetTextLineHeight()});
  register_item(id, label, label);
  focus_stop(id);
  const bool hovered = ImGui::IsItemHovered();
  ImDrawList* list = ImGui::GetWindowDrawList();
  list->AddText({at.x + left, at.y}, hovered ? palette().accent : palette().good, label.c_str());
  const float under = at.y + size.y;
  list->AddLine({at.x + left, under}, {at.x + left + size.x, under},
                with_alpha(hovered ? palette().accent : palette().good, 0.7f));
  if (hovered) ImGui::SetMouseCursor(ImGuiMouseCursor_Hand);
  tip("Make it again for this reader instead of keeping it: adds " + escaped(f.node) + " to Recompute");
  return pressed;
}

void findings_table(const MemoryModel& m, MemoryViewState& state, Actions& actions) {
  if (m.findings.empty()) return muted("Nothing at the peak is freed late or kept for one reader.");
  const auto largest = static_cast<double>(std::max<int64_t>(1, m.findings.front().bytes));
  TableRows rows;
  rows.sortable = false;
  rows.count = static_cast<int>(m.findings.size());
  rows.id = [&](int r) { return m.findings[static_cast<size_t>(r)].value; };
  rows.value = [&](int r) { return memory_finding_text(m.findings[static_cast<size_t>(r)]); };
  rows.cell = [&](int r, int c) {
    const MemoryFinding& f = m.findings[static_cast<size_t>(r)];
    const auto bytes = static_cast<double>(f.bytes);
    if (c == 0) name_cell(f.value);
    if (c == 1)
      badge(f.kind == MemoryFinding::freed_late ? "freed late" : "one reader",
            f.kind == MemoryFinding::freed_late ? palette().warn : palette().accent);
    if (c == 2) cell_bar(bytes / largest, palette().accent, format_value(bytes, Unit::kBytes));
    if (c == 3) name_cell(f.reader);
    if (c == 4) number_cell(fmt::format("{} \u2013 {}", f.last_use, f.read_step));
    if (c == 5 && f.can_run_again && again_link(f)) state.again = f.node;
  };
  rows.several = true;
  const TableEvents events =
      draw_table("memory.findings",
                 {{"Could leave the peak"},
                  {"Why", 90, false, false, "", 2},
                  {"Size", 90, true},
                  {"Last read by", 180, false, false, "", 4},
                  {"Unused", 84, true, false, "Steps in which nobody uses it", 3},
                  {"Again", 76, true, false, "What making it again for its reader takes, of a step", 1}},
                 rows, state.findings);
  std::vector<const MemoryBlock*> chosen;
  for (const int row : chosen_rows(state.findings, rows))
    if (const int block = m.find(m.findings[static_cast<size_t>(row)].value); block >= 0)
      chosen.push_back(&m.blocks[block]);
  if (!chosen.empty())
    actions.selection_sum = buffers_sum_text(chosen, static_cast<double>(m.live[m.peak_step]));
  const int at = events.hovered >= 0 ? events.hovered : events.clicked;
  if (at < 0) return;
  const MemoryFinding& f = m.findings[static_cast<size_t>(at)];
  actions.hover_node = f.node;
  if (events.clicked < 0) return;
  state.selected = m.find(f.value);
  actions.go_to_node = f.node;
}

// What is drawn below the arena; a choice only where there is one.
void lower_part(const MemoryModel& m, MemoryViewState& state, Actions& actions,
                const std::function<void(float)>& budget) {
  std::vector<std::string> parts{"Live", "Could leave"};
  if (budget) parts.emplace_back("Budget");
  state.part = std::min(state.part, static_cast<int>(parts.size()) - 1);
  segmented("memory.part", &state.part, parts);
  if (state.part == kMemoryFindings) return findings_table(m, state, actions);
  if (state.part == kMemoryBudget) return budget(ImGui::GetContentRegionAvail().y);
  ImGui::SameLine(0, px(12));
  ImGui::AlignTextToFramePadding();
  live_table(m, state, actions);
}

}  // namespace

void draw_memory_view(const MemoryModel& model, MemoryViewState& state, Actions& actions,
                      const std::function<void(float height)>& budget) {
  if (model.blocks.empty())
    return empty_state("No memory plan yet",
                       "Open a model and choose a loss; the plan places every value of the step.");
  state.selected = std::min(state.selected, static_cast<int>(model.blocks.size()) - 1);
  summary(model, state.measured_peak_bytes > 0 ? state.measured_peak_bytes : model.measured_peak_bytes);
  spacer(4);
  const ImVec2 space = ImGui::GetContentRegionAvail();
  const bool choices = budget || !model.findings.empty();
  if (budget && state.part == kMemoryBudget) {
    // The curve takes the place of the live bytes, too.
    const float part = std::clamp(space.y * 0.5f, px(190), px(420));
    arena(model, state, {space.x, std::max(px(100), space.y - part - ImGui::GetStyle().ItemSpacing.y)},
          actions);
    return lower_part(model, state, actions, budget);
  }
  const float live = std::clamp(space.y * 0.2f, px(64), px(130)),
              table = std::clamp(space.y * (choices ? 0.36f : 0.3f), px(choices ? 140 : 110), px(290));
  const float high = std::max(px(100), space.y - live - table - 2 * ImGui::GetStyle().ItemSpacing.y);
  const float labels =
      std::max(y_labels_width(arena_axis(model, high), high), y_labels_width(live_axis(model), live));
  arena(model, state, {space.x, high}, actions, labels);
  live_curve(model, state, {space.x, live}, labels);
  if (!choices) return live_table(model, state, actions);
  lower_part(model, state, actions, budget);
}

}  // namespace gradloom
