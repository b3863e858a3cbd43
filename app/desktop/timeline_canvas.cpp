// What the timeline draws below its axis: notes, the lanes of one or two runs as rows, a prediction, the arena's bytes. It scrolls
// where it is higher than the pane.
#include <fmt/format.h>
#include <imgui_internal.h>

#include <algorithm>
#include <cmath>
#include <utility>

#include "app/desktop/timeline_lanes.h"
#include "engine/base/text.h"
#include "viz/draw/key_focus.h"

namespace gradloom {
namespace {

// Of a note on a time of a shown step where it begins; null: it is on something else.
const TimelineStep* step_of(const Note& note, const AppState& s, const TimelineModel& model) {
  if (!note.node.empty() || note.session != s.session_path || note.run != s.run->record.summary.id)
    return nullptr;
  for (const TimelineStep& step : model.steps)
    if (step.step == note.step) return &step;
  return nullptr;
}

// Notes on times of this step, as brackets in a strip of their own; true when one is under the mouse.
bool draw_notes(Ui& ui, const TimelineView& view, float top, float height, bool hovered) {
  const Palette& p = palette();
  const AppState& s = ui.state();
  const ImVec2 mouse = ImGui::GetIO().MousePos;
  ImDrawList* list = ImGui::GetWindowDrawList();
  ImFont* font = theme().small;
  bool over_any = false;
  for (const Note& note : s.marks->notes) {
    const TimelineStep* step = step_of(note, s, ui.timeline.model);
    if (step == nullptr) continue;
    const float x0 = view.x(step->start_ns + note.from_ns),
                x1 = std::max(view.x(step->start_ns + note.to_ns), x0 + px(6));
    if (x1 < view.min.x || x0 > view.max.x) continue;
    const bool over =
        hovered && mouse.x >= x0 - px(2) && mouse.x <= x1 + px(2) && mouse.y >= top && mouse.y < top + height;
    list->AddRectFilled({x0, top}, {x1, top + height}, mix(p.panel, p.warn, over ? 0.5f : 0.28f), px(3));
    list->AddRectFilled({x0, top}, {x0 + px(3), top + height}, p.warn, px(2));
    const std::string label =
        fit_text(font, font->FontSize, escaped(note.text), x1 - std::max(x0, view.min.x) - px(12));
    list->AddText(font, font->FontSize,
                  {std::max(x0, view.min.x) + px(7), top + (height - font->FontSize) / 2}, p.text,
                  label.c_str());
    register_rect("timeline.note." + std::to_string(note.id), {std::max(x0, view.min.x), top},
                  {std::min(x1, view.max.x), top + height}, "note", note.text);
    if (!over) continue;
    over_any = true;
    ImGui::SetTooltip("%s\n%s", escaped(note.text).c_str(), note_subject(note).c_str());
    if (ImGui::IsMouseReleased(0) && !ImGui::IsMouseDragPastThreshold(0, px(4))) ui.edit_note(note);
  }
  return over_any;
}

constexpr float kNotes = 19, kGutter = 8, kLeastArena = 40, kLowArena = 60, kMostArena = 200;  // points

// The place in the row's run, by the row.
const TimelineModel& model_of(const Ui& ui, const LaneRow& row) {
  return row.of_b ? ui.beside.model : ui.timeline.model;
}
const TimelineLane& lane_of_row(const Ui& ui, const LaneRow& row) {
  return model_of(ui, row).lanes[row.lane];
}

bool has_notes(const Ui& ui) {
  const AppState& s = ui.state();
  return std::any_of(s.marks->notes.begin(), s.marks->notes.end(),
                     [&](const Note& n) { return step_of(n, s, ui.timeline.model) != nullptr; });
}

// Rows from `y` on: their places by row.
float place_rows(const std::vector<LaneRow>& rows, bool of_b, float y, std::vector<LanePlace>& places) {
  for (const LaneRow& row : rows) {
    if (row.of_b != of_b) continue;
    places.push_back({y, px(row.height)});
    y += px(row.height) + px(row.gap);
  }
  return y;
}

// By the lane's number, as what is drawn over the lanes asks for it.
std::vector<LanePlace> places_by_lane(const Ui& ui, const CanvasRows& on, bool of_b) {
  std::vector<LanePlace> places((of_b ? ui.beside.model : ui.timeline.model).lanes.size());
  for (std::size_t i = 0; i < on.rows.size(); ++i)
    if (on.rows[i].of_b == of_b) places[on.rows[i].lane] = on.places[i];
  return places;
}

const TimelineBar* draw_run(Ui& ui, const TimelineView& view, const CanvasRows& on, const DrawnRun& run,
                            bool of_b, bool hovered) {
  const TimelineBar* under = nullptr;
  for (std::size_t i = 0; i < on.rows.size(); ++i) {
    const LanePlace& place = on.places[i];
    if (on.rows[i].of_b != of_b || place.y + place.height < view.min.y || place.y > view.max.y) continue;
    const TimelineLane& lane = run.model.lanes[on.rows[i].lane];
    draw_gaps(run, view, lane, place, false);
    if (const TimelineBar* bar = draw_lane(ui, view, run.trace, lane, place, hovered, run.marks)) under = bar;
    draw_gaps(run, view, lane, place, true);
  }
  return under;
}

// Whether the kernels of a run are in sight from their first to their last, for the registry.
void report_kernels(const Ui& ui, const TimelineView& view, const CanvasRows& on, bool of_b) {
  for (std::size_t i = 0; i < on.rows.size(); ++i) {
    const TimelineLane& lane = lane_of_row(ui, on.rows[i]);
    if (on.rows[i].of_b != of_b || !lane.stream || lane.other_rank || lane.bars.empty()) continue;
    const LanePlace& place = on.places[i];
    const bool whole = place.y >= view.min.y && place.y + place.height <= view.max.y &&
                       lane.bars.front().start_ns >= view.shown.from_ns &&
                       lane.bars.back().end_ns <= view.shown.to_ns;
    register_rect(of_b ? "beside.kernels" : "timeline.kernels", {view.min.x, place.y},
                  {view.max.x, place.y + place.height}, lane.name,
                  fmt::format("{} {:.0f}", whole ? "whole" : "part", place.height / theme().scale));
    return;
  }
}

// "\u25b8 Scope 1\u20133": a press opens what is folded, and folds what is open.
void draw_name(Ui& ui, const CanvasRows& on, const RowsOfName& of, float left) {
  const Palette& p = palette();
  ImFont* const font = theme().small;
  ImDrawList* const list = ImGui::GetWindowDrawList();
  const LaneRow& first = on.rows[of.first];
  const LanePlace &top = on.places[of.first], &last = on.places[of.first + of.count - 1];
  const float bottom = last.y + last.height, middle = (top.y + bottom) / 2;
  const std::string key = lane_key(lane_of_row(ui, first), first.of_b);
  ImGui::PushID(key.c_str());
  ImGui::SetCursorScreenPos({left, top.y});
  const bool pressed =
      ImGui::InvisibleButton("name", {px(kGutter + kLaneNames - 4), std::max(px(1), bottom - top.y)});
  focus_stop("timeline.lane." + key);
  const bool hovered = ImGui::IsItemHovered();
  std::string names;
  for (std::size_t i = of.first; i < of.first + of.count; ++i) {
    const TimelineLane& lane = lane_of_row(ui, on.rows[i]);
    register_item("timeline.lane." + lane_key(lane, first.of_b), lane.name, first.folded ? "folded" : "open");
    names += (names.empty() ? "" : ", ") + lane.name;
  }
  tip(first.folded ? names + ": a click opens " + (of.count > 1 ? "them" : "it")
                   : names + ": a click folds it");
  const ImU32 color = hovered ? p.text : p.text_faint;
  const float x = left + px(2.5f), size = px(2.5f);
  if (first.folded)
    list->AddTriangleFilled({x, middle - size}, {x + size, middle}, {x, middle + size}, color);
  else
    list->AddTriangleFilled({x - size / 2, middle - size / 2}, {x + size * 1.5f, middle - size / 2},
                            {x + size / 2, middle + size}, color);
  const std::string shown = fit_text(font, font->FontSize, of.name, px(kLaneNames - 4));
  list->AddText(font, font->FontSize, {left + px(kGutter), middle - font->FontSize / 2}, color,
                shown.c_str());
  if (pressed)
    for (std::size_t i = of.first; i < of.first + of.count; ++i)
      ui.lanes.folds[lane_key(lane_of_row(ui, on.rows[i]), first.of_b)] = !first.folded;
  ImGui::PopID();
}

// What lies below the lanes, and what is marked over all.
void draw_below(Ui& ui, const TimelineView& view, const CanvasRows& on, const TimeRange& drag) {
  const Palette& p = palette();
  TimelineState& state = ui.timeline;
  if (on.live_bottom > on.live_top) draw_live(state.model, view, on.live_top, on.live_bottom);
  if (state.filter) draw_range(view, state.filter->range, std::max(view.min.y, on.lanes_top));
  const float arrow = std::min(on.live_top - px(2), view.max.y - px(12));
  const bool zooming = state.drag == TimelineState::Drag::zoom;
  if (!drag.empty()) draw_measure(view, drag, arrow, zooming ? p.text_dim : p.accent);
  if (!state.ruler.empty()) draw_measure(view, state.ruler, arrow, p.warn);
}

}  // namespace

CanvasRows canvas_rows(const Ui& ui, float height) {
  const bool beside = drawn_beside(ui) != nullptr;
  const TimelineModel& a = ui.timeline.model;
  const TimelineModel* const b = beside ? &ui.beside.model : nullptr;
  const float line = theme().small->FontSize;
  CanvasRows on;
  on.notes = has_notes(ui);
  on.lanes_top = px(2) + (on.notes ? px(kNotes + 5) : 0) + (a.steps.size() > 1 ? line + px(2) : 0);
  const float head = beside ? px(3) + line + px(8) : 0,
              prediction = prediction_end_ns(ui) > 0 ? px(4 + kLaneHeight + 5) : 0;
  const float scale = theme().scale;
  on.rows = lane_rows(a, b, ui.lanes.folds, (height - on.lanes_top - head - prediction) / scale);
  on.names = names_of_rows(on.rows, a, b);
  on.head = place_rows(on.rows, false, on.lanes_top, on.places);
  on.prediction = place_rows(on.rows, true, on.head + head, on.places);
  float y = on.prediction + prediction;
  const bool fits = height - y - px(12) >= px(kLeastArena);  // else it begins below what is in sight
  on.live_top = on.live_bottom =
      fits || a.live_ns.empty() ? y + px(10) : std::max(y + px(10), height + px(4));
  if (!a.live_ns.empty()) {
    const float rest = height - on.live_top - px(2);
    on.live_bottom += fits ? std::min(px(kMostArena), rest) : px(kLowArena);
    y = on.live_bottom + px(2);
  }
  on.height = y;
  return on;
}

void move_rows(CanvasRows& on, float by) {
  for (LanePlace& place : on.places) place.y += by;
  for (float* y : {&on.lanes_top, &on.head, &on.prediction, &on.live_top, &on.live_bottom}) *y += by;
}

void draw_lane_names(Ui& ui, const CanvasRows& on, float left) {
  for (const RowsOfName& of : on.names) draw_name(ui, on, of, left);
}

UnderPointer draw_canvas_rows(Ui& ui, const TimelineView& view, const CanvasRows& on, const TimeRange& drag,
                              bool hovered) {
  const AppState& s = ui.state();
  const TimelineState& state = ui.timeline;
  ImDrawList* const list = ImGui::GetWindowDrawList();
  const float line = theme().small->FontSize;
  list->PushClipRect(view.min, view.max, true);
  UnderPointer pointer;
  std::vector<std::pair<float, std::string>> names;  // of what is no lane, left of it
  const float notes_at = on.lanes_top - (state.model.steps.size() > 1 ? line + px(2) : 0) - px(kNotes + 5);
  if (on.notes) {
    pointer.over_note = draw_notes(ui, view, notes_at, px(kNotes), hovered);
    names.emplace_back(notes_at + (px(kNotes) - line) / 2, "Notes");
  }
  const RunBeside* const beside = drawn_beside(ui);
  const DrawnRun a{
      s.run->trace, state.model, ui.idle, {beside ? &beside->pair.of_a : nullptr, ui.beside.lit, ""}};
  pointer.bar = draw_run(ui, view, on, a, false, hovered);
  report_kernels(ui, view, on, false);
  if (state.model.steps.size() > 1) draw_step_bounds(state.model, view, on.lanes_top, on.head, true);
  const std::vector<LanePlace> of_a = places_by_lane(ui, on, false);
  if (state.show_path) draw_path(a, view, of_a);
  draw_flows(ui, view, of_a);
  if (beside) {
    const DrawnRun b{
        beside->run->trace, ui.beside.model, ui.beside.idle, {&beside->pair.of_b, ui.beside.lit, "beside."}};
    draw_beside_head(ui, view, on.head);
    pointer.beside = draw_run(ui, view, on, b, true, hovered);
    report_kernels(ui, view, on, true);
    draw_step_bounds(b.model, view, on.head + line + px(11), on.prediction, false);
    if (state.show_path) draw_path(b, view, places_by_lane(ui, on, true));
  }
  draw_prediction(ui, view, on.prediction, names);
  light_pair(ui, pointer.bar, pointer.beside);
  draw_cursor(ui, view, on);
  draw_below(ui, view, on, drag);
  if (on.live_bottom > on.live_top) names.emplace_back((on.live_top + on.live_bottom) / 2, "Arena");
  list->PopClipRect();
  const float left = view.min.x - px(kLaneNames);
  for (const auto& [top, name] : names)
    list->AddText(theme().small, line, {left, top}, palette().text_faint, name.c_str());
  return pointer;
}

}  // namespace gradloom
