// The kernels of a plan on a device.
#pragma once

#include <memory>
#include <vector>

#include "engine/device/device.h"
#include "engine/plan/plan.h"

namespace gradloom {

// One per step. Errors: the device's; Errc::bug where a kernel wants more workspace than the plan has for it.
Result<std::vector<std::unique_ptr<PreparedKernel>>> prepared_kernels(const Graph& graph, const Plan& plan,
                                                                      Device& device);

}  // namespace gradloom
