// Memory of another program for parameters and statistics of its job: they are read and updated where they lie, and the job keeps none
// of its own for them.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "engine/device/device.h"
#include "engine/plan/plan.h"
#include "engine/run/blocks.h"

namespace gradloom {

struct CallerMemory {
  struct Place {
    std::string name;  // of a parameter or running statistic
    std::byte* data = nullptr;
    std::size_t bytes = 0;
  };
  std::vector<Place> places;
  // What stands there is what the training begins with; false: the contents of the model, checkpoint or file are written there.
  bool has_contents = true;
};

// Where the plan's parameters and statistics lie; places of other names, and of what no kernel reads, are left alone. Errors:
// Errc::usage: a name that comes twice, another size than the plan's, an address that is missing or misaligned for its elements, memory
// that overlaps, a device that is not the CPU.
Result<LentMemory> lent_memory(const CallerMemory& memory, const Graph& graph, const Plan& plan,
                               const DeviceInfo& device);

}  // namespace gradloom
