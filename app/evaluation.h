// The loss on held-out data, and when training has learnt enough.
//
// The forward graph runs by itself, in inference form and with the passes of the job (compile_evaluation), in the
// memory of the training: it reads the job's parameters (with an average of them, that instead) where they are, and
// its arena is the training's unless that is too small. Ranks divide the batches, i to rank i modulo N (of ranks that share parameters to
// their groups), and add all losses in the order of the batches: the mean is one rank's, bit for bit where the losses are.
#pragma once

#include <memory>
#include <optional>
#include <stop_token>
#include <vector>

#include "app/job.h"
#include "engine/train/early_stop.h"
#include "sessions/store.h"

namespace gradloom {

// Errc::usage: settings of evaluation without held-out data.
Status check_evaluation(const Recipe& recipe);

class Evaluation {
 public:
  // Null without held-out data. The job must outlive it. Errors: those of a compilation, of the data and of memory.
  static Result<std::unique_ptr<Evaluation>> create(Job& job, std::stop_token stop);
  // After every N-th step and the last, once; after the step that this job begins with where the run before it has not.
  bool due(std::int64_t step) const;
  // The mean loss over the batches after `step`, which is the job's last. REQUIRES nothing pending.
  // Errc::interrupted: a stop was requested meanwhile. With several ranks all call.
  Result<EvaluationRow> run(std::int64_t step);
  const std::vector<EvaluationRow>& rows() const { return rows_; }  // that were made
  EarlyStop& early_stop() { return early_stop_; }
  const EarlyStop& early_stop() const { return early_stop_; }
  std::int64_t batches() const { return batch_count_; }

 private:
  explicit Evaluation(Job& job) : job_(job), early_stop_({}) {}
  Status divide();
  Result<double> loss_of(std::int64_t batch);
  // This rank's; true: a stop was requested.
  Result<bool> run_batches(std::vector<std::vector<double>>& losses);
  Job& job_;
  std::stop_token stop_;
  CompiledEvaluation compiled_;
  std::unique_ptr<Executor> executor_;
  std::unique_ptr<BatchSource> batches_;
  std::vector<std::pair<ValueId, std::string>> fed_;  // inputs that something reads
  std::int64_t batch_count_ = 0;
  std::int64_t share_ = 0, shares_ = 1;  // this rank takes batches share_, share_ + shares_, ..
  EarlyStop early_stop_;
  std::vector<EvaluationRow> rows_;
};

}  // namespace gradloom
