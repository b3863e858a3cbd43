// What a training run says while it goes on and at its end: lines of text with a progress bar, or JSON.
#pragma once

#include <string>
#include <vector>

#include "app/checkpoint_writer.h"
#include "app/job.h"
#include "app/output.h"
#include "app/recorded_run.h"
#include "app/train_steps.h"
#include "app/trained_files.h"

namespace gradloom {

class TrainReport {
 public:
  explicit TrainReport(const Output& out) : out_(out) {}
  void started(const Job& job, const RecordedRun& record) const;
  void step(const StepResult& result, std::int64_t steps);
  void summary(const Job& job, const RecordedRun& record, const StepHistory& history,
               const LossScaleWatch& loss_scale, const Overhead& overhead,
               const std::vector<SavedFile>& saved, const CheckpointWriter& checkpoints) const;
  // A recipe that promises something is held to it: Errc::check_failed where the run differs.
  Status replay(const RecipeExpect& expect, const ReplayResult& result) const;

 private:
  void draw_step(const StepResult& result, std::int64_t steps);
  const Output& out_;
  std::int64_t drawn_ns_ = 0;  // when the progress bar was drawn last
};

}  // namespace gradloom
