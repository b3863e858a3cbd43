// Compiled programs: source -> device code (run-time compiler or cache) -> loaded functions.
#pragma once

#include <vector>

#include "engine/device/gpu/runtime/context.h"

namespace gradloom::kernels::gpu {

GpuStatus compile_module(GpuContext* context, const char* source, const char* const* entries, int count,
                         const char* cache_folder, GpuModule** module);
void unload_module(GpuContext* context, GpuModule* module);
GpuStatus launch_program(GpuContext* context, int stream, GpuModule* module, int index, GpuDim grid,
                         GpuDim block, const void* params);

// "nvrtc 13.0"; "" when there is none.
std::string compiler_version();

}  // namespace gradloom::kernels::gpu
