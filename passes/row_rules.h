// What operators ask of their operands where only some rows of their result are computed: a rule for each kind of operator (pass
// select-rows).
//
// Rows are the items of one axis, or of axes next to each other that are counted as one. Where rows of a value are taken, its axes
// of the block become one axis of `rows` items.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "engine/ir/graph.h"

namespace gradloom {

struct AxisBlock {
  std::size_t first = 0, count = 1;
  std::size_t end() const { return first + count; }
  bool operator==(const AxisBlock&) const = default;
};

// How many of `size` rows are taken; `begin`: they are those from this one on.
struct RowChoice {
  std::int64_t size = 0, rows = 0;
  std::optional<std::int64_t> begin{};
};

Shape with_rows(const Shape& shape, const AxisBlock& block, std::int64_t rows);

// What becomes of an input: it stays; the rows of a block of its axes are taken; it is reshaped, as it is the same for all rows; or, as
// it tells sizes, it is replaced by these numbers.
struct RowOperand {
  enum class Kind : std::uint8_t { same, rows, reshaped, numbers };
  Kind kind = Kind::same;
  AxisBlock block{};
  Shape shape{};  // of reshaped operands; the numbers
};

struct RowRule {
  std::vector<RowOperand> operands;  // one per input
  Attrs attrs;                       // of the node that computes these rows alone
  std::string why_not{};             // empty: it can
};

// The node's first result is computed where rows of `block` of it are taken. REQUIRES static shapes.
RowRule rule_of_rows(const Graph& graph, NodeId id, const AxisBlock& block, const RowChoice& choice);

}  // namespace gradloom
