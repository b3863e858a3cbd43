#include "app/desktop/timeline_lanes.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "engine/base/text.h"

namespace gradloom {
namespace {

constexpr std::size_t kMostRegistered = 300;  // bars of a lane reported to the item registry

ImU32 bar_color(const TraceDocument& trace, const TimelineLane& lane, const TimelineBar& bar) {
  const Palette& p = palette();
  if (bar.host >= 0)
    return mix(p.panel, host_color(trace.host[static_cast<std::size_t>(bar.host)].kind), 0.62f);
  if (bar.exchange >= 0) return mix(p.panel, p.text, bar.waits ? 0.1f : 0.45f);
  if (bar.activity >= 0) return mix(p.panel, p.text_dim, lane.stream ? 0.5f : 0.3f);
  return mix(p.panel, phase_color(bar.phase), bar.kernel >= 0 ? 0.62f : 0.3f);
}

// In its own lane a scope's last part says enough; a kernel's operator says more than the start of its node's name.
std::string short_name(const TraceDocument& trace, const TimelineBar& bar) {
  if (bar.kernel >= 0) return trace.kernels[static_cast<std::size_t>(bar.kernel)].op;
  if (bar.host >= 0 || bar.exchange >= 0) return bar.label;
  return bar.label.substr(bar.label.rfind('/') + 1);
}

// "1.2 ms", of several steps "1.2 ms of step 4".
std::string place_text(const TimelineModel& model, double time_ns) {
  const TimelineStep* step = model.steps.size() > 1 ? model.step_at(time_ns) : nullptr;
  if (step == nullptr) return duration_text(time_ns);
  return duration_text(time_ns - step->start_ns) + " of step " + std::to_string(step->step);
}

// "copy, stream 1 (upload)\n4.0 KiB in 12 us, 0.3 GB/s"; of a launch what it starts.
void activity_tooltip(const TraceDocument& trace, const TimelineModel& model, const TimelineBar& bar) {
  const TraceActivity& a = trace.activities[static_cast<std::size_t>(bar.activity)];
  std::string tip =
      a.name + (a.stream < 0 ? " by the CPU" : ", " + escaped(stream_name(a.stream, trace.environment))) +
      "\n" + duration_text(static_cast<double>(a.duration_ns)) + " at " + place_text(model, bar.start_ns);
  if (a.bytes > 0 && a.duration_ns > 0)
    tip += fmt::format("\n{}, {:.1f} GB/s", bytes_text(static_cast<double>(a.bytes)),
                       static_cast<double>(a.bytes) / static_cast<double>(a.duration_ns));
  if (a.plan_step >= 0 && static_cast<std::size_t>(a.plan_step) < trace.kernels.size())
    tip += "\nstarts with " + escaped(trace.kernels[static_cast<std::size_t>(a.plan_step)].node);
  ImGui::SetTooltip("%s", tip.c_str());
}

void host_tooltip(const TraceDocument& trace, const TimelineModel& model, const TimelineBar& bar) {
  const HostSpan& s = trace.host[static_cast<std::size_t>(bar.host)];
  ImGui::SetTooltip("%s\n%s\n%s at %s", escaped(bar.label).c_str(), find_host_kind(s.kind)->title,
                    duration_text(bar.end_ns - bar.start_ns).c_str(),
                    place_text(model, bar.start_ns).c_str());
}

// "exchange of rank 1\nready at 3.1 ms, waits 0.4 ms for the last rank\ntransfers 1.2 ms, sends 2.0 MB\nof a/bucket/AllReduceBegin"
void exchange_tooltip(const TraceDocument& trace, const TimelineModel& model, const TimelineBar& bar) {
  const TraceExchange& e = trace.exchanges[static_cast<std::size_t>(bar.exchange)];
  const double ready_ns = bar.waits ? bar.start_ns : bar.start_ns - static_cast<double>(e.wait_ns);
  const bool known = e.plan_step >= 0 && static_cast<std::size_t>(e.plan_step) < trace.kernels.size();
  ImGui::SetTooltip(
      "exchange of rank %d in step %lld\nready at %s, waits %s for the last rank\ntransfers %s, sends %s\n%s",
      e.rank, static_cast<long long>(e.step), place_text(model, ready_ns).c_str(),
      duration_text(static_cast<double>(e.wait_ns)).c_str(),
      duration_text(static_cast<double>(e.duration_ns - e.wait_ns)).c_str(),
      bytes_text(static_cast<double>(e.sent_bytes)).c_str(),
      known ? escaped(trace.kernels[static_cast<std::size_t>(e.plan_step)].node).c_str() : "");
}

}  // namespace

void draw_ticks(const TimelineView& view, ImVec2 top) {
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

void draw_step_bounds(const TimelineModel& model, const TimelineView& view, float top, float bottom,
                      bool named) {
  const Palette& p = palette();
  ImDrawList* list = ImGui::GetWindowDrawList();
  ImFont* font = theme().small;
  float named_to = view.min.x;
  for (std::size_t i = 0; i < model.steps.size(); ++i) {
    const TimelineStep& step = model.steps[i];
    const float x0 = view.x(step.start_ns), x1 = view.x(step.end_ns);
    const float left = i == 0 ? x0 : view.x(model.steps[i - 1].end_ns);
    if (i > 0 && step.left_out_before > 0 && x0 > view.min.x && left < view.max.x) {
      list->AddRectFilled({std::max(left, view.min.x), top}, {std::min(x0, view.max.x), bottom},
                          with_alpha(p.text_faint, 0.12f));
      const std::string label = fmt::format("{} not timed", plural_text(step.left_out_before, "step"));
      const float width = font->CalcTextSizeA(font->FontSize, FLT_MAX, 0, label.c_str()).x;
      const float middle = (std::max(left, view.min.x) + std::min(x0, view.max.x)) / 2;
      if (width + px(8) < std::min(x0, view.max.x) - std::max(left, view.min.x))
        list->AddText(font, font->FontSize, {middle - width / 2, (top + bottom) / 2}, p.text_faint,
                      label.c_str());
    }
    if (x1 < view.min.x || x0 > view.max.x) continue;
    const ImU32 color = with_alpha(p.text_dim, 0.5f);
    if (x0 >= view.min.x) list->AddLine({x0, top}, {x0, bottom}, color, px(1));
    if (!named && x1 <= view.max.x) list->AddLine({x1, top}, {x1, bottom}, color, px(1));
    register_rect(fmt::format("{}.shown.{}", named ? "timeline" : "beside", step.step),
                  {std::max(x0, view.min.x), top}, {std::min(x1, view.max.x), bottom}, "step",
                  duration_text(step.end_ns - step.start_ns));
    if (!named) continue;
    const float at = std::max(x0, view.min.x) + px(4), room = std::min(x1, view.max.x) - at - px(2);
    for (const std::string& label :
         {fmt::format("step {}, {}", step.step, duration_text(step.end_ns - step.start_ns)),
          fmt::format("step {}", step.step), std::to_string(step.step)}) {
      const float width = font->CalcTextSizeA(font->FontSize, FLT_MAX, 0, label.c_str()).x;
      if (at < named_to || width > room) continue;
      list->AddText(font, font->FontSize, {at, top - font->FontSize - px(1)}, p.text_dim, label.c_str());
      named_to = at + width + px(4);
      break;
    }
  }
}

const TimelineBar* draw_lane(Ui& ui, const TimelineView& view, const TraceDocument& trace,
                             const TimelineLane& lane, LanePlace place, bool hovered,
                             const LaneMarks& marks) {
  const auto [y, height] = place;
  const Palette& p = palette();
  ImDrawList* list = ImGui::GetWindowDrawList();
  ImFont* font = theme().small;
  const ImVec2 mouse = ImGui::GetIO().MousePos;
  const std::string selected = ui.selected();
  const GraphMarks* notes = ui.graph.marks.get();
  const RooflineSelection* const chosen = ui.roofline.view.selection.get();
  const TimelineBar* under = nullptr;
  std::size_t registered = 0;
  float drawn_to = view.min.x - 1;
  for (std::size_t i = first_bar_after(lane, view.shown.from_ns); i < lane.bars.size();) {
    const TimelineBar& bar = lane.bars[i];
    if (bar.start_ns > view.shown.to_ns) break;
    const float x0 = std::max(view.x(bar.start_ns), view.min.x),
                x1 = std::min(std::max(view.x(bar.end_ns), view.x(bar.start_ns) + 1), view.max.x);
    // A pixel is drawn once: the next bar is the first that reaches beyond what is drawn.
    if (x1 < drawn_to + 0.5f) {
      i = std::max(i + 1, first_bar_after(lane, view.ns(drawn_to + 0.5f), i));
      continue;
    }
    ++i;
    drawn_to = x1;
    const bool kernel = bar.kernel >= 0, told = kernel || bar.host >= 0 || bar.exchange >= 0;
    const std::string& name = bar_name(trace, bar);
    ImU32 fill = bar_color(trace, lane, bar);
    // Kernels that the roofline's areas leave out; of the marked time the rest is veiled.
    if (chosen != nullptr && kernel && chosen->nodes.count(name) == 0) fill = mix(p.panel, fill, 0.25f);
    if (hovered && mouse.y >= y && mouse.y < y + height && mouse.x >= x0 && mouse.x < std::max(x1, x0 + 2)) {
      under = &bar;
      fill = mix(fill, p.text, 0.15f);
    }
    const float rounding = x1 - x0 > px(6) ? px(3) : 0;
    const float right = x1 - x0 > px(3) ? x1 - 1 : x1;
    list->AddRectFilled({x0, y}, {right, y + height}, fill, rounding);
    if (kernel && (name == selected || name == ui.outline))
      list->AddRect({x0 - 1, y - 1}, {right + 1, y + height + 1}, name == selected ? p.text : p.accent,
                    rounding, 0, px(1.5f));
    if (kernel && marks.lit >= 0 && marks.pair_of != nullptr && pair_of(*marks.pair_of, bar) == marks.lit)
      list->AddRect({x0 - 1, y - 1}, {right + 1, y + height + 1}, p.warn, rounding, 0, px(2));
    const bool noted = kernel && notes && notes->noted.count(name) != 0;
    if (noted) {
      const float sign = std::min({px(9), std::max(px(4), right - x0), height});
      list->AddTriangleFilled({right - sign, y}, {right, y}, {right, y + sign}, p.warn);
    }
    if ((told || bar.activity >= 0) && x1 - x0 >= px(3) && ++registered <= kMostRegistered)
      register_rect(std::string(marks.prefix) + "bar." + name, {x0, y}, {right, y + height}, name,
                    noted ? "noted" : "");
    if (x1 - x0 < px(36) || height < font->FontSize) continue;
    const std::string label = fit_text(font, font->FontSize, short_name(trace, bar), x1 - x0 - px(10));
    list->AddText(font, font->FontSize, {x0 + px(5), y + (height - font->FontSize) / 2},
                  told ? ink_on(fill) : p.text_dim, label.c_str());
  }
  return under;
}

void draw_live(const TimelineModel& model, const TimelineView& view, float top, float bottom) {
  if (model.live_ns.empty() || bottom - top < px(40)) return;
  const Palette& p = palette();
  ImDrawList* list = ImGui::GetWindowDrawList();
  const double most = std::max(1.0, *std::max_element(model.live_most.begin(), model.live_most.end()));
  const auto y = [&](double bytes) {
    return bottom - static_cast<float>(bytes / most) * (bottom - top - px(16));
  };
  // Level by level; where several share a pixel, the most of them.
  const double pixel_ns = view.shown.span() / std::max(1.f, view.max.x - view.min.x);
  const auto begin = model.live_ns.begin();
  auto i = static_cast<std::size_t>(std::upper_bound(begin, model.live_ns.end(), view.shown.from_ns) - begin);
  for (i -= i > 0 ? 1 : 0; i < model.live_ns.size() && model.live_ns[i] < view.shown.to_ns;) {
    const double from_ns = model.live_ns[i];
    auto next = static_cast<std::size_t>(std::lower_bound(begin + static_cast<std::ptrdiff_t>(i) + 1,
                                                          model.live_ns.end(), from_ns + pixel_ns) -
                                         begin);
    const TimelineStep* step = model.step_at(from_ns);
    double end_ns = next < model.live_ns.size() ? model.live_ns[next] : model.duration_ns;
    if (step != nullptr && step->end_ns > from_ns) end_ns = std::min(end_ns, step->end_ns);
    const double bytes = next == i + 1 ? model.live_bytes[i] : model.most_live(from_ns, end_ns);
    const float x0 = view.x(from_ns), x1 = std::max(view.x(end_ns), x0 + 1);
    list->AddRectFilled({x0, y(bytes)}, {x1, bottom}, mix(p.panel, p.optimizer, 0.28f));
    list->AddLine({x0, y(bytes)}, {x1, y(bytes)}, p.optimizer, px(1.2f));
    i = next;
  }
  list->AddLine({view.min.x, y(most)}, {view.max.x, y(most)}, p.grid);
  ImFont* font = theme().small;
  const std::string label = "peak " + format_value(most, Unit::kBytes);
  list->AddText(font, font->FontSize, {view.min.x + px(4), y(most) - font->FontSize - px(1)}, p.text_faint,
                label.c_str());
}

void thread_tooltip(const TraceDocument& trace, const TimelineModel& model, const TimelineBar& bar) {
  const TraceThread& t = trace.threads[static_cast<std::size_t>(bar.thread)];
  const KernelInfo& k = trace.kernels[static_cast<std::size_t>(bar.kernel)];
  const std::int64_t idle_ns = t.duration_ns - t.busy_ns;
  const std::string waits = idle_ns <= 0    ? ""
                            : t.thread == 0 ? ", then waits " + duration_text(idle_ns) + " for other threads"
                                            : ", without one for " + duration_text(idle_ns);
  ImGui::SetTooltip("%s\n%s\nthread %d: parts of it for %s at %s%s", k.node.c_str(), k.op.c_str(),
                    t.thread + 1, duration_text(t.busy_ns).c_str(), place_text(model, bar.start_ns).c_str(),
                    waits.c_str());
}

void bar_tooltip(const TraceDocument& trace, const TimelineModel& model, const TimelineBar& bar,
                 const std::string& more) {
  if (bar.exchange >= 0) return exchange_tooltip(trace, model, bar);
  if (bar.host >= 0) return host_tooltip(trace, model, bar);
  if (bar.activity >= 0) return activity_tooltip(trace, model, bar);
  if (bar.thread >= 0) return thread_tooltip(trace, model, bar);
  if (bar.kernel < 0) {
    ImGui::SetTooltip("%s %s\n%s", bar.phase.c_str(), bar.label == bar.phase ? "" : bar.label.c_str(),
                      duration_text(bar.end_ns - bar.start_ns).c_str());
    return;
  }
  const KernelInfo& k = trace.kernels[static_cast<std::size_t>(bar.kernel)];
  const double ns = std::max(1.0, bar.end_ns - bar.start_ns);
  const std::string by = k.implementation.empty() ? "" : "\n" + escaped(k.implementation);
  ImGui::SetTooltip("%s\n%s  %s%s\n%s at %s\n%.1f GFLOP/s, %.1f GB/s%s%s%s", k.node.c_str(), k.op.c_str(),
                    k.kernel.c_str(), by.c_str(), duration_text(ns).c_str(),
                    place_text(model, bar.start_ns).c_str(), k.flops / ns,
                    (k.bytes_read + k.bytes_written) / ns, k.onnx_nodes.empty() ? "" : "\nfrom ",
                    joined(k.onnx_nodes).substr(0, 300).c_str(), more.c_str());
}

void draw_flows(Ui& ui, const TimelineView& view, const std::vector<LanePlace>& lanes) {
  TimelineState& state = ui.timeline;
  const std::string node = ui.outline.empty() ? ui.selected() : ui.outline;
  if (state.flow_node != node || state.flow_made != state.made) {
    state.flow_node = node;
    state.flow_made = state.made;
    state.flows =
        node.empty() ? std::vector<TimelineFlow>() : flows_of(state.model, ui.state().run->trace, node);
  }
  ImDrawList* list = ImGui::GetWindowDrawList();
  const ImU32 color = palette().backward;
  std::size_t shown = 0;
  for (const TimelineFlow& flow : state.flows) {
    const float x0 = view.x(flow.from_ns), x1 = view.x(flow.to_ns);
    if ((x0 < view.min.x && x1 < view.min.x) || (x0 > view.max.x && x1 > view.max.x)) continue;
    const LanePlace &from = lanes[flow.from_lane], &to = lanes[flow.to_lane];
    const ImVec2 a{x0, from.y + from.height}, b{x1, to.y + to.height};
    const float sag = std::min(px(26), px(6) + (x1 - x0) * 0.1f), head = px(4);
    list->AddBezierCubic(a, {a.x + (x1 - x0) * 0.15f, a.y + sag}, {b.x - (x1 - x0) * 0.15f, b.y + sag},
                         {b.x, b.y + head}, color, px(1.5f));
    list->AddTriangleFilled({b.x - head, b.y + head * 1.7f}, {b.x + head, b.y + head * 1.7f}, b, color);
    register_rect("timeline.flow." + std::to_string(shown++), {std::min(a.x, b.x), a.y},
                  {std::max(a.x, b.x), a.y + sag}, "flow", duration_text(flow.to_ns - flow.from_ns));
  }
}

void pill(const TimelineView& view, float x, float y, const std::string& label, ImU32 fill) {
  ImFont* font = theme().small;
  const float width = font->CalcTextSizeA(font->FontSize, FLT_MAX, 0, label.c_str()).x + px(14);
  const float left =
      std::round(std::clamp(x - width / 2, view.min.x, std::max(view.min.x, view.max.x - width)));
  ImDrawList* list = ImGui::GetWindowDrawList();
  list->AddRectFilled({left, y}, {left + width, y + font->FontSize + px(5)}, fill, px(9));
  list->AddText(font, font->FontSize, {left + px(7), y + px(2)}, ink_on(fill), label.c_str());
}

void draw_range(const TimelineView& view, const TimeRange& range, float top) {
  const Palette& p = palette();
  ImDrawList* list = ImGui::GetWindowDrawList();
  const float x0 = std::clamp(view.x(range.from_ns), view.min.x - px(2), view.max.x + px(2)),
              x1 = std::clamp(view.x(range.to_ns), view.min.x - px(2), view.max.x + px(2));
  const ImU32 veil = with_alpha(p.panel, 0.62f);
  list->AddRectFilled({view.min.x, top}, {x0, view.max.y}, veil);
  list->AddRectFilled({x1, top}, view.max, veil);
  for (const float x : {x0, x1}) list->AddLine({x, top}, {x, view.max.y}, p.accent, px(1.2f));
}

void draw_measure(const TimelineView& view, const TimeRange& range, float y, ImU32 color) {
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

}  // namespace gradloom
