// The kernel and memory tabs: of the plan as it stands, with times where a run of the very same plan was
// recorded, or of the recorded run that is shown.
#include <fmt/format.h>
#include <imgui.h>

#include <algorithm>
#include <functional>
#include <utility>

#include "app/desktop/ui.h"
#include "viz/draw/keys.h"
#include "engine/base/glob.h"
#include "engine/base/text.h"

namespace gradloom {
namespace {

// Which of the two is shown; a choice only where they differ. True: the recorded run.
bool choose_source(Ui& ui, const char* id) {
  const AppState& s = ui.state();
  if (!s.plan || !s.run) return ui.shows_recorded();
  if (!run_fits_plan(s)) {
    int which = ui.show_recorded ? 1 : 0;
    segmented(id, &which, {"The plan", fmt::format("Run {}", s.run->record.summary.id)});
    ui.show_recorded = which == 1;
    ImGui::SameLine(0, px(10));
  }
  times_chip(ui, std::string(id) + ".times", ImGui::GetContentRegionAvail().x);
  return ui.shows_recorded();
}

// On the line of the choice of source, where there is one.
void draw_filter_chips(Ui& ui, const std::string& id) {
  if (!ui.filters()) return;
  if (ui.state().plan && ui.state().run) ImGui::SameLine(0, px(14));
  filter_chips(ui, id);
}

// Peak against time of what recompute can do, and the choice of it.
void draw_budget_part(Ui& ui, float height) {
  const AppState& s = ui.state();
  ui.app.find_budget();
  const BudgetView& view = s.budget;
  if (!view.problem.empty()) return wrapped(view.problem, palette().bad);
  if (view.points.empty()) {
    muted("Looking what could be computed again\u2026");
    return ui.host.animate();
  }
  if (view.points.size() == 1)
    return muted("Nothing in this step can be computed again so that its peak is lower.");
  draw_budget(view.points, s.plan->totals.peak_bytes, ui.budget,
              height - ImGui::GetTextLineHeightWithSpacing());
  muted("Times are " + view.times +
        (s.recipe.memory_budget.empty() ? "." : ". Budget: " + s.recipe.memory_budget + "."));
  if (ui.budget.chosen) ui.app.choose_budget(*std::exchange(ui.budget.chosen, {}));
}

}  // namespace

void draw_kernel_panel(Ui& ui) {
  const AppState& s = ui.state();
  if (!s.plan && !s.run)
    return empty_state(
        "No kernels", s.plan_error.empty() ? "Open a model (" + key_label("file.open") + ")." : s.plan_error);
  const bool recorded = choose_source(ui, "kernels.source");
  draw_filter_chips(ui, "kernels");
  const void* source = recorded ? static_cast<const void*>(s.run.get()) : s.plan.get();
  if (source != ui.kernel_source) {
    ui.kernels.set_rows(recorded ? s.run->record.kernels : untimed_rows(s.plan->graph(), s.plan->plan()));
    ui.kernel_source = source;
  }
  ui.kernel_table.selected = ui.selected();
  draw_kernel_table(ui.kernels, ui.kernel_table, ui.asks);
  if (!ui.asks.go_to_node.empty() && !ui.asks.show_graph)
    ui.go_to(std::exchange(ui.asks.go_to_node, {}));  // stays in the table
}

void draw_memory_panel(Ui& ui) {
  const AppState& s = ui.state();
  if (!s.plan && !s.run)
    return empty_state("No memory plan", s.plan_error.empty()
                                             ? "Open a model (" + key_label("file.open") + ")."
                                             : s.plan_error);
  const bool recorded = choose_source(ui, "memory.source");
  if (recorded && s.run->record.summary.is_import())
    return empty_state("No memory plan", "The trace of another profiler has none.");
  if (ui.memory.first_step >= 0) draw_filter_chips(ui, "memory");
  // A run of the plan as it stands has its measured peak, the plan knows more of its buffers.
  const bool of_plan = s.plan && (!recorded || run_fits_plan(s));
  ui.memory.measured_peak_bytes = recorded ? s.run->memory.measured_peak_bytes : 0;
  const std::function<void(float)> budget = [&](float height) { draw_budget_part(ui, height); };
  draw_memory_view(of_plan ? s.plan->memory : s.run->memory, ui.memory, ui.asks,
                   of_plan ? budget : std::function<void(float)>());
  if (!ui.memory.again.empty()) {
    const std::string node = std::exchange(ui.memory.again, {});
    ui.app.edit("make " + node + " again", [&](Recipe& recipe) {
      auto& all = recipe.recompute;
      const std::string glob = glob_of(node);
      if (std::find(all.begin(), all.end(), glob) == all.end()) all.push_back(glob);
    });
  }
  if (!ui.asks.go_to_node.empty()) ui.go_to(std::exchange(ui.asks.go_to_node, {}));
}

}  // namespace gradloom
