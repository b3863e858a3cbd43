// A trace as an SQLite file with the tables that Nsight Systems exports (nsys export --type sqlite), for scripts that read
// these: StringIds, CUPTI_ACTIVITY_KIND_KERNEL, _MEMCPY, _MEMSET and _RUNTIME, NVTX_EVENTS, TARGET_INFO_GPU.
//
// A rank is a process and a device. Steps are NVTX ranges of the launching thread; inside them the ranges of phases, and inside these those of
// scopes, lie around the launches. Kernels of a recorded step have the correlation of the launch that started them all; kernels of a CPU
// have launches without duration. What the host of a recorded loop did, and exchanges, are ranges of threads of their own. Grids, blocks and registers were not
// measured: NULL. What read_nsys.h reads of it are the same kernels, durations, phases and modules.
#pragma once

#include <string>

#include "profiler/trace.h"

namespace gradloom {

// Whole or not at all; made in memory. Errors: Errc::io, Errc::limit.
Status write_nsys_export(const TraceDocument& document, const std::string& path);

}  // namespace gradloom
