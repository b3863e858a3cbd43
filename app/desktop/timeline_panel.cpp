// The timeline panel: wheel or W/S zoom at the cursor, right drag or A/D pan, left drag measures, F shows the
// selected kernel, a double click on a bar zooms to it, Home shows the whole step.
#include <GLFW/glfw3.h>
#include <fmt/format.h>
#include <imgui.h>

#include <algorithm>
#include <cmath>

#include "app/desktop/ui.h"
#include "engine/base/text.h"

namespace gradloom {
namespace {

struct View {
  ImVec2 min, max;  // of the bars
  double from_ns, to_ns;
  float x(double ns) const {
    return min.x + static_cast<float>((ns - from_ns) / (to_ns - from_ns)) * (max.x - min.x);
  }
  double ns(float at) const { return from_ns + (at - min.x) / (max.x - min.x) * (to_ns - from_ns); }
};

void zoom(TimelineState& state, double at_ns, double factor) {
  const double shortest = 200, longest = state.model.duration_ns * 1.1;
  const double span = std::clamp((state.to_ns - state.from_ns) * factor, shortest, longest);
  const double t = (at_ns - state.from_ns) / (state.to_ns - state.from_ns);
  state.from_ns = at_ns - t * span;
  state.to_ns = state.from_ns + span;
}

void keep_inside(TimelineState& state) {
  const double margin = state.model.duration_ns * 0.05, span = state.to_ns - state.from_ns;
  state.from_ns =
      std::clamp(state.from_ns, -margin, std::max(-margin, state.model.duration_ns + margin - span));
  state.to_ns = state.from_ns + span;
}

void handle_input(Ui& ui, const View& view, bool hovered) {
  TimelineState& state = ui.timeline;
  ImGuiIO& io = ImGui::GetIO();
  const double mouse_ns = view.ns(io.MousePos.x), span = state.to_ns - state.from_ns;
  if (hovered) {
    if (io.MouseWheel != 0)
      zoom(state, mouse_ns, std::pow(io.KeyShift ? 0.5 : io.KeyCtrl ? 0.95 : 0.8, io.MouseWheel));
    if (!io.WantTextInput && !io.KeyCtrl) {
      const double step = io.DeltaTime * 1.6;
      if (ImGui::IsKeyDown(GLFW_KEY_W)) zoom(state, mouse_ns, 1 - step);
      if (ImGui::IsKeyDown(GLFW_KEY_S)) zoom(state, mouse_ns, 1 + step);
      if (ImGui::IsKeyDown(GLFW_KEY_A)) state.from_ns -= span * step, state.to_ns -= span * step;
      if (ImGui::IsKeyDown(GLFW_KEY_D)) state.from_ns += span * step, state.to_ns += span * step;
      for (int key : {GLFW_KEY_W, GLFW_KEY_S, GLFW_KEY_A, GLFW_KEY_D})
        if (ImGui::IsKeyDown(key)) ui.host.animate();
      if (ImGui::IsKeyPressed(GLFW_KEY_HOME)) state.from_ns = state.to_ns = 0;
    }
  }
  if (ImGui::IsItemActive() && ImGui::IsMouseDragging(1, 0)) {
    const double moved = io.MouseDelta.x / (view.max.x - view.min.x) * span;
    state.from_ns -= moved;
    state.to_ns -= moved;
  }
  if (hovered && ImGui::IsMouseClicked(0)) state.measure_from_ns = mouse_ns, state.measure_to_ns = mouse_ns;
  if (ImGui::IsItemActive() && ImGui::IsMouseDown(0)) state.measure_to_ns = mouse_ns;
}

void draw_ruler(const View& view, ImVec2 top) {
  const Palette& p = palette();
  ImDrawList* list = ImGui::GetWindowDrawList();
  Axis axis;
  axis.min = view.from_ns;
  axis.max = view.to_ns;
  axis.unit = Unit::kNs;
  ImFont* font = theme().small;
  for (const Tick& tick : ticks(axis, std::max(2, static_cast<int>((view.max.x - view.min.x) / px(110))))) {
    const float x = view.x(tick.value);
    if (x < view.min.x || x > view.max.x) continue;
    list->AddLine({x, top.y + font->FontSize + px(3)}, {x, view.max.y}, p.grid);
    list->AddText(font, font->FontSize, {x + px(3), top.y}, p.text_faint, tick.label.c_str());
  }
}

const TimelineBar* draw_lane(Ui& ui, const View& view, const TimelineLane& lane, float y, float height,
                             bool hovered) {
  const Palette& p = palette();
  const TraceDocument& trace = ui.state().run->trace;
  ImDrawList* list = ImGui::GetWindowDrawList();
  const ImVec2 mouse = ImGui::GetIO().MousePos;
  const std::string selected = ui.selected();
  const TimelineBar* under = nullptr;
  float drawn_to = view.min.x - 1;
  for (std::size_t i = first_bar_after(lane, view.from_ns); i < lane.bars.size(); ++i) {
    const TimelineBar& bar = lane.bars[i];
    if (bar.start_ns > view.to_ns) break;
    const float x0 = std::max(view.x(bar.start_ns), view.min.x),
                x1 = std::min(std::max(view.x(bar.end_ns), view.x(bar.start_ns) + 1), view.max.x);
    if (x1 < drawn_to + 0.5f) continue;  // hidden behind what is drawn: a pixel is drawn once
    drawn_to = x1;
    const bool kernel = bar.kernel >= 0;
    const std::string node =
        kernel ? trace.kernels[static_cast<std::size_t>(bar.kernel)].node : std::string();
    ImU32 fill = mix(p.panel, phase_color(bar.phase), kernel ? 0.62f : 0.3f);
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
    if (x1 - x0 < px(36)) continue;
    ImFont* font = theme().small;
    // In its own lane a scope's last part says enough; a kernel's operator says more than the start of its
    // node's name.
    const std::string name = kernel ? trace.kernels[static_cast<std::size_t>(bar.kernel)].op
                                    : bar.label.substr(bar.label.rfind('/') + 1);
    const std::string label = fit_text(font, font->FontSize, name, x1 - x0 - px(10));
    list->AddText(font, font->FontSize, {x0 + px(5), y + (height - font->FontSize) / 2},
                  kernel ? ink_on(fill) : p.text_dim, label.c_str());
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
    if (end_ns < view.from_ns || model.live_ns[i] > view.to_ns) continue;
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

void bar_tooltip(const TraceDocument& trace, const TimelineBar& bar) {
  if (bar.kernel < 0) {
    ImGui::SetTooltip("%s %s\n%s", bar.phase.c_str(), bar.label == bar.phase ? "" : bar.label.c_str(),
                      duration_text(bar.end_ns - bar.start_ns).c_str());
    return;
  }
  const KernelInfo& k = trace.kernels[static_cast<std::size_t>(bar.kernel)];
  const double ns = std::max(1.0, bar.end_ns - bar.start_ns);
  ImGui::SetTooltip("%s\n%s  %s\n%s at %s\n%.1f GFLOP/s, %.1f GB/s%s%s", k.node.c_str(), k.op.c_str(),
                    k.kernel.c_str(), duration_text(ns).c_str(), duration_text(bar.start_ns).c_str(),
                    k.flops / ns, (k.bytes_read + k.bytes_written) / ns,
                    k.onnx_nodes.empty() ? "" : "\nfrom ", joined(k.onnx_nodes).substr(0, 300).c_str());
}

void draw_toolbar(Ui& ui, const std::vector<std::int64_t>& steps) {
  TimelineState& state = ui.timeline;
  std::vector<std::string> names;
  for (std::int64_t s : steps) names.push_back("step " + std::to_string(s));
  if (combo("timeline.step", &state.step_index, names, 110)) state.source = nullptr;
  ImGui::SameLine(0, px(14));
  ImGui::AlignTextToFramePadding();
  const double busy = state.model.duration_ns > 0 ? state.model.busy_ns / state.model.duration_ns * 100 : 0;
  text(fmt::format("{} in the step, {:.1f} % inside kernels", duration_text(state.model.duration_ns), busy),
       palette().text_dim);
  if (state.measure_to_ns != state.measure_from_ns && state.measure_from_ns >= 0) {
    ImGui::SameLine(0, px(14));
    ImGui::AlignTextToFramePadding();
    text("\u2194 " + duration_text(std::abs(state.measure_to_ns - state.measure_from_ns)), palette().accent);
  }
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
  const std::vector<std::int64_t> steps = timed_steps(trace);
  if (state.source != s.run.get()) {
    state.step_index =
        std::clamp(state.source == nullptr ? state.step_index : static_cast<int>(steps.size()) - 1, 0,
                   static_cast<int>(steps.size()) - 1);
    state.model = build_timeline(trace, steps[static_cast<std::size_t>(state.step_index)]);
    state.source = s.run.get();
    state.from_ns = state.to_ns = 0;
  }
  draw_toolbar(ui, steps);
  if (!(state.to_ns > state.from_ns)) {
    state.from_ns = -0.01 * state.model.duration_ns;
    state.to_ns = std::max(1000.0, state.model.duration_ns * 1.01);
  }
  const Palette& p = palette();
  const ImVec2 at = ImGui::GetCursorScreenPos(), region = ImGui::GetContentRegionAvail();
  const float label = px(64), ruler = theme().small->FontSize + px(6);
  const ImVec2 size{region.x, std::max(px(60), region.y)};
  ImGui::InvisibleButton("timeline", size,
                         ImGuiButtonFlags_MouseButtonLeft | ImGuiButtonFlags_MouseButtonRight);
  const bool hovered = ImGui::IsItemHovered();
  register_rect("timeline.canvas", at, {at.x + size.x, at.y + size.y}, "timeline",
                std::to_string(state.model.step));
  View view{{at.x + label, at.y}, {at.x + size.x, at.y + size.y}, state.from_ns, state.to_ns};
  handle_input(ui, view, hovered);
  if (!(state.to_ns > state.from_ns)) return;  // shown whole in the next frame
  keep_inside(state);
  view.from_ns = state.from_ns;
  view.to_ns = state.to_ns;
  ImDrawList* list = ImGui::GetWindowDrawList();
  list->PushClipRect(view.min, view.max, true);
  draw_ruler(view, at);
  const TimelineBar* under = nullptr;
  float y = at.y + ruler + px(4);
  const float height = px(24);
  std::vector<float> tops;
  for (const TimelineLane& lane : state.model.lanes) {
    const float tall = lane.bars.empty() || lane.bars.front().kernel < 0 ? height : px(40);
    if (const TimelineBar* bar = draw_lane(ui, view, lane, y, tall, hovered)) under = bar;
    tops.push_back(y + (tall - theme().small->FontSize) / 2);
    y += tall + px(5);
  }
  const float live_top = y + px(10), live_bottom = std::min(view.max.y - px(2), live_top + px(200));
  draw_live(state.model, view, live_top, live_bottom);
  if (state.measure_from_ns >= 0 && state.measure_to_ns != state.measure_from_ns) {
    const float x0 = view.x(std::min(state.measure_from_ns, state.measure_to_ns)),
                x1 = view.x(std::max(state.measure_from_ns, state.measure_to_ns));
    list->AddRectFilled({x0, at.y}, {x1, view.max.y}, with_alpha(p.accent, 0.1f));
    list->AddLine({x0, at.y}, {x0, view.max.y}, p.accent);
    list->AddLine({x1, at.y}, {x1, view.max.y}, p.accent);
  }
  list->PopClipRect();
  for (std::size_t i = 0; i < tops.size(); ++i)
    list->AddText(theme().small, theme().small->FontSize, {at.x, tops[i]}, p.text_faint,
                  state.model.lanes[i].name.c_str());
  if (!state.model.live_ns.empty() && live_bottom - live_top >= px(40))
    list->AddText(theme().small, theme().small->FontSize, {at.x, (live_top + live_bottom) / 2}, p.text_faint,
                  "Arena");
  if (under == nullptr) return;
  bar_tooltip(trace, *under);
  if (under->kernel >= 0) ui.asks.hover_node = trace.kernels[static_cast<std::size_t>(under->kernel)].node;
  const bool still =
      std::abs(state.measure_to_ns - state.measure_from_ns) < (view.to_ns - view.from_ns) * 0.004;
  if (under->kernel >= 0 && ImGui::IsMouseReleased(0) && still) {
    ui.go_to(trace.kernels[static_cast<std::size_t>(under->kernel)].node);
    state.measure_from_ns = state.measure_to_ns = -1;
  }
  if (ImGui::IsMouseDoubleClicked(0)) {
    const double margin = (under->end_ns - under->start_ns) * 0.05;
    state.from_ns = under->start_ns - margin;
    state.to_ns = under->end_ns + margin;
  }
}

}  // namespace gradloom
