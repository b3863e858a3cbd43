// The graph tab: which graph (as imported, the whole step before passes, after passes),
// the canvas and its tools.
#include <fmt/format.h>
#include <imgui.h>

#include <algorithm>
#include <utility>

#include "app/desktop/ui.h"
#include "engine/base/text.h"
#include "viz/draw/keys.h"
#include "viz/draw/stage_bar.h"

namespace gradloom {
namespace {

constexpr float kLowGraph = 220;  // points; a pane that is less tall has its tools in a menu

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
    if (ui.filters()) ImGui::SameLine(0, px(8));
  }
  filter_chips(ui, "graph");
}

// Pass by pass: the slider, and which step the canvas shows. False: the way through the passes is not known yet.
bool draw_travel(Ui& ui, const std::shared_ptr<const GraphSnapshot>& graph) {
  GraphCanvasState::Travel& travel = ui.graph.travel;
  if (!graph) {
    ui.app.find_stages();
    muted("Following the passes\u2026");
    return false;
  }
  const StageModel& stages = *graph->stages;
  if (travel.stages != graph->stages) {  // the first time, or of another plan: the last step is what runs
    travel.stages = graph->stages;
    travel.step = travel.at_end ? stages.last() : std::min(travel.step, stages.last());
  }
  draw_stage_bar(stages, &travel.step);
  stage_keys(stages, &travel.step, ui.takes_keys(Canvas::graph));
  travel.at_end = travel.step >= stages.last();
  return true;
}

// Back to the step as it runs; the selection stays by name.
void end_travel(Ui& ui) {
  ui.stage = GraphStage::after;
  ui.graph.travel.stages.reset();
}

// The runs that times can be compared with. Asked for without a choice it is the run that is A or B, else the newest.
void offer_sides(Ui& ui) {
  const AppState& s = ui.state();
  ui.graph.other_runs = {};
  if (ui.graph.color_by != ColorBy::kChange) return;
  const std::vector<std::int64_t> runs = ui.app.timed_runs();
  const auto offered = [&](std::int64_t run) {
    return std::find(runs.begin(), runs.end(), run) != runs.end();
  };
  if (s.other_run == 0 && !runs.empty())
    ui.app.time_against(offered(s.run_a) ? s.run_a : offered(s.run_b) ? s.run_b : runs.front());
  ui.graph.other_runs = {runs, s.other_run};
}

}  // namespace

void draw_graph_panel(Ui& ui) {
  const AppState& s = ui.state();
  if (!s.has_model())
    return draw_no_model(ui, "No graph", ("Open an ONNX model (" + key_label("file.open") + ").").c_str());
  // Without a plan (unsupported operators, no loss yet) the step is not there: the model is.
  const bool planless = ui.stage != GraphStage::model &&
                        !s.graphs.at(ui.stage == GraphStage::passes ? GraphStage::after : ui.stage);
  GraphStage stage = planless && s.graphs.model ? GraphStage::model : ui.stage;
  int index = static_cast<int>(stage);
  const bool low = ImGui::GetContentRegionAvail().y < px(kLowGraph);
  const std::vector<std::string> stages{"Model", "No passes", "Step", "By pass"};
  if (low ? combo("graph.stage", &index, stages, 104) : segmented("graph.stage", &index, stages)) {
    stage = static_cast<GraphStage>(index);
    const std::int32_t box = ui.graph.model ? ui.graph.selected() : -1;
    if (box >= 0 && s.graphs.at(stage))
      ui.go_to_stage(stage, {counterpart(ui.graph.model->boxes[static_cast<std::size_t>(box)],
                                         s.graphs.at(stage)->model)});
    ui.stage = stage;
  }
  tip("The graph as imported, the whole training step before passes, what runs, or its way there pass by pass (" +
      key_label("view.by_pass") + ")");
  offer_sides(ui);
  flow(px(104), px(10));
  draw_graph_toolbar(ui.graph, ui.asks, low);

  std::shared_ptr<const GraphSnapshot> graph = s.graphs.at(stage);
  const bool listens = ui.takes_keys(Canvas::graph);
  const bool popup = ImGui::IsPopupOpen(nullptr, ImGuiPopupFlags_AnyPopupId | ImGuiPopupFlags_AnyPopupLevel);
  if (stage == GraphStage::passes && listens && !popup && key_pressed("graph.clear")) {
    end_travel(ui);
    stage = ui.stage;
    graph = s.graphs.at(stage);
  }
  GraphCanvasState::Travel& travel = ui.graph.travel;
  if (stage != GraphStage::passes) {
    travel.stages.reset();
    travel.at_end = true;
  } else if (!draw_travel(ui, graph)) {
    graph = s.graphs.after;
    travel.stages.reset();  // they are of a graph of another plan
  }
  if (!graph) return empty_state(s.plan_error.empty() ? "Planning\u2026" : "No plan", s.plan_error);
  const std::shared_ptr<const GraphModel> model(graph, &graph->model);
  draw_chips(ui);
  const TimesNote& times = ui.times_of_shown();
  const bool of_other_plan = times.again && model->timed && !model->other_plan.empty();
  ui.graph.times_note = times.other_model || of_other_plan ? times.said : std::string();
  const TimesOffer offer = ui.times_offer();
  ui.graph.times_action = offer.action;
  ui.graph.times_tip = offer.tip;
  ui.graph.may_take = offer.can;
  if (std::exchange(ui.model_stands_in, stage != ui.stage) && stage == ui.stage) graph_start_again(ui.graph);
  const bool was_there = ui.graph.model == model;
  draw_graph_canvas(model, ui.graph, ui.asks);
  ui.drawn(Canvas::graph, ImGui::IsMouseHoveringRect(ui.graph.canvas_min, ui.graph.canvas_max));
  if (was_there && stage == ui.stage && !ui.graph.builder.busy()) {
    if (ui.place_after) graph_show_place(ui.graph, *std::exchange(ui.place_after, std::nullopt));
    if (!ui.query_after.empty()) graph_set_query(ui.graph, std::exchange(ui.query_after, {}));
  }
  graph_keys(ui.graph, ui.asks, listens);
  if (ui.graph.busy()) ui.host.animate();
}

}  // namespace gradloom
