// The system's clocks.
#pragma once

#include <time.h>

#include <cstdint>

namespace gradloom::kernels {

inline std::int64_t now_ns(clockid_t clock = CLOCK_MONOTONIC) {
  timespec t{};
  return clock_gettime(clock, &t) == 0 ? std::int64_t{t.tv_sec} * 1000000000 + t.tv_nsec : 0;
}

}  // namespace gradloom::kernels
