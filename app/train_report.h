// What a training run says while it goes on and at its end: lines of text with a progress bar, or JSON.
#pragma once

#include <string>
#include <vector>

#include "app/checkpoint_writer.h"
#include "app/evaluation.h"
#include "app/job.h"
#include "app/output.h"
#include "app/process_memory.h"
#include "app/recorded_run.h"
#include "app/train_steps.h"
#include "app/trained_files.h"

namespace gradloom {

std::string remaining_text(double ns);  // "2 h 05 min", "3 min 20 s", "12 s"

class TrainReport {
 public:
  explicit TrainReport(const Output& out) : out_(out) {}
  void started(const Job& job, const RecordedRun& record);
  void step(const StepResult& result, std::int64_t steps);
  void evaluation(const EvaluationRow& row, bool best) const;
  // Bytes that each rank took, for the summary.
  void rank_peaks(std::vector<std::int64_t> bytes) { rank_peak_bytes_ = std::move(bytes); }
  // What was resident on the way to the first step.
  void memory(const ProcessMarks& marks) { marks_ = marks; }
  void summary(const Job& job, const RecordedRun& record, const StepHistory& history,
               const LossScaleWatch& loss_scale, const Overhead& overhead,
               const std::vector<SavedFile>& saved, const CheckpointWriter& checkpoints,
               const Evaluation* evaluation) const;
  // A recipe that promises something is held to it: Errc::check_failed where the run differs.
  Status replay(const RecipeExpect& expect, const ReplayResult& result) const;

 private:
  void draw_step(const StepResult& result, std::int64_t steps);
  // Time of a step so far, with all that happens between two.
  double pace_ns() const;
  std::string rate_text(double step_ns) const;  // "120 samples/s"
  const Output& out_;
  Job::Items items_;
  std::vector<std::int64_t> rank_peak_bytes_;
  ProcessMarks marks_;
  std::int64_t started_ns_ = 0, made_ = 0;  // steps since
  std::int64_t drawn_ns_ = 0;               // when the progress bar was drawn last
};

}  // namespace gradloom
