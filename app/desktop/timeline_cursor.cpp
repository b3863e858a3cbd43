// The bar of the timeline that the keys are at: arrows lead to the next bar of its lane and to the lanes above and below, with Shift
// they measure from where they began. A fold key folds its lane or opens it.
#include <GLFW/glfw3.h>
#include <imgui_internal.h>

#include <algorithm>
#include <cmath>
#include <optional>
#include <utility>

#include "app/desktop/timeline_lanes.h"
#include "viz/draw/keys.h"

namespace gradloom {
namespace {

const TimelineLane& row_lane(const Ui& ui, const LaneRow& row) {
  return (row.of_b ? ui.beside.model : ui.timeline.model).lanes[row.lane];
}
std::int64_t row_made(const Ui& ui, const LaneRow& row) {
  return row.of_b ? ui.beside.models : ui.timeline.made;
}

// The row of the cursor; -1: it is at none that is there.
int cursor_row(const Ui& ui) {
  const TimelineRows::Cursor& cursor = ui.lanes.cursor;
  if (cursor.lane.empty()) return -1;
  for (std::size_t r = 0; r < ui.lanes.rows.size(); ++r) {
    const LaneRow& row = ui.lanes.rows[r];
    const TimelineLane& lane = row_lane(ui, row);
    if (lane_key(lane, row.of_b) == cursor.lane && row_made(ui, row) == cursor.made &&
        cursor.bar < lane.bars.size())
      return static_cast<int>(r);
  }
  return -1;
}

// Of a lane the bar that is nearest to a time.
std::size_t nearest_bar(const TimelineLane& lane, double time_ns) {
  const std::size_t after = std::min(first_bar_after(lane, time_ns), lane.bars.size() - 1);
  if (after == 0) return 0;
  const double to_next = lane.bars[after].start_ns - time_ns, to_last = time_ns - lane.bars[after - 1].end_ns;
  return to_next > 0 && to_last < to_next ? after - 1 : after;
}

// Where the keys begin: at the selected kernel, else at the first kernel in sight.
std::optional<std::pair<std::size_t, std::size_t>> first_place(const Ui& ui) {
  const std::string selected = ui.selected();
  const TraceDocument& trace = ui.state().run->trace;
  std::optional<std::pair<std::size_t, std::size_t>> begin;
  for (std::size_t r = 0; r < ui.lanes.rows.size(); ++r) {
    const LaneRow& row = ui.lanes.rows[r];
    if (row.of_b) continue;
    const TimelineLane& lane = row_lane(ui, row);
    if (lane.bars.empty()) continue;
    for (std::size_t b = 0; b < lane.bars.size() && lane.stream && !selected.empty(); ++b)
      if (lane.bars[b].kernel >= 0 && bar_name(trace, lane.bars[b]) == selected) return std::pair{r, b};
    if (!begin || (lane.stream && !row_lane(ui, ui.lanes.rows[begin->first]).stream))
      begin = {r, nearest_bar(lane, ui.timeline.view.from_ns)};
  }
  return begin;
}

bool in_some_graph(const Ui& ui, const std::string& node) {
  for (const GraphStage at : {ui.stage, GraphStage::after, GraphStage::before, GraphStage::model})
    if (const auto& graph = ui.state().graphs.at(at); graph && graph->model.find(node) >= 0) return true;
  return false;
}

// Keeps the span of the view, and has the bar in it.
void bring_into_view(TimelineState& state, const TimelineBar& bar) {
  const double span = state.view.span(), air = span * 0.05;
  const bool long_one = bar.end_ns - bar.start_ns > span - 2 * air;
  if (bar.start_ns >= state.view.from_ns && (bar.end_ns <= state.view.to_ns || long_one)) {
    if (!long_one || bar.start_ns <= state.view.to_ns) return;
  }
  state.view.from_ns =
      long_one || bar.start_ns < state.view.from_ns ? bar.start_ns - air : bar.end_ns + air - span;
  state.view.to_ns = state.view.from_ns + span;
}

void put_cursor(Ui& ui, std::size_t row, std::size_t bar, bool measure) {
  TimelineRows::Cursor& cursor = ui.lanes.cursor;
  const LaneRow& at = ui.lanes.rows[row];
  const TimelineLane& lane = row_lane(ui, at);
  if (const TimelineBar* const from = cursor_bar(ui); !measure)
    cursor.anchor = {};
  else if (cursor.anchor.empty() && from != nullptr)
    cursor.anchor = {from->start_ns, from->end_ns};
  cursor.lane = lane_key(lane, at.of_b);
  cursor.bar = bar;
  cursor.made = row_made(ui, at);
  cursor.moved = cursor.told = true;
  const TimelineBar& to = lane.bars[bar];
  bring_into_view(ui.timeline, to);
  if (measure && !cursor.anchor.empty())
    ui.timeline.ruler = {std::min(cursor.anchor.from_ns, to.start_ns),
                         std::max(cursor.anchor.to_ns, to.end_ns)};
  if (to.kernel < 0) return;
  if (at.of_b)
    ui.beside.kept = pair_of(ui.state().beside->pair.of_b, to);
  else if (const std::string& node = bar_name(ui.state().run->trace, to); in_some_graph(ui, node))
    ui.go_to(node);
}

void to_bar(Ui& ui, int by, bool measure) {
  const int row = cursor_row(ui);
  if (row < 0) {
    if (const auto begin = first_place(ui)) put_cursor(ui, begin->first, begin->second, measure);
    return;
  }
  const auto last =
      static_cast<int>(row_lane(ui, ui.lanes.rows[static_cast<std::size_t>(row)]).bars.size()) - 1;
  const int to = std::clamp(static_cast<int>(ui.lanes.cursor.bar) + by, 0, last);
  put_cursor(ui, static_cast<std::size_t>(row), static_cast<std::size_t>(to), measure);
}

void to_lane(Ui& ui, int by) {
  const TimelineBar* const from = cursor_bar(ui);
  if (from == nullptr) return to_bar(ui, 0, false);
  const double middle_ns = (from->start_ns + from->end_ns) / 2;
  for (int row = cursor_row(ui) + by; row >= 0 && row < static_cast<int>(ui.lanes.rows.size()); row += by) {
    const LaneRow& to = ui.lanes.rows[static_cast<std::size_t>(row)];
    const TimelineLane& lane = row_lane(ui, to);
    if (lane.bars.empty()) continue;
    return put_cursor(ui, static_cast<std::size_t>(row), nearest_bar(lane, middle_ns), false);
  }
}

}  // namespace

const TimelineBar* cursor_bar(const Ui& ui) {
  const int row = cursor_row(ui);
  if (row < 0) return nullptr;
  return &row_lane(ui, ui.lanes.rows[static_cast<std::size_t>(row)]).bars[ui.lanes.cursor.bar];
}

void cursor_keys(Ui& ui) {
  const ImGuiIO& io = ImGui::GetIO();
  TimelineRows::Cursor& cursor = ui.lanes.cursor;
  if (io.WantTextInput || io.KeyCtrl || io.KeyAlt) return;
  if (ImGui::IsKeyPressed(GLFW_KEY_RIGHT)) to_bar(ui, 1, io.KeyShift);
  if (ImGui::IsKeyPressed(GLFW_KEY_LEFT)) to_bar(ui, -1, io.KeyShift);
  if (ImGui::IsKeyPressed(GLFW_KEY_DOWN) && !io.KeyShift) to_lane(ui, 1);
  if (ImGui::IsKeyPressed(GLFW_KEY_UP) && !io.KeyShift) to_lane(ui, -1);
  const int row = cursor_row(ui);
  if (row >= 0 && key_pressed("timeline.fold"))
    ui.lanes.folds[cursor.lane] = !ui.lanes.rows[static_cast<std::size_t>(row)].folded;
  if (key_pressed("timeline.clear")) cursor = {};
}

void draw_cursor(Ui& ui, const TimelineView& view, const CanvasRows& on) {
  TimelineRows::Cursor& cursor = ui.lanes.cursor;
  const int row = cursor_row(ui);
  if (row < 0) return;
  const LanePlace& place = on.places[static_cast<std::size_t>(row)];
  const TimelineBar& bar = *cursor_bar(ui);
  const float x0 = std::clamp(view.x(bar.start_ns), view.min.x, view.max.x),
              x1 = std::clamp(view.x(bar.end_ns), x0 + 1, std::max(x0 + 1, view.max.x));
  cursor.min = {x0, place.y};
  cursor.max = {x1, place.y + place.height};
  const Palette& p = palette();
  const float air = px(1.5f);
  ImGui::GetWindowDrawList()->AddRect({x0 - air, place.y - air}, {x1 + air, cursor.max.y + air}, p.accent,
                                      px(3), 0, px(2));
  const TraceDocument& trace = ui.lanes.rows[static_cast<std::size_t>(row)].of_b
                                   ? ui.state().beside->run->trace
                                   : ui.state().run->trace;
  register_rect("timeline.cursor", cursor.min, cursor.max, cursor.lane, bar_name(trace, bar));
  if (!std::exchange(cursor.moved, false)) return;
  if (place.y < view.min.y || cursor.max.y > view.max.y)
    ImGui::SetScrollY(ImGui::GetScrollY() + (place.y + cursor.max.y - view.min.y - view.max.y) / 2);
}

void tell_cursor(Ui& ui) {
  const TimelineRows::Cursor& cursor = ui.lanes.cursor;
  const TimelineBar* const bar = cursor_bar(ui);
  if (bar == nullptr ||
      ImGui::IsPopupOpen(nullptr, ImGuiPopupFlags_AnyPopupId | ImGuiPopupFlags_AnyPopupLevel))
    return;
  const bool of_b = ui.lanes.rows[static_cast<std::size_t>(cursor_row(ui))].of_b;
  const ImVec2 display = ImGui::GetIO().DisplaySize;
  const bool below = cursor.max.y<display.y * 0.7f, leftwards = cursor.min.x> display.x * 0.6f;
  ImGui::SetNextWindowPos(
      {leftwards ? cursor.max.x : cursor.min.x, below ? cursor.max.y + px(6) : cursor.min.y - px(6)},
      ImGuiCond_Always, {leftwards ? 1.f : 0.f, below ? 0.f : 1.f});
  if (of_b)
    bar_tooltip(ui.state().beside->run->trace, ui.beside.model, *bar, pair_text(ui, true, *bar));
  else
    bar_tooltip(ui.state().run->trace, ui.timeline.model, *bar, pair_text(ui, false, *bar));
}

}  // namespace gradloom
