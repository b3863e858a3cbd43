// The controller's plans: made in the background whenever the recipe changes.
#include <utility>

#include "app/desktop/controller.h"
#include "app/graph_report.h"
#include "engine/base/text.h"
#include "passes/stages.h"
#include "sessions/recipe_settings.h"

namespace gradloom {
namespace {

// The times of a run, said to be another plan's where they are. Null: none.
void give_times(GraphSnapshot& graph, const RunSnapshot* run) {
  graph.timed_run = run ? run->record.summary.id : 0;
  const bool same = !run || !graph.plan || run->record.summary.plan_hash == graph.plan->plan().hash;
  apply_times(graph.model, run ? run->record.kernels : std::vector<KernelRow>(),
              same ? "" : "run " + std::to_string(graph.timed_run));
}

// The times of another run beside them. 0: none.
Status give_other(GraphSnapshot& graph, const RunSnapshot* run, std::int64_t other) {
  graph.other_run = other;
  if (run == nullptr || other == 0) return {};
  auto store = TRY(Store::open(run->session_path, StoreMode::read));
  return compare_graph(graph.model, run->record, TRY(store->load_run(other)));
}

void give_training(GraphModel& model, const PlanSnapshot& plan) {
  NameMap<TrainingOf> initializers;
  for (const ParameterRow& row : plan.parameters) initializers[row.name] = {row.trained, row.why};
  apply_training(model, initializers);
}

std::shared_ptr<GraphSnapshot> make_graph(const Graph& graph, std::shared_ptr<const PlanSnapshot> plan,
                                          const std::shared_ptr<const RunSnapshot>& run) {
  auto s = std::make_shared<GraphSnapshot>();
  s->model = build_graph_model(graph, plan ? &plan->plan() : nullptr);
  if (plan) give_training(s->model, *plan);
  if (plan) apply_memory(s->model, plan->memory);
  s->plan = std::move(plan);
  if (s->plan && run) give_times(*s, run.get());
  return s;
}

std::int64_t id_of(const std::shared_ptr<const RunSnapshot>& run) { return run ? run->record.summary.id : 0; }

// A run is not compared with itself.
std::int64_t other_run_of(const AppState& s) {
  const std::int64_t own = id_of(s.own_run());
  return own != 0 && own != s.other_run ? s.other_run : 0;
}

PlanChange change_between(const GraphSnapshot& before, const GraphSnapshot& after, const std::string& what,
                          double ms, std::int64_t number) {
  const GraphDiff diff = diff_graphs(before.model, after.model);
  PlanChange change;
  change.what = what;
  change.before = before.plan->totals;
  change.after = after.plan->totals;
  change.added = diff.added.size();
  change.removed = diff.removed.size();
  change.replan_ms = ms;
  change.number = number;
  for (const std::int32_t box : diff.added)
    change.added_nodes.push_back(after.model.boxes[static_cast<std::size_t>(box)].name);
  for (const std::int32_t box : diff.removed)
    change.removed_nodes.push_back(before.model.boxes[static_cast<std::size_t>(box)].name);
  return change;
}

}  // namespace

std::shared_ptr<const GraphSnapshot> model_view(const ImportedModel& model) {
  return make_graph(model.graph, nullptr, nullptr);
}

std::string plan_key(const Recipe& recipe) {
  Recipe key = recipe;
  for (const RecipeSetting& setting : recipe_settings())
    if (setting.effect == SettingEffect::data || setting.effect == SettingEffect::run)
      reset_setting(key, setting);
  key.model_hash.clear();
  key.expect.reset();
  return recipe_json(key);
}

std::int64_t timed_run(const AppState& s) {
  const auto run = s.own_run();
  return run && run->record.summary.has_recipe() && run->record.has_times() ? id_of(run) : 0;
}

Recipe with_times_of(Recipe recipe, const std::string& session, std::int64_t run) {
  if (recipe.costs.empty() && run > 0) recipe.costs = session + "#" + std::to_string(run);
  return recipe;
}

void Controller::refresh_passes() {
  const auto pipeline = recipe_pipeline(state_.recipe);
  const auto rules = recipe_rules(state_.recipe);
  state_.passes = build_pass_model(pipeline ? *pipeline : Pipeline(),
                                   state_.plan ? state_.plan->compiled.reports : std::vector<PassReport>(),
                                   rules ? *rules : Rules());
  if (const auto run = state_.own_run()) apply_recorded(state_.passes, id_of(run), run->record.passes);
}

void Controller::replan() {
  state_.data_problems.clear();
  if (planner_->busy_with("budget")) {  // the plan does not wait for it
    planner_->cancel("budget");
    state_.budget = {};
  }
  planner_->post("plan", "planning",
                 [this, model = state_.model, imported = imported_, recipe = state_.recipe,
                  run = state_.own_run()](std::stop_token stop) -> Worker::Publish {
                   const std::int64_t start_ns = monotonic_ns();
                   const auto failed = [&](const std::string& why) {
                     return [this, imported, why] {
                       state_.graphs.model = imported;
                       state_.plan_error = why;
                     };
                   };
                   if (const std::string why = model->unplannable(); !why.empty())
                     return failed("the model has " + why);
                   const auto plan = make_plan_snapshot(model->model, recipe, stop);
                   if (!plan) return failed(plan.error().message);
                   auto view = std::make_shared<GraphSnapshot>(*imported);
                   give_training(view->model, **plan);
                   auto after = make_graph((*plan)->graph(), *plan, run);
                   const double ms = static_cast<double>(monotonic_ns() - start_ns) * 1e-6;
                   return [this, view, after, ms] { planned(view, after, ms); };
                 });
}

// Every graph on the way through the passes: asked for when it is looked at.
void Controller::find_stages() {
  const auto after = state_.graphs.after;
  if (!after || !after->plan || !state_.model || planner_->busy_with("stages")) return;
  if (state_.graphs.passes && state_.graphs.passes->plan == after->plan) return;
  planner_->post("stages", "following the passes",
                 [this, plan = after->plan, model = state_.model,
                  run = state_.own_run()](std::stop_token stop) -> Worker::Publish {
                   const auto history = stage_history(model->model.graph, plan->options, stop);
                   if (!history) return {};  // stopped: the same was planned
                   StagedModel staged = build_stage_model(*history, plan->plan());
                   auto graph = std::make_shared<GraphSnapshot>();
                   graph->model = std::move(staged.model);
                   graph->stages = std::make_shared<const StageModel>(std::move(staged.stages));
                   graph->plan = plan;
                   give_training(graph->model, *plan);
                   give_times(*graph, run.get());
                   return [this, graph] {
                     if (state_.graphs.after && state_.graphs.after->plan == graph->plan)
                       state_.graphs.passes = graph;
                   };
                 });
}

void Controller::planned(std::shared_ptr<const GraphSnapshot> view,
                         std::shared_ptr<const GraphSnapshot> after, double ms) {
  state_.plan_error.clear();
  plan_before_ = state_.graphs.after ? state_.graphs.after->plan : nullptr;
  state_.graphs.passes.reset();
  if (state_.graphs.after)
    state_.change = change_between(*state_.graphs.after, *after, change_what_, ms, ++changes_);
  state_.plan = after->plan;
  refresh_passes();
  state_.graphs.model = std::move(view);
  state_.graphs.after = std::move(after);
  // The run to show may have been read while this plan was being made.
  if (state_.graphs.after->timed_run != id_of(state_.own_run()) ||
      state_.graphs.after->other_run != other_run_of(state_))
    retime();
  plan_baseline();
  check_data();
  if (!state_.difference.against.empty()) make_difference();
}

void Controller::plan_baseline() {
  const Recipe bare = without_passes(state_.recipe);
  const std::string key = plan_key(bare) + state_.model->model.content_hash;
  if (key == baseline_key_) return;
  planner_->post("baseline", "planning without passes",
                 [this, key, bare, model = state_.model](std::stop_token stop) -> Worker::Publish {
                   auto plan = make_plan_snapshot(model->model, bare, stop);
                   if (!plan) return {};
                   auto graph = make_graph((*plan)->graph(), *plan, nullptr);
                   return [this, key, graph, p = std::move(plan).value()] {
                     baseline_key_ = key;
                     state_.baseline = p;
                     state_.graphs.before = graph;
                     if (!state_.difference.against.empty()) make_difference();
                   };
                 });
}

void Controller::check_data() {
  if (!state_.plan || remote_) return;  // the data of another machine is looked at there
  auto plan = std::make_shared<PlanSnapshot>();
  plan->recipe = state_.recipe;
  plan->inputs = state_.plan->inputs;
  planner_->post("data", "looking at the data", [this, plan](std::stop_token) -> Worker::Publish {
    return [this, problems = data_problems(*plan)] { state_.data_problems = problems; };
  });
}

std::vector<std::int64_t> Controller::timed_runs() const {
  std::vector<std::int64_t> runs;
  const auto own = state_.own_run();
  if (!state_.session || !own) return runs;
  for (const RunSummary& run : state_.session->runs)
    if (run.id != id_of(own) && run.has_recipe() && run.steps > 0 &&
        run.model_hash == own->record.summary.model_hash)
      runs.push_back(run.id);
  return runs;
}

void Controller::time_against(std::int64_t run) {
  if (run == state_.other_run) return;
  state_.other_run = run;
  retime();
}

// The same graph with the times of the run that is shown now, the same passes with what it says of their instances.
void Controller::retime() {
  refresh_passes();
  const auto graph = state_.graphs.after;
  if (!graph) return;
  planner_->post("times", "reading times",
                 [this, graph, passes = state_.graphs.passes, run = state_.own_run(),
                  other = other_run_of(state_)](std::stop_token) -> Worker::Publish {
                   auto timed = std::make_shared<GraphSnapshot>(*graph);
                   give_times(*timed, run.get());
                   const Status compared = give_other(*timed, run.get(), other);
                   std::shared_ptr<GraphSnapshot> timed_passes;
                   if (passes) timed_passes = std::make_shared<GraphSnapshot>(*passes);
                   if (passes) give_times(*timed_passes, run.get());
                   return [this, graph, timed, passes, timed_passes, compared] {
                     if (!compared) notice(NoticeKind::warning, compared.error().message);
                     if (state_.graphs.after == graph) state_.graphs.after = timed;
                     if (passes && state_.graphs.passes == passes) state_.graphs.passes = timed_passes;
                   };
                 });
}

}  // namespace gradloom
