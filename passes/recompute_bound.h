// What no choice of recompute can beat, whatever finds it. A choice leaves the order of the nodes as it is and puts clones between
// them. So while a node runs, and whatever runs again, there lie
//   - values that nodes of the forward pass and of the loss still read, and those that cannot be made again,
//   - what the node reads or what it makes (one may take the place of the other), and its workspace;
// the other values that are only read after it are gone where the nodes that make them run again. To come below a peak those that are in
// the way at any one node must, and their cost at least is paid: the fractional knapsack of each node bounds it (Dantzig, 1957).
#pragma once

#include <cstdint>
#include <vector>

#include "engine/plan/plan.h"

namespace gradloom {

class RecomputeBound {
 public:
  // `plan`: of the graph with nothing in place (PlanOptions::in_place). `cost`: of running a node again, by node.
  RecomputeBound(const Graph& graph, const Plan& plan, const std::vector<bool>& repeatable,
                 const std::vector<double>& cost);
  std::int64_t least_peak_bytes() const;  // of any choice
  // Of any choice with such a peak; infinite: there is none.
  double least_cost(std::int64_t peak_bytes) const;

 private:
  struct Removable {
    double bytes = 0, cost = 0;
  };
  struct Moment {
    std::int64_t bytes = 0;           // that are there in any choice
    std::vector<Removable> others{};  // by node, the cheapest for its bytes first
    double other_bytes = 0;
  };
  std::int64_t fixed_bytes_ = 0;  // beside the arena
  std::vector<Moment> moments_;   // by step
};

}  // namespace gradloom
