// The timeline panel. Mouse: left drag is the ruler, Ctrl + drag the range that filters the other views,
// right drag pans, middle drag zooms to a range, the wheel zooms at the cursor; keys as in key_map().
#include <GLFW/glfw3.h>
#include <fmt/format.h>
#include <imgui_internal.h>

#include <algorithm>
#include <cmath>
#include <utility>

#include "app/desktop/timeline_lanes.h"
#include "engine/base/text.h"
#include "viz/draw/keys.h"

namespace gradloom {
namespace {

TimeRange widened(const TimeRange& range, double part) {
  return {range.from_ns - range.span() * part, range.to_ns + range.span() * part};
}

void zoom(TimelineState& state, double at_ns, double factor) {
  const double shortest = 200, longest = state.whole.span() * 1.1;
  const double span = std::clamp(state.view.span() * factor, shortest, longest);
  const double t = (at_ns - state.view.from_ns) / state.view.span();
  state.view.from_ns = at_ns - t * span;
  state.view.to_ns = state.view.from_ns + span;
}

void keep_inside(TimelineState& state) {
  const double margin = state.whole.span() * 0.05, span = state.view.span();
  const double first = state.whole.from_ns - margin, last = state.whole.to_ns + margin - span;
  state.view.from_ns = std::clamp(state.view.from_ns, first, std::max(first, last));
  state.view.to_ns = state.view.from_ns + span;
}

void pan(TimelineState& state, double ns) {
  state.view.from_ns += ns;
  state.view.to_ns += ns;
}

// Wheel and the keys that act while they are held, over the timeline only.
void move_view(Ui& ui, const TimelineView& view) {
  TimelineState& state = ui.timeline;
  const ImGuiIO& io = ImGui::GetIO();
  const double mouse_ns = view.ns(io.MousePos.x);
  if (io.MouseWheel != 0)
    zoom(state, mouse_ns, std::pow(io.KeyShift ? 0.5 : io.KeyCtrl ? 0.95 : 0.8, io.MouseWheel));
  if (io.WantTextInput || io.KeyCtrl || io.KeyShift || io.KeyAlt) return;
  const double step = std::min(io.DeltaTime, 0.1f) * 1.6;  // a frame after a pause is not a leap
  const double span = state.view.span();
  if (ImGui::IsKeyDown(GLFW_KEY_W)) zoom(state, mouse_ns, 1 - step);
  if (ImGui::IsKeyDown(GLFW_KEY_S)) zoom(state, mouse_ns, 1 + step);
  if (ImGui::IsKeyDown(GLFW_KEY_A)) pan(state, -span * step);
  if (ImGui::IsKeyDown(GLFW_KEY_D)) pan(state, span * step);
  for (int key : {GLFW_KEY_W, GLFW_KEY_S, GLFW_KEY_A, GLFW_KEY_D})
    if (ImGui::IsKeyDown(key)) ui.host.animate();
}

// Steps beside the shown ones: the next or the one before; with Shift one more or one less.
void step_keys(Ui& ui) {
  TimelineState& state = ui.timeline;
  const int first = state.first_index, last = state.last_index;
  const auto count = static_cast<int>(ui.state().run->trace.steps.size());
  const auto choose = [&](int from, int to) { choose_steps(state, from, std::max(from, to), count); };
  if (key_pressed("timeline.next_step") && last + 1 < count) choose(last + 1, last + 1);
  if (key_pressed("timeline.previous_step") && first > 0) choose(first - 1, first - 1);
  if (key_pressed("timeline.more_steps")) choose(first, last + 1);
  if (key_pressed("timeline.fewer_steps")) choose(first, last - 1);
}

void handle_keys(Ui& ui) {
  TimelineState& state = ui.timeline;
  const TraceDocument& trace = ui.state().run->trace;
  if (ImGui::IsPopupOpen(nullptr, ImGuiPopupFlags_AnyPopupId | ImGuiPopupFlags_AnyPopupLevel)) return;
  step_keys(ui);
  const auto kernel = [&] { return launch_of(state.model, trace, ui.selected()); };
  const TimeRange marked = state.filter ? state.filter->range : TimeRange();
  if (key_pressed("timeline.mark")) {
    const TimeRange range = state.ruler.empty() ? kernel() : state.ruler;
    if (range.empty())
      ui.app.notice(NoticeKind::info, "Measure a range or select a kernel of this step first");
    else
      set_range(state, trace, range);
    state.ruler = {};
  }
  if (key_pressed("timeline.focus"))
    if (const TimeRange to = kernel(); !to.empty()) state.view = widened(to, 4);
  if (key_pressed("timeline.zoom_to")) {
    const TimeRange to = !state.ruler.empty() ? state.ruler : !marked.empty() ? marked : kernel();
    if (!to.empty()) state.view = widened(to, 0.05);
  }
  if (key_pressed("timeline.all")) state.view = {};
  const double middle_ns = (state.view.from_ns + state.view.to_ns) / 2;
  if (key_pressed("timeline.zoom_in")) zoom(state, middle_ns, 0.8);
  if (key_pressed("timeline.zoom_out")) zoom(state, middle_ns, 1.25);
  const ImGuiIO& io = ImGui::GetIO();
  if (!io.KeyCtrl && !io.KeyAlt && !io.WantTextInput && !table_has_arrows())
    for (const auto& [key, by] : {std::pair{GLFW_KEY_LEFT, -0.1}, {GLFW_KEY_RIGHT, 0.1}})
      if (ImGui::IsKeyPressed(key)) pan(state, by * state.view.span());
  if (key_pressed("timeline.clear")) {
    state.ruler = {};
    set_range(state, trace, {});
  }
}

bool moved_far(int button) { return ImGui::IsMouseDragPastThreshold(button, px(4)); }

// Begins and goes on with drags; what they end with is finish_drag's.
void handle_drags(Ui& ui, const TimelineView& view, bool hovered, bool active) {
  using Drag = TimelineState::Drag;
  TimelineState& state = ui.timeline;
  const ImGuiIO& io = ImGui::GetIO();
  if (hovered && state.drag == Drag::none) {
    const Drag kinds[] = {io.KeyCtrl ? Drag::range : Drag::ruler, Drag::pan, Drag::zoom};
    for (int button = 0; button < 3; ++button) {
      if (!ImGui::IsMouseClicked(button)) continue;
      state.drag = kinds[button];
      state.drag_ns = view.ns(io.MousePos.x);
    }
  }
  if (state.drag == Drag::pan && active && moved_far(1)) {
    pan(state, -io.MouseDelta.x / (view.max.x - view.min.x) * state.view.span());
    ImGui::SetMouseCursor(ImGuiMouseCursor_ResizeAll);
  }
  if (state.drag == Drag::ruler && moved_far(0))
    state.ruler = range_between(state.drag_ns, view.ns(io.MousePos.x));
}

// What the bar stands for, as --speed of what-if names it; empty: it has no word for it.
std::string speed_selector(const TraceDocument& trace, const TimelineBar& bar) {
  if (bar.kernel >= 0) return "node:" + bar_name(trace, bar);
  if (bar.exchange >= 0) return "link";
  if (bar.activity >= 0 || bar.host >= 0 || bar.label.empty()) return {};
  return (bar.label == bar.phase ? "phase:" : "scope:") + bar.label;
}

int button_of(TimelineState::Drag drag) {
  using Drag = TimelineState::Drag;
  return drag == Drag::pan ? 1 : drag == Drag::zoom ? 2 : 0;
}

// The range that is being dragged out; empty when none is.
TimeRange dragged(const TimelineState& state, const TimelineView& view) {
  using Drag = TimelineState::Drag;
  if (state.drag != Drag::range && state.drag != Drag::zoom) return {};
  if (!moved_far(button_of(state.drag))) return {};
  return range_between(state.drag_ns, view.ns(ImGui::GetIO().MousePos.x));
}

// A drag that went nowhere was a click on `under`, which may be null.
void finish_drag(Ui& ui, const TimelineView& view, const TimelineBar* under) {
  using Drag = TimelineState::Drag;
  TimelineState& state = ui.timeline;
  const int button = button_of(state.drag);
  if (state.drag == Drag::none || ImGui::IsMouseDown(button)) return;
  const TraceDocument& trace = ui.state().run->trace;
  const TimeRange range = dragged(state, view);
  const Drag drag = std::exchange(state.drag, Drag::none);
  const bool kernel = under != nullptr && under->kernel >= 0;
  const std::string node = kernel ? trace.kernels[static_cast<std::size_t>(under->kernel)].node : "";
  if (drag == Drag::range && !range.empty()) {
    set_range(state, trace, range);
  } else if (drag == Drag::zoom) {
    if (!range.empty())
      state.view = range;
    else if (under)
      state.view = widened({under->start_ns, under->end_ns}, 0.05);
  } else if (drag == Drag::ruler && !moved_far(0)) {
    state.ruler = {};
    if (kernel) ui.go_to(node);
  } else if (drag == Drag::pan && !moved_far(1)) {
    state.menu_node = node;
    state.menu_speed = under ? speed_selector(trace, *under) : std::string();
    state.menu_range = under ? TimeRange{under->start_ns, under->end_ns} : TimeRange();
    ImGui::OpenPopup("timeline-menu");
  }
}

void context_menu(Ui& ui) {
  TimelineState& state = ui.timeline;
  if (!ImGui::BeginPopup("timeline-menu")) return;
  const TraceDocument& trace = ui.state().run->trace;
  const std::string& node = state.menu_node;
  if (!node.empty()) {
    if (selectable_row("timeline.menu.graph", "Show in the graph", false)) ui.asks.go_to_node = node;
    if (selectable_row("timeline.menu.kernel", "Show in the kernel table", false))
      ui.asks.go_to_kernel = node;
    if (selectable_row("timeline.menu.note", "Note\u2026", false)) ui.asks.note_node = node;
    if (selectable_row("timeline.menu.copy", "Copy name", false)) {
      ImGui::SetClipboardText(node.c_str());
      ui.asks.copied = node;
    }
    ImGui::Separator();
  }
  if (!state.menu_speed.empty() && selectable_row("timeline.menu.faster", kTwiceAsFast, false))
    ui.asks.twice_as_fast = {state.menu_speed};
  if (!state.menu_range.empty()) {
    if (selectable_row("timeline.menu.zoom", "Zoom to it", false))
      state.view = widened(state.menu_range, 0.05);
    if (selectable_row("timeline.menu.mark", "Mark its time", false))
      set_range(state, trace, state.menu_range);
  }
  if (state.filter && selectable_row("timeline.menu.note_time", "Note on the marked time\u2026", false))
    ui.note_on_time();
  if (state.filter && selectable_row("timeline.menu.clear", "Clear the marked time", false))
    set_range(state, trace, {});
  if (selectable_row("timeline.menu.all", "Show the whole step", false)) state.view = {};
  ImGui::EndPopup();
}

// One step, all, or those from one to another, which the strip and the keys choose.
void choose_shown(TimelineState& state, const std::vector<std::int64_t>& steps) {
  const auto count = static_cast<int>(steps.size());
  std::vector<std::string> names;
  for (std::int64_t s : steps) names.push_back("step " + std::to_string(s));
  const bool several = state.first_index != state.last_index,
             all = state.last_index - state.first_index + 1 == count;
  if (count > 1) names.push_back(fmt::format("all {} timed steps", count));
  if (several && !all) names.push_back(shown_steps_text(state.model));
  int chosen = !several ? state.first_index : all ? count : count + 1;
  if (!combo("timeline.step", &chosen, names, 150)) return;
  if (chosen < count)
    choose_steps(state, chosen, chosen, count);
  else if (chosen == count)
    choose_steps(state, 0, count - 1, count);
}

void draw_toolbar(Ui& ui, const std::vector<std::int64_t>& steps) {
  TimelineState& state = ui.timeline;
  choose_shown(state, steps);
  ImGui::SameLine(0, px(14));
  ImGui::AlignTextToFramePadding();
  const std::string sum = fmt::format("{} in the step{}", duration_text(state.model.step_ns),
                                      state.model.steps.size() > 1 ? "s" : "");
  text(sum, palette().text_dim);
  register_item("timeline.sum", "sum", sum);
  flow(px(150), px(14));
  times_chip(ui, "timeline.times", ImGui::GetContentRegionAvail().x);
  if (ui.filters()) {
    ImGui::SameLine(0, px(14));
    filter_chips(ui, "timeline");
  }
  draw_idle_legend(ui);
  draw_beside_line(ui);
  draw_idle_bars(ui);
}

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
    if (ImGui::IsMouseReleased(0) && !moved_far(0)) ui.edit_note(note);
  }
  return over_any;
}

struct UnderPointer {
  const TimelineBar *bar = nullptr, *beside = nullptr;
  bool over_note = false;
};

// Ticks, notes, lanes and the arena's bytes, with what is marked over them. `at`: where the names
// of the lanes begin.
UnderPointer draw_rows(Ui& ui, const TimelineView& view, ImVec2 at, const TimeRange& drag, bool hovered) {
  const AppState& s = ui.state();
  TimelineState& state = ui.timeline;
  const Palette& p = palette();
  ImDrawList* list = ImGui::GetWindowDrawList();
  list->PushClipRect(view.min, view.max, true);
  draw_ticks(view, at);
  UnderPointer pointer;
  std::vector<std::pair<float, std::string>> names;  // of the lanes, left of them
  float y = at.y + theme().small->FontSize + px(6) + px(4);
  const float height = px(24);
  const bool notes = std::any_of(s.marks->notes.begin(), s.marks->notes.end(),
                                 [&](const Note& n) { return step_of(n, s, state.model) != nullptr; });
  if (notes) {
    pointer.over_note = draw_notes(ui, view, y, px(19), hovered);
    names.emplace_back(y + (px(19) - theme().small->FontSize) / 2, "Notes");
    y += px(24);
  }
  if (state.model.steps.size() > 1) y += theme().small->FontSize + px(2);
  const float bars_top = y;
  std::vector<LanePlace> places;
  const RunBeside* beside = shown_beside(s);
  const LaneMarks marks{beside ? &beside->pair.of_a : nullptr, ui.beside.lit, ""};
  for (const TimelineLane& lane : state.model.lanes) {
    const float tall = lane.stream && !lane.bars.empty() ? px(40) : height;
    places.push_back({y, tall});
    draw_gaps(ui, view, lane, places.back(), false);
    if (const TimelineBar* bar = draw_lane(ui, view, s.run->trace, lane, places.back(), hovered, marks))
      pointer.bar = bar;
    draw_gaps(ui, view, lane, places.back(), true);
    names.emplace_back(y + (tall - theme().small->FontSize) / 2, lane.name);
    y += tall + px(5);
  }
  draw_step_bounds(state.model, view, bars_top, y);
  if (state.show_path) draw_path(ui, view, places);
  draw_flows(ui, view, places);
  BesideLanes other = draw_beside(ui, view, y, hovered);
  y = other.y;
  pointer.beside = other.under;
  names.insert(names.end(), other.names.begin(), other.names.end());
  y = draw_prediction(ui, view, y, names);
  light_pair(ui, pointer.bar, pointer.beside);
  const float live_top = y + px(10), live_bottom = std::min(view.max.y - px(2), live_top + px(200));
  draw_live(state.model, view, live_top, live_bottom);
  if (!state.model.live_ns.empty() && live_bottom - live_top >= px(40))
    names.emplace_back((live_top + live_bottom) / 2, "Arena");
  if (state.filter) draw_range(view, state.filter->range, bars_top);
  const bool zooming = state.drag == TimelineState::Drag::zoom;
  if (!drag.empty()) draw_measure(view, drag, live_top - px(2), zooming ? p.text_dim : p.accent);
  if (!state.ruler.empty()) draw_measure(view, state.ruler, live_top - px(2), p.warn);
  list->PopClipRect();
  for (const auto& [top, name] : names)
    list->AddText(theme().small, theme().small->FontSize, {at.x, top}, p.text_faint, name.c_str());
  return pointer;
}

}  // namespace

void draw_timeline_panel(Ui& ui) {
  const AppState& s = ui.state();
  if (s.run && !s.run->record.steps.empty()) draw_step_strip(ui);
  if (!s.run || s.run->trace.steps.empty()) {
    return empty_state(
        "Nothing timed yet",
        "Run with kernel timing (sampled or all) and the kernels of each timed step appear here in time.");
  }
  TimelineState& state = ui.timeline;
  const TraceDocument& trace = s.run->trace;
  if (s.run->record.loop) draw_loop_card(*s.run->record.loop);
  draw_toolbar(ui, timed_steps(trace));
  state.whole = {0, std::max(1000.0, state.model.duration_ns)};
  if (shown_beside(s) != nullptr && !ui.beside.model.steps.empty())
    state.whole = {std::min(0.0, ui.beside.model.steps.front().start_ns),
                   std::max(state.whole.to_ns, ui.beside.model.duration_ns)};
  state.whole.to_ns = std::max(state.whole.to_ns, prediction_end_ns(ui));
  if (state.view.empty()) state.view = widened(state.whole, 0.01);
  const ImVec2 at = ImGui::GetCursorScreenPos(), region = ImGui::GetContentRegionAvail();
  const float label = px(kLaneNames);
  const ImVec2 size{region.x, std::max(px(60), region.y)};
  ImGui::InvisibleButton("timeline", size,
                         ImGuiButtonFlags_MouseButtonLeft | ImGuiButtonFlags_MouseButtonRight |
                             ImGuiButtonFlags_MouseButtonMiddle);
  const bool hovered = ImGui::IsItemHovered(), active = ImGui::IsItemActive();
  register_rect("timeline.canvas", at, {at.x + size.x, at.y + size.y}, "timeline",
                shown_numbers_text(state.model));
  if (hovered) ImGui::SetItemUsingMouseWheel();
  ui.drawn(Canvas::timeline, hovered);
  TimelineView view{{at.x + label, at.y}, {at.x + size.x, at.y + size.y}, state.view};
  if (hovered) move_view(ui, view);
  handle_drags(ui, view, hovered, active);
  if (ui.takes_keys(Canvas::timeline)) handle_keys(ui);
  if (state.view.empty()) return;  // shown whole in the next frame
  keep_inside(state);
  view.shown = state.view;
  const TimeRange drag = dragged(state, view);
  const UnderPointer pointer = draw_rows(ui, view, at, drag, hovered);
  const TimelineBar* under = pointer.bar;
  const bool dragging =
      !drag.empty() || (state.drag != TimelineState::Drag::none && moved_far(button_of(state.drag)));
  if (!pointer.over_note) finish_drag(ui, view, under);
  if (!ImGui::IsAnyMouseDown()) state.drag = TimelineState::Drag::none;
  context_menu(ui);
  if (pointer.over_note || dragging) return;
  if (under == nullptr && pointer.beside != nullptr) {
    const TimelineBar& bar = *pointer.beside;
    bar_tooltip(s.beside->run->trace, ui.beside.model, bar, pair_text(ui, true, bar));
    if (bar.kernel >= 0) ui.asks.hover_node = bar_name(s.beside->run->trace, bar);
  }
  if (under == nullptr) return;
  bar_tooltip(trace, state.model, *under, pair_text(ui, false, *under));
  if (under->kernel >= 0) ui.asks.hover_node = bar_name(trace, *under);
  if (ImGui::IsMouseDoubleClicked(0)) state.view = widened({under->start_ns, under->end_ns}, 0.05);
}

}  // namespace gradloom
