// The roofline tab: the shown run under the roofs of its own processor or of another one; of a plan that was not run, what is
// expected there.
#include <fmt/format.h>
#include <imgui.h>

#include <algorithm>
#include <utility>

#include "app/desktop/ui.h"
#include "app/recipe_flags.h"
#include "app/roofline.h"
#include "engine/base/text.h"
#include "viz/draw/keys.h"

namespace gradloom {
namespace {

const void* source_of(const AppState& s) {
  return s.run ? static_cast<const void*>(s.run.get()) : static_cast<const void*>(s.plan.get());
}

std::int64_t run_of(const AppState& s) { return s.run ? s.run->record.summary.id : 0; }

// The same rectangles over another state of the run, or over another plan.
void choose_again(RooflineState& state) {
  if (!state.view.selection) return;
  const std::vector<RooflineArea> areas = state.view.selection->areas;
  roofline_clear(state.view);
  if (!state.model) return;
  roofline_select(*state.model, areas, state.view);
  if (state.view.selection->nodes.empty()) roofline_clear(state.view);
}

// Of the run where there is one, else of the plan.
void make_model(RooflineState& state, const AppState& s) {
  state.source = source_of(s);
  state.made_on = state.on;
  state.made_of = s.devices.size();
  state.model.reset();
  state.error.clear();
  state.view.of = nullptr;
  const auto hardware = s.run ? hardware_of_run(s.run->record, processor_id(state.on))
                              : hardware_of_plan(s.plan->recipe, processor_id(state.on),
                                                 s.remote ? std::vector<DeviceInfo>() : s.devices);
  if (!hardware) {
    state.error = hardware.error().message;
    return choose_again(state);
  }
  const Plan* plan = s.plan ? &s.plan->plan() : nullptr;
  state.model = std::make_shared<const RooflineModel>(
      s.run ? roofline_of_run(s.run->record, *hardware)
            : roofline_of_plan(s.plan->graph(), *plan, s.plan->recipe, *hardware));
  choose_again(state);
}

// What of the session's run, or of the plan, lists the chosen kernels.
std::string chosen_command(const Ui& ui) {
  const AppState& s = ui.state();
  if (!ui.roofline.view.selection) return {};
  std::string command =
      s.run ? fmt::format("gradloom show {} --run {}", shell_quoted(s.session_path), run_of(s))
            : ui.app.job_command("plan", s.plan->recipe, false);
  command += " --roofline";
  if (const std::string on = processor_id(ui.roofline.on); !on.empty()) command += " --on " + on;
  for (const RooflineArea& area : ui.roofline.view.selection->areas)
    command += " --inside " + area_text(area);
  return command;
}

// The slowest last: it is the one that views of a single node show.
void select_chosen(Ui& ui) {
  const RooflineModel& model = ui.roofline.view.selection->inside;
  std::vector<RooflineRow> rows = model.rows;
  std::stable_sort(rows.begin(), rows.end(), [&](const RooflineRow& a, const RooflineRow& b) {
    return shown_ns(model, a) < shown_ns(model, b);
  });
  ui.kernel_table.wanted = rows.back().name;
  ui.select_first([&](const GraphModel& graph) {
    std::vector<std::string> known;
    for (const RooflineRow& row : rows)
      if (graph.find(row.name) >= 0) known.push_back(row.name);
    return known;
  });
}

void choose_hardware(Ui& ui) {
  constexpr float kChipRoom = 120, kSourceRoom = 80;
  combo("roofline.on", &ui.roofline.on, processor_names("Its own processor"), 230);
  ImGui::SameLine(0, px(10));
  ImGui::BeginDisabled(ui.state().progress.running || ui.state().remote.has_value());
  if (button("roofline.measure", "Measure this machine", ButtonKind::kPlain,
             "gradloom devices --measure: what its kernels reach, some seconds"))
    ui.app.measure_devices();
  ImGui::EndDisabled();
  flow(px(kChipRoom), px(10));
  times_chip(ui, "roofline.times", ImGui::GetContentRegionAvail().x);
  const std::string said = ui.roofline.model ? ui.roofline.model->hardware.source : "";
  ImGui::SameLine(0, px(10));
  if (ImGui::GetContentRegionAvail().x < px(kSourceRoom)) return ImGui::NewLine();
  ImGui::AlignTextToFramePadding();
  text(fit_text(theme().small, theme().small->FontSize, said, ImGui::GetContentRegionAvail().x),
       palette().text_faint, theme().small);
  tip(said);
}

}  // namespace

void Ui::follow_roofline() {
  const AppState& s = state();
  if (!roofline.view.selection) return;
  if (roofline.run != run_of(s) || source_of(s) == nullptr) {
    roofline_clear(roofline.view);
  } else if (roofline.source != source_of(s)) {
    make_model(roofline, s);
  }
}

void draw_roofline_panel(Ui& ui) {
  const AppState& s = ui.state();
  if (!s.plan && !s.run)
    return empty_state(
        "No kernels", s.plan_error.empty() ? "Open a model (" + key_label("file.open") + ")." : s.plan_error);
  if (s.run && s.run->record.summary.is_import())
    return empty_state("No roofline", "Profilers of others count no arithmetic.");
  if (s.progress.running && s.progress.kind == RunKind::measure) {
    ui.host.animate();
    ui.roofline.source = nullptr;  // what is measured counts at once
    return empty_state("Measuring this machine", "Memory by how much kernels touch, products by type.");
  }
  ui.app.find_devices();
  RooflineState& state = ui.roofline;
  if (state.source != source_of(s) || state.on != state.made_on || state.made_of != s.devices.size())
    make_model(state, s);
  choose_hardware(ui);
  spacer(2);
  if (!state.model) return empty_state("No roofs", state.error);
  if (s.run && !state.model->timed())
    return empty_state("No times of kernels", "Record a run with --profile sampled or all.");
  state.view.selected = ui.selected();
  const ImVec2 at = ImGui::GetCursorScreenPos(), region = ImGui::GetContentRegionAvail();
  const bool changed = draw_roofline_view(*state.model, chosen_command(ui), state.view, ui.asks);
  ui.drawn(Canvas::roofline, ImGui::IsMouseHoveringRect(at, {at.x + region.x, at.y + region.y}));
  if (changed) {
    state.run = run_of(s);
    if (state.view.selection) select_chosen(ui);
  }
  if (ui.takes_keys(Canvas::roofline)) roofline_keys(state.view, ui.asks);
  if (!ui.asks.go_to_node.empty()) ui.go_to(std::exchange(ui.asks.go_to_node, {}));
}

}  // namespace gradloom
