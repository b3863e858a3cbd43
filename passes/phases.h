// Which nodes run before the loss is known, and which after it.
#pragma once

#include "engine/ir/graph.h"

namespace gradloom {

inline bool runs_forward(const Node& node) { return node.alive() && node.origin.phase == Phase::forward; }
// The backward pass and the optimizer.
inline bool runs_after_loss(const Node& node) {
  return node.alive() && (node.origin.phase == Phase::backward || node.origin.phase == Phase::optimizer);
}

}  // namespace gradloom
