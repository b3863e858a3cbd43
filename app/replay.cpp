#include "app/replay.h"

#include "profiler/sampler.h"
#include "sessions/run_environment.h"

namespace gradloom {

Result<Recipe> recipe_of(const RunRecord& run) {
  const std::string name = "run " + std::to_string(run.summary.id);
  if (run.summary.is_loop())
    return Error{Errc::bad_input,
                 name +
                     " is a recorded loop: its model, data and optimizer are its program's, so "
                     "there is no recipe"};
  if (run.summary.is_import())
    return Error{Errc::bad_input, name + " was recorded by " + run.summary.kind_text() +
                                      ": there is no recipe, as it is no training of Gradloom's"};
  auto recipe = parse_recipe(run.recipe_json);
  if (!recipe) return with_context(recipe.error(), name);
  return recipe;
}

Result<Recipe> recipe_with_expectations(const RunRecord& run) {
  const RunSummary& s = run.summary;
  Result<Recipe> recipe = TRY(recipe_of(run));
  if (run.steps.empty())
    return Error{Errc::bad_input, "run " + std::to_string(s.id) + " has no finished step"};
  RecipeExpect expect;
  const bool whole = run.steps.front().step == 1;  // else a replay, which begins there, has other losses
  std::vector<double> untimed_ns, all_ns;
  constexpr std::size_t kWarmup = kWarmupSteps, kLosses = 20;
  for (std::size_t i = 0; i < run.steps.size(); ++i) {
    const StepRow& step = run.steps[i];
    if (whole && i < kLosses) expect.losses.push_back(step.loss);
    if (i < kWarmup && run.steps.size() > 2 * kWarmup) continue;
    all_ns.push_back(static_cast<double>(step.step_ns));
    if (!step.timed) untimed_ns.push_back(static_cast<double>(step.step_ns));
  }
  const Interval interval = bootstrap_median(untimed_ns.size() >= 5 ? untimed_ns : all_ns);
  expect.step_ns = interval.value;
  expect.step_ns_low = interval.low;
  expect.step_ns_high = interval.high;
  expect.peak_bytes = s.measured_peak_bytes;
  expect.plan_hash = s.plan_hash;
  expect.graph_hash = s.graph_hash;
  if (whole) {
    expect.last_loss = s.last_loss;
    expect.last_step = run.steps.back().step;
  }
  expect.hardware = environment_row(run, "hardware");
  recipe->expect = expect;
  return recipe;
}

}  // namespace gradloom
