// What the host plugin was asked to do, in the order of the calls: for tests of order (does every reader wait
// for its writer?). Exported by libgradloom_hostgpu.so next to the table of plugin.h. Operations of a graph
// come when it runs, not when it is recorded.
#pragma once

#include "engine/device/gpu/plugin.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef enum HostGpuOperation {
  HOST_GPU_KERNEL = 0,
  HOST_GPU_COPY = 1,
  HOST_GPU_FILL = 2,
  HOST_GPU_RECORD_EVENT = 3,
  HOST_GPU_WAIT_EVENT = 4,         // the stream waits
  HOST_GPU_SYNCHRONIZE_EVENT = 5,  // the host waits; stream -1
  HOST_GPU_SYNCHRONIZE = 6,        // the host waits for everything; stream -1
  HOST_GPU_CALL = 7,               // of a function of the host
} HostGpuOperation;

typedef struct HostGpuRecord {
  int32_t operation, stream, event,
      plan_step;                // event -1 where there is none; plan_step as marked when queued or recorded
  int32_t in_graph;             // 1: by run_graph
  const void *target, *source;  // of copies and fills
  uint64_t bytes;
  char name[96];  // of kernels
} HostGpuRecord;

// Hands over the oldest records, at most `capacity`, and forgets them. context: null for the one opened last.
// The latest 65536 are kept.
typedef GpuStatus (*HostGpuRecordingFn)(GpuContext*, HostGpuRecord* records, int32_t capacity,
                                        int32_t* count);
#define GRADLOOM_HOST_GPU_RECORDING "gradloom_hostgpu_recording"

#ifdef __cplusplus
}
#endif
