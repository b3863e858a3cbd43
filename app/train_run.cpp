#include "app/train_run.h"

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <iostream>
#include <map>
#include <new>

#include "app/not_finite.h"
#include "app/process_memory.h"
#include "app/rank_agreement.h"
#include "app/ranks.h"
#include "app/training_state.h"
#include "engine/base/memory.h"
#include "engine/base/text.h"
#include "engine/ranks/world.h"
#include "kernels/threads.h"
#include "profiler/processor_wait.h"

namespace gradloom {
namespace {

// More samples than this in one step are too much to hold (24 bytes each): such steps are not timed.
constexpr std::int64_t kMostTimedKernels = std::int64_t{1} << 22;

bool is_interrupted(const Status& status) { return !status.ok() && status.error().code == Errc::interrupted; }

// A resident process that a benchmark drives: a line "N" on stdin runs N steps and answers with their time:
// batches are copied in within it, but made outside, as its peers have theirs ready.
Status run_paced(Job& job, const Output& out) {
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
    out.document(line.dump() + "\n");
  }
  return {};
}

}  // namespace

TrainRun::TrainRun(Recipe recipe, const TrainOptions& options, CommandContext& context,
                   std::optional<Checkpoint> from, std::unique_ptr<BatchSource> batches,
                   std::optional<CallerMemory> memory)
    : recipe_(std::move(recipe)),
      options_(options),
      context_(context),
      from_(std::move(from)),
      batches_(std::move(batches)),
      own_batches_(batches_ != nullptr),
      record_(options.session, options.name, options.source, context.out, from_ ? from_->path : ""),
      report_(context.out),
      memory_(std::move(memory)) {}

Status TrainRun::run() {
  if (options_.paced) {
    TRY(make_job());
    return run_paced(*job_, context_.out);
  }
  TRY(begin());
  const Finishing finishing(context_);  // from here on there is something to keep
  Status steps;
  try {
    steps = run_steps();
  } catch (const std::bad_alloc&) {
    steps = Error{World::current() == nullptr ? Errc::limit : Errc::device,
                  "out of memory after step " + std::to_string(last_step())};
  }
  return finish(steps);
}

Status TrainRun::make_job() {
  TRY(check_places(options_.files));
  TRY(check_evaluation(recipe_));
  ProcessMarks marks{process_bytes()};
  prepared_ = TRY(prepare(recipe_, context_.stop, from_ ? &*from_ : nullptr));
  if (from_) {
    evaluated_before_ = from_->early_stop;
    if (!evaluated_before_ && !from_->recipe.eval_data.empty())
      evaluated_before_ = EarlyStop::State{.last_step = 0};
    resumed_from_ = from_->path;
    resumed_hash_ = from_->hash;
  }
  from_.reset();
  for (const std::string& n : prepared_->model.notes) context_.out.note(escaped(n));
  TRY(check_sizes(options_.files, prepared_->compiled.train.graph));
  if (const auto& scaling = prepared_->options.train.loss_scale) loss_scale_ = LossScaleWatch(*scaling);
  marks.compiled = process_bytes();
  auto job = Job::create(prepared_, TRY(record_.known_algorithms(prepared_->recipe)), std::move(batches_),
                         memory_ ? &*memory_ : nullptr);
  if (!job) return cannot_start(job.error());
  job_ = std::move(job).value();
  marks.created = process_bytes();
  report_.memory(marks);
  return {};
}

Status TrainRun::begin() {
  TRY(make_job());
  TRY(check_same_on_all_ranks(*job_, resumed_hash_));
  if (const std::string other = TRY(about_other_data(*job_)); !other.empty()) context_.out.note(other);
  TRY(job_->meet_ranks());
  checkpoints_ = TRY(CheckpointWriter::create(options_.checkpoints, *job_, context_.out));
  TRY(checkpoints_->meet_ranks(*job_));
  evaluation_ = TRY(Evaluation::create(*job_, context_.stop));
  if (!job_->recipe().early_stop.empty() && job_->recipe().eval_every == 0)
    context_.out.note("early stop has nothing to stop: --eval-every 0 evaluates after the last step alone");
  if (evaluation_ && evaluated_before_) evaluation_->early_stop().restore(*evaluated_before_);
  checkpoints_->resumed(evaluated_before_);
  TRY(restore_best());
  // Copies of states cost memory: they are for who has asked that something be kept.
  const bool kept = options_.files.wanted() || !options_.checkpoints.folder.empty();
  if (TRY(as_rank_0(kept))) last_good_.emplace(*job_);
  if (last_good_ && job_->uses_callers_memory())
    TRY(last_good_->keep(job_->steps_before()));  // there is no file to begin from again
  tell_left_over();
  next_ = job_->steps_before() + 1;
  if (next_ > job_->recipe().steps)
    context_.out.note("nothing is left to do: the checkpoint is after step " +
                      std::to_string(job_->steps_before()) + " of " + std::to_string(job_->recipe().steps) +
                      " (--steps N makes more)");
  sampler_ = std::make_unique<Sampler>(TRY(parse_profile_level(job_->recipe().profile)), job_->depth() > 0);
  environment_ = read_environment();
  begin_gpu(environment_, job_->device());
  TRY(record_.begin(*prepared_, job_.get(), environment_));
  rank_times_ = TRY(RankTimes::meet(*job_, environment_));
  if (rank_times_) TRY(record_.add_ranks(rank_times_->ranks()));
  report_.started(*job_, record_);
  started_ns_ = monotonic_ns();
  waited_before_ns_ = processor_wait_ns();
  return {};
}

void TrainRun::tell_left_over() const {
  const std::int64_t left = job_->batches_left_over();
  if (left == 0) return;
  const std::int64_t epochs = job_->recipe().epochs, batches = epochs * job_->data_batches(),
                     count = std::abs(left);
  const std::string verb = count == 1 ? " is " : " are ";
  context_.out.note(plural_text(epochs, "epoch") + (epochs == 1 ? " is " : " are ") +
                    std::to_string(batches) + (batches == 1 ? " batch" : " batches") + ", a step" +
                    (World::current() == nullptr ? "" : " of all ranks") + " takes " +
                    std::to_string(job_->batches_per_step()) + ": " +
                    (left > 0 ? "the last " + std::to_string(count) + verb + "not read"
                              : std::to_string(count) + verb + "read again"));
}

namespace {

// The parameters that a checkpoint of the same training has beside the one at `path`: those of its best evaluation.
Result<std::map<std::string, Tensor>> best_beside(const std::string& path, const EarlyStop::State& state,
                                                  const Job& job) {
  std::string folder = std::filesystem::path(path).parent_path().string();
  if (folder.empty()) folder = ".";
  const Checkpoint best = TRY(read_checkpoint(checkpoint_path(folder, state.best_step)));
  if (best.recipe.model_hash != job.recipe().model_hash || !best.early_stop ||
      best.early_stop->best_step != state.best_step || best.early_stop->best_loss != state.best_loss)
    return Error{Errc::bad_input, escaped(best.path) + " is of another training"};
  return results_in(best, job);
}

}  // namespace

// With early stop the files hold the parameters of the best evaluation, which may have been before this run.
Status TrainRun::restore_best() {
  if (!evaluated_before_ || evaluated_before_->best_step < 0 || job_->recipe().early_stop.empty()) return {};
  const std::int64_t step = evaluated_before_->best_step;
  const bool in_parts = has_parts_of_parameters(*job_);
  if (step == job_->steps_before()) {
    TRY(make_whole(step));
    return keep_best(step);
  }
  if (!options_.files.wanted() && !in_parts) return {};
  auto found = best_beside(resumed_from_, *evaluated_before_, *job_);
  const bool all_have = in_parts ? TRY(on_all_ranks(found.ok())) : found.ok();
  if (all_have) {
    best_ = LastGood::Found{step, std::move(found).value()};
  } else if (options_.files.wanted()) {
    context_.out.note("the best parameters so far, after step " + std::to_string(step) + ", cannot be read" +
                      (found.ok() ? "" : " (" + found.error().message + ")") +
                      ": until an evaluation is better the last are saved");
  }
  return {};
}

std::int64_t TrainRun::last_step() const {
  return job_->steps_before() + static_cast<std::int64_t>(history_.losses.size());
}

// A device that fails or has too little memory is a result of the configuration: the session keeps it. The
// other reasons are mistakes in the command.
Status TrainRun::cannot_start(const Error& error) {
  if (options_.paced || (error.code != Errc::device && error.code != Errc::limit)) return error;
  environment_ = read_environment();
  if (record_.begin(*prepared_, nullptr, environment_))
    (void)record_.finish(error, environment_, {}, 0);  // the error that stopped the run is the one to tell
  return error;
}

// Ends with the steps that were submitted, so that losses and parameters are of the same step.
Status TrainRun::run_steps() {
  if (enough()) return {};  // a checkpoint may say so already
  while (left())
    if (!TRY(advance(true))) return {};
  // Where nothing was left to do, it may still be this.
  if (evaluation_ && evaluation_->due(last_step())) TRY(evaluate(last_step()));
  return {};
}

Result<bool> TrainRun::advance(bool ahead) {
  const std::int64_t step = last_step() + 1;
  const NextStep next =
      TRY(agree_on_next_step({context_.stop.stop_requested() || context_.out.reader_gone(), times(step),
                              checkpoints_->due(step - 1), last_good_ && last_good_->due()}));
  const bool stop = next.stop;
  agreed_times_ = next.timed;
  if (!stop && evaluation_ && evaluation_->due(step - 1)) TRY(evaluate(step - 1));
  if (!stop && enough()) return false;
  const bool copy = !stop && next.copy;
  if ((copy || (!stop && next.checkpoint)) && job_->pending() == 0) TRY(make_whole(step - 1));
  if (copy && job_->pending() == 0) TRY(last_good_->keep(step - 1));
  // Nothing is pending then: submit_steps waits there.
  if (!stop && next.checkpoint && checkpoints_->due(step - 1))  // the evaluation may have written it
    checkpoints_->write(*job_, step - 1);
  if (!stop && (!copy || job_->pending() == 0)) TRY(submit_steps(step, ahead));
  if (job_->pending() == 0) TRY(stopped(step - 1));
  TRY(take_step(step));
  if (!left() && evaluation_ && evaluation_->due(step)) TRY(evaluate(step));
  return true;
}

Status TrainRun::make_whole(std::int64_t step) {
  if (whole_after_ == step) return {};
  TRY(gather_parameters(*job_));
  whole_after_ = step;
  return {};
}

Status TrainRun::evaluate(std::int64_t step) {
  TRY(make_whole(step));
  const auto row = evaluation_->run(step);
  if (!row) return row.error().code == Errc::interrupted ? stopped(step) : row.error();
  EarlyStop& early_stop = evaluation_->early_stop();
  const bool best = early_stop.add(step, row->loss), stops = !job_->recipe().early_stop.empty();
  record_.add_evaluation(*row);
  report_.evaluation(*row, best);
  checkpoints_->evaluated(*job_, step, early_stop.state(), best && stops);
  return best && stops ? keep_best(step) : Status();
}

// Where it will be wanted: for files, or as a part that other ranks want.
Status TrainRun::keep_best(std::int64_t step) {
  if (options_.files.wanted() || has_parts_of_parameters(*job_))
    best_ = LastGood::Found{step, copied(TRY(job_->result_views()))};
  return {};
}

bool TrainRun::enough() {
  if (!evaluation_ || !evaluation_->early_stop().due()) return false;
  const EarlyStop& early_stop = evaluation_->early_stop();
  const std::string best = early_stop.best_step() < 0
                               ? "none was finite"
                               : "the best is " + short_text(early_stop.best_loss()) + " after step " +
                                     std::to_string(early_stop.best_step());
  context_.out.progress_done();
  context_.out.note("early stop after step " + std::to_string(last_step()) + ": " +
                    plural_text(early_stop.state().worse, "evaluation") + " in a row no better; " + best);
  return true;
}

// What happens between two steps and reads the states.
bool TrainRun::pauses_before(std::int64_t step) const {
  return checkpoints_->due(step - 1) || (evaluation_ && evaluation_->due(step - 1));
}

bool TrainRun::times(std::int64_t step) const {
  const Recipe& r = job_->recipe();
  const auto kernels = static_cast<std::int64_t>(job_->compiled().plan.steps.size());
  return record_.takes_steps() && job_->uses_own_plan() && sampler_->timed(step - job_->steps_before()) &&
         r.accumulate <= kMostTimedKernels / std::max<std::int64_t>(kernels * r.ranks, 1);
}

Status TrainRun::submit_steps(std::int64_t step, bool ahead) {
  const Recipe& r = job_->recipe();
  const std::int64_t last = own_batches_ || !ahead ? step : r.steps;
  for (; next_ <= last && job_->pending() <= job_->depth() && !pauses_before(next_); ++next_) {
    const bool timed = rank_times_ ? agreed_times_ : times(next_);
    timed_.push_back(timed);
    if (timed && rank_times_) rank_times_->begin_step();
    TRY(job_->submit(next_, timed));
  }
  watch_gpu(environment_, step == r.steps);  // while it works
  return {};
}

Status TrainRun::take_step(std::int64_t step) {
  const StepResult result = TRY(job_->collect());
  const bool timed = timed_.front(), pipelined = job_->depth() > 0;
  timed_.pop_front();
  const std::int64_t nth = step - job_->steps_before();
  sampler_->record(nth, pipelined && nth > 1 ? result.end_ns - last_end_ns_ : result.step_ns);
  last_end_ns_ = result.end_ns;
  history_.add(result, timed);
  if (timed && rank_times_) record_.add_rank_step(step, TRY(rank_times_->end_step(result)));
  record_.add_step(result, timed);
  report_.step(result, job_->recipe().steps);
  if (const int refused = kernels::refused_threads(); nth == 1 && refused > 0)
    context_.out.note("computes on " + std::to_string(kernels::threads() - refused) + " of " +
                      plural_text(kernels::threads(), "thread") +
                      ": the system starts no more (ulimit -u, ulimit -v, or a limit of its container)");
  if (nth <= 3) tell_failed_libraries();  // the second is recorded
  tell_times(result);
  TRY(loss_scale_.check(result));
  const Status loss = check_loss(result);
  if (!loss.ok()) not_finite_step_ = step;
  return loss;
}

// Where kernels' times are not those of the device's trace, once per reason.
void TrainRun::tell_times(const StepResult& result) {
  if (!environment_.gpu || result.times_from.empty()) return;
  std::string& known = environment_.gpu->kernel_times;
  if (result.times_from == known) return;
  known = result.times_from;
  if (known != "trace") context_.out.note("times of kernels are from " + known);
}

void TrainRun::tell_failed_libraries() {
  if (told_failed_libraries_) return;
  std::int64_t count = 0;
  std::string first;
  const std::vector<Implementations> all = job_->implementations();
  for (std::size_t i = 0; i < all.size(); ++i)
    for (const Implementation& one : all[i])
      if (one.failed && count++ == 0)
        first = one.kernel + " of '" + escaped(job_->kernels()[i].node) + "': " + one.detail;
  told_failed_libraries_ = count > 0;
  if (told_failed_libraries_)
    context_.out.note("a library is missing or failed at " + plural_text(count, "kernel") +
                      ", which our own computed; " + first +
                      " (show lists all, --strict-libraries on makes an error of it)");
}

Status TrainRun::stopped(std::int64_t after) const {
  std::string text = "interrupted after step " + std::to_string(after);
  if (context_.out.reader_gone()) text += ": the reader of standard output went away";
  return Error{Errc::interrupted, text + (record_.takes_steps() ? "; its rows are in the session" : "")};
}

Status TrainRun::finish(const Status& steps) {
  waited_ = static_cast<double>(processor_wait_ns() - waited_before_ns_) /
            static_cast<double>(std::max<std::int64_t>(monotonic_ns() - started_ns_, 1));
  context_.out.progress_done();
  return finish_replayed(replayed(steps));
}

// What was trained comes first. Of several errors the one that ended the steps is the run's; the others are
// told before it.
Status TrainRun::finish_replayed(const Status& steps) {
  finish_environment(environment_);
  const Overhead overhead = sampler_->overhead();
  // After an error it is not certain which step the states are of.
  const bool known = steps.ok() || is_interrupted(steps);
  if (known) whole_ = make_whole(last_step());
  const std::vector<SavedFile> saved = save(steps);
  if (known && whole_.ok()) checkpoints_->finish(*job_, last_step(), !steps.ok());
  if (steps.ok())
    if (const auto peaks = of_all_ranks(job_->measured_peak_bytes())) report_.rank_peaks(*peaks);
  std::vector<std::map<std::string, std::string>> environments;
  if (steps.ok() && rank_times_)
    if (auto found = RankTimes::environments(environment_)) environments = std::move(found).value();
  const Status recorded =
      record_.finish(steps, environment_, overhead, job_->measured_peak_bytes(), checkpoints_->latest(),
                     job_->implementations(), std::move(environments));
  if (!history_.losses.empty() || steps.ok())
    report_.summary(*job_, record_, history_, loss_scale_, overhead, saved, *checkpoints_, evaluation_.get());
  const Status kept = saved_where_asked(saved);
  const Status* first = nullptr;
  for (const Status* status :
       {&steps, static_cast<const Status*>(&whole_), &kept, &checkpoints_->status(), &recorded})
    if (!status->ok() && first == nullptr) first = status;
  // What a recipe promises is of a training from its start.
  const bool replayed = recipe_.expect && job_->steps_before() == 0;
  if (first == nullptr) return replayed ? report_.replay(*recipe_.expect, replay_result()) : Status();
  if (!whole_.ok() && first != &whole_ && !options_.files.wanted())  // else `kept` tells it
    context_.out.error("the parameters cannot be gathered: " + whole_.error().message);
  for (const Status* status : {&kept, &checkpoints_->status(), &recorded})
    if (!status->ok() && status != first) context_.out.error(status->error().message);
  return *first;
}

Status TrainRun::write_checkpoint() {
  const bool helps = needs_all_ranks(*job_) && World::current()->rank() > 0;
  if (options_.checkpoints.folder.empty() && !helps)
    return Error{Errc::usage, "there is no folder for checkpoints (--checkpoint FOLDER)"};
  checkpoints_->write(*job_, last_step());
  return checkpoints_->status();
}

std::vector<SavedFile> TrainRun::save(const Status& steps) {
  const TrainedFiles& files = options_.files;
  if (history_.losses.empty() && !steps.ok() && !is_interrupted(steps)) return {};
  const auto found = !whole_.ok()                     ? Result<LastGood::Found>(whole_.error())
                     : has_parts_of_parameters(*job_) ? trained_parts(steps)
                     : files.wanted()                 ? trained()
                                                      : LastGood::Found();
  if (!files.wanted()) return {};
  if (!found) {
    const std::string why = "the parameters cannot be read: " + found.error().message;
    return {{files.params.empty() ? files.onnx : files.params, "", why}};
  }
  std::vector<SavedFile> saved = save_trained(files, *job_, found->parameters);
  for (const SavedFile& file : saved)
    if (not_finite_step_ > 0 && !file.path.empty())
      context_.out.note(file.path + " holds the parameters after step " + std::to_string(found->step) +
                        " of " + std::to_string(not_finite_step_) +
                        ", the last that are finite and before the loss was not");
  return saved;
}

// Of ranks that have parts of parameters: all bring them, whole at rank 0. After an error it is not certain that all come.
Result<LastGood::Found> TrainRun::trained_parts(const Status& steps) {
  const Error gone{Errc::device, "ranks have parts of them, and not all ranks are there any more"};
  if (!steps.ok() && !is_interrupted(steps) && not_finite_step_ == 0) return gone;
  const Result<bool> wanted = as_rank_0(options_.files.wanted());
  if (!wanted) return gone;
  if (!*wanted) return LastGood::Found();
  Result<LastGood::Found> found = trained();
  const Result<bool> all_found = on_all_ranks(found.ok());
  if (!all_found || (found.ok() && !*all_found)) return gone;
  // The best of before this run's first step is a checkpoint's, and whole.
  if (!found.ok() || found->step < job_->steps_before()) return found;
  auto whole = with_whole_parameters(*job_, std::move(found->parameters));
  if (!whole) return gone;
  found->parameters = std::move(whole).value();
  return found;
}

Result<LastGood::Found> TrainRun::trained() {
  if (not_finite_step_ > 0) {
    if (!found_ && job_->recipe().ranks > 1)  // all of them would have to go back
      return Error{Errc::numeric, "those before were not found again"};
    if (!found_) found_ = TRY(last_good_->before(not_finite_step_, context_.stop));
    return std::move(*found_);
  }
  if (best_) return *best_;
  return LastGood::Found{last_step(), TRY(job_->result_views())};
}

Status TrainRun::replayed(const Status& steps) {
  if (not_finite_step_ == 0) return steps;
  const auto found = find_operator();
  if (!found) {
    context_.out.note("the step could not be replayed: " + found.error().message);
    return steps;
  }
  return found->empty() ? steps : Error{steps.error().code, steps.error().message + "; " + *found};
}

// Steps are made again from the last copy of the states; without one, from the start where that takes no longer
// than kReplayNs. The step before tells what is not finite in this model anyway.
Result<std::string> TrainRun::find_operator() {
  constexpr std::int64_t kReplayNs = 60'000'000'000;
  if (!TRY(on_all_ranks(job_->uses_own_plan())))
    return Error{Errc::numeric, "its batch was of other sizes than the job's"};
  if (!last_good_) {
    if (TRY(as_rank_0(monotonic_ns() - started_ns_ > kReplayNs)))
      return Error{Errc::numeric,
                   "it would have to begin at the start (--checkpoint and --save-params keep a "
                   "copy of the states every 10 s)"};
    last_good_.emplace(*job_);
  }
  TRY(last_good_->agree());
  found_ = TRY(last_good_->before(not_finite_step_, context_.stop));
  const std::int64_t good = found_->step;
  UsualKernels usual;
  if (good > last_good_->first_step()) {
    TRY(last_good_->go_back_to(good - 1, context_.stop));
    TRY(find_not_finite(*job_, good, nullptr, &usual));
  } else {
    TRY(last_good_->go_back_to(good, context_.stop));
  }
  for (std::int64_t step = good + 1; step <= not_finite_step_; ++step) {
    if (TRY(on_any_rank(context_.stop.stop_requested()))) return Error{Errc::interrupted, "interrupted"};
    const std::optional<NotFinite> mine = TRY(find_not_finite(*job_, step, &usual));
    std::optional<NotFiniteReport> report;
    if (job_->recipe().ranks > 1)
      report = TRY(first_report(mine));
    else if (mine)
      report = not_finite_report(*mine);
    if (!report) continue;
    context_.out.object({{"not_finite", report->json}});
    return report->text;
  }
  return std::string("replayed kernel by kernel, every result is finite or was before");
}

ReplayResult TrainRun::replay_result() const {
  ReplayResult result;
  result.plan_hash = job_->compiled().plan.hash;
  result.graph_hash = graph_hash(job_->compiled().train.graph);
  result.hardware = hardware_text(environment_);
  result.losses = history_.losses;
  const Interval interval = history_.step_ns();
  result.step_ns = interval.value;
  result.step_ns_low = interval.low;
  result.step_ns_high = interval.high;
  result.fastest_ns = history_.fastest_ns();
  result.waited = waited_;
  result.peak_bytes = job_->measured_peak_bytes();
  return result;
}

}  // namespace gradloom
