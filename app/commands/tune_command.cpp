// gradloom tune: the fastest configuration of a job, found by prediction and interleaved measurement.
#include <CLI/CLI.hpp>
#include <algorithm>

#include "app/commands/commands.h"
#include "app/recipe_flags.h"
#include "app/pass_worth.h"
#include "app/replay.h"
#include "app/train_run.h"
#include "app/training_state.h"
#include "app/tune.h"
#include "engine/base/file.h"
#include "engine/base/text.h"
#include "viz/model/axis.h"

namespace gradloom {
namespace {

struct TuneArguments {
  RecipeFlags recipe;
  double seconds = 60;
  bool worth = false, progress = false;
  std::string session, out, over = "passes,instances,threads";
};

std::string name_of(const TuneRow& row) { return row.label.empty() ? "the job" : escaped(row.label); }

Json trial_json(const Trial& trial) {
  return {{"changes", trial.changes},
          {"round", trial.round},
          {"ratio", json_number(trial.ratio.value)},
          {"low", json_number(trial.ratio.low)},
          {"high", json_number(trial.ratio.high)},
          {"step_ns", json_number(trial.step_ns)},
          {"predicted_ns", json_number(trial.predicted_ns)},
          {"peak_bytes", trial.peak_bytes},
          {"plan_hash", trial.plan_hash}};
}

// What is known of a configuration while the search goes on.
Json told_json(const TuneRow& row) {
  Json json = trial_json(row.trial);
  json["label"] = row.label;
  json["predicted_ratio"] = json_number(row.predicted);
  json["error"] = row.error < 0 ? Json(nullptr) : json_number(row.error);
  return json;
}

const char* event_name(TuneEvent event) {
  switch (event) {
    case TuneEvent::job: return "job";
    case TuneEvent::candidate: return "candidate";
    case TuneEvent::trial: return "trial";
  }
  return "";
}

Json row_json(const TuneRow& row) {
  Json json = told_json(row);
  json["on_front"] = row.on_front;
  return json;
}

void print_trials(const Output& out, const Tuned& tuned) {
  constexpr std::size_t kShown = 12;  // the front is shown whole
  std::vector<std::vector<std::string>> rows;
  std::size_t left_out = 0;
  for (std::size_t i = 0; i < tuned.rows.size(); ++i) {
    const TuneRow& row = tuned.rows[i];
    if (rows.size() >= kShown && !row.on_front && i != tuned.best) {
      ++left_out;
      continue;
    }
    const bool measured = row.trial.round > 0;
    char predicted[32] = "";
    if (row.predicted > 0) std::snprintf(predicted, sizeof predicted, "%.3fx", row.predicted);
    rows.push_back({i == tuned.best ? "*" : "", row.on_front ? "front" : "", name_of(row),
                    row.trial.round < 0 ? "cannot run"
                    : !measured         ? "not measured"
                    : i == 0            ? "1"
                                        : ratio_text(row.trial.ratio),
                    predicted,
                    // Of the job's step: the machine was as fast for both sides of a comparison.
                    measured ? duration_text(tuned.rows[0].trial.step_ns / row.trial.ratio.value) : "",
                    bytes_text(static_cast<double>(row.trial.peak_bytes)), format_error(row.error)});
  }
  out.text(table_text({"", "", "change", "speed against the job", "predicted", "step", "peak", "error"}, rows,
                      {0, 1, 2}));
  if (left_out > 0) out.text("... " + std::to_string(left_out) + " more in the session's table trial");
}

// Of the job's steps so many as take no longer than the search did: the job may be a training of days.
Result<std::int64_t> recorded_steps(const Recipe& chosen, double step_ns, double seconds) {
  constexpr double kLeastSteps = 20;  // a recipe promises so many losses
  std::int64_t before = 0;            // that a loaded optimizer has made
  if (!chosen.load_optimizer.empty()) before = TRY(read_optimizer_file(chosen.load_optimizer)).made_steps;
  const double most = std::max(kLeastSteps, seconds * 1e9 / std::max(1.0, step_ns));
  return std::min(chosen.steps, before + static_cast<std::int64_t>(most));
}

// A run of the chosen configuration in the session, and the recipe with what it promises of its replay.
Result<Recipe> record(CommandContext& context, const TuneRow& chosen, const Recipe& job,
                      const TuneArguments& options) {
  const std::string name = "tuned: " + name_of(chosen);
  context.out.progress("tune", 1, "a run of " + name);
  Recipe recipe = TRY(parse_recipe(chosen.trial.recipe_json));
  recipe.expect.reset();
  recipe.steps = job.steps;
  recipe.steps = TRY(recorded_steps(recipe, chosen.trial.step_ns, options.seconds));
  Output quiet;
  quiet.set_quiet(true);
  CommandContext run{quiet, context.stop, context.finishing};
  TrainOptions train;
  train.session = options.session;
  train.name = name;
  TRY(TrainRun(std::move(recipe), train, run).run());
  const auto store = TRY(Store::open(options.session, StoreMode::read));
  Recipe found = TRY(recipe_with_expectations(TRY(store->load_run(TRY(store->find_run(name))))));
  found.steps = job.steps;
  return found;
}

Status report_search(CommandContext& context, const TuneArguments& options, const Tuned& tuned,
                     const Recipe& job) {
  const TuneRow& best = tuned.rows[tuned.best];
  if (!context.out.json()) {
    print_trials(context.out, tuned);
    if (const std::string worth = worth_text(pass_worth(tuned)); !worth.empty())
      context.out.text("\n" + worth);
    context.out.text("");
  }
  if (!options.out.empty() && !tuned.stopped) {
    const Recipe recipe = TRY(record(context, best, job, options));
    context.out.progress_done();
    TRY(write_recipe(recipe, options.out));
  }
  const std::string predicted = "predictions were off by " +
                                number_text(std::round(tuned.prediction_error * 1000) / 10) + " % (median)";
  context.out.text(tuned.best == 0
                       ? "NOTHING FASTER  the job stays as it is; " + predicted
                       : "FASTER " + ratio_text(best.trial.ratio) + "  " + name_of(best) + "; " + predicted);
  if (!options.out.empty() && !tuned.stopped) context.out.text("recipe: " + escaped(options.out));
  for (const TuneRow& row : tuned.rows) context.out.object({{"row", row_json(row)}});
  if (context.out.json())
    context.out.object({{"best", row_json(best)},
                        {"recipe", tuned.stopped ? "" : options.out},
                        {"trials", tuned.rows.size()},
                        {"known", tuned.known},
                        {"prediction_error", json_number(tuned.prediction_error)},
                        {"stopped", tuned.stopped}});
  if (tuned.stopped)
    return Error{Errc::interrupted,
                 "stopped; the same command goes on from the trials in " + escaped(options.session)};
  return {};
}

// --worth: the table of passes instead of a search.
Status report_worth(CommandContext& context, const TuneArguments& options, const MeasuredWorth& worth) {
  const std::string text = worth_text(worth.table);
  context.out.text(text.empty() ? "no pass does anything to this job" : text);
  Json json = worth_json(worth.table);
  json["known"] = worth.known;
  json["stopped"] = worth.stopped;
  context.out.object({{"worth", json}});
  if (!worth.stopped) return {};
  return Error{Errc::interrupted,
               "stopped; the same command goes on from the trials in " + escaped(options.session)};
}

}  // namespace

CommandRun declare_tune(CLI::App& app) {
  auto options = std::make_shared<TuneArguments>();
  options->recipe.declare(app);
  app.add_option("--seconds", options->seconds, "time for the search")->check(CLI::Range(1.0, 604800.0));
  app.add_option("--session", options->session,
                 "session file that keeps every trial; a search goes on from it")
      ->required();
  app.add_option("-o,--output", options->out, "recipe file for the fastest configuration");
  app.add_option("--over", options->over,
                 "what may change: passes, instances, threads, precision, accumulate, batch, budget (memory "
                 "budgets on the memory curve), algorithms (of a GPU's library)");
  app.add_flag("--worth", options->worth,
               "instead of a search: what each pass is worth in time and peak memory, without it among the "
               "others and alone against none");
  app.add_flag(
      "--progress", options->progress,
      "with --json: also a line {\"event\":\"progress\",...} before each measurement, with the seconds "
      "that are left");
  return [options](CommandContext& context) -> Status {
    const TuneArguments& o = *options;
    const Recipe job = TRY(o.recipe.resolve());
    TuneOptions settings;
    settings.seconds = o.seconds;
    settings.axes = TRY(parse_tune_axes(o.over));
    if (o.worth && !o.out.empty()) return Error{Errc::usage, "--worth writes no recipe: leave -o out"};
    if (!o.out.empty()) TRY(check_writable(o.out));
    const auto store = TRY(Store::open(o.session, StoreMode::write));
    const auto on_row = [&](TuneEvent event, const TuneRow& row) {
      context.out.object({{event_name(event), told_json(row)}});
    };
    const auto on_progress = [&](const TuneProgress& p) {
      context.out.progress("tune", p.fraction, p.what);
      if (!o.progress) return;
      context.out.object({{"event", "progress"},
                          {"fraction", p.fraction},
                          {"what", p.what},
                          {"seconds_left", p.seconds_left}});
    };
    if (o.worth) {
      const auto worth = measure_worth(job, o.seconds, *store, context.stop, on_progress, on_row);
      context.out.progress_done();
      return worth ? report_worth(context, o, *worth) : Status(worth.error());
    }
    const auto tuned = tune(job, settings, *store, context.stop, on_progress, on_row);
    context.out.progress_done();
    if (!tuned) return tuned.error();
    return report_search(context, o, *tuned, job);
  };
}

}  // namespace gradloom
