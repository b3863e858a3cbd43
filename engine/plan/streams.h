// Streams of a plan (plan.h): which steps run beside the compute stream, when they begin and who waits for them.
//
// Today these are copies of a value that leaves the GPU's memory and comes back (CopyToHost, CopyFromHost). A copy out
// begins when its value was made; the compute stream waits for it where it is predicted to be over, or behind the last
// reader where that is later, and the value's memory is free from there. A copy back begins as late as it may so that it is
// over when its first reader is to run: copies are laid out from the last reader back, one after another on their link
// (the latest-start schedule of Kelley and Walker, 1959). StepSpeeds::hold_ns bounds both. A copy waits for what the compute stream has before it, so
// that its target is free.
#pragma once

#include <cstdint>
#include <vector>

#include "engine/plan/plan.h"

namespace gradloom {

enum Stream : std::int32_t { kComputeStream = 0, kUploadStream = 1, kDownloadStream = 2, kStreamCount = 3 };

// REQUIRES steps without streams in the order of `order`, which holds views too. Gives streams and waits to the copies of values
// that are away between their readers, and moves them to where they begin, in both. Other copies stay ordinary steps:
// of what nothing brings back, of what is an input or lives longer than the micro-batch.
void place_copies(const Graph& graph, const StepSpeeds& speeds, std::vector<NodeId>& order, Plan& plan);

// By step: the last one during which it may still run. Itself on the compute stream.
std::vector<std::int32_t> last_busy_steps(const Plan& plan);

// How long each step takes, ns, copies as on their link.
std::vector<double> step_times(const Graph& graph, const Plan& plan, const StepSpeeds& speeds);

// When each step is predicted to run, ns from the beginning of one micro-batch with what comes once after it.
struct StepTimes {
  std::vector<double> start_ns, end_ns;
  double total_ns = 0;
  double exposed_ns = 0;  // that the compute stream waits for others
};
StepTimes predict_times(const Graph& graph, const Plan& plan, const StepSpeeds& speeds);

}  // namespace gradloom
