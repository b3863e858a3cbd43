// A profile of ONNX Runtime (SessionOptions.enable_profiling) as a run: a call of the session ("model_run") is a step, a node's
// "_kernel_time", without that of the nodes inside it (a Loop's body), a kernel. Modules follow from the names of nodes, as in
// an imported model. Nodes that ONNX Runtime makes for a backward or an optimizer are told by their operators.
// Errors: Errc::bad_input without nodes in a step; Errc::limit.
#pragma once

#include "profiler/import/chrome_events.h"

namespace gradloom {

Result<ImportedTrace> import_onnxruntime(ChromeEvents& events);

}  // namespace gradloom
