// What the pattern fusions share: try every rule at every node, log matches,
// and say why near misses were not taken.
#pragma once

#include <functional>
#include <span>
#include <string>
#include <vector>

#include "passes/pattern.h"

namespace gradloom {

struct FusionRule {
  const char* name;  // "gelu-erf"
  Pattern pattern;
  const char* key_op;  // the operator that makes a near miss worth reporting ("Erf")
  // Rewrites the match; the reason when a precondition does not hold, empty when done.
  std::function<std::string(Rewriter& rw, const Match& match)> apply;
};

// Rules in order, each over all nodes in topological order.
Status run_fusion(Rewriter& rw, std::span<const FusionRule> rules);

// What a ReduceMean is over, as a normalization asks: the last axes, kept as size 1.
struct MeanAxes {
  std::vector<std::int64_t> axes;  // ascending, not negative; empty: unknown or not kept
  std::string why_not;             // what they are instead; empty: the last ones
};
MeanAxes mean_axes(const Graph& graph, ValueId mean);

}  // namespace gradloom
