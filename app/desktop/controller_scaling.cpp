// The controller's prediction for more ranks: the recipe as it stands is compiled for several, in the background.
#include <algorithm>
#include <utility>

#include "app/desktop/controller.h"
#include "app/recipe_flags.h"
#include "app/recorded_run.h"

namespace gradloom {
namespace {

// The recipe for several ranks.
Recipe for_ranks(Recipe recipe, const std::string& session, std::int64_t run) {
  recipe.ranks = std::max<std::int64_t>(2, recipe.ranks);
  return with_times_of(std::move(recipe), session, run);
}

// The run may be of another model or precision: then its times count for nothing here.
Result<std::unique_ptr<Prepared>> prepare_for_ranks(const Recipe& recipe, const std::string& session,
                                                    std::int64_t* run, std::stop_token stop) {
  if (*run > 0) {
    auto timed = prepare(for_ranks(recipe, session, *run), stop);
    if (timed) return timed;
    *run = 0;
  }
  return prepare(for_ranks(recipe, session, 0), stop);
}

}  // namespace

std::vector<std::string> cluster_words(const ScalingQuestion& question) {
  std::vector<std::string> words{"--link", question.link, "--local",
                                 std::to_string(question.ranks_per_machine)};
  for (const auto& [flag, value] : {std::pair("--local-link", question.local_link), {"--on", question.on}})
    if (!value.empty()) words.insert(words.end(), {flag, value});
  return words;
}

std::string Controller::scaling_command(const ScalingQuestion& question) const {
  const Recipe recipe = for_ranks(state_.recipe, state_.session_path, timed_run(state_));
  std::string command = job_command("plan", recipe, false);
  for (const std::string& word : cluster_words(question)) command += " " + shell_quoted(word);
  return command;
}

void Controller::find_scaling(const ScalingQuestion& question) {
  const std::int64_t run = timed_run(state_);
  ScalingView& view = state_.scaling;
  if (!state_.plan || (view.plan == state_.plan && view.question == question && view.run == run)) return;
  view.question = question;
  view.plan = state_.plan;
  view.run = run;
  planner_->post("scaling", "planning for more ranks",
                 [this, asked = view, recipe = state_.recipe,
                  session = state_.session_path](std::stop_token stop) -> Worker::Publish {
                   ScalingView made = asked;
                   made.scaling.reset();
                   made.problem.clear();
                   const auto predict = [&]() -> Status {
                     const ClusterQuestion machines = TRY(parse_cluster(
                         asked.question.link, asked.question.local_link, asked.question.ranks_per_machine));
                     std::optional<Hardware> on;
                     if (!asked.question.on.empty()) on = TRY(find_hardware(asked.question.on));
                     std::int64_t times = asked.run;
                     const auto prepared = TRY(prepare_for_ranks(recipe, session, &times, stop));
                     made.scaling = std::make_shared<const RankScaling>(
                         predict_scaling(*prepared, cluster_of(machines, *prepared, on)));
                     made.ranks = prepared->recipe.ranks;
                     made.times =
                         !made.scaling->hardware.empty() ? "what is expected of " + made.scaling->hardware
                         : !made.scaling->measured       ? "estimates: run a few steps to have measured ones"
                         : times > 0                     ? "measured in run " + std::to_string(times)
                                                         : "measured: " + prepared->recipe.costs;
                     return {};
                   };
                   if (const Status status = predict(); !status) {
                     if (stop.stop_requested()) return {};
                     made.problem = status.error().message;
                   }
                   return [this, made = std::move(made)]() mutable {
                     const ScalingView& now = state_.scaling;
                     if (now.plan == made.plan && now.question == made.question && now.run == made.run)
                       state_.scaling = std::move(made);
                   };
                 });
}

}  // namespace gradloom
