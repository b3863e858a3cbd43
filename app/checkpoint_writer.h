// The checkpoints of one training: when they are due, and that they are written. A place that takes none does not end
// the training: it is told once, the next is tried when it is due, and the run ends with that error if the last
// could not be written either. Parameters that are not finite any more are not written (Errc::numeric).
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "app/checkpoint_folder.h"
#include "app/finite_parameters.h"
#include "app/job.h"
#include "app/output.h"

namespace gradloom {

class CheckpointWriter {
 public:
  // Opens the folder before the first step. Without a folder nothing is ever due.
  static Result<std::unique_ptr<CheckpointWriter>> create(const CheckpointOptions& options, const Job& job,
                                                          const Output& out);
  bool writes() const { return folder_ != nullptr; }
  // Where ranks keep states apart, all take part in what rank 0 writes: they call what it calls, this first. Each writes a shard of its
  // own into rank 0's folder or, where that is not there for all, sends what it has to rank 0, which writes all and says so.
  Status meet_ranks(const Job& job);
  // After this step one is to be written, which was not yet.
  bool due(std::int64_t step) const;
  // REQUIRES nothing pending, and `step` the last that was made. Tells what it did.
  void write(const Job& job, std::int64_t step);
  // After an evaluation; `best`: the step has the smallest loss so far, and its checkpoint stays until there is a
  // better one. REQUIRES what write requires.
  void evaluated(const Job& job, std::int64_t step, const EarlyStop::State& state, bool best);
  void resumed(const std::optional<EarlyStop::State>& state);  // with which the training began
  // The last one, unless the step has it. `stopped`: the steps did not come to their end, which is told already; that ranks are lost is
  // no error beside it.
  void finish(const Job& job, std::int64_t step, bool stopped);

  const std::string& latest() const { return latest_; }  // path of the newest that was written; empty: none
  std::int64_t latest_step() const { return latest_step_; }
  std::int64_t written() const { return written_; }
  const Status& status() const { return status_; }  // of the last that was tried

 private:
  CheckpointWriter(const CheckpointOptions& options, const Job& job, const Output& out)
      : options_(&options), out_(&out), finite_(job.compiled().train.graph) {}
  Result<bool> all_reach_folder();
  Result<std::string> put(const Job& job, std::int64_t step);
  Status write_with_ranks(const std::string& folder, const Job& job, const Checkpoint& checkpoint);
  static Status help_rank_0(const Job& job, std::int64_t step, bool sharded);
  bool helps_ = false, sharded_ = false;
  // Of an exchange for a checkpoint: the next one of the steps fails too, says so, and ends the run.
  Status lost_;
  const CheckpointOptions* options_;
  const Output* out_;
  FiniteParameters finite_;
  std::optional<EarlyStop::State> early_stop_;
  std::unique_ptr<CheckpointFolder> folder_;  // null: none are written
  std::string latest_;
  std::int64_t latest_step_ = -1, tried_step_ = -1, written_ = 0, told_ns_ = 0;
  Status status_;
};

}  // namespace gradloom
