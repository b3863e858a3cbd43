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
#include "viz/draw/key_focus.h"
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
  if (io.MouseWheel != 0 && io.KeyShift)
    ImGui::SetScrollY(ImGui::GetScrollY() - io.MouseWheel * px(2 * kLaneHeight));
  else if (io.MouseWheel != 0)
    zoom(state, mouse_ns, std::pow(io.KeyCtrl ? 0.95 : 0.8, io.MouseWheel));
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
    const TimelineBar* const bar = cursor_bar(ui);
    const TimeRange at = bar != nullptr ? TimeRange{bar->start_ns, bar->end_ns} : kernel();
    const TimeRange to = !state.ruler.empty() ? state.ruler : !marked.empty() ? marked : at;
    if (!to.empty()) state.view = widened(to, 0.05);
  }
  if (key_pressed("timeline.all")) state.view = {};
  const double middle_ns = (state.view.from_ns + state.view.to_ns) / 2;
  if (key_pressed("timeline.zoom_in")) zoom(state, middle_ns, 0.8);
  if (key_pressed("timeline.zoom_out")) zoom(state, middle_ns, 1.25);
  if (!table_has_arrows()) {
    cursor_keys(ui);
    const float page = ImGui::GetWindowHeight() * 0.8f;
    if (key_pressed("timeline.lanes_down")) ImGui::SetScrollY(ImGui::GetScrollY() + page);
    if (key_pressed("timeline.lanes_up")) ImGui::SetScrollY(ImGui::GetScrollY() - page);
  }
  if (key_pressed("timeline.clear")) {
    state.ruler = {};
    set_range(state, trace, {});
  }
}

// What the bar stands for, as --speed of what-if names it; empty: it has no word for it.
std::string speed_selector(const TraceDocument& trace, const TimelineBar& bar) {
  if (bar.kernel >= 0) return "node:" + bar_name(trace, bar);
  if (bar.exchange >= 0) return "link";
  if (bar.activity >= 0 || bar.host >= 0 || bar.label.empty()) return {};
  return (bar.label == bar.phase ? "phase:" : "scope:") + bar.label;
}

void open_menu(TimelineState& state, const std::string& node, const TimelineBar* bar,
               const TraceDocument& trace) {
  state.menu_node = node;
  state.menu_speed = bar != nullptr ? speed_selector(trace, *bar) : std::string();
  state.menu_range = bar != nullptr ? TimeRange{bar->start_ns, bar->end_ns} : TimeRange();
}

// Of the bar that the keys are at, else of the selected kernel.
void menu_by_key(Ui& ui, ImVec2 beside) {
  TimelineState& state = ui.timeline;
  const TraceDocument& trace = ui.state().run->trace;
  const TimelineRows::Cursor& cursor = ui.lanes.cursor;
  const TimelineBar* const bar = cursor_bar(ui);
  if (bar != nullptr && cursor.lane.rfind("beside.", 0) == 0) {  // of the run below only its time
    open_menu(state, "", nullptr, trace);
    state.menu_range = {bar->start_ns, bar->end_ns};
  } else if (bar != nullptr) {
    open_menu(state, bar->kernel >= 0 ? bar_name(trace, *bar) : std::string(), bar, trace);
  } else {
    open_menu(state, ui.selected(), nullptr, trace);
    state.menu_range = launch_of(state.model, trace, ui.selected());
    if (state.menu_range.empty()) state.menu_node.clear();
  }
  ImGui::OpenPopup("timeline-menu");
  menu_by_keys(bar != nullptr ? ImVec2{cursor.min.x, cursor.max.y} : beside);
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
    open_menu(state, node, under, trace);
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

constexpr ImGuiButtonFlags kAllButtons =
    ImGuiButtonFlags_MouseButtonLeft | ImGuiButtonFlags_MouseButtonRight | ImGuiButtonFlags_MouseButtonMiddle;

// A part of the canvas that hears drags and the wheel.
struct Pointed {
  bool hovered = false, active = false;
};
Pointed mouse_area(const char* id, ImVec2 at, ImVec2 size) {
  ImGui::SetCursorScreenPos(at);
  ImGui::InvisibleButton(id, {std::max(1.f, size.x), std::max(1.f, size.y)}, kAllButtons);
  if (ImGui::IsItemHovered()) ImGui::SetItemUsingMouseWheel();
  return {ImGui::IsItemHovered(), ImGui::IsItemActive()};
}

// What is under the mouse, in words.
void tell_pointed(Ui& ui, const UnderPointer& pointer) {
  const AppState& s = ui.state();
  TimelineState& state = ui.timeline;
  const ImGuiIO& io = ImGui::GetIO();
  if (io.MouseDelta.x != 0 || io.MouseDelta.y != 0 || ImGui::IsAnyMouseDown()) ui.lanes.cursor.told = false;
  if (ui.lanes.cursor.told) return tell_cursor(ui);
  if (pointer.bar != nullptr) {
    bar_tooltip(s.run->trace, state.model, *pointer.bar, pair_text(ui, false, *pointer.bar));
    if (pointer.bar->kernel >= 0) ui.asks.hover_node = bar_name(s.run->trace, *pointer.bar);
    if (ImGui::IsMouseDoubleClicked(0))
      state.view = widened({pointer.bar->start_ns, pointer.bar->end_ns}, 0.05);
  } else if (pointer.beside != nullptr) {
    const TimelineBar& bar = *pointer.beside;
    bar_tooltip(s.beside->run->trace, ui.beside.model, bar, pair_text(ui, true, bar));
    if (bar.kernel >= 0) ui.asks.hover_node = bar_name(s.beside->run->trace, bar);
  }
}

// The lanes with all that the mouse does there; `view`: what of them is in sight.
void draw_lanes(Ui& ui, TimelineView& view, CanvasRows& on, float left, Pointed axis) {
  TimelineState& state = ui.timeline;
  ui.lanes.rows = on.rows;
  const ImVec2 origin = ImGui::GetCursorScreenPos();  // moves as the lanes are scrolled
  const Pointed lanes = mouse_area("canvas", {view.min.x, origin.y},
                                   {view.max.x - view.min.x, std::max(on.height, view.max.y - view.min.y)});
  const bool hovered = lanes.hovered || axis.hovered;
  ui.drawn(Canvas::timeline, hovered);
  if (hovered) move_view(ui, view);
  handle_drags(ui, view, hovered, lanes.active || axis.active);
  if (ui.takes_keys(Canvas::timeline)) handle_keys(ui);
  if (ui.takes_keys(Canvas::timeline) && !table_has_arrows() && key_pressed("app.menu"))
    menu_by_key(ui, view.min);
  if (state.view.empty()) return;  // shown whole in the next frame
  keep_inside(state);
  view.shown = state.view;
  move_rows(on, origin.y);
  const TimeRange drag = dragged(state, view);
  draw_lane_names(ui, on, left);
  const UnderPointer pointer = draw_canvas_rows(ui, view, on, drag, lanes.hovered);
  const bool dragging =
      !drag.empty() || (state.drag != TimelineState::Drag::none && moved_far(button_of(state.drag)));
  if (!pointer.over_note) finish_drag(ui, view, pointer.bar);
  if (!ImGui::IsAnyMouseDown()) state.drag = TimelineState::Drag::none;
  context_menu(ui);
  if (!pointer.over_note && !dragging) tell_pointed(ui, pointer);
}

// The axis stays in sight, the lanes below it scroll. Left of them their names, with a gutter for the sign that they fold.
void draw_canvas(Ui& ui) {
  TimelineState& state = ui.timeline;
  const ImVec2 at = ImGui::GetCursorScreenPos(), region = ImGui::GetContentRegionAvail();
  const float label = px(kLaneNames), gutter = px(8), axis_tall = theme().small->FontSize + px(8);
  const ImVec2 size{region.x, std::max(px(80), region.y)};
  const float lanes_tall = size.y - axis_tall;
  CanvasRows on = canvas_rows(ui, lanes_tall);
  const bool scrolls = on.height > lanes_tall + 0.5f;
  const float right = at.x + size.x - (scrolls ? ImGui::GetStyle().ScrollbarSize : 0);
  register_rect("timeline.canvas", at, {at.x + size.x, at.y + size.y}, "timeline",
                shown_numbers_text(state.model));
  const Pointed axis = mouse_area("axis", {at.x + label, at.y}, {right - at.x - label, axis_tall});
  TimelineView view{{at.x + label, at.y}, {right, at.y + size.y}, state.view};
  draw_ticks(view, at);
  view.min.y = at.y + axis_tall;
  ImGui::SetCursorScreenPos({at.x - gutter, view.min.y});
  if (ImGui::BeginChild("lanes", {size.x + gutter, lanes_tall}, false, ImGuiWindowFlags_NoScrollWithMouse)) {
    register_rect("timeline.lanes", {at.x - gutter, view.min.y}, view.max, "lanes",
                  !scrolls                                            ? "all"
                  : ImGui::GetScrollY() <= 0                          ? "top"
                  : ImGui::GetScrollY() + 1 >= ImGui::GetScrollMaxY() ? "bottom"
                                                                      : "scrolled");
    draw_lanes(ui, view, on, at.x - gutter, axis);
  }
  ImGui::EndChild();
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
  if (drawn_beside(ui) != nullptr && !ui.beside.model.steps.empty())
    state.whole = {std::min(0.0, ui.beside.model.steps.front().start_ns),
                   std::max(state.whole.to_ns, ui.beside.model.duration_ns)};
  state.whole.to_ns = std::max(state.whole.to_ns, prediction_end_ns(ui));
  if (state.view.empty()) state.view = widened(state.whole, 0.01);
  draw_canvas(ui);
}

}  // namespace gradloom
