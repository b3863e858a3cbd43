// The controller's memory curve: what recompute can do for the recipe, made in the background, and a point of it as the budget.
#include <fmt/format.h>

#include <cmath>
#include <utility>

#include "app/desktop/controller.h"
#include "engine/base/text.h"

namespace gradloom {
namespace {

Recipe without_budget(Recipe recipe) {
  recipe.memory_budget.clear();
  return recipe;
}

// What the curve is of: as the plan stands, whatever its budget, by the times that a choice then takes along.
Recipe curve_recipe(const AppState& s) {
  return with_times_of(without_budget(s.recipe), s.session_path, timed_run(s));
}

// The smallest budget in whole units that this peak fits.
std::string budget_text(std::int64_t bytes) {
  const bool large = bytes >= std::int64_t{64} << 20;
  const double unit = large ? 1 << 20 : 1 << 10;
  return fmt::format("{:.0f}{}", std::ceil(static_cast<double>(bytes) / unit), large ? "MiB" : "KiB");
}

// `bare`: without the times, which may be of another model or precision and then count for nothing here.
Result<BudgetView> make_budget(const ImportedModel& model, const Recipe& recipe, const Recipe& bare,
                               std::stop_token stop) {
  BudgetView made;
  auto plan = make_plan_snapshot(model, recipe, stop);
  if (!plan && recipe.costs != bare.costs) plan = make_plan_snapshot(model, bare, stop);
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

void Controller::find_budget() {
  BudgetView& view = state_.budget;
  const std::int64_t run = timed_run(state_);
  if (!state_.plan || (view.plan == state_.plan && view.run == run)) return;
  view.plan = state_.plan;
  view.run = run;
  const Recipe recipe = curve_recipe(state_);
  const std::string key = plan_key(recipe) + state_.model->model.content_hash;
  if (view.key == key) return;  // another budget of the same
  view = {key, state_.plan, run};
  planner_->post("budget", "what recompute can do",
                 [this, key, recipe, model = state_.model,
                  bare = without_budget(state_.recipe)](std::stop_token stop) -> Worker::Publish {
                   auto made = make_budget(model->model, recipe, bare, stop);
                   if (stop.stop_requested()) return {};
                   if (!made) made = BudgetView{.problem = made.error().message};
                   made->key = key;
                   return [this, found = std::move(made).value()]() mutable {
                     BudgetView& now = state_.budget;
                     if (now.key != found.key) return;
                     found.plan = now.plan;
                     found.run = now.run;
                     now = std::move(found);
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
