// Operands and results that lie in rows of a larger tensor, as parts along another axis than the first do (engine/plan/pieces.h):
// `row` elements each, `pitch` elements from one to the next. Kernels that take strides read and write them where they are.
//
// A prepare function learns of them by NodeTypes, from attributes that no node of a graph has: the strides of their
// dims. Asked for bits, as by who chooses what lies in rows, it refuses what it would not compute to the same bits as with dense
// tensors; that may take trials, which what was chosen does not need again. (A library of a GPU chooses its algorithm by strides as it
// does by shapes: the promise is that of our own kernels.)
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "engine/ir/op.h"

namespace gradloom {

// Strides, in elements, of the dims of a tensor in rows; no value: a dim goes on over the end of a row.
std::optional<std::vector<std::int64_t>> row_strides(const Shape& shape, std::int64_t row,
                                                     std::int64_t pitch);

// The operator's kernels of this target read the input, write the output in rows, where they do not refuse.
bool reads_rows(const Node& node, std::size_t input, kernels::Target target);
bool writes_rows(const Node& node, std::size_t output, kernels::Target target);

void set_input_strides(NodeTypes& types, std::size_t input, std::vector<std::int64_t> strides);
void set_output_strides(NodeTypes& types, std::size_t output, std::vector<std::int64_t> strides);
// As set; without them those of a dense tensor.
std::vector<std::int64_t> input_strides(const NodeTypes& types, std::size_t input);
std::vector<std::int64_t> output_strides(const NodeTypes& types, std::size_t output);
bool in_rows(const NodeTypes& types, std::size_t output);  // strides of the output are set
bool has_rows(const NodeTypes& types);                     // some strides are set
NodeTypes dense_types(NodeTypes types);                    // the same without any
void ask_for_bits(NodeTypes& types);
bool asks_for_bits(const NodeTypes& types);

}  // namespace gradloom
