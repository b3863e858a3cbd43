// One training run from its recipe to its files: `gradloom train` once its flags are read. Whole (run), or step by step for
// a program that does other things between the steps (begin, advance, finish).
//
// What was trained is kept whatever ends the run: the last step, Ctrl-C, a reader of stdout that goes away, a
// loss that is not finite (then the parameters before that step, last_good.h), a device or a batch that
// fails. A session that takes no more rows ends nothing (run_recorder.h), and a place that takes the files no
// more sends them elsewhere (trained_files.h).
#pragma once

#include <deque>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "app/caller_memory.h"
#include "app/checkpoint_writer.h"
#include "app/command.h"
#include "app/evaluation.h"
#include "app/job.h"
#include "app/last_good.h"
#include "app/rank_times.h"
#include "app/recorded_run.h"
#include "app/train_report.h"
#include "app/train_steps.h"
#include "app/trained_files.h"
#include "profiler/environment.h"
#include "profiler/sampler.h"

namespace gradloom {

struct TrainOptions {
  std::string session, name;  // of the run in it; both may be empty
  TrainedFiles files;
  CheckpointOptions checkpoints;
  bool paced = false;  // steps are asked for on stdin
  std::string source =
      ".";  // the folder of the recipe, else where the command was started: its commit is recorded
};

class TrainRun {
 public:
  // `from`: the training goes on from there.
  // `batches`: what the steps read instead of the recipe's data; none is asked for before its step. `memory`: Job::create.
  TrainRun(Recipe recipe, const TrainOptions& options, CommandContext& context,
           std::optional<Checkpoint> from = {}, std::unique_ptr<BatchSource> batches = nullptr,
           std::optional<CallerMemory> memory = {});
  Status run();

  // All before the first step. After an error there is nothing to finish.
  Status begin();
  bool left() const { return last_step() < job_->recipe().steps; }  // steps to make
  // The next step with what belongs to it: checkpoint and evaluation before it, after the last one too. False: held-out
  // data say that training ends, and no step was made. `ahead`: the steps after it are submitted too, where the device
  // queues; else the job's states are those after this one. REQUIRES left(), and no error before.
  Result<bool> advance(bool ahead);
  // The run's end, once, after begin. `steps`: how the steps ended.
  Status finish(const Status& steps);

  Job& job() { return *job_; }
  const Prepared& prepared() const { return *prepared_; }
  std::int64_t last_step() const;  // that was made
  const StepHistory& history() const { return history_; }
  Status write_checkpoint();  // now. Errc::usage: there is no folder for it

 private:
  Status cannot_start(const Error& error);
  Status make_job();
  void tell_left_over() const;  // batches that are not read once in each epoch
  Status restore_best();
  Status keep_best(std::int64_t step);
  Status run_steps();
  bool pauses_before(std::int64_t step) const;
  bool times(std::int64_t step) const;  // kernel by kernel
  Status submit_steps(std::int64_t step, bool ahead);
  Status take_step(std::int64_t step);
  void tell_times(const StepResult& result);
  void tell_failed_libraries();
  Status evaluate(std::int64_t step);
  bool enough();  // told once: held-out data say that training ends
  Status stopped(std::int64_t after) const;
  Status finish_replayed(const Status& steps);
  Status make_whole(std::int64_t step);  // parameters, after this step; all ranks call
  std::vector<SavedFile> save(const Status& steps);
  Result<LastGood::Found> trained();
  Result<LastGood::Found> trained_parts(const Status& steps);
  Status replayed(const Status& steps);  // with the operator that made the first number that is not finite
  Result<std::string> find_operator();
  ReplayResult replay_result() const;

  const Recipe recipe_;
  const TrainOptions& options_;
  CommandContext& context_;
  std::optional<Checkpoint> from_;        // until its contents are the job's
  std::unique_ptr<BatchSource> batches_;  // likewise; null: the recipe's data
  const bool own_batches_;                // false: the recipe's data
  RecordedRun record_;
  TrainReport report_;
  StepHistory history_;
  LossScaleWatch loss_scale_;
  std::shared_ptr<const Prepared> prepared_;
  std::unique_ptr<Job> job_;
  std::unique_ptr<CheckpointWriter> checkpoints_;
  std::unique_ptr<Evaluation> evaluation_;  // null: no held-out data
  std::optional<EarlyStop::State> evaluated_before_;
  std::string resumed_from_;             // path of the checkpoint; empty: of none
  std::string resumed_hash_;             // Checkpoint::hash of it
  std::optional<LastGood::Found> best_;  // with early stop, where files are wanted: of the best evaluation
  std::optional<LastGood> last_good_;    // where files are wanted
  std::unique_ptr<Sampler> sampler_ = std::make_unique<Sampler>(ProfileLevel::step);
  Environment environment_;
  std::int64_t next_ = 1, last_end_ns_ = 0;  // step to submit; end of the one before
  std::deque<bool> timed_;                   // of submitted steps
  std::optional<RankTimes> rank_times_;      // of several ranks
  bool agreed_times_ = false;                // of the next step, by all of them
  bool told_failed_libraries_ = false;
  std::int64_t not_finite_step_ = 0;      // whose loss or gradients were not; 0: none
  std::optional<LastGood::Found> found_;  // before that step, once it was sought
  std::int64_t started_ns_ = 0, waited_before_ns_ = 0;
  double waited_ = 0;              // ReplayResult
  std::int64_t whole_after_ = -1;  // the step after which make_whole was called last
  Status whole_;                   // what came of it at the end: after an error parameters are not saved
  const std::optional<CallerMemory> memory_;
};

}  // namespace gradloom
