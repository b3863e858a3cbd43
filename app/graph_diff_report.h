// What two compiled graphs do differently (viz/model/graph_diff.h), as `plan --diff` and `compare --graph` tell it.
#pragma once

#include <string>

#include "app/output.h"
#include "viz/model/graph_diff.h"

namespace gradloom {

Json graph_difference_json(const GraphDifference& difference);
std::string graph_difference_text(const GraphDifference& difference);
// "Gelu, 2 x MatMul, .. (7)": the operators of these nodes that have kernels, as often as they come; "no kernel".
std::string kernels_text(const DiffGraph& graph, const std::vector<int32_t>& nodes);
// "- fuse-gelu, + fuse-elementwise": what worked on the left side alone, and on the right side alone; else why.
std::string cause_text(const DiffRegion& region);

}  // namespace gradloom
