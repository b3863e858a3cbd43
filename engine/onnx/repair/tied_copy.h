// The weight that a copy of it in the file was tied to.
#pragma once

#include <string>

namespace gradloom {

// An initializer of the file that is no parameter, but another one,
// as it is or transposed (merged_weights.h).
struct TiedCopy {
  std::string copy, original;
  bool transposed = false;
};

}  // namespace gradloom
