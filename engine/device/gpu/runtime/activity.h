// Records of finished work from the vendor's profiling interface: CUPTI (cupti.cpp), HIP's activity callbacks
// (hip_activity.cpp). One recorder per process, not attached until the first start.
#pragma once

#include <cstddef>
#include <string>

#include "engine/device/gpu/plugin.h"
#include "engine/device/gpu/runtime/names.h"

namespace gradloom::kernels::gpu {

// Begins recording at `level`, or changes it. streams: of the context, to tell which is which. False with a
// reason in *error. The first time must come before begin_capture for kernels of graphs to have steps.
bool start_activity(GpuTraceLevel level, const GPU(Stream_t) (&streams)[GPU_STREAMS], std::string* error);
// Waits for what is under way; nothing is recorded until the next start. Finished activities stay readable.
void stop_activity();
// Work that this thread queues or records from now on belongs to `plan_step`.
void set_activity_step(int plan_step);
#if defined(GRADLOOM_HIP)
// The program that this thread is about to launch; null: none any more.
void note_program(hipFunction_t function);
#endif
// Moves at most `capacity` finished activities out, oldest first; flush:
// asks the vendor for those that it still holds.
std::size_t read_activity(bool flush, GpuActivity* activities, std::size_t capacity);

// "cupti 13.0"; "" when there is none.
std::string activity_version();

}  // namespace gradloom::kernels::gpu
