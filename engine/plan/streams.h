// Streams of a plan (plan.h): which steps run beside the compute stream, when they begin and who waits for them.
//
// These are copies of a value that leaves the GPU's memory and comes back (CopyToHost, CopyFromHost). A copy out
// begins when its value was made; the compute stream waits for it where it is predicted to be over, or behind the last
// reader where that is later, and the value's memory is free from there. A copy back begins as late as it may so that it is
// over when its first reader is to run: copies are laid out from the last reader back, one after another on their link
// (the latest-start schedule of Kelley and Walker, 1959). StepSpeeds::hold_ns bounds both. A copy waits for what the compute stream has before it, so
// that its target is free.
//
// And exchanges with other ranks that a node begins and another one waits for (AllReduceBegin, ReduceGradients, AllReduceWait), which
// run on a stream of their own from when the compute stream has made what they take. All exchanges of a range run one after another in
// the plan's order, whatever their stream: that is the same on every rank, and nothing may overtake where ranks wait for each other.
#pragma once

#include <cstdint>
#include <vector>

#include "engine/plan/plan.h"

namespace gradloom {

enum Stream : std::int32_t {
  kComputeStream = 0,
  kUploadStream = 1,
  kDownloadStream = 2,
  kExchangeStream = 3,
  kStreamCount = 4
};

// REQUIRES steps without streams in the order of `order`, which holds views too. Gives streams and waits to the copies of values
// that are away between their readers, and moves them to where they begin, in both. Other copies stay ordinary steps:
// of what nothing brings back, of what is an input or lives longer than the micro-batch. Then to exchanges that are begun,
// which stay where they are, and to what waits for them.
void place_streams(const Graph& graph, const StepSpeeds& speeds, std::vector<NodeId>& order, Plan& plan);

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
