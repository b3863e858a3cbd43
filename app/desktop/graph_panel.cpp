// The graph tab: which graph (as imported, the whole step before passes, after passes),
// the canvas and its tools.
#include <fmt/format.h>
#include <imgui.h>

#include <algorithm>
#include <utility>

#include "app/desktop/ui.h"
#include "engine/base/text.h"

namespace gradloom {
namespace {

// The node of `target` that stands for `box` of another stage: itself, the first of its ONNX nodes, or the
// first node that stands for one of them. Empty: none.
std::string counterpart(const GraphBox& box, const GraphModel& target) {
  if (target.find(box.name) >= 0) return box.name;
  const std::vector<std::string> onnx =
      box.onnx_nodes.empty() ? std::vector<std::string>{box.name} : box.onnx_nodes;
  for (auto name = onnx.rbegin(); name != onnx.rend(); ++name)  // the last gave the result
    if (target.find(*name) >= 0) return *name;
  for (const GraphBox& other : target.boxes)
    for (const std::string& name : other.onnx_nodes)
      if (std::find(onnx.begin(), onnx.end(), name) != onnx.end()) return other.name;
  return {};
}

// Above the canvas: what is marked in it beyond the selection, each with an x.
void draw_chips(Ui& ui) {
  if (ui.show_diff && ui.state().change) {
    const PlanChange& c = *ui.state().change;
    if (chip("graph.diff",
             fmt::format("Last change: {}   + {} new   \u2212 {} gone", c.what, c.added, c.removed),
             palette().good,
             "New nodes carry a +. What is gone carries a \u2212 in the graphs that still have it"))
      ui.show_diff = false;
    if (ui.timeline.filter) ImGui::SameLine(0, px(8));
  }
  range_chip(ui, "graph.range");
}

}  // namespace

void draw_graph_panel(Ui& ui) {
  const AppState& s = ui.state();
  if (!s.has_model()) return draw_no_model(ui, "No graph", "Open an ONNX model (Ctrl+O).");
  // Without a plan (unsupported operators, no loss yet) the step is not there: the model is.
  const bool planless = ui.stage != GraphStage::model && !s.graphs.at(ui.stage);
  GraphStage stage = planless && s.graphs.model ? GraphStage::model : ui.stage;
  int index = static_cast<int>(stage);
  if (segmented("graph.stage", &index, {"Model", "No passes", "Step"})) {
    stage = static_cast<GraphStage>(index);
    const std::int32_t box = ui.graph.model ? ui.graph.selected() : -1;
    if (box >= 0 && s.graphs.at(stage))
      ui.go_to_stage(stage, {counterpart(ui.graph.model->boxes[static_cast<std::size_t>(box)],
                                         s.graphs.at(stage)->model)});
    ui.stage = stage;
  }
  tip("The graph as imported, the whole training step before passes, or what runs");
  ImGui::SameLine(0, px(10));
  draw_graph_toolbar(ui.graph, ui.asks);

  const std::shared_ptr<const GraphSnapshot> graph = s.graphs.at(stage);
  if (!graph) return empty_state(s.plan_error.empty() ? "Planning\u2026" : "No plan", s.plan_error);
  const std::shared_ptr<const GraphModel> model(graph, &graph->model);
  draw_chips(ui);
  const bool was_there = ui.graph.model == model;
  draw_graph_canvas(model, ui.graph, ui.asks);
  ui.drawn(Canvas::graph, ImGui::IsMouseHoveringRect(ui.graph.canvas_min, ui.graph.canvas_max));
  if (ui.place_after && was_there && !ui.graph.builder.busy())
    graph_show_place(ui.graph, *std::exchange(ui.place_after, std::nullopt));
  graph_keys(ui.graph, ui.asks, ui.takes_keys(Canvas::graph));
  if (ui.graph.busy()) ui.host.animate();
}

}  // namespace gradloom
