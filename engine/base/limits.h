// What a file from a stranger may ask of us: counts, depths, bytes and work. `gradloom inspect --limits` prints
// them, --import-limit NAME=N changes one, a recipe cannot.
#pragma once

#include <cstdint>
#include <span>
#include <string>

#include "engine/base/result.h"

namespace gradloom {

struct Limits {
  std::int64_t file_bytes = (std::int64_t{1} << 31) - 1;
  std::int64_t nodes = 1'000'000;
  std::int64_t nesting = 32;
  std::int64_t rank = 32;
  std::int64_t name_bytes = 4096;
  std::int64_t expanded_nodes = 100'000;     // made by inlining functions, and by unrolling loops
  std::int64_t expanded_bytes = 64 << 20;    // of what inlining makes, as it would stand in a file
  std::int64_t folded_bytes = 64 << 20;      // largest constant-folded output; all of them: twice that
  std::int64_t folded_work = 2'000'000'000;  // operations and bytes of all folding
  // Of constants that inference looks at one by one, over all nodes.
  std::int64_t examined_elements = 50'000'000;
};

// Each of them by name, for --import-limit NAME=N and `gradloom inspect --limits`.
struct LimitField {
  const char* name;
  std::int64_t Limits::*value;
};
std::span<const LimitField> limit_fields();
// Unknown names and numbers below 1 are errors.
Status set_limit(Limits& limits, const std::string& name, std::int64_t value);
// What the message of an exceeded limit ends with: " (--import-limit nodes=N raises the limit)".
std::string raised_by(const char* name);

}  // namespace gradloom
