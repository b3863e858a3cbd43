// Who holds memory at the peak of a plan, until when and for whom, and what could leave it: `plan --memory`, `show --memory`.
#pragma once

#include <string>

#include "app/output.h"
#include "viz/model/memory_model.h"

namespace gradloom {

Json memory_json(const MemoryModel& memory);
// `most`: rows of each table; what is left out is counted. `findings`: what could leave the peak; a recorded run does not tell it.
std::string memory_report_text(const MemoryModel& memory, std::size_t most, bool findings = true);

}  // namespace gradloom
