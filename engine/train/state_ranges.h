// States of optimizers, and parameters, of which a rank keeps a range alone (pass zero): those of elements [begin, begin + count) of the
// parameter in row-major order, as one dim.
#pragma once

#include <cstdint>
#include <map>
#include <set>

#include "engine/ir/graph.h"
#include "engine/train/eight_bit.h"

namespace gradloom {

struct ElementRange {
  std::int64_t begin = 0, count = 0;
};

// A parameter of which this rank keeps what it updates, or nothing (count 0); the forward pass reads a 16-bit copy of the whole.
struct OwnRange {
  ElementRange range;
  Shape whole;
};
std::map<ValueId, OwnRange> parameter_ranges(const Graph& graph);
// These become all that the graph has of their parameters, when the passes are through. Errc::io: as Tensor::read.
Status keep_ranges(Graph& graph);

// By the value of the state; those that are whole are not there.
std::map<ValueId, ElementRange> state_ranges(const Graph& graph);
// States that no other rank has: of parameters, or ranges of them, that this rank updates for all (ShareParameters).
std::set<ValueId> own_states(const Graph& graph);
// Errc::io: as Tensor::read.
Result<Tensor> elements_of(const Tensor& tensor, const ElementRange& range);
// REQUIRES a range that begins with a block of codes.
Result<EightBitState> elements_of(const EightBitState& state, const ElementRange& range);
// Where the range's scales are among all.
ElementRange scale_blocks_of(const ElementRange& range);

}  // namespace gradloom
