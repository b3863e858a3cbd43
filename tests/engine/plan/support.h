// The simplest valid memory planner, for engine tests (the real ones live in passes/, above the engine).
#pragma once

#include <vector>

#include "engine/plan/plan.h"

namespace gradloom {

// Every request its own place: valid for any lifetimes.
inline std::int64_t stack_all(const std::vector<Request>& requests, std::vector<std::int64_t>& offsets) {
  std::int64_t end = 0;
  for (std::size_t i = 0; i < requests.size(); ++i) {
    offsets[i] = end;
    end += requests[i].bytes;
  }
  return end;
}

}  // namespace gradloom
