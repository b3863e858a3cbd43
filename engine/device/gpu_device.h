// A GPU behind a plugin as a Device.
#pragma once

#include <memory>
#include <string>

#include "engine/device/device.h"
#include "engine/device/plugin.h"

namespace gradloom {

// Device `index` of the plugin, shown as `id`. Errors (exit 6): no driver, no such device,
// unsupported architecture.
Result<std::unique_ptr<Device>> open_gpu_device(std::shared_ptr<const Plugin> plugin, int index,
                                                const std::string& id);
// Every device of the plugin, or one row that says why there is none. `prefix`: "cuda".
std::vector<DeviceInfo> list_gpu_devices(const Plugin& plugin, const std::string& prefix);
DeviceState gpu_state(const Plugin& plugin, int index);  // unknown where the plugin fails

}  // namespace gradloom
