// The order of a comparison's rows by one of its columns.
#pragma once

#include <cstdint>
#include <vector>

#include "sessions/compare.h"

namespace gradloom {

enum class CompareColumn : uint8_t { kName, kPhase, kA, kB, kChange, kKernels, kP };

// Indices of `rows`. Equal rows stay as they are (largest change first); a side that has no kernels comes
// last in either direction; the change is ordered with its sign, so that one end is what B gained and the
// other what it lost.
std::vector<int32_t> order_of_rows(const std::vector<ComparedRow>& rows, CompareColumn by, bool descending);

}  // namespace gradloom
