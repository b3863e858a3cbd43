// The session's side of a training run. What the session does not take must not cost what is trained: the
// first failure (full disk, a lock of another process) is told in one line, the training goes on with its
// steps' losses kept in memory, and the session is tried again now and then and at the end.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "app/output.h"
#include "sessions/store.h"

namespace gradloom {

class RunRecorder {
 public:
  // `writer` belongs to `store`. `first_pause_ns`: before the session is tried again; doubles up to 5 min.
  RunRecorder(std::unique_ptr<Store> store, std::unique_ptr<RunWriter> writer, const Output& out,
              std::int64_t first_pause_ns = 10'000'000'000);
  std::int64_t id() const { return writer_->id(); }
  bool recording() const {
    return !failed_;
  }  // else steps need not be timed: their samples would not be kept
  Status add_ranks(const std::vector<RankRow>& ranks) { return writer_->write_ranks(ranks); }
  void add_rank_step(std::int64_t step, RankStep times);  // of the step that is added next
  void add_step(const StepRow& row, const std::vector<KernelSample>& samples,
                const std::vector<Activity>& activities);
  void add_evaluation(const EvaluationRow& row);  // of the step that was added last
  // The error that was told already, where the session lacks rows in the end. A session that took all after
  // all has its run done, with a message that names the steps without timings.
  Status finish(RunFinish end);

 private:
  void fail(const Error& error, std::int64_t step);
  Status catch_up();  // everything that was held back goes in

  std::unique_ptr<Store> store_;
  std::unique_ptr<RunWriter> writer_;
  const Output& out_;
  std::string why_;              // the session takes nothing
  std::optional<Error> failed_;  // the session takes nothing at present: why, as it was told
  std::string gap_;              // "steps 12 to 80 could not be timed: ..."
  std::vector<StepRow> held_;    // not yet given to the writer
  std::vector<EvaluationRow> held_evaluations_;
  std::int64_t from_ = 0, last_ = 0;  // steps: first that could not be written; latest
  std::int64_t pause_ns_, retry_ns_ = 0;
  bool lost_ = false;  // more was held back than memory is for: it stays without
};

}  // namespace gradloom
