// NVIDIA's management library (libnvidia-ml.so.1, part of the driver), opened at run time: clocks,
// temperature, power, who else uses the device. Plain C++; the toolkit here has no nvml.h, so the few
// functions are declared in nvml.cpp after its public documentation.
#pragma once

#include <string>

#include "engine/device/gpu/plugin.h"

namespace gradloom::kernels::gpu {

// uuid: "GPU-01234567-…". False, with nothing written, when the library or the device is not there.
bool nvml_environment(const char* uuid, GpuEnvironment* environment);
bool nvml_memory(const char* uuid, long long* total_bytes, long long* free_bytes);
std::string nvml_driver_version();  // "580.65.06"; "" when unknown

}  // namespace gradloom::kernels::gpu
