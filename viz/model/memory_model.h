// The memory view's data: the arena over the step as rectangles (offset x lifetime), the live bytes, the peak
// and who is live there. From a plan, or from the buffers a run recorded.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "engine/ir/graph.h"
#include "engine/plan/plan.h"
#include "sessions/store.h"
#include "viz/model/memory_findings.h"

namespace gradloom {

struct MemoryBlock {
  std::string name;  // first value that has all of it
  std::string node;  // the producer of what is first in it, to go to it; empty when unknown
  std::vector<std::string> values;
  std::vector<std::string> parts;  // what lies where in it: "q: bytes 0 to 4095"; of a plan
  int64_t offset = 0, bytes = 0;
  int32_t first_step = 0, last_step = 0;
  Phase phase = Phase::forward;  // of the producer
  bool workspace = false;        // scratch of one kernel
};

struct MemoryModel {
  std::vector<MemoryBlock> blocks;      // arena only, by offset
  std::vector<int64_t> live;            // bytes per step
  std::vector<std::string> step_names;  // node per step; may be empty
  std::vector<int32_t> live_at_peak;    // indices in blocks, largest first
  int32_t peak_step = 0;
  std::vector<MemoryFinding> findings;  // of a plan: what could leave the peak; largest first
  int64_t arena_bytes = 0, state_bytes = 0, input_bytes = 0, constant_bytes = 0, lower_bound_bytes = 0;
  int64_t host_bytes = 0;           // pinned, for what waits outside the device: no part of the total
  int64_t measured_peak_bytes = 0;  // 0: not measured
  std::string planner;
  int64_t total_bytes() const { return arena_bytes + state_bytes + input_bytes + constant_bytes; }
  double waste() const {  // share of the arena above the lower bound
    return arena_bytes > 0 ? 1 - static_cast<double>(lower_bound_bytes) / static_cast<double>(arena_bytes)
                           : 0;
  }
  std::vector<int32_t> live_at(int32_t step) const;  // largest first
  int32_t find(const std::string& value) const;      // block that holds a value, -1
};

// `step_ns`: as find_memory takes it.
MemoryModel build_memory_model(const Graph& graph, const Plan& plan, const std::vector<double>& step_ns = {});
MemoryModel build_memory_model(const RunRecord& run);
// Bytes that are live at the peak, by the node that made them; workspace is its kernel's.
std::map<std::string, int64_t> held_at_peak(const MemoryModel& memory);

// One of the choices that a memory budget has: what recompute can do for a step.
struct BudgetPoint {
  int64_t peak_bytes = 0;
  double extra = 0;    // time of what runs again, as a part of a step's
  double step_ns = 0;  // of a step's kernels; 0: no times are known
  size_t again = 0;    // nodes that run again
};

}  // namespace gradloom
