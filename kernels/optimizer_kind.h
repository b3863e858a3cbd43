// The optimizers: the rows of kernels/optimizers.def, in their order.
#pragma once

#include <cstdint>

namespace gradloom::kernels {

enum class OptimizerKind : std::uint8_t {
#define OPTIMIZER(name, ...) name,
#include "kernels/optimizers.def"
#undef OPTIMIZER
};

// The shape of a state. A parameter of two dims or more and at least one element is factored by optimizers that have
// `rows` and `columns`.
enum class StateForm : std::uint8_t {
  whole,       // the parameter's
  unfactored,  // the parameter's; only of those that are not factored
  rows,        // of factored ones: without the last dim
  columns,     // of factored ones: without the last but one
};

// What numbers a state may hold.
enum class StateRange : std::uint8_t { any, positive };  // positive: 0 or more

}  // namespace gradloom::kernels
