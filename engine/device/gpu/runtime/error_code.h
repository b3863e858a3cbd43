// Error numbers of the CUDA runtime, which the driver and HIP share, as statuses of plugin.h. Plain C++.
#pragma once

#include "engine/device/gpu/plugin.h"

namespace gradloom::kernels::gpu {

GpuStatus status_of(int error);

}  // namespace gradloom::kernels::gpu
