// What the memory of a training process is for: its peak (VmHWM) beside the planned one, the difference item by item.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "app/output.h"
#include "engine/plan/plan.h"

namespace gradloom {

struct MemoryItem {
  std::string name, text;  // "kernels", "kernels' objects"
  std::int64_t bytes = 0;
};

// What was resident as the process began, when its plan was made, and when all that runs it existed (process_bytes).
struct ProcessMarks {
  std::int64_t begun = 0, compiled = 0, created = 0;
};

// Items that add up to `peak` bytes: the program, the model with what compiling left, the plan's memory, what kernels keep beside it (the
// library's objects and code), and the rest: batches, copies of states, samples. The rest may be less than 0: pages of the plan that nothing touched.
// `on_host`: the plan's memory is the process's own, not a GPU's.
std::vector<MemoryItem> process_memory(const ProcessMarks& marks, std::int64_t peak, const Plan& plan,
                                       bool on_host);

// "process   212 MiB at its peak: 31.2 MiB program and libraries, ..".
std::string process_memory_text(const std::vector<MemoryItem>& items);
Json process_memory_json(const std::vector<MemoryItem>& items);

}  // namespace gradloom
