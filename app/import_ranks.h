// Traces of the ranks of one job (a folder of them, as HolisticTraceAnalysis reads it) as one run: rank 0's steps and kernels, and
// what the other ranks did in the same steps.
//
// Steps are the same where the profiler numbered them so, else by their order; those that a rank lacks are left out. A kernel of
// a rank is rank 0's of the same name, module, phase and operands, or one more. The k-th execution of a kernel of NCCL in a step is
// one exchange for all ranks: it begins when a rank is ready, and until the last has begun the others wait. As it ends on all of
// them nearly together, the median difference of these ends is that of the ranks' clocks; without exchanges the first common step
// begins at the same time on all.
#pragma once

#include <string>
#include <vector>

#include "profiler/import/imported_trace.h"
#include "sessions/rank_rows.h"

namespace gradloom {

struct ImportedRanks {
  ImportedTrace trace;  // rank 0's, with the kernels of all
  std::vector<RankRow> ranks;
  std::vector<RankStep> steps;  // by step of `trace`
};

// The traces by rank. REQUIRES two at least. Errors: Errc::bad_input: no step is in all of them; Errc::limit.
Result<ImportedRanks> merge_ranks(std::vector<ImportedTrace> traces);

// Of a trace, as its facts or environment tell; 0 ranks: it is none of several.
struct TraceRankPlace {
  std::int64_t rank = 0, ranks = 0;
};
TraceRankPlace rank_of_trace(const std::map<std::string, std::string>& facts);

}  // namespace gradloom
