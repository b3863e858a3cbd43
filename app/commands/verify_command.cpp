// gradloom verify: that passes and planner keep loss, gradients and updates, or which instance does not.
#include <CLI/CLI.hpp>
#include <algorithm>
#include <cmath>
#include <optional>

#include "app/commands/commands.h"
#include "app/recipe_flags.h"
#include "app/verify.h"
#include "engine/base/file.h"
#include "engine/base/text.h"
#include "viz/model/axis.h"

namespace gradloom {
namespace {

struct VerifyArguments {
  RecipeFlags recipe;
  VerifyOptions verify;
  bool progress = false;
};

Json verified_json(const Verified& v) {
  return {{"kind", measured_kind_name(v.kind)},
          {"name", v.name},
          {"size", json_number(v.size)},
          {"own_error", json_number(v.own_error)},
          {"error", json_number(v.error)},
          {"bound", json_number(v.bound)},
          {"agrees", v.agrees()}};
}

std::string row_name(const Verified& v) {
  return std::string(v.kind == MeasuredKind::loss ? "loss, " : "") + escaped(v.name);
}

// The tensor that is nearest to its bound, or the furthest beyond.
const Verified& worst_of(const Verification& verification) {
  const auto reach = [](const Verified& v) { return v.bound > 0 ? v.error / v.bound : v.error; };
  return *std::max_element(verification.tensors.begin(), verification.tensors.end(),
                           [&](const Verified& a, const Verified& b) { return reach(a) < reach(b); });
}

void print_json(const Output& out, const Verification& verification, const VerifyOptions& options) {
  for (const Verified& v : verification.tensors) out.object({{"tensor", verified_json(v)}});
  Json culprit;
  if (verification.culprit)
    culprit = {{"pass", verification.culprit->pass},
               {"site", verification.culprit->site},
               {"worst", verified_json(verification.culprit->worst)}};
  out.object({{"verified", verification.agrees()},
              {"tensors", verification.tensors.size()},
              {"passes", verification.passes},
              {"instances", verification.instances},
              {"steps", options.steps},
              {"worst", verification.tensors.empty() ? Json(nullptr) : verified_json(worst_of(verification))},
              {"culprit", culprit},
              {"folder", verification.folder}});
}

void print_text(const Output& out, const Prepared& job, const Verification& verification,
                const VerifyOptions& options) {
  std::vector<std::vector<std::string>> rows;
  for (const MeasuredKind kind : {MeasuredKind::loss, MeasuredKind::gradient, MeasuredKind::parameter}) {
    const auto of_kind = [&](const Verified& v) { return v.kind == kind; };
    const auto n = std::count_if(verification.tensors.begin(), verification.tensors.end(), of_kind);
    if (n == 0) continue;
    const Verified& worst = verification.worst(kind);
    rows.push_back({std::string(measured_kind_name(kind)), std::to_string(n), format_error(worst.size),
                    format_error(worst.own_error), format_error(worst.error), format_error(worst.bound),
                    worst.agrees() ? "ok" : "STRAYS", row_name(worst)});
  }
  out.text(table_text({"of", "tensors", "size", "error of its own", "with passes", "allowed", "", "worst"},
                      rows, {6, 7}));
  const std::string what =
      plural_text(verification.instances, "rewrite") + " of " + std::to_string(verification.passes.size()) +
      (verification.passes.size() == 1 ? " pass" : " passes") + " and planner " + job.options.planner;
  if (verification.agrees()) {
    const std::string of = job.options.gradients_only
                               ? "loss and gradients (nothing trains here)"
                               : "loss, gradients and parameters after " + plural_text(options.steps, "step");
    out.text("EQUAL  " + what + ": " + of + " stay within twice the own error of " + job.recipe.precision +
             " against f64");
    return;
  }
  const Culprit& culprit = *verification.culprit;
  out.text("STRAYS  " + culprit.pass + (culprit.site.empty() ? "" : " at " + escaped(culprit.site)) + ": " +
           measured_kind_name(culprit.worst.kind) + " " + escaped(culprit.worst.name) + " is off by " +
           format_error(culprit.worst.error) + ", allowed are " + format_error(culprit.worst.bound));
  if (!verification.folder.empty())
    out.text("to see it again: gradloom verify " + shell_quoted(verification.folder) +
             (options.steps == kVerifySteps ? "" : " --steps " + std::to_string(options.steps)));
}

// Those of the command line alone: a recipe's are of a training, more than a proof needs.
// The job keeps its own number, which its schedule may end with, unless more are proved.
Status set_steps(VerifyOptions& options, const RecipeFlags& flags, Recipe& recipe) {
  if (!flags.given("steps")) return {};
  if (recipe.steps > kMostVerifySteps)
    return Error{Errc::usage, "--steps: verify makes at most " + std::to_string(kMostVerifySteps) +
                                  " steps, got " + std::to_string(recipe.steps)};
  options.steps = recipe.steps;
  const std::optional<JobSource> source = TRY(flags.source());
  recipe.steps = std::max(options.steps, source ? source->recipe.steps : Recipe().steps);
  return {};
}

}  // namespace

CommandRun declare_verify(CLI::App& app) {
  auto options = std::make_shared<VerifyArguments>();
  options->recipe.declare(app);
  app.get_option("--steps")->description(
      "number of optimizer steps after which parameters are compared, 1 to " +
      std::to_string(kMostVerifySteps) + "; by default " + std::to_string(kVerifySteps) +
      ", whatever a recipe says");
  app.add_option(
      "--out", options->verify.out,
      "folder for a reproducer when something strays: recipe, model and batches, which verify takes");
  app.add_flag("--progress", options->progress,
               "with --json: also a line {\"event\":\"progress\",...} for each thing that is run");
  return [options](CommandContext& context) -> Status {
    Recipe recipe = TRY(options->recipe.resolve());
    TRY(set_steps(options->verify, options->recipe, recipe));
    const auto job = TRY(prepare_measured(recipe, context.stop));
    for (const std::string& note : job->model.notes) context.out.note(note);
    int told = 0;
    const auto verification = TRY(verify(job, options->verify, context.stop, [&](const std::string& what) {
      ++told;
      const double fraction = 1 - std::pow(0.85, told);
      context.out.progress("verify", fraction, what);
      if (options->progress)
        context.out.object({{"event", "progress"}, {"fraction", fraction}, {"what", what}});
    }));
    context.out.progress_done();
    if (context.out.json())
      print_json(context.out, verification, options->verify);
    else
      print_text(context.out, *job, verification, options->verify);
    if (!verification.agrees()) return Error{Errc::check_failed, ""};
    return {};
  };
}

}  // namespace gradloom
