// The list of devices with their properties: the part of the plugin that needs no context.
#pragma once

#include "engine/device/gpu/runtime/context.h"

namespace gradloom::kernels::gpu {

GpuStatus count_devices(int32_t* count);
GpuStatus describe_device(int32_t index, GpuDescription* description);
GpuStatus device_environment(int32_t index, GpuEnvironment* environment);
// Architecture as compilers name it, when this plugin has code for it.
GpuStatus supported_architecture(int32_t index, std::string* architecture);

}  // namespace gradloom::kernels::gpu
