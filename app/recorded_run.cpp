#include "app/recorded_run.h"

#include <unistd.h>

#include "app/recipe_flags.h"
#include "app/source_commit.h"
#include "sessions/find_model.h"

namespace gradloom {
namespace {

// The key of the session's tuning: the same hardware whatever the device's number.
std::string device_name(const std::string& id) {
  for (const DeviceInfo& d : list_devices())
    if (d.id == id) return d.name;
  return id;
}

Status keep_algorithms(Store& store, const Job& job) {
  if (job.algorithms().empty()) return {};
  std::map<std::string, TuningChoice> found;
  for (const auto& [problem, algorithm] : job.algorithms())
    found[problem] = {algorithm.bytes, algorithm.time_ns};
  return store.add_tuning(job.device().name, found);
}

}  // namespace

Result<Algorithms> RecordedRun::known_algorithms(const Recipe& recipe) const {
  Algorithms known;
  if (recipe.search <= 1 || session_.empty() || ::access(session_.c_str(), F_OK) != 0) return known;
  const auto store = TRY(Store::open(session_, StoreMode::read));
  for (const auto& [problem, found] : TRY(store->tuning(device_name(recipe.device))))
    known[problem] = {found.choice, found.time_ns};
  return known;
}

Status RecordedRun::begin(const Prepared& prepared, const Job* job, const Environment& environment) {
  if (session_.empty()) return {};
  auto store = TRY(Store::open(session_, StoreMode::write));
  Recipe r = prepared.recipe;
  if (job != nullptr) {
    TRY(keep_algorithms(*store, *job));
    r.steps = job->recipe().steps;
    r.algorithms.clear();
    for (const auto& [problem, algorithm] : job->algorithms()) r.algorithms[problem] = algorithm.bytes;
  }
  const Recipe from_anywhere = with_absolute_paths(r);
  RunStart start;
  start.name = name_;
  start.model = from_anywhere.model;
  start.model_hash = r.model_hash;
  start.device = r.device;
  start.precision = r.precision;
  start.optimizer = r.optimizer;
  start.loss = r.loss;
  start.data = r.data;
  start.command = command_line(r, {.session = session_});
  start.passes = TRY(recipe_pipeline(r)).text();
  start.planner = r.planner;
  start.recipe_json = recipe_json(from_anywhere);
  start.seed = r.seed;
  start.planned_steps = r.steps;
  start.graph_hash = graph_hash(prepared.compiled.train.graph);
  start.plan_hash = prepared.compiled.plan.hash;
  start.environment = environment_rows(environment);
  if (const auto commit = source_commit(source_)) start.environment.merge(source_rows(*commit));
  if (!resumed_from_.empty()) {
    start.command += " --resume " + shell_quoted(absolute_path(resumed_from_));
    start.environment["resumed_from"] = absolute_path(resumed_from_);
  }
  auto writer = TRY(store->begin_run(start));
  TRY(writer->write_plan(prepared.compiled.train.graph, prepared.compiled.plan, prepared.compiled.reports));
  recorder_ = std::make_unique<RunRecorder>(std::move(store), std::move(writer), out_);
  return {};
}

Status RecordedRun::add_ranks(const std::vector<RankRow>& ranks) {
  return recorder_ ? recorder_->add_ranks(ranks) : Status();
}

void RecordedRun::add_rank_step(std::int64_t step, RankStep times) {
  if (recorder_) recorder_->add_rank_step(step, std::move(times));
}

void RecordedRun::add_step(const StepResult& result, bool timed) {
  if (!recorder_) return;
  const StepRow row{
      result.step,      result.loss, result.step_ns,    result.lr,
      result.grad_norm, timed,       result.loss_scale, static_cast<std::int64_t>(result.skipped)};
  recorder_->add_step(row, result.samples, result.activities);
}

Status RecordedRun::finish(const Status& steps, const Environment& environment, const Overhead& overhead,
                           std::int64_t measured_peak_bytes, const std::string& checkpoint,
                           std::vector<Implementations> implementations,
                           std::vector<std::map<std::string, std::string>> rank_environments) {
  if (!recorder_) return {};
  RunFinish end;
  end.status = steps.ok() ? "done" : steps.error().code == Errc::interrupted ? "stopped" : "failed";
  end.message = steps.ok() ? "" : steps.error().message;
  end.measured_peak_bytes = measured_peak_bytes;
  if (overhead.known) {
    end.overhead = overhead.fraction;
    end.overhead_low = overhead.low;
    end.overhead_high = overhead.high;
  }
  end.environment = environment_rows(environment);
  if (!checkpoint.empty()) end.environment["checkpoint"] = absolute_path(checkpoint);
  end.implementations = std::move(implementations);
  end.rank_environments = std::move(rank_environments);
  return recorder_->finish(std::move(end));
}

}  // namespace gradloom
