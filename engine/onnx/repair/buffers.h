// Buffers of a module among the parameters of a graph, where the file does not tell them apart (TorchScript
// and other exporters): masks, position ranges, tables of cosines and sines, and the like, by what they hold
// and by who reads them. A parameter must never be taken for one, so both have to speak for it.
#pragma once

#include <string>
#include <vector>

#include "engine/ir/graph.h"

namespace gradloom {

struct BufferFinding {
  ValueId parameter = kNone;
  bool certain = false;  // false: a parameter might look so too
  std::string why;       // what it is: "a causal mask that Add reads"
};

// Of Graph::parameters, in their order. Contents are looked at in samples: at most some thousand elements of
// each parameter whose readers speak for a buffer.
std::vector<BufferFinding> find_buffers(const Graph& graph);

}  // namespace gradloom
