// Offload: values that the forward pass makes and that only the backward pass still needs are copied to pinned memory of the
// host and brought back before they are read again (Rhu et al., vDNN, 2016), so that a step fits a GPU at the price
// of time on its link instead of computing again. The bytes come back as they left: loss and gradients are equal to the bit.
//
// A value can be away when a forward node makes it, something after the loss reads it, nothing keeps it to the end of the step
// (outputs), and its last reader before the loss is over when the first one after it comes. Where its copies run, and what they
// are predicted to cost, is engine/plan/streams.h.
//
// Under a memory budget recompute and offload are weighed against each other by predicted time: for choices of recompute
// (recompute.h) along its curve, from none on, values that this choice still keeps leave, those that are idle the longest or
// those with the most bytes first, as few as make the plan fit, with kernels that wait for their copies and without; what takes
// the least time of all is taken.
#pragma once

#include <cstdint>
#include <optional>
#include <stop_token>
#include <string>
#include <vector>

#include "engine/plan/plan.h"
#include "passes/pass.h"
#include "passes/recompute.h"

namespace gradloom {

// The word among the patterns of --offload that lets a memory budget choose.
constexpr const char* kOffloadAuto = "auto";

// Makes what the named forward nodes give (node_patterns.h) leave and come back; appends the pass's report, whose log
// tells the bytes, the predicted wait of readers, and of what fits and stays why. Errc::usage: a pattern that
// fits nothing. REQUIRES a plan for a GPU, whose speeds then hold memory for copies (hold_ns) as the least peak asks.
Status offload_named(Graph& graph, const std::vector<std::string>& patterns, PlanOptions& plan,
                     std::vector<PassReport>& reports);

// A graph and its plan within a budget.
struct FittedPlan {
  Graph graph;
  Plan plan;
  std::vector<PassReport> reports;
  double predicted_ns = 0;  // of a step
};

struct OffloadOptions {
  PlanOptions plan;
  std::int64_t budget_bytes = 0;
  std::vector<RecomputeChoice> recompute;  // to choose from, the cheapest first
  std::stop_token stop;
};

// The plan that is predicted to be the fastest of those within the budget; none: there is none. `least_bytes`: the least peak
// that was seen. Errors: the plan's; Errc::interrupted.
Result<std::optional<FittedPlan>> offload_to_fit(const Graph& graph, const std::vector<PassReport>& reports,
                                                 const OffloadOptions& options, std::int64_t& least_bytes);

}  // namespace gradloom
