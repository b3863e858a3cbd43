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
  if (s.model && s.run->record.summary.model_hash != s.model->model.content_hash)
    return "the model has changed since";
  return bare(*recorded) == bare(s.recipe) ? "other passes" : "other settings";
}

}  // namespace

const TimesNote& Ui::times_of_shown() {
  const AppState& s = state();
  if (times.run == s.run.get() && times.plan == s.plan.get()) return times;
  times = {s.run.get(), s.plan.get(), {}, false, false};
  if (!s.run) return times;
  const RunSummary& run = s.run->record.summary;
  times.said = fmt::format("measured in run {}", run.id);
  if (!run.has_recipe()) {
    times.said = fmt::format("run {}, recorded by {}", run.id, run.kind_text());
  } else if (s.of_other_model(run)) {
    times.said += ", other model";
    times.other_model = true;
  } else if (s.plan && !run_fits_plan(s)) {
    times.said += ", " + what_differs(s);
    times.again = true;
  }
  return times;
}

TimesOffer Ui::times_offer() {
  const TimesNote& note = times_of_shown();
  const bool free = !state().progress.running;
  if (note.other_model)
    return {"open its model",
            "Its times stand for nothing in the graph of the open model. Opens the one that it ran", free};
  if (!note.again) return {};
  return {"run again",
          "Times are shown with a ~ where they are of a run with another plan. "
          "Runs the job as it stands, for its own",
          free && app.problems().empty()};
}

void Ui::take_times_offer() {
  if (times_of_shown().other_model) return app.open_model_of_run();
  do_command("run.start");
}

void times_chip(Ui& ui, const std::string& id, float room) {
  const TimesNote& note = ui.times_of_shown();
  if (note.said.empty()) return;
  const TimesOffer offer = ui.times_offer();
  if (offer_chip(id, note.said, offer.action, offer.can, *offer.action ? palette().warn : palette().text_dim,
                 offer.tip, room))
    ui.take_times_offer();
}

}  // namespace gradloom
