// The controller's memory curve: what recompute can do for the recipe, made in the background, and a point of it as the budget.
#include <fmt/format.h>

#include <cmath>
#include <utility>

#include "app/desktop/controller.h"
#include "app/recorded_run.h"
#include "engine/base/text.h"

namespace gradloom {
namespace {

Recipe without_budget(Recipe recipe) {
  recipe.memory_budget.clear();
  return recipe;
}

// The shown run, whose kernels say what is cheap to compute again; 0: it has no times, or the recipe names others.
std::int64_t costs_run(const AppState& s) {
  const bool timed =
      s.recipe.costs.empty() && s.run && s.run->record.summary.has_recipe() && s.run->record.has_times();
  return timed ? s.run->record.summary.id : 0;
}

Recipe with_costs(Recipe recipe, const std::string& session, std::int64_t run) {
  if (run > 0) recipe.costs = session + "#" + std::to_string(run);
  return recipe;
}

std::string budget_key(const AppState& s) {
  const std::int64_t run = costs_run(s);
  return plan_key(without_budget(s.recipe)) + (s.model ? s.model->model.content_hash : "") + "#" +
         std::to_string(run) + (run > 0 ? s.session_path : "");
}

// The smallest budget in whole units that this peak fits.
std::string budget_text(std::int64_t bytes) {
  const bool large = bytes >= std::int64_t{64} << 20;
  const double unit = large ? 1 << 20 : 1 << 10;
  return fmt::format("{:.0f}{}", std::ceil(static_cast<double>(bytes) / unit), large ? "MiB" : "KiB");
}

Result<BudgetView> make_budget(const ImportedModel& model, const Recipe& recipe, const std::string& session,
                               std::int64_t run, std::stop_token stop) {
  BudgetView made;
  auto plan = make_plan_snapshot(model, with_costs(recipe, session, run), stop);
  // The run may be of another model or precision: then its times count for nothing here.
  if (!plan && run > 0) plan = make_plan_snapshot(model, recipe, stop);
  if (!plan) return plan.error();
  const Recipe& used = (*plan)->recipe;
  made.costs = used.costs;
  made.times =
      used.costs.empty() ? "estimates: run a few steps to have measured ones" : "measured: " + used.costs;
  for (const RecomputeChoice& c : TRY(memory_curve((*plan)->compiled, (*plan)->options, stop)))
    made.points.push_back({c.peak_bytes, c.cost, c.step_ns, c.nodes.size()});
  return made;
}

}  // namespace

std::string Controller::budget_command() const {
  const Recipe recipe = with_costs(without_budget(state_.recipe), state_.session_path, costs_run(state_));
  return job_command("plan", recipe, false) + " --memory-curve";
}

void Controller::find_budget() {
  if (!state_.plan) return;
  const std::string key = budget_key(state_);
  if (state_.budget.key == key) return;
  state_.budget = {};
  state_.budget.key = key;
  planner_->post(
      "budget", "what recompute can do",
      [this, key, model = state_.model, recipe = without_budget(state_.recipe), session = state_.session_path,
       run = costs_run(state_)](std::stop_token stop) -> Worker::Publish {
        auto made = make_budget(model->model, recipe, session, run, stop);
        if (stop.stop_requested()) return {};
        BudgetView view;
        if (made)
          view = std::move(made).value();
        else
          view.problem = made.error().message;
        view.key = key;
        return [this, view = std::move(view)]() mutable {
          if (state_.budget.key == view.key) state_.budget = std::move(view);
        };
      });
}

void Controller::choose_budget(std::size_t point) {
  const std::vector<BudgetPoint>& points = state_.budget.points;
  if (point >= points.size()) return;
  const std::string budget = point == 0 ? "" : budget_text(points[point].peak_bytes);
  edit(budget.empty() ? "no memory budget" : "memory budget " + budget, [&](Recipe& recipe) {
    recipe.memory_budget = budget;
    // The choice is made by the same times.
    if (!state_.budget.costs.empty()) recipe.costs = state_.budget.costs;
  });
}

}  // namespace gradloom
