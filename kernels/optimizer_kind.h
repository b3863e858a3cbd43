// The optimizers: the rows of kernels/optimizers.def, in their order.
#pragma once

#include <cstdint>

namespace gradloom::kernels {

enum class OptimizerKind : std::uint8_t {
#define OPTIMIZER(name, ...) name,
#include "kernels/optimizers.def"
#undef OPTIMIZER
};

}  // namespace gradloom::kernels
