// Which optimizer steps are timed kernel by kernel, and what the timing itself costs.
//
// Level `sampled` times every third step, between two untimed neighbours: "- T - - T -". A timed
// step divided by the mean of its neighbours cancels slow drift of the machine; the median of
// these ratios minus 1 is the profiler's own overhead, reported with its 95 % interval. Levels:
// step (only whole steps are timed), sampled, all.
//
// Where steps are pipelined a timed step waits for the one before and leaves the device without work: the
// step after it (A) starts late, and neither is any measure of an undisturbed one. There a time is the
// distance of two steps' ends, in which every gap is contained, and with the undisturbed steps before each
// timed one, "U T A U", the cost is (T + A - U) / U - 1: drift cancels here too.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "engine/base/result.h"

namespace gradloom {

enum class ProfileLevel : std::uint8_t { step, sampled, all };
const char* profile_level_name(ProfileLevel level);
Result<ProfileLevel> parse_profile_level(const std::string& text);

struct Overhead {
  bool known = false;                      // needs level `sampled` and at least 6 timed steps after warm-up
  double fraction = 0, low = 0, high = 0;  // 0.012 = a timed step takes 1.2 % longer
  std::int64_t timed_steps = 0;
};

// The first steps of a run touch memory for the first time and start threads: what is said about the time of
// its steps and kernels leaves them out where there are more.
constexpr std::int64_t kWarmupSteps = 3;

class Sampler {
 public:
  explicit Sampler(ProfileLevel level, bool pipelined = false) : level_(level), pipelined_(pipelined) {}
  bool timed(std::int64_t step) const;  // step is 1-based
  // Every step, in order; pipelined: since the end of the one before.
  void record(std::int64_t step, std::int64_t step_ns);
  Overhead overhead() const;

 private:
  double ratio(std::int64_t step_ns) const;  // of the group that this step closes; 0: a step is missing
  ProfileLevel level_;
  bool pipelined_;
  std::vector<double> ratios_;
  std::int64_t previous_[3] = {0, 0, 0};  // step_ns of the three steps before, 0: none
};

}  // namespace gradloom
