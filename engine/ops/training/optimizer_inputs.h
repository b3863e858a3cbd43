// Where the inputs of Optimizer (optimizer.cpp) stand: lr, step, grad_scale, apply, then n parameters, their n
// gradients, n of each state, and the copies of some parameters.
#pragma once

#include <cstddef>

#include "engine/ir/graph.h"

namespace gradloom::optimizer_inputs {

inline constexpr std::size_t kScale = 2, kApply = 3;  // kNone where omitted
inline constexpr std::size_t kFirst = 4;              // the first parameter

inline std::size_t parameter_count(const Attrs& attrs) {
  return static_cast<std::size_t>(attrs.integer("n", 1));
}

}  // namespace gradloom::optimizer_inputs
