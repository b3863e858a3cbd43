// A training run as its session keeps it: recipe, plan and environment at its begin, each step as it happens,
// its end. Without a session nothing is kept. Errors: those of the store.
#pragma once

#include <memory>
#include <string>

#include "app/job.h"
#include "profiler/environment.h"
#include "profiler/sampler.h"
#include "sessions/store.h"

namespace gradloom {

class RecordedRun {
 public:
  RecordedRun(std::string session, std::string name) : session_(std::move(session)), name_(std::move(name)) {}

  bool recording() const { return writer_ != nullptr; }
  std::int64_t id() const { return writer_->id(); }  // only while recording
  const std::string& session() const { return session_; }

  // What earlier runs of the session found on the recipe's device. Nothing without search, so that the run
  // has the bits of one without session.
  Result<Algorithms> known_algorithms(const Recipe& recipe) const;
  // `job`: null where it could not be made.
  Status begin(const Prepared& prepared, const Job* job, const Environment& environment);
  Status add_step(const StepResult& result, bool timed);
  Status finish(const Status& steps, const Environment& environment, const Overhead& overhead,
                std::int64_t measured_peak_bytes);

 private:
  std::string session_, name_;
  std::unique_ptr<Store> store_;
  std::unique_ptr<RunWriter> writer_;
};

}  // namespace gradloom
