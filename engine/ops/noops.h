// Rules by which output 0 of a node repeats an input (OpDef::noop), where several rows share one.
#pragma once

#include "engine/ir/op.h"

namespace gradloom {

// A known scalar of this value.
inline bool scalar_is(const Graph& graph, ValueId id, double wanted) {
  double value = 0;
  return scalar_constant(graph, id, &value) && value == wanted;
}

// What joins or adds any number of inputs has one.
inline Noop one_input(const Graph&, const Node& node) {
  return node.inputs.size() == 1 ? Noop{"one-input", 0} : Noop{};
}

}  // namespace gradloom
