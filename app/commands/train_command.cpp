// gradloom train: real steps on a device, recorded into a session as they happen.
#include <CLI/CLI.hpp>
#include <cstdio>
#include <iostream>

#include "app/commands/commands.h"
#include "app/job.h"
#include "app/recipe_flags.h"
#include "app/recorded_run.h"
#include "app/train_report.h"
#include "app/train_steps.h"
#include "engine/base/text.h"
#include "engine/onnx/npz.h"
#include "profiler/environment.h"
#include "profiler/sampler.h"

namespace gradloom {
namespace {

struct Options {
  RecipeFlags recipe;
  std::string session, name, save_params, export_onnx_path;
  bool paced = false;
};

// A resident process that a benchmark drives: a line "N" on stdin runs N steps and answers with their time:
// batches are copied in within it, but made outside, as its peers have theirs ready.
Status run_paced(Job& job) {
  std::int64_t step = 0, count = 0;
  while (std::cin >> count) {
    std::int64_t elapsed_ns = 0;
    double loss = 0;
    for (std::int64_t next = step + 1, last = step + count;
         step < last;) {  // on a GPU the next step is queued behind the current one
      for (; next <= last && job.pending() <= job.depth(); ++next) TRY(job.submit(next));
      const StepResult result = TRY(job.collect());
      step = result.step;
      elapsed_ns += result.step_ns;
      loss = result.loss;
    }
    const Json line = {{"paced", count}, {"elapsed_ns", elapsed_ns}, {"loss", json_number(loss)}};
    std::printf("%s\n", line.dump().c_str());
    std::fflush(stdout);
  }
  return {};
}

// One training run: its job, what the session keeps of it, and what it says.
class TrainRun {
 public:
  TrainRun(const Options& options, CommandContext& context)
      : options_(options), context_(context), record_(options.session, options.name), report_(context.out) {}

  Status run() {
    const Recipe recipe = TRY(options_.recipe.resolve());
    prepared_ = TRY(prepare(recipe, context_.stop));
    for (const std::string& n : prepared_->model.notes) context_.out.note(escaped(n));
    auto job = Job::create(prepared_, TRY(record_.known_algorithms(prepared_->recipe)));
    if (!job) return cannot_start(job.error());
    job_ = std::move(job).value();
    if (options_.paced) return run_paced(*job_);
    environment_ = read_environment();
    begin_gpu(environment_, job_->device());
    TRY(record_.begin(*prepared_, job_.get(), environment_));
    report_.started(*job_, record_);
    Status steps = run_steps();
    context_.out.progress_done();
    TRY(finish(steps));
    if (steps.ok() && recipe.expect) TRY(report_.replay(*recipe.expect, replay_result()));
    return steps;
  }

 private:
  // A device that fails or has too little memory is a result of the configuration: the session keeps it. The
  // other reasons are mistakes in the command.
  Status cannot_start(const Error& error) {
    if (options_.paced || (error.code != Errc::device && error.code != Errc::limit)) return error;
    environment_ = read_environment();
    if (record_.begin(*prepared_, nullptr, environment_))
      (void)record_.finish(error, environment_, {}, 0);  // the error that stopped the run is the one to tell
    return error;
  }

  Status run_steps() {
    const Recipe& r = job_->recipe();
    const bool pipelined = job_->depth() > 0;
    sampler_ = std::make_unique<Sampler>(TRY(parse_profile_level(r.profile)), pipelined);
    const auto timed = [&](std::int64_t step) { return record_.recording() && sampler_->timed(step); };
    std::int64_t next = 1, last_end_ns = 0;
    for (std::int64_t step = 1; step <= r.steps; ++step) {
      if (context_.stop.stop_requested())
        return Error{Errc::interrupted, "interrupted after step " + std::to_string(step - 1) +
                                            (record_.recording() ? "; its rows are in the session" : "")};
      for (; next <= r.steps && job_->pending() <= job_->depth(); ++next)
        TRY(job_->submit(next, timed(next)));
      watch_gpu(environment_, step == r.steps);  // while it works
      const StepResult result = TRY(job_->collect());
      const bool was_timed = timed(step);
      sampler_->record(step, pipelined && step > 1 ? result.end_ns - last_end_ns : result.step_ns);
      last_end_ns = result.end_ns;
      history_.add(result, was_timed);
      TRY(record_.add_step(result, was_timed));
      report_.step(result, r.steps);
      TRY(loss_scale_.check(result));
      TRY(check_loss(result));
    }
    return {};
  }

  Status finish(const Status& steps) {
    finish_environment(environment_);
    const Overhead overhead = sampler_->overhead();
    TRY(record_.finish(steps, environment_, overhead, job_->measured_peak_bytes()));
    if (!history_.losses.empty()) report_.summary(*job_, record_, history_, loss_scale_, overhead);
    if (!steps.ok() && steps.error().code != Errc::interrupted) return {};
    if (!options_.save_params.empty()) TRY(write_npz(options_.save_params, TRY(job_->parameters())));
    if (!options_.export_onnx_path.empty())
      TRY(export_onnx(job_->recipe().model, TRY(job_->parameters()), options_.export_onnx_path,
                      job_->model().tied_copies));
    return {};
  }

  ReplayResult replay_result() const {
    ReplayResult result;
    result.plan_hash = job_->compiled().plan.hash;
    result.graph_hash = graph_hash(job_->compiled().train.graph);
    result.hardware = hardware_text(environment_);
    result.losses = history_.losses;
    const Interval interval = history_.step_ns();
    result.step_ns = interval.value;
    result.step_ns_low = interval.low;
    result.step_ns_high = interval.high;
    result.peak_bytes = job_->measured_peak_bytes();
    return result;
  }

  const Options& options_;
  CommandContext& context_;
  RecordedRun record_;
  TrainReport report_;
  StepHistory history_;
  LossScaleWatch loss_scale_;
  std::shared_ptr<const Prepared> prepared_;
  std::unique_ptr<Job> job_;
  std::unique_ptr<Sampler> sampler_ = std::make_unique<Sampler>(ProfileLevel::step);
  Environment environment_;
};

}  // namespace

CommandRun declare_train(CLI::App& app) {
  auto options = std::make_shared<Options>();
  options->recipe.declare(app);
  app.add_option("--session", options->session, "session file to record into (created when missing)");
  app.add_option("--name", options->name, "label of the run");
  app.add_option("--save-params", options->save_params, "write the trained parameters to FILE.npz");
  app.add_option("--export-onnx", options->export_onnx_path,
                 "write the model with the trained parameters to FILE.onnx");
  app.add_flag("--paced", options->paced,
               "run the number of steps read from each line of stdin and report their time (for benchmarks)");
  return [options](CommandContext& context) { return TrainRun(*options, context).run(); };
}

}  // namespace gradloom
