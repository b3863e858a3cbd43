// A queued device's own trace of one optimizer step, sorted into the times of the plan's kernels and
// the device's other work.
#pragma once

#include <functional>
#include <vector>

#include "engine/run/executor.h"

namespace gradloom {

// Appends to the outcome's samples and activities; launches by the host are the host's to tell and
// are left out. `steps`: of the plan; `in_micro`: whether one of them runs for every micro-batch.
// The n-th run of such a step within one optimizer step belongs to micro-batch n. `queue_of`: where a step runs; copies beside the
// kernels, and what begins an exchange with other ranks, have samples as kernels have. A trace that lost records tells nothing: times_from says so.
void add_device_times(std::vector<Activity> activities, std::size_t steps,
                      const std::function<bool(std::int32_t)>& in_micro, StepOutcome& outcome,
                      const std::function<Queue(std::int32_t)>& queue_of = {});

}  // namespace gradloom
