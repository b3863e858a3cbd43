// The tables of a run as CSV files, one behind each view of it, for spreadsheets and data frames. Times are in nanoseconds, sizes in bytes. What
// was not measured is an empty field; a loss may be nan, inf or -inf.
#pragma once

#include <string>
#include <vector>

#include "sessions/store.h"

namespace gradloom {

struct RunTable {
  std::string name;  // kernels, steps, evaluations, passes, matches, memory, exchanges
  std::string csv;   // with a head
  std::size_t rows = 0;
};
// All of them: what a run has none of has a head alone. `trace`: of the same run, for its exchanges.
std::vector<RunTable> run_tables(const RunRecord& run, const TraceDocument& trace);

}  // namespace gradloom
