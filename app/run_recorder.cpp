#include "app/run_recorder.h"

#include <algorithm>

#include "engine/base/text.h"

namespace gradloom {

constexpr std::size_t kMostHeld = 1'000'000;  // steps, of 80 bytes each
constexpr std::int64_t kLongestPauseNs = 300'000'000'000;

RunRecorder::RunRecorder(std::unique_ptr<Store> store, std::unique_ptr<RunWriter> writer, const Output& out,
                         std::int64_t first_pause_ns)
    : store_(std::move(store)), writer_(std::move(writer)), out_(out), pause_ns_(first_pause_ns) {}

void RunRecorder::fail(const Error& error, std::int64_t step) {
  from_ = step;
  why_ = error.message;
  failed_ = Error{error.code, error.message + "; the training goes on without the session"};
  out_.progress_done();
  out_.error(failed_->message);
}

Status RunRecorder::catch_up() {
  if (lost_) return *failed_;
  for (const EvaluationRow& row : held_evaluations_) writer_->add_evaluation(row);
  held_evaluations_.clear();
  TRY(writer_->flush());
  for (std::size_t i = 0; i < held_.size(); ++i) {
    const Status added = writer_->add_step(held_[i]);  // takes the row even where it cannot write yet
    if (added.ok()) continue;
    held_.erase(held_.begin(), held_.begin() + static_cast<std::ptrdiff_t>(i) + 1);
    return added;
  }
  held_.clear();
  gap_ += (gap_.empty() ? "" : "; ") + ("steps " + std::to_string(from_) + " to " + std::to_string(last_) +
                                        " could not be timed: " + why_);
  failed_.reset();
  return {};
}

void RunRecorder::add_rank_step(std::int64_t step, RankStep times) {
  if (!failed_) writer_->add_rank_step(step, std::move(times));
}

void RunRecorder::add_step(const StepRow& row, const std::vector<KernelSample>& samples,
                           const std::vector<Activity>& activities) {
  last_ = row.step;
  if (failed_ && !lost_) {
    held_.push_back(row);
    lost_ = held_.size() > kMostHeld;
    if (lost_) held_ = {};
  }
  if (!failed_) {
    const Status added = writer_->add_step(row, samples, activities);
    if (added.ok()) return;
    fail(added.error(), row.step);
    retry_ns_ = monotonic_ns() + pause_ns_;
    return;
  }
  if (lost_ || monotonic_ns() < retry_ns_) return;
  if (catch_up().ok()) return out_.note("the session takes the run's rows again");
  pause_ns_ = std::min(2 * pause_ns_, kLongestPauseNs);
  retry_ns_ = monotonic_ns() + pause_ns_;
}

void RunRecorder::add_evaluation(const EvaluationRow& row) {
  if (!failed_)
    writer_->add_evaluation(row);
  else if (held_evaluations_.size() < kMostHeld)
    held_evaluations_.push_back(row);
}

Status RunRecorder::finish(RunFinish end) {
  if (failed_ && !catch_up().ok()) return *failed_;
  if (!gap_.empty()) end.message += (end.message.empty() ? "" : "; ") + gap_;
  return writer_->finish(end);
}

}  // namespace gradloom
