// What lists of runs say of one: with --json, and of what a person said of it.
#pragma once

#include <string>

#include "app/output.h"
#include "sessions/store.h"

namespace gradloom {

Json run_summary_json(const RunSummary& run);
// Of the whole peak: what cannot be shared (states, inputs, constants) and the arena's bound.
std::int64_t lower_bound_bytes(const RunSummary& run);
// "pinned, tagged base, gpu, noted: warm machine"; empty when nothing was said. Escaped.
std::string run_annotation_text(const RunSummary& run);

}  // namespace gradloom
