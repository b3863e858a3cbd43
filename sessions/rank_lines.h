// What there is to say of the ranks of a run beside their table.
#pragma once

#include <string>
#include <vector>

#include "sessions/store.h"

namespace gradloom {

// How they add, who is slowest, and what of their machines differs (rank_rows.h); one line each.
std::vector<std::string> rank_lines(const RunRecord& run);

}  // namespace gradloom
