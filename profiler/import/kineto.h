// A trace of PyTorch's profiler as a run: what of its operators and kernels belongs to which step, phase and module.
//
// Steps are the spans "ProfilerStep#N", else the whole trace is one. A kernel of a GPU belongs to the operator that launched it,
// by the correlation of the launch. Without GPU kernels the operators' own times are the kernels. Backward is what autograd's
// engine does, the optimizer what its steps do and what follows the last backward (clipping, loss scaling); the rest is forward.
// Errors: Errc::bad_input when it has neither operators nor kernels in a step; Errc::limit.
#pragma once

#include "profiler/import/chrome_events.h"

namespace gradloom {

Result<ImportedTrace> import_kineto(ChromeEvents& events);

}  // namespace gradloom
