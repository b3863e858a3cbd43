// Choice of timed steps and the profiler's own overhead.
#include "profiler/sampler.h"

#include <algorithm>
#include <cmath>

namespace gradloom {
namespace {

constexpr std::int64_t kPeriod = 3;    // - T -
constexpr std::size_t kMinRatios = 6;  // fewer cannot give a 95 % interval

// Interval of a median from order statistics: exact, without resampling (Conover,
// Practical Nonparametric Statistics, 3.2).
void median_interval(std::vector<double> sorted, double& value, double& low, double& high) {
  std::sort(sorted.begin(), sorted.end());
  const std::size_t n = sorted.size();
  value = n % 2 == 1 ? sorted[n / 2] : 0.5 * (sorted[n / 2 - 1] + sorted[n / 2]);
  // Largest k with P(Binomial(n, 1/2) < k) <= 2.5 %: the interval [x(k), x(n + 1 - k)] covers the median with
  // at least 95 %.
  const auto log_factorial = [](std::size_t m) { return std::lgamma(static_cast<double>(m) + 1); };
  double cumulative = 0;
  std::size_t k = 0;
  for (; k < n; ++k) {
    cumulative += std::exp(log_factorial(n) - log_factorial(k) - log_factorial(n - k) -
                           static_cast<double>(n) * std::log(2.0));
    if (cumulative > 0.025) break;
  }
  const std::size_t first = k == 0 ? 0 : k - 1;
  low = sorted[first];
  high = sorted[n - 1 - first];
}

}  // namespace

const char* profile_level_name(ProfileLevel level) {
  switch (level) {
    case ProfileLevel::step: return "step";
    case ProfileLevel::sampled: return "sampled";
    case ProfileLevel::all: return "all";
  }
  return "step";
}

Result<ProfileLevel> parse_profile_level(const std::string& text) {
  for (const ProfileLevel level : {ProfileLevel::step, ProfileLevel::sampled, ProfileLevel::all}) {
    if (text == profile_level_name(level)) return level;
  }
  return Error{Errc::usage, "profile level must be step, sampled or all, not " + text};
}

bool Sampler::timed(std::int64_t step) const {
  if (level_ == ProfileLevel::all) return true;
  return level_ == ProfileLevel::sampled && step % kPeriod == 2;
}

double Sampler::ratio(std::int64_t step_ns) const {
  const auto now = static_cast<double>(step_ns);
  const double before[3] = {static_cast<double>(previous_[0]), static_cast<double>(previous_[1]),
                            static_cast<double>(previous_[2])};
  if (!(before[1] > 0 && before[2] > 0 && now > 0)) return 0;
  if (!pipelined_) return 2 * before[2] / (before[1] + now);
  const double undisturbed = 0.5 * (before[0] + now);
  return before[0] > 0 ? (before[1] + before[2] - undisturbed) / undisturbed : 0;
}

void Sampler::record(std::int64_t step, std::int64_t step_ns) {
  // A group is closed by the untimed step after its timed one; pipelined, by the second.
  const std::int64_t closes_at = pipelined_ ? 1 : 0, length = pipelined_ ? 4 : 3;
  const bool closes =
      level_ == ProfileLevel::sampled && step % kPeriod == closes_at && step - length + 1 > kWarmupSteps;
  const double closed = closes ? ratio(step_ns) : 0;
  if (closed > 0) {
    constexpr std::size_t kMost = 4096;  // enough for any interval; memory stays bounded in long runs
    if (ratios_.size() < kMost) {
      ratios_.push_back(closed);
    } else {
      ratios_[static_cast<std::size_t>(step / kPeriod) % kMost] = closed;
    }
  }
  previous_[0] = previous_[1];
  previous_[1] = previous_[2];
  previous_[2] = step_ns;
}

Overhead Sampler::overhead() const {
  Overhead result;
  result.timed_steps = static_cast<std::int64_t>(ratios_.size());
  if (ratios_.size() < kMinRatios) return result;
  result.known = true;
  median_interval(ratios_, result.fraction, result.low, result.high);
  result.fraction -= 1;
  result.low -= 1;
  result.high -= 1;
  return result;
}

}  // namespace gradloom
