// The simplest valid memory planners, for engine tests (the real ones live in passes/, above the engine).
#pragma once

#include <algorithm>
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

// The lowest place that is free, request by request.
inline std::int64_t tightest(const std::vector<Request>& requests, std::vector<std::int64_t>& offsets) {
  std::int64_t end = 0;
  for (std::size_t i = 0; i < requests.size(); ++i) {
    offsets[i] = 0;
    for (bool moved = true; moved;) {
      moved = false;
      for (std::size_t k = 0; k < i; ++k) {
        const bool together = requests[i].first_step <= requests[k].last_step &&
                              requests[k].first_step <= requests[i].last_step;
        if (!together || offsets[i] >= offsets[k] + requests[k].bytes ||
            offsets[k] >= offsets[i] + requests[i].bytes)
          continue;
        offsets[i] = offsets[k] + requests[k].bytes;
        moved = true;
      }
    }
    end = std::max(end, offsets[i] + requests[i].bytes);
  }
  return end;
}

}  // namespace gradloom
