// Where the inputs of Optimizer (optimizer.cpp) stand: lr, step, grad_scale, apply, then n parameters, their n
// gradients, n of each state, and the copies of some parameters; and which ranges of parameters it updates.
#pragma once

#include <cstddef>
#include <cstdint>
#include <iterator>
#include <string_view>

#include "engine/ir/graph.h"

namespace gradloom {

// What the update of an element reads (kernels/optimizers.def): the same element of parameter, gradient and states, or all of them for
// norms and means. In the first case a range of a parameter is updated as among the others, bit for bit.
enum class UpdateReach : std::uint8_t { element, tensor };
UpdateReach update_reach(std::string_view kind);  // of a row, by its name

}  // namespace gradloom

namespace gradloom::optimizer_inputs {

inline constexpr std::size_t kScale = 2, kApply = 3;  // kNone where omitted
inline constexpr std::size_t kFirst = 4;              // the first parameter

// A range of a parameter (attributes begins and counts) begins at a multiple of this. So its gradient's squares are added as those of
// the parameter's are (square_pieces, engine/ops/collectives/reduce_gradients.h), and codes of 8 bits have the same scales.
inline constexpr std::int64_t kRangeUnit = 8192;

// Input lr as a table f64[rows, kColumns], of which attribute `row` (0) is the node's: the rate, and what holds instead of the attributes of
// these names; NaN: what the attribute says. A program changes them from step to step. A GPU's kernels follow the rate alone.
inline constexpr const char* kFollowed[] = {"momentum", "beta1", "beta2", "weight_decay", "eps"};
inline constexpr std::size_t kColumns = 1 + std::size(kFollowed);

inline std::size_t parameter_count(const Attrs& attrs) {
  return static_cast<std::size_t>(attrs.integer("n", 1));
}

}  // namespace gradloom::optimizer_inputs
