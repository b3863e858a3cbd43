// Recompute: forward values that only the backward pass still needs are computed again there instead of being
// kept (Chen et al., Training Deep Nets with Sublinear Memory Cost, 2016), so that a step fits a memory budget.
// The nodes run twice with the same operands and random keys: loss and gradients are equal to the bit.
//
// Which ones: the forward graph is cut into segments where little crosses (behind the blocks of a network), and
// what crosses is kept. Inside, for a price of memory (seconds per byte), a minimum cut finds exactly what is
// best kept and what computed again, with whatever that needs in turn. The search goes over prices, lengths of
// segments and how many of them, from the input on, recompute at all, then over mixtures of neighbours, then over single nodes more
// or less where there are few; each choice is judged by the peak of its plan, and the cheapest that fits is taken. Of a graph so small
// that it takes no longer, all choices are tried.
//
// Users may name what runs again instead (recompute_named), or beside it: then the search begins from there.
//
// Cost: what a node's kernel takes where that is known of the machine (KernelTimes), else the longer of its FLOPs and
// its bytes at the speeds given. Nodes that read states (running statistics) or update them are never run twice.
#pragma once

#include <cstdint>
#include <functional>
#include <stop_token>
#include <string>
#include <vector>

#include "engine/plan/plan.h"
#include "passes/pass.h"

namespace gradloom {

// What each kernel of a plan takes, ns by plan step, as far as is known.
using KernelTimes = std::function<std::vector<double>(const Graph& graph, const Plan& plan)>;

struct RecomputeChoice {
  std::vector<NodeId> nodes;    // that run again
  std::int64_t peak_bytes = 0;  // of the plan; at least, when the planner needs more than its lower bound
  double cost = 0;              // of running them, as a part of the whole step's cost
  double step_ns = 0;           // of a step's kernels, these included; 0: no times are known
  // What no choice can beat (recompute_bound.h): in cost, of those with such a peak; in peak, of all.
  double least_cost = 0;
  std::int64_t least_peak_bytes = 0;
};

struct RecomputeOptions {
  PlanOptions plan;            // its planner is not used while searching
  double flops_per_byte = 20;  // how many FLOPs take as long as moving a byte; without `kernel_ns`
  KernelTimes kernel_ns;       // none: not known
  std::int64_t micro_batches = 1;
  std::stop_token stop;
};

// Choices that no other beats in peak and cost, from none (cost 0) to the smallest peak found.
// Errors: the plan's; Errc::interrupted.
Result<std::vector<RecomputeChoice>> recompute_curve(const Graph& graph, const RecomputeOptions& options);

// Makes the forward nodes that fit a pattern (node_patterns.h) run again for their readers in the backward pass; appends
// the pass's report, whose log tells what fits and is kept, and why. Errc::usage: a pattern that fits nothing.
Status recompute_named(Graph& graph, const std::vector<std::string>& patterns,
                       std::vector<PassReport>& reports);

// Makes the nodes run again for their readers in the backward pass; appends the pass's report.
Status apply_recompute(Graph& graph, const std::vector<NodeId>& nodes, std::vector<PassReport>& reports);

}  // namespace gradloom
