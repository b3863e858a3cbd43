// PackedRows: a node whose values have one row for each token of a padded batch (token_rows.cpp), computed for as many
// rows as there are tokens in the batch at hand.
//   PackedRows(count, inputs of the operator..) -> its outputs
//   attributes: those of the operator; packed_op, packed_since: which operator; packed_inputs, packed_outputs: which of
//   its inputs and outputs have rows, as their first dim
// Shapes, and so the plan, are those of a batch without padding. The kernel is prepared for some numbers of rows
// between one and all, and a launch takes the first that holds the tokens: rows of results behind it are left as they
// are, and nothing may read them but other PackedRows and UnpackRows. The host reads the count when it launches: where the
// device is another one, whoever launches puts a number in its place that is as large or larger (engine/run/row_counts.h).
// A GPU's elementwise programs, which are compiled each, are prepared for a quarter of the numbers. Results without rows are sums over all rows of
// the launch: of the rows behind the tokens one factor must be 0, as gradients of what nothing reads are.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "engine/ir/op.h"

namespace gradloom {

constexpr std::int64_t kRowSteps = 16;  // numbers of rows that kernels are prepared for

// For `count` of `rows` rows, more than all standing for all: which of the prepared numbers, from 0, and that number.
std::int64_t row_step(std::int64_t count, std::int64_t rows);
std::int64_t rows_of_step(std::int64_t step, std::int64_t rows);

// The host reads the node's first operand when it launches it.
bool counts_rows(const Node& node);

// What a node becomes. `count`: that of TokenRows; the others: positions of what has rows.
struct PackedNode {
  const OpDef* op = nullptr;
  std::vector<ValueId> inputs;
  Attrs attrs;
};
PackedNode packed_node(const Node& node, ValueId count, const std::vector<std::int64_t>& inputs,
                       const std::vector<std::int64_t>& outputs);

}  // namespace gradloom
