// What a Slice takes of its input.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "engine/ir/op.h"

namespace gradloom {

// First element, distance and number of elements taken along an axis.
struct SliceRange {
  std::int64_t start = 0, step = 1, count = 0;
};

// By axis of the input, whose dims are static; no value: the arguments are not known before running. Errors: those of
// inference.
Result<std::optional<std::vector<SliceRange>>> slice_ranges(const NodeTypes& types);

}  // namespace gradloom
