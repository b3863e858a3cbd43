// The roofline tab: the shown run under the roofs of its own processor or of another one; of a plan that was not run, what is
// expected there.
#include <fmt/format.h>
#include <imgui.h>

#include "app/desktop/ui.h"
#include "viz/draw/keys.h"
#include "app/roofline.h"
#include "engine/base/text.h"

namespace gradloom {
namespace {

const void* source_of(const AppState& s) {
  return s.run ? static_cast<const void*>(s.run.get()) : static_cast<const void*>(s.plan.get());
}

std::string chosen(int on) { return on == 0 ? "" : known_hardware()[static_cast<std::size_t>(on - 1)].id; }

// Of the run where there is one, else of the plan.
void make_model(RooflineState& state, const AppState& s) {
  state.source = source_of(s);
  state.made_on = state.on;
  state.made_of = s.devices.size();
  state.model.reset();
  state.error.clear();
  state.view.of = nullptr;
  const auto hardware = s.run ? hardware_of_run(s.run->record, chosen(state.on))
                              : hardware_of_plan(s.plan->recipe, chosen(state.on),
                                                 s.remote ? std::vector<DeviceInfo>() : s.devices);
  if (!hardware) {
    state.error = hardware.error().message;
    return;
  }
  const Plan* plan = s.plan ? &s.plan->plan() : nullptr;
  state.model = std::make_shared<const RooflineModel>(
      s.run ? roofline_of_run(s.run->record, *hardware)
            : roofline_of_plan(s.plan->graph(), *plan, s.plan->recipe, *hardware));
}

void choose_hardware(Ui& ui) {
  std::vector<std::string> names = {"Its own processor"};
  for (const Hardware& h : known_hardware()) names.push_back(h.name);
  combo("roofline.on", &ui.roofline.on, names, 230);
  ImGui::SameLine(0, px(10));
  ImGui::BeginDisabled(ui.state().progress.running || ui.state().remote.has_value());
  if (button("roofline.measure", "Measure this machine", ButtonKind::kPlain,
             "gradloom devices --measure: what its kernels reach, some seconds"))
    ui.app.measure_devices();
  ImGui::EndDisabled();
  ImGui::SameLine(0, px(10));
  ImGui::AlignTextToFramePadding();
  const std::string said = ui.roofline.model ? ui.roofline.model->hardware.source : "";
  text(fit_text(theme().small, theme().small->FontSize, said, ImGui::GetContentRegionAvail().x),
       palette().text_faint, theme().small);
}

}  // namespace

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
  draw_roofline_view(*state.model, state.view, ui.asks);
  if (!ui.asks.go_to_node.empty()) ui.go_to(std::exchange(ui.asks.go_to_node, {}));
}

}  // namespace gradloom
