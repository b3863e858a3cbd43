// Thrown by the few kernels that can fail: calls of the caller's functions, exchanges between ranks. What launches them makes
// an Error of it, which ends the step.
#pragma once

#include <utility>

#include "engine/base/result.h"

namespace gradloom {

struct KernelFailed {
  Error error;
};

}  // namespace gradloom
