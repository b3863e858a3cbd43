// Weights that an exporter computed from a module's parameters when it wrote the file: does a step change them as it
// would change what they were computed from?
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "engine/base/result.h"
#include "engine/base/tensor.h"
#include "engine/onnx/repair/initializers.h"

namespace gradloom {

struct ComputedInGraph {
  const ComputedParameter& parameter;
  Tensor contents;  // may be in a file: read only where the names of its steps do not decide
};

// Why computed[i] would train apart from what it was computed from; empty: it holds each of their numbers at most once,
// no other weight holds these too, and optimizers look at each number by itself. `remains`: is a parameter of this name
// in the file? Errc::io: the file has changed.
Result<std::string> why_apart(const std::vector<ComputedInGraph>& computed, std::size_t i,
                              const std::function<bool(const std::string&)>& remains);

}  // namespace gradloom
