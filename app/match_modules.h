// The modules of an imported trace under the names that they have in a model, so that runs of both compare by module.
//
// Paths are the same when they are the same attribute path: "blocks.0/attn", "blocks.0.attn" and, as exporters write
// Sequentials, "blocks/blocks.0/attn". One module around all of a trace, or of the model ("model", "Net_0"), may be missing on the other
// side. Where few names agree, as with the classes in traces with stacks ("Net_0/Block_1/Linear_3"), modules are the same by
// their place: the modules inside one that is known, in the order in which they run, if there are equally many.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "profiler/import/imported_trace.h"

namespace gradloom {

struct ModuleMatch {
  std::int64_t matched = 0, all = 0;  // modules with kernels of the trace
  std::vector<std::string> others;    // that the model lacks
};
// `scopes`: of the model's nodes, in their order. Renames what is found in `trace`.
ModuleMatch match_modules(ImportedTrace& trace, const std::vector<std::string>& scopes);

}  // namespace gradloom
