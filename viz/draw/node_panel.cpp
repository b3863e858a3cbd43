// The line of controls above the graph, and the panel with everything known about the selected node or scope.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "engine/base/fields.h"
#include "engine/base/text.h"
#include "viz/draw/graph_view.h"
#include "viz/draw/key_focus.h"
#include "viz/draw/keys.h"
#include "viz/draw/widgets.h"
#include "viz/model/axis.h"

namespace gradloom {
namespace {

void next_hit(GraphCanvasState& state, int step) {
  if (state.hits.empty()) return;
  const int n = static_cast<int>(state.hits.size());
  state.hit = state.hit < 0 ? (step > 0 ? 0 : n - 1) : (state.hit + step + n) % n;
  graph_go_to(state, state.model->boxes[state.hits[state.hit]].name);
}

// A node's name that leads to it.
void node_link(GraphCanvasState& state, std::string_view id, int32_t box) {
  const GraphBox& b = state.model->boxes[box];
  ImGui::PushID(box);
  const float width = ImGui::GetContentRegionAvail().x;
  const std::string label = fit_text(theme().small, theme().small->FontSize, escaped(b.name), width - px(18));
  const ImVec2 at = ImGui::GetCursorScreenPos();
  const float height = theme().small->FontSize + px(5);
  if (ImGui::InvisibleButton("link", {std::max(width, px(20)), height})) graph_go_to(state, b.name);
  register_item(fmt::format("{}.{}", id, b.name), b.name);
  focus_stop(fmt::format("{}.{}", id, b.name));
  const bool hovered = ImGui::IsItemHovered();
  ImDrawList* list = ImGui::GetWindowDrawList();
  if (hovered) {
    list->AddRectFilled({at.x - px(4), at.y}, {at.x + width, at.y + height}, palette().hover, px(4));
    state.outline = b.name;
  }
  list->AddRectFilled({at.x, at.y + px(4)}, {at.x + px(4), at.y + height - px(4)}, phase_color(b.phase),
                      px(1));
  list->AddText(theme().small, theme().small->FontSize, {at.x + px(11), at.y + px(2)},
                hovered ? palette().text : palette().text_dim, label.c_str());
  ImGui::PopID();
}

void ports(GraphCanvasState& state, const char* title, std::string_view id,
           const std::vector<PortInfo>& list) {
  if (list.empty()) return;
  heading(title);
  for (size_t i = 0; i < list.size(); ++i) {
    const PortInfo& port = list[i];
    ImGui::PushID(static_cast<int>(i));
    const std::string type =
        port.type.empty()
            ? ""
            : port.type +
                  (port.bytes > 0 ? "  " + format_value(static_cast<double>(port.bytes), Unit::kBytes) : "");
    const bool known = !port.why.empty();  // is it trained
    const std::string role = !known ? port.role : port.trained ? "trained" : "frozen";
    const bool told = !role.empty() && role != "activation";
    ImFont* const font = theme().small;
    const float badge_width = told ? ImGui::GetStyle().ItemSpacing.x + chip_width(role) : 0;
    const std::string whole = escaped(port.value);
    const std::string shown =
        fit_name(font, font->FontSize, whole, ImGui::GetContentRegionAvail().x - badge_width);
    text(shown, palette().text, font);
    if (shown != whole) tip(whole);
    if (told) {
      ImGui::SameLine();
      badge(role, port.trained || (!known && role == "parameter") ? palette().optimizer : palette().text_dim);
    }
    if (known) register_item(fmt::format("{}.{}.training", id, port.value), port.why, role);
    text(type, palette().text_faint, theme().small);
    if (known) {
      ImGui::PushFont(theme().small);
      wrapped((port.trained ? port.role + ", " : "") + escaped(port.why), palette().text_faint);
      ImGui::PopFont();
    }
    if (port.box >= 0 && port.box != state.selected()) node_link(state, id, port.box);
    ImGui::PopID();
  }
}

std::string of_other_plan(const GraphModel& model) {
  return model.other_plan.empty() ? "" : ", in " + model.other_plan + " with another plan";
}

void cost(std::string_view key, std::string_view value) { key_value(key, value, 72); }

void costs(int32_t b, const GraphModel& model) {
  const GraphBox& box = model.boxes[static_cast<size_t>(b)];
  heading("Cost per step");
  if (std::isnan(box.time_ns)) {
    cost("Time", box.plan_step < 0 ? "no kernel (a view, or folded away)" : "not measured");
  } else {
    const double share = model.total_time_ns > 0 ? box.time_ns / model.total_time_ns : 0;
    cost("Time", fmt::format("{}  ({} of kernels, n\u00a0=\u00a0{}){}", model.time_text(box.time_ns),
                             percent_text(share), box.samples, of_other_plan(model)));
  }
  if (box.plan_step < 0) return;
  cost("Work", format_value(box.flops, Unit::kFlop));
  cost("Traffic", fmt::format("{} read, {} written", format_value(box.bytes_read, Unit::kBytes),
                              format_value(box.bytes_written, Unit::kBytes)));
  if (box.time_ns > 0)
    cost("Rates", fmt::format("{:.1f} GFLOP/s, {:.1f} GB/s", box.step_flops / box.time_ns,
                              box.step_bytes / box.time_ns));
  if (!model.against.empty())
    cost("Change", model.value_text(model.value_of(b, ColorBy::kChange), ColorBy::kChange) + " against " +
                       model.against);
  if (box.live_bytes > 0)
    cost("At peak", format_value(box.live_bytes, Unit::kBytes) + " of what it makes is live");
  cost("Kernel", box.kernel.empty() ? "unknown" : box.kernel);
  cost("Plan step", std::to_string(box.plan_step));
}

void fold_buttons(GraphCanvasState& state, int32_t fold) {
  const int32_t shown = graph_shown_layer(state, fold);
  if (button("scope-panel.next", shown >= 0 ? "Next layer" : "Show a layer", ButtonKind::kPlain,
             "One layer beside the others (" + key_label("graph.layer.next") + ")"))
    graph_step_layer(state, fold, 1);
  flow(button_width("Show all"), px(6));
  if (button("scope-panel.unfold", "Show all", ButtonKind::kPlain, "Each layer by itself"))
    graph_show_layer(state, fold, kUnfolded);
}

void scope_panel(GraphCanvasState& state) {
  const ScopeInfo& scope = state.model->scopes[state.selected_scope];
  title(scope.name);
  muted(escaped(scope.path));
  register_item("scope-panel.path", scope.path, scope.path);
  static constexpr const char* kNames[] = {"Forward", "Backward", "Optimizer"};
  for (int c = 0; c < kLayoutColumns; ++c) {
    if (scope.boxes[c] == 0) continue;
    heading(kNames[c]);
    cost("Nodes", std::to_string(scope.boxes[c]));
    cost("Time", scope.timed ? state.model->time_text(scope.time_ns[c]) + of_other_plan(*state.model)
                             : "not measured");
    cost("Work", format_value(scope.flops[c], Unit::kFlop));
    cost("Traffic", format_value(scope.bytes[c], Unit::kBytes));
    for (const ColorBy by : {ColorBy::kRate, ColorBy::kLive, ColorBy::kLaunches, ColorBy::kChange}) {
      const double value =
          state.model->value_of_scope(state.selected_scope, static_cast<LayoutColumn>(c), by);
      if (std::isnan(value) || value == 0) continue;
      const std::string what = kColorKinds[static_cast<size_t>(by)].name;
      cost(what == "Live at peak" ? "At peak" : what,
           state.model->value_text(value, by) +
               (by == ColorBy::kChange ? " against " + state.model->against : ""));
    }
  }
  spacer(6);
  if (scope.box_of >= 0) return fold_buttons(state, scope.box_of);
  const bool open = state.expanded.count(scope.path) != 0;
  if (button("scope-panel.toggle", open ? "Collapse" : "Expand"))
    graph_toggle_scope(state, state.selected_scope, false);
}

// A title that leads to a page.
bool title_link(std::string_view id, const std::string& title) {
  ImFont* font = theme().title;
  const ImVec2 at = ImGui::GetCursorScreenPos(),
               size = font->CalcTextSizeA(font->FontSize, FLT_MAX, 0, title.c_str());
  ImGui::PushID("title");
  const bool clicked = ImGui::InvisibleButton("link", {std::max(size.x, 1.f), size.y});
  ImGui::PopID();
  register_item(id, title, title);
  focus_stop(id);
  const bool hovered = ImGui::IsItemHovered();
  ImDrawList* list = ImGui::GetWindowDrawList();
  list->AddText(font, font->FontSize, at, hovered ? palette().accent : palette().text, title.c_str());
  const ImU32 line = with_alpha(hovered ? palette().accent : palette().text_faint, 0.8f);
  list->AddLine({at.x, at.y + size.y}, {at.x + size.x, at.y + size.y}, line);
  if (hovered) ImGui::SetMouseCursor(ImGuiMouseCursor_Hand);
  return clicked;
}

// What several selected nodes are together; the panel then tells of the last one.
void selection_summary(const GraphCanvasState& state) {
  const GraphModel& model = *state.model;
  double ns = 0, bytes = 0, flops = 0;
  int64_t timed = 0;
  for (const int32_t b : state.selection) {
    const GraphBox& box = model.boxes[b];
    bytes += box.bytes();
    flops += box.flops;
    if (std::isnan(box.time_ns)) continue;
    ns += box.time_ns;
    ++timed;
  }
  const std::string count = fmt::format("{} nodes selected", state.selection.size());
  text(count, palette().text, theme().bold);
  register_item("node-panel.count", count, std::to_string(state.selection.size()));
  if (model.planned)
    muted(fmt::format("{}, {}, {} together", timed > 0 ? model.time_text(ns) : "not measured",
                      format_value(flops, Unit::kFlop), format_value(bytes, Unit::kBytes)));
  spacer(6);
  muted("The last of them:");
}

// What colours the boxes; of changes also against which run.
void choose_color(GraphCanvasState& state, Actions& actions) {
  int color = static_cast<int>(state.color_by);
  std::vector<std::string> names;
  for (const ColorKind& kind : kColorKinds) names.emplace_back(kind.name);
  if (combo("graph.color", &color, names, 104)) state.color_by = static_cast<ColorBy>(color);
  tip("What colours the boxes, and what they and their scopes tell");
  if (state.color_by != ColorBy::kChange) return;
  const auto& [runs, chosen] = state.other_runs;
  const auto at = std::find(runs.begin(), runs.end(), chosen);
  int side = at == runs.end() ? -1 : static_cast<int>(at - runs.begin());
  std::vector<std::string> labels;
  for (const std::int64_t run : runs) labels.push_back(fmt::format("run {}", run));
  flow(px(84), px(4));
  ImGui::BeginDisabled(runs.empty());
  if (combo("graph.against", &side, labels, 84)) actions.times_against = runs[static_cast<size_t>(side)];
  ImGui::EndDisabled();
  tip(runs.empty() ? "There is no other run with times of kernels in this session"
                   : "The run that times are compared with, as it was recorded");
}

void related_nodes(GraphCanvasState& state, const GraphBox& box) {
  if (box.related.empty()) return;
  heading(box.column == LayoutColumn::kForward ? "Backward and optimizer" : "Forward");
  for (size_t i = 0; i < box.related.size() && i < 40; ++i) node_link(state, "partner", box.related[i]);
  if (box.related.size() > 40) muted(fmt::format("and {} more", box.related.size() - 40));
}

// Search with hits, fit, open and close all.
void graph_tools(GraphCanvasState& state) {
  // Where there is little room the scopes' buttons shrink to signs.
  const float count_width = state.query_text.empty() ? 0 : px(64);
  const float room = ImGui::GetContentRegionAvail().x;
  const bool narrow = room < px(440);
  const float buttons = narrow ? px(112) : px(190);
  const float search =
      std::clamp(room - buttons - count_width - saved_filters_width(state.filters) - px(14), px(60), px(420));
  std::string query = state.query_text;
  if (state.model && state.example_of != state.model) {
    state.example = state.model->example();
    state.example_of = state.model;
  }
  const std::string hint = fit_hint("Search", state.example, search);
  if (input_text("graph.search", hint, &query, search, state.focus_search)) {
    graph_set_query(state, query);
  }
  state.focus_search = false;
  const bool typing = ImGui::IsItemActive() || ImGui::IsItemDeactivated();
  if (typing && ImGui::IsKeyPressed(ImGui::GetKeyIndex(ImGuiKey_Enter), false)) {
    next_hit(state, ImGui::GetIO().KeyShift ? -1 : 1);
    state.focus_search = true;
  }
  if (const auto chosen = draw_saved_filters("graph.filters", state.query_text, state.filters))
    graph_set_query(state, *chosen);
  if (!state.query_text.empty()) {
    ImGui::SameLine();
    const bool bad = !state.query_error.empty();
    const std::string count = bad              ? "\u26a0"
                              : state.hit >= 0 ? fmt::format("{} / {}", state.hit + 1, state.hits.size())
                                               : fmt::format("{} hits", state.hits.size());
    ImGui::AlignTextToFramePadding();
    text(count, bad || state.hits.empty() ? palette().warn : palette().text_dim);
    register_item("graph.hits", "hits", bad ? state.query_error : std::to_string(state.hits.size()));
    if (bad && ImGui::IsItemHovered()) ImGui::SetTooltip("%s", state.query_error.c_str());
  }
  const float right = ImGui::GetWindowContentRegionMax().x - buttons;
  ImGui::SameLine(std::max(right, ImGui::GetCursorPosX()));
  if (button("graph.fit", "Fit", ButtonKind::kGhost, "Fit everything (" + key_label("graph.fit") + ")") &&
      state.scene) {
    graph_remember(state);
    graph_fit(state, {0, 0, state.scene->layout.width, state.scene->layout.height}, 1.f);
  }
  ImGui::SameLine(0, px(2));
  if (button("graph.expand", narrow ? "+" : "Expand", ButtonKind::kGhost, "Open every scope"))
    graph_set_all_expanded(state, true);
  ImGui::SameLine(0, px(2));
  if (button("graph.collapse", narrow ? "\u2212" : "Collapse", ButtonKind::kGhost, "Close every scope"))
    graph_set_all_expanded(state, false);
}

// Each pass a badge, in as many lines as they take.
void rewritten_by(const std::string& passes) {
  if (passes.empty()) return;
  bool first = true;
  for (const std::string& pass : split_top_level(passes, ',')) {
    const std::string text = first ? "rewritten by " + pass : "then " + pass;
    if (!first) flow(badge_width(text), px(4));
    badge(text, palette().accent);
    first = false;
  }
}

}  // namespace

void draw_graph_toolbar(GraphCanvasState& state, Actions& actions, bool low) {
  choose_color(state, actions);
  if (!low) {
    flow(px(190) + (state.query_text.empty() ? 0 : px(64)), px(12));
    return graph_tools(state);
  }
  ImGui::SameLine(0, px(6));
  if (button("graph.tools", "\u2026", ButtonKind::kPlain, "Search, fit, open and close scopes") ||
      state.focus_search)
    ImGui::OpenPopup("graph-tools");
  ImGui::SetNextWindowSize({std::min(px(380), ImGui::GetIO().DisplaySize.x * 0.9f), 0});
  if (!ImGui::BeginPopup("graph-tools")) return;
  graph_tools(state);
  ImGui::EndPopup();
}

void draw_node_panel(GraphCanvasState& state, Actions& actions,
                     const std::function<void(const GraphBox&)>& more) {
  state.outline.clear();
  if (state.model && state.selected_scope >= 0) return scope_panel(state);
  const int32_t selected = state.selected();
  if (!state.model || selected < 0 || selected >= static_cast<int32_t>(state.model->boxes.size())) {
    return empty_state("Nothing selected", "Click a node of the graph, or a row of the kernel table.");
  }
  const GraphBox& box = state.model->boxes[selected];
  if (state.selection.size() > 1) selection_summary(state);
  if (title_link("node-panel.operator", box.op)) actions.show_operator = box.op;
  tip("What this operator is: versions, gradient, cost, kernels");
  ImGui::SameLine();
  badge(phase_name(box.phase), phase_color(box.phase));
  if (box.unsupported) {
    ImGui::SameLine();
    badge("\u26a0 not supported", palette().bad);
  }
  wrapped(escaped(box.name), palette().text_dim);
  rewritten_by(box.passes);
  register_item("node-panel.name", box.op, box.name);
  if (box.scope >= 0) muted(escaped(state.model->scopes[box.scope].path));
  if (box.node != kNone && state.model->planned) costs(selected, *state.model);
  if (more) more(box);
  if (!box.onnx_nodes.empty()) {
    heading(box.onnx_nodes.size() == 1 ? "From the ONNX node" : "From these ONNX nodes");
    for (size_t i = 0; i < box.onnx_nodes.size() && i < 30; ++i)
      wrapped(escaped(box.onnx_nodes[i]), palette().text_dim);
    if (box.onnx_nodes.size() > 30) muted(fmt::format("and {} more", box.onnx_nodes.size() - 30));
  }
  related_nodes(state, box);
  ports(state, "Inputs", "input", box.inputs);
  ports(state, "Outputs", "output", box.outputs);
  if (!box.attributes.empty() && box.attributes != "{}") {
    heading("Attributes");
    wrapped(escaped(box.attributes), palette().text_dim);
  }
  spacer(6);
  if (button("node-panel.kernel", "Show in kernel table", ButtonKind::kGhost))
    actions.go_to_kernel = box.name;
}

}  // namespace gradloom
