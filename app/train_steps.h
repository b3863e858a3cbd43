// What the steps of a training run leave: losses, times, and whether loss scaling still works. Errors:
// Errc::numeric for a run that has failed.
#pragma once

#include <cstdint>
#include <vector>

#include "app/job.h"
#include "engine/train/loss_scaling.h"
#include "sessions/stats.h"

namespace gradloom {

struct StepHistory {
  std::vector<double> losses;
  std::vector<double> untimed_ns, all_ns;  // of steps without kernel timings; of all
  void add(const StepResult& result, bool timed);
  const std::vector<double>& judged_ns() const;  // of untimed steps when there are enough
  double median_step_ns() const;  // of untimed steps when there are enough, without the first ones
  Interval step_ns() const;       // with its confidence interval
  double fastest_ns() const;      // of the same steps: a tenth of them took no longer
};

// Training in f16 that only skips steps has failed.
class LossScaleWatch {
 public:
  LossScaleWatch() = default;
  explicit LossScaleWatch(const LossScaleSpec& spec);  // which may let the scale fall below 1
  Status check(const StepResult& result);
  double scale() const { return scale_; }  // of the last step; 0: the precision needs none
  std::int64_t skipped() const { return skipped_; }

 private:
  double least_ = kLeastLossScale;
  double scale_ = 0;
  std::int64_t skipped_ = 0;
};

Status check_loss(const StepResult& result);  // NaN or infinite in a step that counts

}  // namespace gradloom
