// What the record of a run's machine says.
#pragma once

#include <string>

#include "sessions/store.h"

namespace gradloom {

// "threads", "hardware", "gpu.name", ..; empty: the run does not tell.
inline std::string environment_row(const RunRecord& run, const char* name) {
  const auto at = run.environment.find(name);
  return at == run.environment.end() ? "" : at->second;
}

}  // namespace gradloom
