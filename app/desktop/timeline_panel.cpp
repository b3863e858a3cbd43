// The timeline panel. Mouse: left drag is the ruler, Ctrl + drag the range that filters the other views,
// right drag pans, middle drag zooms to a range, the wheel zooms at the cursor; keys as in key_map().
#include <GLFW/glfw3.h>
#include <fmt/format.h>
#include <imgui_internal.h>

#include <algorithm>
#include <cmath>
#include <utility>

#include "app/desktop/ui.h"
#include "engine/base/text.h"
#include "viz/draw/keys.h"

namespace gradloom {
namespace {

constexpr std::size_t kMostRegistered = 300;  // bars reported to the item registry

struct View {
  ImVec2 min, max;  // of the bars
  TimeRange shown;
  float x(double ns) const {
    return min.x + static_cast<float>((ns - shown.from_ns) / shown.span()) * (max.x - min.x);
  }
  double ns(float at) const { return shown.from_ns + (at - min.x) / (max.x - min.x) * shown.span(); }
};

TimeRange widened(const TimeRange& range, double part) {
  return {range.from_ns - range.span() * part, range.to_ns + range.span() * part};
}

void zoom(TimelineState& state, double at_ns, double factor) {
  const double shortest = 200, longest = state.model.duration_ns * 1.1;
  const double span = std::clamp(state.view.span() * factor, shortest, longest);
  const double t = (at_ns - state.view.from_ns) / state.view.span();
  state.view.from_ns = at_ns - t * span;
  state.view.to_ns = state.view.from_ns + span;
}

void keep_inside(TimelineState& state) {
  const double margin = state.model.duration_ns * 0.05, span = state.view.span();
  state.view.from_ns =
      std::clamp(state.view.from_ns, -margin, std::max(-margin, state.model.duration_ns + margin - span));
  state.view.to_ns = state.view.from_ns + span;
}

void pan(TimelineState& state, double ns) {
  state.view.from_ns += ns;
  state.view.to_ns += ns;
}

// Wheel and the keys that act while they are held, over the timeline only.
void move_view(Ui& ui, const View& view) {
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

void handle_keys(Ui& ui) {
  TimelineState& state = ui.timeline;
  const TraceDocument& trace = ui.state().run->trace;
  if (ImGui::IsPopupOpen(nullptr, ImGuiPopupFlags_AnyPopupId | ImGuiPopupFlags_AnyPopupLevel)) return;
  const TimeRange kernel = launch_of(state.model, trace, ui.selected());
  const TimeRange marked = state.filter ? state.filter->range : TimeRange();
  if (key_pressed("timeline.mark")) {
    const TimeRange range = state.ruler.empty() ? kernel : state.ruler;
    if (range.empty())
      ui.app.notice(NoticeKind::info, "Measure a range or select a kernel of this step first");
    else
      set_range(state, trace, range);
    state.ruler = {};
  }
  if (key_pressed("timeline.focus") && !kernel.empty()) state.view = widened(kernel, 4);
  if (key_pressed("timeline.zoom_to")) {
    const TimeRange to = !state.ruler.empty() ? state.ruler : !marked.empty() ? marked : kernel;
    if (!to.empty()) state.view = widened(to, 0.05);
  }
  if (key_pressed("timeline.all")) state.view = {};
  if (key_pressed("timeline.clear")) {
    state.ruler = {};
    set_range(state, trace, {});
  }
}

bool moved_far(int button) { return ImGui::IsMouseDragPastThreshold(button, px(4)); }

// Begins and goes on with drags; what they end with is finish_drag's.
void handle_drags(Ui& ui, const View& view, bool hovered, bool active) {
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
TimeRange dragged(const TimelineState& state, const View& view) {
  using Drag = TimelineState::Drag;
  if (state.drag != Drag::range && state.drag != Drag::zoom) return {};
  if (!moved_far(button_of(state.drag))) return {};
  return range_between(state.drag_ns, view.ns(ImGui::GetIO().MousePos.x));
}

// A drag that went nowhere was a click on `under`, which may be null.
void finish_drag(Ui& ui, const View& view, const TimelineBar* under) {
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

void draw_ticks(const View& view, ImVec2 top) {
  const Palette& p = palette();
  ImDrawList* list = ImGui::GetWindowDrawList();
  Axis axis;
  axis.min = view.shown.from_ns;
  axis.max = view.shown.to_ns;
  axis.unit = Unit::kNs;
  ImFont* font = theme().small;
  for (const Tick& tick : ticks(axis, std::max(2, static_cast<int>((view.max.x - view.min.x) / px(110))))) {
    const float x = view.x(tick.value);
    if (x < view.min.x || x > view.max.x) continue;
    list->AddLine({x, top.y + font->FontSize + px(3)}, {x, view.max.y}, p.grid);
    const float width = font->CalcTextSizeA(font->FontSize, FLT_MAX, 0, tick.label.c_str()).x;
    const float left = x + px(3) + width > view.max.x ? x - px(3) - width : x + px(3);  // the last one inside
    list->AddText(font, font->FontSize, {left, top.y}, p.text_faint, tick.label.c_str());
  }
}

const TimelineBar* draw_lane(Ui& ui, const View& view, const TimelineLane& lane, float y, float height,
                             bool hovered) {
  const Palette& p = palette();
  const TraceDocument& trace = ui.state().run->trace;
  ImDrawList* list = ImGui::GetWindowDrawList();
  const ImVec2 mouse = ImGui::GetIO().MousePos;
  const std::string selected = ui.selected();
  const GraphMarks* marks = ui.graph.marks.get();
  const TimelineBar* under = nullptr;
  float drawn_to = view.min.x - 1;
  std::size_t registered = 0;
  for (std::size_t i = first_bar_after(lane, view.shown.from_ns); i < lane.bars.size(); ++i) {
    const TimelineBar& bar = lane.bars[i];
    if (bar.start_ns > view.shown.to_ns) break;
    const float x0 = std::max(view.x(bar.start_ns), view.min.x),
                x1 = std::min(std::max(view.x(bar.end_ns), view.x(bar.start_ns) + 1), view.max.x);
    if (x1 < drawn_to + 0.5f) continue;  // hidden behind what is drawn: a pixel is drawn once
    drawn_to = x1;
    const bool kernel = bar.kernel >= 0;
    const std::string node =
        kernel ? trace.kernels[static_cast<std::size_t>(bar.kernel)].node : std::string();
    const bool plain = bar.activity >= 0 || bar.host >= 0 || bar.exchange >= 0;
    ImU32 fill = bar.host >= 0
                     ? mix(p.panel, host_color(trace.host[static_cast<std::size_t>(bar.host)].kind), 0.62f)
                 : bar.exchange >= 0 ? mix(p.panel, p.text, bar.waits ? 0.1f : 0.45f)
                 : bar.activity >= 0 ? mix(p.panel, p.text_dim, lane.stream ? 0.5f : 0.3f)
                                     : mix(p.panel, phase_color(bar.phase), kernel ? 0.62f : 0.3f);
    const bool over =
        hovered && mouse.y >= y && mouse.y < y + height && mouse.x >= x0 && mouse.x < std::max(x1, x0 + 2);
    if (over) {
      under = &bar;
      fill = mix(fill, p.text, 0.15f);
    }
    const float rounding = x1 - x0 > px(6) ? px(3) : 0;
    const float right = x1 - x0 > px(3) ? x1 - 1 : x1;
    list->AddRectFilled({x0, y}, {right, y + height}, fill, rounding);
    if (kernel && (node == selected || node == ui.outline))
      list->AddRect({x0 - 1, y - 1}, {right + 1, y + height + 1}, node == selected ? p.text : p.accent,
                    rounding, 0, px(1.5f));
    const bool noted = kernel && marks && marks->noted.count(node) != 0;
    if (noted) {
      const float sign = std::min(px(9), std::max(px(4), right - x0));
      list->AddTriangleFilled({right - sign, y}, {right, y}, {right, y + sign}, p.warn);
    }
    if ((kernel || plain) && x1 - x0 >= px(3) && ++registered <= kMostRegistered)
      register_rect("bar." + (kernel ? node : bar.label), {x0, y}, {right, y + height}, bar.label,
                    noted ? "noted" : "");
    if (x1 - x0 < px(36)) continue;
    ImFont* font = theme().small;
    // In its own lane a scope's last part says enough; a kernel's operator says more than the
    // start of its node's name.
    const std::string name = kernel ? trace.kernels[static_cast<std::size_t>(bar.kernel)].op
                             : bar.host >= 0 || bar.exchange >= 0
                                 ? bar.label
                                 : bar.label.substr(bar.label.rfind('/') + 1);
    const std::string label = fit_text(font, font->FontSize, name, x1 - x0 - px(10));
    list->AddText(font, font->FontSize, {x0 + px(5), y + (height - font->FontSize) / 2},
                  kernel || bar.host >= 0 || bar.exchange >= 0 ? ink_on(fill) : p.text_dim, label.c_str());
  }
  return under;
}

// Bytes of the arena in use, on the same clock.
void draw_live(const TimelineModel& model, const View& view, float top, float bottom) {
  if (model.live_ns.empty() || bottom - top < px(40)) return;
  const Palette& p = palette();
  ImDrawList* list = ImGui::GetWindowDrawList();
  const double most = std::max(1.0, *std::max_element(model.live_bytes.begin(), model.live_bytes.end()));
  const auto y = [&](double bytes) {
    return bottom - static_cast<float>(bytes / most) * (bottom - top - px(16));
  };
  for (std::size_t i = 0; i < model.live_ns.size(); ++i) {
    const double end_ns = i + 1 < model.live_ns.size() ? model.live_ns[i + 1] : model.duration_ns;
    if (end_ns < view.shown.from_ns || model.live_ns[i] > view.shown.to_ns) continue;
    const float x0 = view.x(model.live_ns[i]), x1 = std::max(view.x(end_ns), x0 + 1);
    list->AddRectFilled({x0, y(model.live_bytes[i])}, {x1, bottom}, mix(p.panel, p.optimizer, 0.28f));
    list->AddLine({x0, y(model.live_bytes[i])}, {x1, y(model.live_bytes[i])}, p.optimizer, px(1.2f));
  }
  list->AddLine({view.min.x, y(most)}, {view.max.x, y(most)}, p.grid);
  ImFont* font = theme().small;
  const std::string label = "peak " + format_value(most, Unit::kBytes);
  list->AddText(font, font->FontSize, {view.min.x + px(4), y(most) - font->FontSize - px(1)}, p.text_faint,
                label.c_str());
}

// "copy, stream 1 (upload)\n4.0 KiB in 12 us, 0.3 GB/s"; of a launch what it starts.
void activity_tooltip(const TraceDocument& trace, const TimelineBar& bar) {
  const TraceActivity& a = trace.activities[static_cast<std::size_t>(bar.activity)];
  std::string tip = a.name + (a.stream < 0 ? " by the CPU" : ", " + stream_name(a.stream)) + "\n" +
                    duration_text(static_cast<double>(a.duration_ns)) + " at " + duration_text(bar.start_ns);
  if (a.bytes > 0 && a.duration_ns > 0)
    tip += fmt::format("\n{}, {:.1f} GB/s", bytes_text(static_cast<double>(a.bytes)),
                       static_cast<double>(a.bytes) / static_cast<double>(a.duration_ns));
  if (a.plan_step >= 0 && static_cast<std::size_t>(a.plan_step) < trace.kernels.size())
    tip += "\nstarts with " + escaped(trace.kernels[static_cast<std::size_t>(a.plan_step)].node);
  ImGui::SetTooltip("%s", tip.c_str());
}

void host_tooltip(const TraceDocument& trace, const TimelineBar& bar) {
  const HostSpan& s = trace.host[static_cast<std::size_t>(bar.host)];
  ImGui::SetTooltip("%s\n%s\n%s at %s", escaped(bar.label).c_str(), find_host_kind(s.kind)->title,
                    duration_text(bar.end_ns - bar.start_ns).c_str(), duration_text(bar.start_ns).c_str());
}

// "exchange of rank 1\nready at 3.1 ms, waits 0.4 ms for the last rank\ntransfers 1.2 ms, sends 2.0 MB\nof a/bucket/AllReduceBegin"
void exchange_tooltip(const TraceDocument& trace, const TimelineModel& model, const TimelineBar& bar) {
  const TraceExchange& e = trace.exchanges[static_cast<std::size_t>(bar.exchange)];
  const double ready_ns = bar.waits ? bar.start_ns : bar.start_ns - static_cast<double>(e.wait_ns);
  const bool known = e.plan_step >= 0 && static_cast<std::size_t>(e.plan_step) < trace.kernels.size();
  ImGui::SetTooltip(
      "exchange of rank %d in step %lld\nready at %s, waits %s for the last rank\ntransfers %s, sends %s\n%s",
      e.rank, static_cast<long long>(model.step), duration_text(ready_ns).c_str(),
      duration_text(static_cast<double>(e.wait_ns)).c_str(),
      duration_text(static_cast<double>(e.duration_ns - e.wait_ns)).c_str(),
      bytes_text(static_cast<double>(e.sent_bytes)).c_str(),
      known ? escaped(trace.kernels[static_cast<std::size_t>(e.plan_step)].node).c_str() : "");
}

void bar_tooltip(const TraceDocument& trace, const TimelineModel& model, const TimelineBar& bar) {
  if (bar.exchange >= 0) return exchange_tooltip(trace, model, bar);
  if (bar.host >= 0) return host_tooltip(trace, bar);
  if (bar.activity >= 0) return activity_tooltip(trace, bar);
  if (bar.kernel < 0) {
    ImGui::SetTooltip("%s %s\n%s", bar.phase.c_str(), bar.label == bar.phase ? "" : bar.label.c_str(),
                      duration_text(bar.end_ns - bar.start_ns).c_str());
    return;
  }
  const KernelInfo& k = trace.kernels[static_cast<std::size_t>(bar.kernel)];
  const double ns = std::max(1.0, bar.end_ns - bar.start_ns);
  const std::string by = k.implementation.empty() ? "" : "\n" + escaped(k.implementation);
  ImGui::SetTooltip("%s\n%s  %s%s\n%s at %s\n%.1f GFLOP/s, %.1f GB/s%s%s", k.node.c_str(), k.op.c_str(),
                    k.kernel.c_str(), by.c_str(), duration_text(ns).c_str(),
                    duration_text(bar.start_ns).c_str(), k.flops / ns, (k.bytes_read + k.bytes_written) / ns,
                    k.onnx_nodes.empty() ? "" : "\nfrom ", joined(k.onnx_nodes).substr(0, 300).c_str());
}

void draw_toolbar(Ui& ui, const std::vector<std::int64_t>& steps) {
  TimelineState& state = ui.timeline;
  std::vector<std::string> names;
  for (std::int64_t s : steps) names.push_back("step " + std::to_string(s));
  if (combo("timeline.step", &state.step_index, names, 110))
    state.newest_step = state.step_index + 1 == static_cast<int>(steps.size());
  ImGui::SameLine(0, px(14));
  ImGui::AlignTextToFramePadding();
  const double busy = state.model.duration_ns > 0 ? state.model.busy_ns / state.model.duration_ns : 0;
  text(fmt::format("{} in the step, {} inside kernels", duration_text(state.model.duration_ns),
                   percent_text(busy)),
       palette().text_dim);
  if (state.filter) {
    ImGui::SameLine(0, px(14));
    range_chip(ui, "timeline.range");
  }
}

// A label on a pill, centred at x, kept inside the view.
void pill(const View& view, float x, float y, const std::string& label, ImU32 fill) {
  ImFont* font = theme().small;
  const float width = font->CalcTextSizeA(font->FontSize, FLT_MAX, 0, label.c_str()).x + px(14);
  const float left =
      std::round(std::clamp(x - width / 2, view.min.x, std::max(view.min.x, view.max.x - width)));
  ImDrawList* list = ImGui::GetWindowDrawList();
  list->AddRectFilled({left, y}, {left + width, y + font->FontSize + px(5)}, fill, px(9));
  list->AddText(font, font->FontSize, {left + px(7), y + px(2)}, ink_on(fill), label.c_str());
}

// The range is clear, the time around it veiled.
void draw_range(const View& view, const TimeRange& range, float top) {
  const Palette& p = palette();
  ImDrawList* list = ImGui::GetWindowDrawList();
  const float x0 = std::clamp(view.x(range.from_ns), view.min.x - px(2), view.max.x + px(2)),
              x1 = std::clamp(view.x(range.to_ns), view.min.x - px(2), view.max.x + px(2));
  const ImU32 veil = with_alpha(p.panel, 0.62f);
  list->AddRectFilled({view.min.x, top}, {x0, view.max.y}, veil);
  list->AddRectFilled({x1, top}, view.max, veil);
  for (const float x : {x0, x1}) list->AddLine({x, top}, {x, view.max.y}, p.accent, px(1.2f));
}

// The measured time: a band with its length on an arrow.
void draw_measure(const View& view, const TimeRange& range, float y, ImU32 color) {
  ImDrawList* list = ImGui::GetWindowDrawList();
  const float x0 = view.x(range.from_ns), x1 = view.x(range.to_ns), head = px(4);
  list->AddRectFilled({x0, view.min.y}, {x1, view.max.y}, with_alpha(color, 0.1f));
  for (const float x : {x0, x1}) list->AddLine({x, view.min.y}, {x, view.max.y}, color, px(1));
  list->AddLine({x0, y}, {x1, y}, color, px(1.2f));
  if (x1 - x0 > 4 * head) {
    list->AddTriangleFilled({x0, y}, {x0 + head * 1.6f, y - head}, {x0 + head * 1.6f, y + head}, color);
    list->AddTriangleFilled({x1, y}, {x1 - head * 1.6f, y - head}, {x1 - head * 1.6f, y + head}, color);
  }
  const std::string label = duration_text(range.span());
  pill(view, (x0 + x1) / 2, y - theme().small->FontSize / 2 - px(3), label, color);
  register_rect("timeline.ruler", {x0, view.min.y}, {x1, view.max.y}, "ruler", label);
}

bool is_here(const Note& note, const AppState& s, const TimelineModel& model) {
  return note.node.empty() && note.session == s.session_path && note.run == s.run->record.summary.id &&
         note.step == model.step;
}

// Notes on times of this step, as brackets in a strip of their own; true when one is under the mouse.
bool draw_notes(Ui& ui, const View& view, float top, float height, bool hovered) {
  const Palette& p = palette();
  const AppState& s = ui.state();
  const ImVec2 mouse = ImGui::GetIO().MousePos;
  ImDrawList* list = ImGui::GetWindowDrawList();
  ImFont* font = theme().small;
  bool over_any = false;
  for (const Note& note : s.marks->notes) {
    if (!is_here(note, s, ui.timeline.model)) continue;
    const float x0 = view.x(note.from_ns), x1 = std::max(view.x(note.to_ns), x0 + px(6));
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
  const TimelineBar* bar = nullptr;
  bool over_note = false;
};

// Ticks, notes, lanes and the arena's bytes, with what is marked over them. `at`: where the names
// of the lanes begin.
UnderPointer draw_rows(Ui& ui, const View& view, ImVec2 at, const TimeRange& drag, bool hovered) {
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
                                 [&](const Note& n) { return is_here(n, s, state.model); });
  if (notes) {
    pointer.over_note = draw_notes(ui, view, y, px(19), hovered);
    names.emplace_back(y + (px(19) - theme().small->FontSize) / 2, "Notes");
    y += px(24);
  }
  const float bars_top = y;
  for (const TimelineLane& lane : state.model.lanes) {
    const float tall = lane.stream && !lane.bars.empty() ? px(40) : height;
    if (const TimelineBar* bar = draw_lane(ui, view, lane, y, tall, hovered)) pointer.bar = bar;
    names.emplace_back(y + (tall - theme().small->FontSize) / 2, lane.name);
    y += tall + px(5);
  }
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
  if (!s.run || s.run->trace.steps.empty()) {
    return empty_state(
        "Nothing timed yet",
        "Run with kernel timing (sampled or all) and the kernels of each timed step appear here in time.");
  }
  TimelineState& state = ui.timeline;
  const TraceDocument& trace = s.run->trace;
  if (s.run->record.loop) draw_loop_card(*s.run->record.loop);
  draw_toolbar(ui, timed_steps(trace));
  if (state.view.empty())
    state.view = {-0.01 * state.model.duration_ns, std::max(1000.0, state.model.duration_ns * 1.01)};
  const ImVec2 at = ImGui::GetCursorScreenPos(), region = ImGui::GetContentRegionAvail();
  const float label = px(64);
  const ImVec2 size{region.x, std::max(px(60), region.y)};
  ImGui::InvisibleButton("timeline", size,
                         ImGuiButtonFlags_MouseButtonLeft | ImGuiButtonFlags_MouseButtonRight |
                             ImGuiButtonFlags_MouseButtonMiddle);
  const bool hovered = ImGui::IsItemHovered(), active = ImGui::IsItemActive();
  register_rect("timeline.canvas", at, {at.x + size.x, at.y + size.y}, "timeline",
                std::to_string(state.model.step));
  if (hovered) ImGui::SetItemUsingMouseWheel();
  ui.drawn(Canvas::timeline, hovered);
  View view{{at.x + label, at.y}, {at.x + size.x, at.y + size.y}, state.view};
  if (hovered) move_view(ui, view);
  handle_drags(ui, view, hovered, active);
  if (ui.takes_keys(Canvas::timeline)) handle_keys(ui);
  if (state.view.empty()) return;  // shown whole in the next frame
  keep_inside(state);
  view.shown = state.view;
  const TimeRange drag = dragged(state, view);
  const auto [under, over_note] = draw_rows(ui, view, at, drag, hovered);
  const bool dragging =
      !drag.empty() || (state.drag != TimelineState::Drag::none && moved_far(button_of(state.drag)));
  if (!over_note) finish_drag(ui, view, under);
  if (!ImGui::IsAnyMouseDown()) state.drag = TimelineState::Drag::none;
  context_menu(ui);
  if (under == nullptr || over_note || dragging) return;
  bar_tooltip(trace, state.model, *under);
  if (under->kernel >= 0) ui.asks.hover_node = trace.kernels[static_cast<std::size_t>(under->kernel)].node;
  if (ImGui::IsMouseDoubleClicked(0)) state.view = widened({under->start_ns, under->end_ns}, 0.05);
}

}  // namespace gradloom
