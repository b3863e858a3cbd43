// The graph tab: which graph (as imported, the whole step before passes, after passes), the canvas and its
// tools.
#include <fmt/format.h>
#include <imgui.h>

#include "app/desktop/ui.h"
#include "engine/base/text.h"

namespace gradloom {

void draw_graph_panel(Ui& ui) {
  const AppState& s = ui.state();
  if (!s.has_model()) return empty_state("No graph", "Open an ONNX model (Ctrl+O).");
  // Without a plan (unsupported operators, no loss yet) the step is not there: the model is.
  const bool planless = ui.stage != GraphStage::model && !s.graphs[static_cast<int>(ui.stage)];
  int stage = planless && s.graphs[0] ? static_cast<int>(GraphStage::model) : static_cast<int>(ui.stage);
  if (segmented("graph.stage", &stage, {"Model", "No passes", "Step"})) {
    ui.go_after = ui.selected();
    ui.stage = static_cast<GraphStage>(stage);
  }
  tip("The graph as imported, the whole training step before passes, or what runs");
  ImGui::SameLine(0, px(10));
  draw_graph_toolbar(ui.graph, ui.asks);

  const std::shared_ptr<const GraphSnapshot> graph = s.graphs[stage];
  if (!graph) return empty_state(s.plan_error.empty() ? "Planning\u2026" : "No plan", s.plan_error);
  const std::shared_ptr<const GraphModel> model(graph, &graph->model);
  const bool was_there = ui.graph.model == model;
  draw_graph_canvas(model, ui.graph, ui.asks);
  if (!ui.go_after.empty() && was_there && !ui.graph.builder.busy()) {
    graph_go_to(ui.graph, ui.go_after);
    ui.go_after.clear();
  }
  graph_keys(ui.graph, ui.asks);
  if (ui.graph.busy()) ui.host.animate();
}

}  // namespace gradloom
