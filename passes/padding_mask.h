// Where a padded batch has padding, as attention sees it.
#pragma once

#include <string>
#include <vector>

#include "engine/ir/graph.h"

namespace gradloom {

struct PaddingMask {
  ValueId value = kNone;  // [batch, position], an input or what follows from one; kNone: none was found
  bool inverted = false;  // it is 0 at tokens, not at padding
  // None: why, and at which node.
  std::string why_not{};
  NodeId at = kNone;
};

// Looks for a value of which every attention (FusedAttention, Softmax of scores) leaves out the keys where it is 0, or
// where it is not. That is found by trying: the operators that put the mask into the scores run on the CPU with a mask
// made up, scores of 0, and a probability of a key that should be left out must be exactly 0. `name`: of the input
// that it is or follows from; empty: any. `order`: the nodes, topologically.
PaddingMask find_padding_mask(const Graph& graph, const std::vector<NodeId>& order, const std::string& name);

}  // namespace gradloom
