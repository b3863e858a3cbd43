// The gradients of the elementwise operators (formulas.cpp makes their rows).
#pragma once

#include "engine/ir/op.h"
#include "kernels/elementwise.h"

namespace gradloom {

struct EwGradient {
  GradFn rule = nullptr;
  bool zero = false;  // by definition
};
EwGradient ew_gradient(kernels::EwOp op);  // of an operator of elementwise.def, or Cast

}  // namespace gradloom
