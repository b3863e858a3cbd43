// Choice of timed steps and the profiler's own overhead.
#include "profiler/sampler.h"

#include <algorithm>
#include <cmath>

namespace gradloom {
namespace {

constexpr std::int64_t kPeriod = 3;    // - T -
constexpr std::size_t kMinRatios = 6;  // fewer cannot give a 95 % interval

// Interval of a median from order statistics: exact, without resampling (Conover, Practical Nonparametric
// Statistics, 3.2).
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
    case ProfileLevel::step:
      return "step";
    case ProfileLevel::sampled:
      return "sampled";
    case ProfileLevel::all:
      return "all";
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

void Sampler::record(std::int64_t step, std::int64_t step_ns) {
  // A step after a timed one closes the group (untimed, timed, untimed).
  const bool closes = level_ == ProfileLevel::sampled && step % kPeriod == 0 && step - 2 > kWarmupSteps;
  const auto neighbours = static_cast<double>(previous_[0]) + static_cast<double>(step_ns);
  if (closes && previous_[0] > 0 && previous_[1] > 0 && neighbours > 0) {
    constexpr std::size_t kMost = 4096;  // enough for any interval; memory stays bounded in long runs
    const double ratio = 2 * static_cast<double>(previous_[1]) / neighbours;
    if (ratios_.size() < kMost) {
      ratios_.push_back(ratio);
    } else {
      ratios_[static_cast<std::size_t>(step / kPeriod) % kMost] = ratio;
    }
  }
  previous_[0] = previous_[1];
  previous_[1] = step_ns;
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
