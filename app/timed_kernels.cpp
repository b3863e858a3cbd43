#include "app/timed_kernels.h"

#include <algorithm>

#include "profiler/sampler.h"

namespace gradloom {

Result<TimedKernels> time_kernels(const Recipe& recipe, std::int64_t steps,
                                  const std::function<bool()>& enough, std::stop_token stop) {
  auto job = TRY(Job::create(std::shared_ptr<const Prepared>(TRY(prepare(recipe, stop)))));
  TimedKernels timed;
  for (std::int64_t step = 1; step <= kWarmupSteps + steps; ++step) {
    if (stop.stop_requested()) return Error{Errc::interrupted, "interrupted"};
    const StepResult result = TRY(job->step(step, step > kWarmupSteps));
    if (step <= kWarmupSteps) continue;
    timed.samples.insert(timed.samples.end(), result.samples.begin(), result.samples.end());
    double kernels_ns = 0;
    for (const KernelSample& sample : result.samples) kernels_ns += static_cast<double>(sample.duration_ns);
    const auto step_ns = static_cast<double>(result.step_ns);
    const double between_ns = std::max(0.0, step_ns - kernels_ns);
    timed.between_ns = timed.steps == 0 ? between_ns : std::min(timed.between_ns, between_ns);
    timed.kernels_ns += kernels_ns;
    timed.step_ns += step_ns;
    ++timed.steps;
    if (enough()) break;
  }
  timed.kernels = job->kernels();
  timed.kernels_ns /= static_cast<double>(timed.steps);
  timed.step_ns /= static_cast<double>(timed.steps);
  return timed;
}

}  // namespace gradloom
