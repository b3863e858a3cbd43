// gradloom compare: two configurations run interleaved in one process, or two recorded runs of a session.
#include <CLI/CLI.hpp>
#include <fmt/format.h>

#include <algorithm>
#include <optional>

#include "app/commands/commands.h"
#include "app/compare_jobs.h"
#include "app/graph_diff_report.h"
#include "app/job_source.h"
#include "app/recipe_flags.h"
#include "engine/base/text.h"
#include "sessions/recipe_settings.h"
#include "sessions/store.h"

namespace gradloom {
namespace {

struct CompareArguments {
  RecipeFlags recipe;
  std::vector<std::string> sides;
  std::string session, a, b;
  bool stored = false, graph = false, fail_if_slower = false, progress = false;
  double max_seconds = 60;
  std::int64_t min_groups = 12;
};

bool is_recipe_file(const std::string& side) { return side.ends_with(".json"); }

// Two runs of --session; else each side says itself where it is.
bool are_stored_runs(const std::vector<std::string>& sides) {
  return sides.size() == 2 && std::none_of(sides.begin(), sides.end(), [](const std::string& side) {
           return is_recipe_file(side) || names_run(side);
         });
}

// A side of two: a recipe, a run of `store`, or one that names its session, with what the flags make of it.
Result<Recipe> side_recipe(const Output& out, const CompareArguments& options, const std::string& side,
                           Store* store) {
  JobSource source;
  if (is_recipe_file(side) || names_run(side))
    source = TRY(read_job_source(side));
  else if (store == nullptr)
    return Error{Errc::usage,
                 "compare: '" + escaped(side) +
                     "' is neither a recipe (.json) nor SESSION#RUN nor, without --session, a run"};
  else
    source = TRY(job_of_run(TRY(store->load_run(TRY(store->find_run(side)))), options.session));
  if (!source.note.empty()) out.note(source.note);
  return options.recipe.over(std::move(source.recipe));
}

// The two sides as recipes: recipe files, runs of the session, or one configuration with two sets of changes.
Result<std::pair<Recipe, Recipe>> side_recipes(const Output& out, const CompareArguments& options,
                                               Store* store) {
  if (options.sides.size() == 2 && !options.sides[0].ends_with(".onnx")) {
    Recipe a = TRY(side_recipe(out, options, options.sides[0], store));
    Recipe b = TRY(side_recipe(out, options, options.sides[1], store));
    return std::pair{std::move(a), std::move(b)};
  }
  if (options.sides.size() > 1)
    return Error{Errc::usage,
                 "compare takes MODEL with --a and --b, two recipes, or two runs with --session"};
  Recipe base = TRY(options.recipe.resolve());
  if (options.a.empty() && options.b.empty())
    return Error{Errc::usage, "compare: say what differs, e.g. --a passes=none --b passes=default"};
  Recipe b = base;
  TRY(RecipeFlags::override_with(base, options.a));
  TRY(RecipeFlags::override_with(b, options.b));
  return std::pair{base, b};
}

// What cannot be said beside two sides.
Status check_sides(const CompareArguments& o) {
  if (o.sides.size() < 2) return {};
  if (!o.a.empty() || !o.b.empty())
    return Error{Errc::usage, "compare: --a and --b are the sides of one MODEL or --recipe, not of two"};
  if (o.recipe.given("recipe"))
    return Error{Errc::usage, "compare takes --recipe with --a and --b, or two sides, not both"};
  for (const RecipeSetting& setting : recipe_settings())
    if (o.stored && o.recipe.given(setting.key))
      return Error{Errc::usage,
                   "compare --stored takes runs as they were recorded, without " + flag_of(setting)};
  return {};
}

// What is about steps that --stored does not make.
Status check_stored(const CLI::App& app) {
  for (const char* flag : {"--exclude", "--import-limit", "--max-seconds", "--min-groups"})
    if (app.count(flag) > 0)
      return Error{Errc::usage,
                   std::string("compare --stored takes runs as they were recorded, without ") + flag};
  return {};
}

std::string side_name(const CompareArguments& options, std::size_t i) {
  if (options.sides.size() == 2) return options.sides[i];
  const std::string& changes = i == 0 ? options.a : options.b;
  return changes.empty() ? "unchanged" : changes;
}

Status report_comparison(CommandContext& context, const CompareArguments& options,
                         const Comparison& comparison, Store* store, std::int64_t run_a, std::int64_t run_b) {
  if (store) TRY(store->add_comparison(comparison, run_a, run_b));
  if (context.out.json()) context.out.object(Json::parse(comparison_json(comparison)));
  context.out.text(comparison_text(comparison));
  if (options.fail_if_slower && comparison.verdict == Verdict::slower)
    return Error{Errc::check_failed, "B is slower than A"};
  return {};
}

void tell_progress(const Output& out, const CompareArguments& o, const CompareProgress& p) {
  out.progress(
      "compare", p.fraction,
      p.ratio ? fmt::format("ratio {:.3f}x [{:.3f}, {:.3f}]", p.ratio->value, p.ratio->low, p.ratio->high)
              : "too few blocks for a ratio yet");
  if (!o.progress) return;
  const ComparedGroup& g = p.group;
  Json event{{"event", "progress"},
             {"fraction", p.fraction},
             {"seconds", p.seconds},
             {"most_seconds", o.max_seconds},
             {"group", {g.at_s, g.a_ns[0], g.a_ns[1], g.b_ns[0], g.b_ns[1]}}};
  if (p.ratio) {
    event["ratio"] = json_number(p.ratio->value);
    event["low"] = json_number(p.ratio->low);
    event["high"] = json_number(p.ratio->high);
  }
  out.object(event);
}

}  // namespace

CommandRun declare_compare(CLI::App& app) {
  auto options = std::make_shared<CompareArguments>();
  app.add_option(
         "SIDES", options->sides,
         "MODEL, or two recipes (.json), or two runs, of --session or as SESSION#RUN; what other flags set "
         "holds for both")
      ->expected(0, 2);
  options->recipe.declare(app, false);
  app.add_option("--a", options->a, "settings of side A, e.g. 'passes=none' (separate several by ;)");
  app.add_option("--b", options->b, "settings of side B, e.g. 'passes=default;precision=f32'");
  app.add_option("--session", options->session,
                 "session file that holds the runs and in which the comparison is stored");
  app.add_flag("--stored", options->stored,
               "compare the recorded timings of two runs instead of running them again");
  app.add_flag(
      "--graph", options->graph,
      "with --stored: also what the graphs of the runs do differently, by regions of the model, with "
      "the time of each; of recipes that did not run: plan --diff");
  app.add_flag("--fail-if-slower", options->fail_if_slower, "exit 1 when B is slower");
  app.add_flag("--progress", options->progress,
               "with --json: also a line {\"event\":\"progress\",...} after each measured group");
  app.add_option("--max-seconds", options->max_seconds, "stop measuring after this time")
      ->check(CLI::Range(0.1, 86400.0));
  app.add_option("--min-groups", options->min_groups, "least number of ABBA groups (two blocks of each side)")
      ->check(CLI::Range(2, 100000));
  return [options, &app](CommandContext& context) -> Status {
    CompareArguments& o = *options;
    TRY(check_sides(o));
    if (o.stored) TRY(check_stored(app));
    if (o.sides.size() == 1) o.recipe.set_model(o.sides[0]);
    const bool runs = !o.session.empty() && are_stored_runs(o.sides);
    if (runs) TRY(Store::open(o.session, StoreMode::read));  // writing would make the file
    std::unique_ptr<Store> store;
    if (!o.session.empty()) store = TRY(Store::open(o.session, StoreMode::write));
    const std::int64_t run_a = runs ? TRY(store->find_run(o.sides[0])) : 0;
    const std::int64_t run_b = runs ? TRY(store->find_run(o.sides[1])) : 0;
    if (o.stored) {
      if (!runs) return Error{Errc::usage, "--stored needs --session FILE and two runs"};
      const RunRecord a = TRY(store->load_run(run_a)), b = TRY(store->load_run(run_b));
      const Comparison comparison = TRY(compare_runs(a, b));
      std::optional<GraphDifference> difference;
      if (o.graph) difference = TRY(difference_of(diff_graph_of(a), diff_graph_of(b)));
      const Status reported = report_comparison(context, o, comparison, store.get(), run_a, run_b);
      if (difference) context.out.object({{"graph_diff", graph_difference_json(*difference)}});
      if (difference) context.out.text("\n" + graph_difference_text(*difference));
      return reported;
    }
    if (o.graph)
      return Error{Errc::usage,
                   "--graph needs --stored and two runs; of recipes that did not run, plan --diff tells it"};
    const auto [recipe_a, recipe_b] = TRY(side_recipes(context.out, o, store.get()));
    CompareOptions settings;
    settings.max_seconds = o.max_seconds;
    settings.min_groups = o.min_groups;
    const auto report_progress = [&](const CompareProgress& p) { tell_progress(context.out, o, p); };
    const auto compared = compare_recipes(recipe_a, recipe_b, side_name(o, 0), side_name(o, 1), settings,
                                          context.stop, report_progress);
    context.out.progress_done();
    if (!compared) return compared.error();
    return report_comparison(context, o, *compared, store.get(), run_a, run_b);
  };
}

}  // namespace gradloom
