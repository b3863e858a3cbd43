// What the attributes of operator Optimizer (optimizer.cpp) say of its inputs: rows of kernels/optimizers.def, states, copies, ranges.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "engine/ir/op.h"
#include "engine/ops/training/optimizer_inputs.h"
#include "kernels/optimizer_kind.h"

namespace gradloom {

// A state as a row of kernels/optimizers.def declares it.
struct OptimizerRowState {
  int number;
  kernels::StateForm form;
  kernels::StateRange range;
  const char* needs;  // the attribute without which it is not there
};

// What a row of kernels/optimizers.def says to this operator.
struct OptimizerRow {
  const char* name;
  kernels::OptimizerKind kind;
  std::span<const OptimizerRowState> states;
  UpdateReach reach;
  double bare_operations, operations;
  bool eight_bit;  // its states may be
};

struct OptimizerLayout {
  const OptimizerRow* row;
  std::size_t n;
  bool factored, eight_bit;
  std::vector<OptimizerRowState> states;  // that there are
  std::vector<std::int64_t> copies, keys, begins, counts;
  // Each parameter's place among the copies; -1: it has none. Empty: there are none.
  std::vector<std::int64_t> copy_of{};
  bool ranged() const { return !begins.empty(); }
  // Whether a range of parameter i is all that there is of it. `shape`: of each input.
  bool is_part(std::size_t i, const auto& shape) const {
    return ranged() && !copy_of.empty() && copy_of[i] >= 0 &&
           shape(optimizer_inputs::kFirst + i) == Shape{counts[i]};
  }
  // The shape of the whole parameter.
  const Shape& whole(std::size_t i, const auto& shape) const {
    return shape(is_part(i, shape) ? first_copy() + static_cast<std::size_t>(copy_of[i])
                                   : optimizer_inputs::kFirst + i);
  }
  // What is updated of parameter i.
  Shape updated(std::size_t i, const Shape& parameter) const {
    return ranged() ? Shape{counts[i]} : parameter;
  }
  std::size_t first_copy() const {
    return optimizer_inputs::kFirst + (2 + states.size()) * n;
  }  // among the inputs
  std::size_t inputs() const { return first_copy() + copies.size(); }
  std::size_t outputs() const { return (1 + states.size()) * n + copies.size(); }
};

// Errors: infer_error, where the attributes fit no row or one another.
Result<OptimizerLayout> optimizer_layout(const Attrs& attrs);

// The type of a state of a parameter that is computed in this type.
Result<Type> optimizer_state_type(const OptimizerLayout& l, const Type& parameter, kernels::StateForm form);

// For tests and benches (optimizer_samples.cpp).
std::vector<Sample> optimizer_samples();

}  // namespace gradloom
