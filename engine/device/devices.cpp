// Which devices there are. GPU kinds are listed with the reason why they cannot be used.
#include "engine/base/text.h"
#include "engine/device/device.h"

namespace gradloom {
namespace {

struct PluginKind {
  const char* prefix;
  const char* why_not;
};
constexpr PluginKind kPlugins[] = {
    {"cuda", "this build has no CUDA plugin"},
    {"hip", "this build has no HIP plugin"},
};

}  // namespace

Result<std::unique_ptr<Device>> open_device(const std::string& id) {
  if (id == "cpu") return make_cpu_device();
  for (const PluginKind& kind : kPlugins)
    if (id.rfind(kind.prefix, 0) == 0) return Error{Errc::device, "device '" + escaped(id) + "' cannot be used: " + kind.why_not};
  return Error{Errc::usage, "unknown device '" + escaped(id) + "' (known: cpu, cuda:N, hip:N)"};
}

std::vector<DeviceInfo> list_devices() {
  std::vector<DeviceInfo> devices{make_cpu_device()->info()};
  for (const PluginKind& kind : kPlugins) {
    DeviceInfo info;
    info.id = std::string(kind.prefix) + ":0";
    info.why_not = kind.why_not;
    devices.push_back(std::move(info));
  }
  return devices;
}

}  // namespace gradloom
