// The node tab: what the graph view knows of the selected node, and from the recipe's plan every kernel that
// its ONNX nodes became.
#include <fmt/format.h>
#include <imgui.h>

#include <algorithm>
#include <cmath>
#include <set>

#include "app/desktop/ui.h"
#include "engine/base/text.h"

namespace gradloom {
namespace {

struct KernelOfNode {
  const KernelInfo* info = nullptr;
  double step_ns = std::nan("");
};

// Kernels of the plan that stand for one of `onnx`, forward first; times from the run that the graph carries.
std::vector<KernelOfNode> kernels_of(const AppState& s, const std::vector<std::string>& onnx) {
  const std::set<std::string> wanted(onnx.begin(), onnx.end());
  const auto& graph = s.graphs.after;
  std::vector<KernelOfNode> found;
  for (const KernelInfo& k : s.plan->kernels) {
    if (std::none_of(k.onnx_nodes.begin(), k.onnx_nodes.end(),
                     [&](const std::string& n) { return wanted.count(n) != 0; }))
      continue;
    KernelOfNode row{&k, std::nan("")};
    const std::int32_t box = graph ? graph->model.find(k.node) : -1;
    if (box >= 0) row.step_ns = graph->model.boxes[static_cast<std::size_t>(box)].time_ns;
    found.push_back(row);
  }
  return found;
}

void draw_kernels(Ui& ui, const GraphBox& box) {
  const AppState& s = ui.state();
  if (!s.plan) return;
  const std::vector<std::string> onnx =
      box.onnx_nodes.empty() ? std::vector<std::string>{box.name} : box.onnx_nodes;
  const std::vector<KernelOfNode> rows = kernels_of(s, onnx);
  if (rows.empty()) return;
  heading(onnx.size() == 1 ? "All kernels of this ONNX node" : "All kernels of these ONNX nodes");
  const auto& after = s.graphs.after;  // has the times
  double total = 0;
  bool timed = false;
  for (const KernelOfNode& row : rows)
    if (!std::isnan(row.step_ns)) total += row.step_ns, timed = true;
  muted(fmt::format("{} per step, {}", rows.size(),
                    timed ? after->model.time_text(total) + " together" : "not measured"));
  const float time_width = px(64);
  for (std::size_t i = 0; i < rows.size() && i < 60; ++i) {
    const KernelInfo& k = *rows[i].info;
    ImGui::PushID(static_cast<int>(i));
    const ImVec2 at = ImGui::GetCursorScreenPos();
    ImGui::GetWindowDrawList()->AddRectFilled({at.x, at.y + px(3)}, {at.x + px(4), at.y + px(15)},
                                              phase_color(k.phase), px(1));
    ImGui::Indent(px(11));
    node_link(ui, "kernel-of." + k.node, k.node, ImGui::GetContentRegionAvail().x - time_width);
    const std::string time = std::isnan(rows[i].step_ns) ? "\u2013" : after->model.time_text(rows[i].step_ns);
    const float width = theme().small->CalcTextSizeA(theme().small->FontSize, FLT_MAX, 0, time.c_str()).x;
    ImGui::SameLine();
    ImGui::SetCursorPosX(ImGui::GetWindowContentRegionMax().x - width);
    text(time, palette().text_dim, theme().small);
    ImGui::Unindent(px(11));
    ImGui::PopID();
  }
}

// The passes that the selected node went through, in their order. The step of the one that was clicked; -1: none.
std::int32_t draw_blame(Ui& ui, const GraphBox& box) {
  const AppState& s = ui.state();
  if (box.node == kNone || !s.graphs.after || ui.stage == GraphStage::before) return -1;
  const auto& graph = s.graphs.passes;
  if (!graph) {
    ui.app.find_stages();
    return -1;
  }
  const std::int32_t known = graph->model.find(box.name);
  if (known < 0) return -1;
  const std::vector<std::int32_t>& steps = graph->stages->touched[static_cast<std::size_t>(known)];
  if (steps.empty()) return -1;
  heading("What passes did to it");
  std::int32_t clicked = -1;
  constexpr std::size_t kShown = 40;
  for (std::size_t i = 0; i < std::min(steps.size(), kShown); ++i) {
    const StageStep& step = graph->stages->steps[static_cast<std::size_t>(steps[i])];
    ImGui::PushID(static_cast<int>(i));
    const bool shown = ui.stage == GraphStage::passes && ui.graph.travel.step == steps[i];
    const std::string label = graph->stages->blame(known, steps[i]);
    const std::string fits =
        fit_text(theme().ui, theme().ui->FontSize, label, ImGui::GetContentRegionAvail().x);
    if (selectable_row(fmt::format("blame.{}.{}", i, step.pass), fits, shown)) clicked = steps[i];
    tip((fits == label ? "" : label + "\n") + "Show the graph as it was then" +
        (step.why.empty() ? "" : ": " + escaped(step.why)));
    ImGui::PopID();
  }
  if (steps.size() > kShown) muted(fmt::format("and {} more", steps.size() - kShown));
  return clicked;
}

// The graph of all stages, at one of its steps.
void travel_to(Ui& ui, const std::string& node, std::int32_t step) {
  ui.graph.travel.stages = ui.state().graphs.passes->stages;
  ui.graph.travel.step = step;
  ui.go_to_stage(GraphStage::passes, {node});
  ui.panes.show("Graph");
}

}  // namespace

void draw_node_panel(Ui& ui) {
  if (ui.selected().empty() && ui.graph.selected_scope < 0 && (ui.state().plan || ui.state().run)) {
    ui.graph.outline.clear();
    return draw_step_card(ui);
  }
  // In the model the kernels are the answer; in the step the node is one of them,
  // and its siblings follow its own details.
  const bool kernels_first = ui.stage == GraphStage::model;
  std::int32_t step = -1;
  draw_node_panel(ui.graph, ui.asks, [&ui, &step, kernels_first](const GraphBox& box) {
    draw_node_notes(ui, box.name);
    step = draw_blame(ui, box);
    if (kernels_first) draw_kernels(ui, box);
  });
  const std::int32_t selected = ui.graph.selected();
  if (!ui.graph.model || selected < 0 || ui.graph.selected_scope >= 0) return;
  const GraphBox box = ui.graph.model->boxes[static_cast<std::size_t>(selected)];
  if (step >= 0) return travel_to(ui, box.name, step);
  if (!kernels_first) draw_kernels(ui, box);
  if (kernels_first || box.onnx_nodes.empty()) return;
  spacer(4);
  if (button("node-panel.onnx", "Show in the model", ButtonKind::kGhost)) {
    ui.go_to_stage(GraphStage::model, {box.onnx_nodes.back()});  // the last is the one that gave the result
    ui.panes.show("Graph");
  }
}

}  // namespace gradloom
