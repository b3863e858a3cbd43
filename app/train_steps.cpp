#include "app/train_steps.h"

#include <algorithm>
#include <cmath>

#include "engine/base/text.h"

namespace gradloom {

void StepHistory::add(const StepResult& result, bool timed) {
  losses.push_back(result.loss);
  if (!timed) untimed_ns.push_back(static_cast<double>(result.step_ns));
  all_ns.push_back(static_cast<double>(result.step_ns));
}

double StepHistory::median_step_ns() const {
  const std::vector<double>& ns = untimed_ns.size() >= 3 ? untimed_ns : all_ns;
  const std::size_t skip = ns.size() > 6 ? 3 : 0;  // first touches and thread start
  return median({ns.begin() + static_cast<std::ptrdiff_t>(skip), ns.end()});
}

const std::vector<double>& StepHistory::judged_ns() const {
  return untimed_ns.size() >= 5 ? untimed_ns : all_ns;
}

Interval StepHistory::step_ns() const { return bootstrap_median(judged_ns()); }

double StepHistory::fastest_ns() const {
  std::vector<double> sorted = judged_ns();
  std::sort(sorted.begin(), sorted.end());
  return sorted.empty() ? 0 : sorted[sorted.size() / 10];
}

LossScaleWatch::LossScaleWatch(const LossScaleSpec& spec)
    : least_(spec.least > 0 ? std::min(spec.least, kLeastLossScale) : kLeastLossScale) {}

Status LossScaleWatch::check(const StepResult& result) {
  if (result.loss_scale <= 0) return {};
  scale_ = result.loss_scale;
  if (result.skipped > 0) ++skipped_;
  const auto failed = [&](const std::string& why) {
    return Error{Errc::numeric, why + " at step " + std::to_string(result.step) +
                                    ": gradients overflow in f16 (precision bf16 has the range of f32)"};
  };
  if (result.skipped >= static_cast<double>(kMostSkippedSteps))
    return failed(std::to_string(kMostSkippedSteps) + " steps in a row were skipped");
  if (result.loss_scale < least_) return failed("the loss scale fell to " + number_text(result.loss_scale));
  return {};
}

Status check_loss(const StepResult& result) {
  if (result.skipped != 0) return {};
  if (std::isfinite(result.loss)) {
    if (result.grad_norm == -1 || std::isfinite(result.grad_norm)) return {};
    return Error{Errc::numeric, "the gradients are not finite at step " + std::to_string(result.step)};
  }
  return Error{Errc::numeric, "the loss is " + std::string(std::isnan(result.loss) ? "NaN" : "infinite") +
                                  " at step " + std::to_string(result.step)};
}

}  // namespace gradloom
