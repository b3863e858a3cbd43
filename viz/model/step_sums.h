// What one step is made of, told in a few lines: its phases, the operators that take most of it, the longest kernels.
#pragma once

#include <cstdint>
#include <vector>

#include "sessions/store.h"
#include "viz/model/kernel_table.h"

namespace gradloom {

struct StepSums {
  bool timed = false;  // else operators are ordered by the bytes they move, and there are no longest kernels
  std::int64_t kernels = 0;  // per step
  double time_ns = 0;        // per optimizer step, all of them
  // In the order of the step; then the heaviest first, all operators and kLongest kernels.
  std::vector<KernelLine> phases, operators, longest;
};
inline constexpr std::size_t kLongest = 3;

StepSums step_sums(std::vector<KernelRow> rows);

}  // namespace gradloom
