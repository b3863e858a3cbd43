#include "app/desktop/snapshots.h"

#include <algorithm>
#include <set>

#include "app/desktop/suggest.h"
#include "app/measured_costs.h"
#include "app/tune.h"
#include "engine/base/hash.h"
#include "engine/base/text.h"
#include "engine/ir/op.h"
#include "sessions/copy_session.h"

namespace gradloom {

std::string ModelSnapshot::unplannable() const {
  const auto nodes = [](std::size_t count) { return plural_text(static_cast<std::int64_t>(count), "node"); };
  if (!model.unknown.empty()) return nodes(model.unknown.size()) + " with operators that Gradloom lacks";
  if (!model.untyped.empty()) return nodes(model.untyped.size()) + " whose types cannot be inferred";
  if (!sized_by_data.empty())
    return nodes(sized_by_data.size()) + " of which only the data tells how large the output is";
  return "";
}

Result<std::shared_ptr<const ModelSnapshot>> load_model_snapshot(Recipe& recipe, std::stop_token stop) {
  auto snapshot = std::make_shared<ModelSnapshot>();
  Recipe unbound = recipe;
  unbound.dims.clear();
  snapshot->model = TRY(load_model(unbound, true));
  snapshot->symbols = snapshot->model.unbound_dims;
  std::erase_if(recipe.dims, [&](const auto& dim) {
    return std::find(snapshot->symbols.begin(), snapshot->symbols.end(), dim.first) ==
           snapshot->symbols.end();
  });
  for (const std::string& s : snapshot->symbols) recipe.dims.try_emplace(s, suggested_dim(s));
  if (stop.stop_requested()) return Error{Errc::interrupted, ""};
  if (!recipe.dims.empty()) snapshot->model = TRY(load_model(recipe, true));
  static_cast<ModelSummary&>(*snapshot) = summarize(snapshot->model, snapshot->model.graph.outputs);
  snapshot->losses = loss_choices(snapshot->model.graph);
  return std::shared_ptr<const ModelSnapshot>(std::move(snapshot));
}

Result<std::shared_ptr<const PlanSnapshot>> make_plan_snapshot(const ImportedModel& model,
                                                               const Recipe& recipe, std::stop_token stop) {
  auto s = std::make_shared<PlanSnapshot>();
  s->recipe = recipe;
  s->recipe.model_hash = model.content_hash;
  TRY(read_costs(s->recipe));
  s->options = TRY(recipe_compile_options(s->recipe));
  if (s->options.train.loss.empty()) return Error{Errc::usage, "no loss is chosen"};
  s->compiled = TRY(compile(model.graph, s->options, stop));
  s->kernels = kernel_infos(s->graph(), s->plan());
  s->memory =
      build_memory_model(s->graph(), s->plan(), known_kernel_times(s->options, s->graph(), s->plan()));
  s->inputs = input_specs(s->graph());
  s->parameters = parameter_table(model, s->compiled.forward, {s->compiled.forward.loss});
  PlanTotals& t = s->totals;
  t.nodes = static_cast<std::int64_t>(live_node_count(s->graph()));
  t.kernels = static_cast<std::int64_t>(s->plan().steps.size());
  t.peak_bytes = s->plan().peak_bytes();
  t.arena_bytes = s->plan().arena_bytes;
  t.lower_bound_bytes = s->plan().peak_lower_bound_bytes();
  for (const PlanStep& step : s->plan().steps) {
    t.flops += step.flops;
    t.bytes += step.bytes_read + step.bytes_written;
  }
  return std::shared_ptr<const PlanSnapshot>(std::move(s));
}

Recipe without_passes(const Recipe& recipe) {
  Recipe bare = recipe;
  bare.passes.clear();
  return bare;
}

std::map<std::string, std::string> data_problems(const PlanSnapshot& plan) {
  std::map<std::string, std::string> problems;
  const Recipe& recipe = plan.recipe;
  const auto check = [&](const char* setting, const Result<std::unique_ptr<BatchSource>>& batches) {
    if (!batches)
      problems[setting] = batches.error().message;
    else if (const auto first = (*batches)->batch(0); !first)
      problems[setting] = first.error().message;
  };
  check("data", recipe_batches(recipe, plan.inputs));
  if (!recipe.eval_data.empty())
    check("eval_data", make_batches(recipe.eval_data, plan.inputs, recipe.seed, {.epochs = true}));
  return problems;
}

std::string job_hash(const Recipe& recipe) {
  Recipe job = recipe;
  job.model_hash.clear();    // the window knows it, the command line need not say it
  job.kernel_times.clear();  // read again from `costs`
  return hash_hex(job_text(job));
}

static std::vector<KeptSearch> kept_searches(Store& store) {
  std::vector<KeptSearch> kept;
  const auto trials = store.list_trials();
  const auto configurations = store.list_configurations();
  if (!trials || !configurations) return kept;  // damaged: the runs are there nevertheless
  const std::vector<RecordedSearch> all = recorded_searches(*trials, *configurations);
  for (const RecordedSearch& search : all)
    if (auto job = parse_recipe(search.recipe_json))
      kept.push_back({search, *job, job_hash(*job), recorded_worth(search, all)});
  return kept;
}

Result<std::shared_ptr<const SessionSnapshot>> load_session_snapshot(const std::string& path) {
  auto s = std::make_shared<SessionSnapshot>();
  s->path = path;
  s->stamp = session_stamp(path);  // before it is read: what is written meanwhile is another state
  auto store = TRY(Store::open(path, StoreMode::read));
  s->runs = TRY(store->list_runs());
  s->comparisons = TRY(store->list_comparisons());
  s->searches = kept_searches(*store);
  std::stable_sort(s->runs.begin(), s->runs.end(), [](const auto& a, const auto& b) { return a.id > b.id; });
  std::stable_sort(s->comparisons.begin(), s->comparisons.end(),
                   [](const auto& a, const auto& b) { return a.id > b.id; });
  return std::shared_ptr<const SessionSnapshot>(std::move(s));
}

Result<std::shared_ptr<const RunSnapshot>> load_run_snapshot(const std::string& path, std::int64_t run,
                                                             const std::function<void(const char*)>& stage) {
  const auto say = [&](const char* what) {
    if (stage) stage(what);
  };
  auto store = TRY(Store::open(path, StoreMode::read));
  auto s = std::make_shared<RunSnapshot>();
  s->session_path = path;
  say("steps and kernels");
  s->record = TRY(store->load_run(run));
  say("timeline");
  s->trace = TRY(store->load_trace(run));
  say("memory");
  s->memory = build_memory_model(s->record);
  s->curves = run_curves(s->record);
  for (std::size_t i = 0; i < s->record.kernels.size(); ++i)
    s->kernel_of_node.emplace(s->record.kernels[i].info.node, i);
  return std::shared_ptr<const RunSnapshot>(std::move(s));
}

}  // namespace gradloom
