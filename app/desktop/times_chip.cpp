// Whose times are shown: of the plan as it stands, or of a run that was made with something else, which can be run again.
#include <fmt/format.h>
#include <imgui.h>

#include "app/desktop/ui.h"

namespace gradloom {
namespace {

// What the run was made with beside the recipe as it stands: "other passes", "other settings".
std::string what_differs(const AppState& s) {
  auto recorded = parse_recipe(s.run->record.recipe_json);
  if (!recorded) return "other settings";
  const auto bare = [&](Recipe recipe) {
    recipe.model = s.recipe.model;  // the file may have moved
    recipe.passes.clear();
    recipe.rules.clear();
    return plan_key(recipe);
  };
  const bool same_model = !s.model || s.run->record.summary.model_hash == s.model->model.content_hash;
  if (!same_model) return "another model";
  return bare(*recorded) == bare(s.recipe) ? "other passes" : "other settings";
}

}  // namespace

const TimesNote& Ui::times_of_shown() {
  const AppState& s = state();
  if (times.run == s.run.get() && times.plan == s.plan.get()) return times;
  times = {s.run.get(), s.plan.get(), {}, false};
  if (!s.run) return times;
  const RunSummary& run = s.run->record.summary;
  times.said = fmt::format("measured in run {}", run.id);
  if (!run.has_recipe()) {
    times.said = fmt::format("run {}, recorded by {}", run.id, run.kind_text());
  } else if (s.plan && !run_fits_plan(s)) {
    times.said += ", " + what_differs(s);
    times.again = true;
  }
  return times;
}

void times_chip(Ui& ui, const std::string& id, float room) {
  const TimesNote& note = ui.times_of_shown();
  if (note.said.empty()) return;
  const bool can = !ui.state().progress.running && ui.app.problems().empty();
  if (offer_chip(id, note.said, note.again ? "run again" : "", can,
                 note.again ? palette().warn : palette().text_dim, note.again ? kAgainTip : "", room))
    ui.do_command("run.start");
}

}  // namespace gradloom
