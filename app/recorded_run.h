// A training run as its session keeps it: recipe, plan and environment at its begin, each step as it happens,
// its end. Without a session nothing is kept. Errors: those of the store; a session that takes no more steps
// is told of, and no error before the end (run_recorder.h).
#pragma once

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "app/job.h"
#include "app/run_recorder.h"
#include "profiler/environment.h"
#include "profiler/sampler.h"
#include "sessions/store.h"

namespace gradloom {

class RecordedRun {
 public:
  // `source`: the folder whose commit is recorded. `resumed_from`: the checkpoint with which the run begins, or nothing.
  RecordedRun(std::string session, std::string name, std::string source, const Output& out,
              std::string resumed_from = "")
      : session_(std::move(session)),
        name_(std::move(name)),
        source_(std::move(source)),
        resumed_from_(std::move(resumed_from)),
        out_(out) {}

  bool recording() const { return recorder_ != nullptr; }
  bool takes_steps() const { return recorder_ && recorder_->recording(); }  // else timing them is for nothing
  std::int64_t id() const { return recorder_->id(); }                       // only while recording
  const std::string& session() const { return session_; }

  // What earlier runs of the session found on the recipe's device. Nothing without search, so that the run
  // has the bits of one without session.
  Result<Algorithms> known_algorithms(const Recipe& recipe) const;
  // `job`: null where it could not be made.
  Status begin(const Prepared& prepared, const Job* job, const Environment& environment);
  Status add_ranks(const std::vector<RankRow>& ranks);    // once, of several
  void add_rank_step(std::int64_t step, RankStep times);  // of the step that is added next
  void add_step(const StepResult& result, bool timed);
  void add_evaluation(const EvaluationRow& row) {
    if (recorder_) recorder_->add_evaluation(row);
  }
  // `checkpoint`: the path of the newest that was written, or nothing.
  Status finish(const Status& steps, const Environment& environment, const Overhead& overhead,
                std::int64_t measured_peak_bytes, const std::string& checkpoint = "",
                std::vector<Implementations> implementations = {},
                std::vector<std::map<std::string, std::string>> rank_environments = {});

 private:
  std::string session_, name_, source_, resumed_from_;
  const Output& out_;
  std::unique_ptr<RunRecorder> recorder_;
};

}  // namespace gradloom
