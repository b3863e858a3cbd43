// What could leave the arena's peak: buffers that nobody uses there. From a plan alone.
//
//   kept for one reader  the last use lies before the peak, and one step after it reads the value once more, in training mostly its
//                        part of the backward pass. Where the step that made it has all its inputs when that reader runs, running
//                        it again there (recompute) is all that it takes.
//   freed late           the steps behind the peak that use it have all they need before it: run there, they free the buffer, and
//                        what they make is smaller than it.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "engine/ir/graph.h"
#include "engine/plan/plan.h"

namespace gradloom {

struct MemoryFinding {
  enum Kind : std::uint8_t { freed_late, kept_for_one_reader } kind = kept_for_one_reader;
  std::string value, node;    // what is read late, and the node that made it
  std::string reader;         // node that uses it last
  std::int64_t bytes = 0;     // that would leave the peak's step: the buffer, less what takes its place
  std::int32_t last_use = 0;  // step before the peak
  std::int32_t read_step = 0;
  std::int32_t could_step = 0;  // freed late: before which step the readers could all have run
  // Kept for one reader: whether what made it can run again then, and what that takes, as a part of a step's cost.
  bool can_run_again = false;
  double again = 0;
};
const char* memory_finding_name(MemoryFinding::Kind kind);  // "kept for one reader"

// Largest first. `step_ns`: what steps take, by plan step; empty: the longer of their FLOPs and their bytes, as
// recompute guesses.
std::vector<MemoryFinding> find_memory(const Graph& graph, const Plan& plan,
                                       const std::vector<double>& step_ns = {});
// "kept over 120 steps for one reader, backward of /attn; making it again costs 0.2 % of a step"
std::string memory_finding_text(const MemoryFinding& finding);

}  // namespace gradloom
