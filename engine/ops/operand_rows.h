// Operands that lie in rows of a larger tensor, as parts along another axis than the first do (engine/plan/pieces.h): `row`
// elements each, `pitch` elements from one to the next. Kernels that take strides read them where they are.
//
// A prepare function learns of such an operand by NodeTypes, from an attribute that no node of a graph has: the strides of its
// dims. It refuses what it would not compute to the same bits as with dense operands.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "engine/ir/op.h"

namespace gradloom {

// Strides, in elements, of the dims of a tensor in rows; no value: a dim goes on over the end of a row.
std::optional<std::vector<std::int64_t>> row_strides(const Shape& shape, std::int64_t row,
                                                     std::int64_t pitch);

// The operator's kernels of this target read the input in rows, where they do not refuse.
bool reads_rows(const Node& node, std::size_t input, kernels::Target target);

void set_input_strides(NodeTypes& types, std::size_t input, std::vector<std::int64_t> strides);
// As set; without them those of a dense tensor.
std::vector<std::int64_t> input_strides(const NodeTypes& types, std::size_t input);
bool reads_rows(const NodeTypes& types);  // some strides are set

}  // namespace gradloom
