// The kernels of a job, timed in a few of its steps: what predictions of its changes are made from.
#pragma once

#include <functional>
#include <stop_token>
#include <vector>

#include "app/job.h"
#include "sessions/recipe.h"

namespace gradloom {

struct TimedKernels {
  std::vector<KernelInfo> kernels;     // of the plan
  std::vector<KernelSample> samples;   // of all timed steps
  double kernels_ns = 0, step_ns = 0;  // mean sum of a step's kernels, and mean step
  double between_ns = 0;               // least of a step outside its kernels: disturbances add to it
  std::int64_t steps = 0;
};

// Steps that are timed after those of warming up, until there are `steps` or `enough` says so after one.
// Errors: what makes the job impossible; Errc::interrupted.
Result<TimedKernels> time_kernels(const Recipe& job, std::int64_t steps, const std::function<bool()>& enough,
                                  std::stop_token stop);

}  // namespace gradloom
