#include "engine/run/device_times.h"

#include <algorithm>
#include <map>

namespace gradloom {

void add_device_times(std::vector<Activity> activities, std::size_t steps,
                      const std::function<bool(std::int32_t)>& in_micro, StepOutcome& outcome,
                      const std::function<Queue(std::int32_t)>& queue_of) {
  std::stable_sort(activities.begin(), activities.end(),
                   [](const Activity& a, const Activity& b) { return a.start_ns < b.start_ns; });
  for (const Activity& a : activities) {
    if (a.kind != Activity::Kind::lost) continue;
    outcome.times_from =
        "none: the device's trace lost " + (a.bytes > 0 ? std::to_string(a.bytes) + " " : "") + "records";
    return;
  }
  // One plan step may launch several kernels: a new micro-batch starts when a smaller plan step comes.
  std::int32_t micro_index = 0, last = -1;
  std::size_t kernel = outcome.samples.size();  // the latest sample of one; copies may come between its parts
  std::map<std::int32_t, std::int32_t> aside;   // by plan step beside the kernels: how often it has run
  for (const Activity& a : activities) {
    if (a.kind == Activity::Kind::api) continue;
    const bool of_step = a.plan_step >= 0 && static_cast<std::size_t>(a.plan_step) < steps;
    const Queue queue = of_step && queue_of ? queue_of(a.plan_step) : Queue::compute;
    // An exchange through the host has copies too.
    const auto of_queue = queue == Queue::exchange ? Activity::Kind::kernel : Activity::Kind::copy;
    if (queue != Queue::compute && a.kind == of_queue) {
      outcome.samples.push_back({a.plan_step, aside[a.plan_step]++, a.start_ns, a.end_ns - a.start_ns});
      continue;
    }
    if (a.kind != Activity::Kind::kernel || !of_step) {
      outcome.activities.push_back(a);
      continue;
    }
    const bool micro = in_micro(a.plan_step);
    if (a.plan_step < last && micro) ++micro_index;
    last = a.plan_step;
    const KernelSample sample{a.plan_step, micro ? micro_index : 0, a.start_ns, a.end_ns - a.start_ns};
    KernelSample* const same = kernel < outcome.samples.size() ? &outcome.samples[kernel] : nullptr;
    if (same != nullptr && same->plan_step == sample.plan_step && same->micro == sample.micro) {
      same->duration_ns += sample.duration_ns;
      continue;
    }
    kernel = outcome.samples.size();
    outcome.samples.push_back(sample);
  }
}

}  // namespace gradloom
