// gradloom train: real steps on a device, recorded into a session as they happen.
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <cmath>
#include <iostream>

#include "app/commands/commands.h"
#include "app/job.h"
#include "app/recipe_flags.h"
#include "engine/base/text.h"
#include "engine/onnx/npz.h"
#include "profiler/environment.h"
#include "profiler/sampler.h"
#include "sessions/store.h"

namespace gradloom {
namespace {

struct Options {
  RecipeFlags recipe;
  std::string session, name, save_params, export_onnx_path;
  bool paced = false;
};

// One training run: its job, the session it is written to, and what is reported at the end.
class TrainRun {
 public:
  TrainRun(const Options& options, CommandContext& context) : options_(options), context_(context) {}

  Status run() {
    Recipe recipe = TRY(options_.recipe.resolve());
    expect_ = recipe.expect;
    prepared_ = TRY(prepare(recipe, context_.stop));
    for (const std::string& n : prepared_->model.notes) context_.out.note(escaped(n));
    auto job = Job::create(prepared_, TRY(known_algorithms()));
    if (!job) return cannot_start(job.error());
    job_ = std::move(job).value();
    if (options_.paced) return run_paced();
    environment_ = read_environment();
    begin_gpu(environment_, job_->device());
    TRY(begin_session());
    announce();
    Status steps = run_steps();
    context_.out.progress_done();
    TRY(finish(steps));
    return steps;
  }

 private:
  // A device that fails or has too little memory is a result of the configuration: the session keeps it. The
  // other reasons are mistakes in the command.
  Status cannot_start(const Error& error) {
    if (options_.paced || (error.code != Errc::device && error.code != Errc::limit)) return error;
    environment_ = read_environment();
    if (!begin_session() || !writer_) return error;
    RunFinish end;
    end.status = "failed";
    end.message = error.message;
    (void)writer_->finish(end);  // the error that stopped the run is the one to tell
    return error;
  }

  // What earlier runs of the session found on this device. Nothing without search, so that the run has the
  // bits of one without session.
  Result<Algorithms> known_algorithms() const {
    const Recipe& r = prepared_->recipe;
    Algorithms known;
    if (r.search <= 1 || options_.session.empty() || ::access(options_.session.c_str(), F_OK) != 0)
      return known;
    const auto store = TRY(Store::open(options_.session, StoreMode::read));
    for (const auto& [problem, found] : TRY(store->tuning(device_name(r.device))))
      known[problem] = {found.choice, found.time_ns};
    return known;
  }

  // The key of the session's tuning: the same hardware whatever the device's number.
  static std::string device_name(const std::string& id) {
    for (const DeviceInfo& d : list_devices())
      if (d.id == id) return d.name;
    return id;
  }

  static std::map<std::string, std::string> recipe_algorithms(const Job& job) {
    std::map<std::string, std::string> algorithms;
    for (const auto& [problem, algorithm] : job.algorithms()) algorithms[problem] = algorithm.bytes;
    return algorithms;
  }

  Status keep_algorithms() const {
    if (!job_ || job_->algorithms().empty()) return {};
    std::map<std::string, TuningChoice> found;
    for (const auto& [problem, algorithm] : job_->algorithms())
      found[problem] = {algorithm.bytes, algorithm.time_ns};
    return store_->add_tuning(job_->device().name, found);
  }

  Status begin_session() {
    if (options_.session.empty()) return {};
    store_ = TRY(Store::open(options_.session, StoreMode::write));
    TRY(keep_algorithms());
    Recipe r = prepared_->recipe;
    if (job_) r.algorithms = recipe_algorithms(*job_);
    RunStart start;
    start.name = options_.name;
    start.model = r.model;
    start.model_hash = r.model_hash;
    start.device = r.device;
    start.precision = r.precision;
    start.optimizer = r.optimizer;
    start.loss = r.loss;
    start.data = r.data;
    start.command = command_line(r, options_.session);
    start.passes = TRY(recipe_pipeline(r)).text();
    start.planner = r.planner;
    start.recipe_json = recipe_json(r);
    start.seed = r.seed;
    start.planned_steps = r.steps;
    start.graph_hash = graph_hash(prepared_->compiled.train.graph);
    start.plan_hash = prepared_->compiled.plan.hash;
    start.environment = environment_rows(environment_);
    writer_ = TRY(store_->begin_run(start));
    return writer_->write_plan(prepared_->compiled.train.graph, prepared_->compiled.plan,
                               prepared_->compiled.reports);
  }

  void announce() const {
    const Compiled& c = job_->compiled();
    const Recipe& r = job_->recipe();
    context_.out.object({{"event", "start"},
                         {"run_id", writer_ ? Json(writer_->id()) : Json(nullptr)},
                         {"steps", r.steps},
                         {"kernels_per_step", c.plan.steps.size()},
                         {"plan_peak_bytes", c.plan.peak_bytes()},
                         {"compile_ms", c.compile_ms}});
    std::string passes;
    for (const RecipePass& p : r.passes) passes += (passes.empty() ? "" : ", ") + p.name;
    context_.out.text("model     " + escaped(r.model) + "   loss " + escaped(r.loss) + "   " + r.optimizer +
                      "   " + r.device + " " + r.precision);
    context_.out.text("plan      " + plural_text(static_cast<std::int64_t>(c.plan.steps.size()), "kernel") +
                      " per step, peak " + bytes_text(static_cast<double>(c.plan.peak_bytes())) + " (arena " +
                      bytes_text(static_cast<double>(c.plan.arena_bytes)) + ", lower bound " +
                      bytes_text(static_cast<double>(c.plan.lower_bound_bytes)) + "), compiled in " +
                      duration_text(c.compile_ms * 1e6));
    context_.out.text("passes    " + (passes.empty() ? "none" : passes));
    if (writer_)
      context_.out.text("session   " + options_.session + ", run " + std::to_string(writer_->id()));
  }

  Status run_steps() {
    const Recipe& r = job_->recipe();
    const bool pipelined = job_->depth() > 0;
    sampler_ = std::make_unique<Sampler>(TRY(parse_profile_level(r.profile)), pipelined);
    const std::int64_t every = std::max<std::int64_t>(1, r.steps / 10);
    std::int64_t drawn_ns = 0, next = 1, last_end_ns = 0;
    for (std::int64_t step = 1; step <= r.steps; ++step) {
      if (context_.stop.stop_requested())
        return Error{Errc::interrupted, "interrupted after step " + std::to_string(step - 1) +
                                            (writer_ ? "; its rows are in the session" : "")};
      while (next <= r.steps && job_->pending() <= job_->depth()) {
        TRY(job_->submit(next, writer_ != nullptr && sampler_->timed(next)));
        ++next;
      }
      watch_gpu(environment_, step == r.steps);  // while it works
      const StepResult result = TRY(job_->collect());
      const bool timed = writer_ != nullptr && sampler_->timed(step);
      sampler_->record(step, pipelined && step > 1 ? result.end_ns - last_end_ns : result.step_ns);
      last_end_ns = result.end_ns;
      losses_.push_back(result.loss);
      if (!timed) untimed_ns_.push_back(static_cast<double>(result.step_ns));
      all_ns_.push_back(static_cast<double>(result.step_ns));
      if (writer_) {
        const StepRow row{step,
                          result.loss,
                          result.step_ns,
                          result.lr,
                          result.grad_norm,
                          timed,
                          result.loss_scale,
                          static_cast<std::int64_t>(result.skipped)};
        TRY(writer_->add_step(row, result.samples, result.activities));
      }
      report(step, result, every, drawn_ns);
      if (result.loss_scale > 0) TRY(check_loss_scale(step, result));
      if (!std::isfinite(result.loss) && result.skipped == 0)
        return Error{Errc::numeric, "the loss is " +
                                        std::string(std::isnan(result.loss) ? "NaN" : "infinite") +
                                        " at step " + std::to_string(step)};
    }
    return {};
  }

  // Training in f16 that only skips steps has failed.
  Status check_loss_scale(std::int64_t step, const StepResult& result) {
    loss_scale_ = result.loss_scale;
    if (result.skipped > 0) ++skipped_;
    const auto failed = [&](const std::string& why) {
      return Error{Errc::numeric, why + " at step " + std::to_string(step) +
                                      ": gradients overflow in f16 (precision bf16 has the range of f32)"};
    };
    if (result.skipped >= static_cast<double>(kMostSkippedSteps))
      return failed(std::to_string(kMostSkippedSteps) + " steps in a row were skipped");
    if (result.loss_scale < kLeastLossScale)
      return failed("the loss scale fell to " + number_text(result.loss_scale));
    return {};
  }

  void report(std::int64_t step, const StepResult& result, std::int64_t every, std::int64_t& drawn_ns) const {
    Json line = {{"step", step}, {"loss", json_number(result.loss)}, {"step_ns", result.step_ns}};
    if (result.grad_norm >= 0) line["grad_norm"] = json_number(result.grad_norm);
    if (result.loss_scale > 0) {
      line["loss_scale"] = result.loss_scale;
      line["skipped"] = result.skipped > 0;
    }
    context_.out.object(line);
    const std::int64_t steps = job_->recipe().steps;
    const std::int64_t now_ns = monotonic_ns();
    if (!context_.out.json() && now_ns - drawn_ns > 100'000'000) {
      char loss[32];
      std::snprintf(loss, sizeof loss, "%.5g", result.loss);
      context_.out.progress(
          "step " + std::to_string(step) + "/" + std::to_string(steps),
          static_cast<double>(step) / static_cast<double>(steps),
          "loss " + std::string(loss) + "  " + duration_text(static_cast<double>(result.step_ns)));
      drawn_ns = now_ns;
    }
    if (!context_.out.json() && (step == 1 || step % every == 0 || step == steps || result.skipped > 0)) {
      context_.out.progress_done();
      char text[96];
      std::snprintf(text, sizeof text, "step %6lld   loss %-10.6g %s", static_cast<long long>(step),
                    result.loss, duration_text(static_cast<double>(result.step_ns)).c_str());
      const std::string skipped =
          result.skipped > 0 ? "   skipped: overflow in f16, loss scale now " + number_text(result.loss_scale)
                             : "";
      context_.out.text(text + skipped);
    }
  }

  double median_step_ns() const {
    const std::vector<double>& ns = untimed_ns_.size() >= 3 ? untimed_ns_ : all_ns_;
    const std::size_t skip = ns.size() > 6 ? 3 : 0;  // first touches and thread start
    return median({ns.begin() + static_cast<std::ptrdiff_t>(skip), ns.end()});
  }

  Status finish(const Status& steps) {
    finish_environment(environment_);
    const Overhead overhead = sampler_->overhead();
    if (writer_) {
      RunFinish end;
      end.status = steps.ok() ? "done" : steps.error().code == Errc::interrupted ? "stopped" : "failed";
      end.message = steps.ok() ? "" : steps.error().message;
      end.measured_peak_bytes = job_->measured_peak_bytes();
      if (overhead.known) {
        end.overhead = overhead.fraction;
        end.overhead_low = overhead.low;
        end.overhead_high = overhead.high;
      }
      end.environment = environment_rows(environment_);
      TRY(writer_->finish(end));
    }
    if (!losses_.empty()) summarize(overhead);
    if (!steps.ok() && steps.error().code != Errc::interrupted) return {};
    if (!options_.save_params.empty()) TRY(write_npz(options_.save_params, TRY(job_->parameters())));
    if (!options_.export_onnx_path.empty())
      TRY(export_onnx(job_->recipe().model, TRY(job_->parameters()), options_.export_onnx_path,
                      job_->model().tied_copies));
    return steps.ok() ? replay() : Status();
  }

  void summarize(const Overhead& overhead) const {
    const Plan& plan = job_->compiled().plan;
    Json s = {{"run_id", writer_ ? Json(writer_->id()) : Json(nullptr)},
              {"steps", losses_.size()},
              {"first_loss", json_number(losses_.front())},
              {"last_loss", json_number(losses_.back())},
              {"median_step_ns", static_cast<std::int64_t>(median_step_ns())},
              {"plan_peak_bytes", plan.peak_bytes()},
              {"measured_peak_bytes", job_->measured_peak_bytes()},
              {"lower_bound_bytes", plan.peak_lower_bound_bytes()},
              {"kernels_per_step", plan.steps.size()}};
    if (loss_scale_ > 0) {
      s["skipped_steps"] = skipped_;
      s["loss_scale"] = loss_scale_;
    }
    if (overhead.known)
      s["profiler_overhead"] = {{"value", overhead.fraction}, {"low", overhead.low}, {"high", overhead.high}};
    context_.out.object({{"summary", s}});
    char text[256];
    std::snprintf(text, sizeof text,
                  "done      %zu steps, loss %.6g -> %.6g, median step %s, measured peak %s", losses_.size(),
                  losses_.front(), losses_.back(), duration_text(median_step_ns()).c_str(),
                  bytes_text(static_cast<double>(job_->measured_peak_bytes())).c_str());
    context_.out.text(text);
    if (loss_scale_ > 0)
      context_.out.text("f16       " + plural_text(skipped_, "step") + " skipped, loss scale " +
                        number_text(loss_scale_));
    if (overhead.known) {
      std::snprintf(text, sizeof text, "profiler  %+.2f %% of a timed step [%+.2f, %+.2f]",
                    overhead.fraction * 100, overhead.low * 100, overhead.high * 100);
      context_.out.text(text);
    }
  }

  // A recipe that promises something is held to it.
  Status replay() const {
    if (!expect_) return {};
    ReplayResult result;
    result.plan_hash = job_->compiled().plan.hash;
    result.graph_hash = graph_hash(job_->compiled().train.graph);
    result.hardware = hardware_text(environment_);
    result.losses = losses_;
    const Interval interval = bootstrap_median(untimed_ns_.size() >= 5 ? untimed_ns_ : all_ns_);
    result.step_ns = interval.value;
    result.step_ns_low = interval.low;
    result.step_ns_high = interval.high;
    result.peak_bytes = job_->measured_peak_bytes();
    const std::vector<ReplayLine> lines = check_replay(*expect_, result);
    Json list = Json::array();
    for (const ReplayLine& line : lines) {
      list.push_back({{"what", line.what}, {"outcome", line.outcome}, {"detail", line.detail}});
      context_.out.text("replay    " + line.what + ": " + line.outcome +
                        (line.detail.empty() ? "" : " (" + line.detail + ")"));
    }
    const bool agrees = replay_agrees(lines);
    context_.out.object({{"replay", {{"agrees", agrees}, {"checks", list}}}});
    if (!agrees) return Error{Errc::check_failed, "the replay differs from what the recipe promises"};
    return {};
  }

  // A resident process that a benchmark drives: a line "N" on stdin runs N steps and answers with their time:
  // batches are copied in within it, but made outside, as its peers have theirs ready.
  Status run_paced() {
    std::int64_t step = 0, count = 0;
    while (std::cin >> count) {
      std::int64_t elapsed_ns = 0;
      double loss = 0;
      for (std::int64_t next = step + 1, last = step + count;
           step < last;) {  // on a GPU the next step is queued behind the current one
        for (; next <= last && job_->pending() <= job_->depth(); ++next) TRY(job_->submit(next));
        const StepResult result = TRY(job_->collect());
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

  const Options& options_;
  CommandContext& context_;
  std::shared_ptr<const Prepared> prepared_;
  std::unique_ptr<Job> job_;
  std::unique_ptr<Store> store_;
  std::unique_ptr<RunWriter> writer_;
  std::unique_ptr<Sampler> sampler_ = std::make_unique<Sampler>(ProfileLevel::step);
  Environment environment_;
  std::optional<RecipeExpect> expect_;
  std::vector<double> losses_, untimed_ns_, all_ns_;
  double loss_scale_ = 0;  // 0: the precision needs none
  std::int64_t skipped_ = 0;
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
