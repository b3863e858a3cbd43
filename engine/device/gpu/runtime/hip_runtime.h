// What differs between the HIP runtimes of ROCm 5, 6 and 7, of which one is opened when the plugin is loaded (hip_runtime.cpp).
#pragma once

#include <hip/hip_runtime.h>

#include <cstddef>
#include <string>

namespace gradloom::kernels::gpu {

// What is read of a device, of two layouts in memory: hipDeviceProp_t, which ROCm 6 replaced by hipDeviceProp_tR0600.
struct HipProperties {
  char name[256];
  char gcnArchName[256];  // "gfx90a:sramecc+:xnack-"
  std::size_t totalGlobalMem, sharedMemPerBlock;
  int warpSize, multiProcessorCount;
};
hipError_t device_properties(HipProperties* properties, int device);

// A function that not all of them have; null: the one that was opened has none of that name.
void* optional_hip_function(const char* name);

// "": a runtime was found; else what was looked for.
std::string missing_runtime();

}  // namespace gradloom::kernels::gpu
