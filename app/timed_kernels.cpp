#include "app/timed_kernels.h"

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
    for (const KernelSample& sample : result.samples)
      timed.kernels_ns += static_cast<double>(sample.duration_ns);
    timed.step_ns += static_cast<double>(result.step_ns);
    ++timed.steps;
    if (enough()) break;
  }
  timed.kernels = job->kernels();
  timed.kernels_ns /= static_cast<double>(timed.steps);
  timed.step_ns /= static_cast<double>(timed.steps);
  return timed;
}

}  // namespace gradloom
