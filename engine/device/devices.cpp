// Which devices there are: the CPU and those of the plugins, each with the reason why it cannot be used.
#include <charconv>
#include <cstdlib>

#include "engine/base/plugins.h"
#include "engine/base/text.h"
#include "engine/device/gpu_device.h"

namespace gradloom {
namespace {

struct PluginKind {
  const char* prefix;  // of device ids
  const char* plugin;  // libgradloom_<plugin>.so
  bool numbered;       // "cuda:0"
};
constexpr PluginKind kPlugins[] = {
    {"cuda", "cuda", true}, {"hip", "hip", true}, {"host-gpu", "hostgpu", false}};

struct PluginDevice {
  const PluginKind* kind;
  int index;
};

// "cuda:1" -> {cuda, 1}; "cuda" is "cuda:0".
Result<PluginDevice> parse(const std::string& id) {
  for (const PluginKind& kind : kPlugins) {
    const std::string prefix = kind.prefix;
    if (id == prefix) return PluginDevice{&kind, 0};
    if (!kind.numbered || id.rfind(prefix + ":", 0) != 0) continue;
    int index = -1;
    const char* const end = id.data() + id.size();
    const auto [stop, code] = std::from_chars(id.data() + prefix.size() + 1, end, index);
    if (code == std::errc() && stop == end && index >= 0 && index < 1024) return PluginDevice{&kind, index};
  }
  return Error{Errc::usage, "unknown device '" + escaped(id) + "' (known: cpu, cuda:N, hip:N, host-gpu)"};
}

}  // namespace

Result<kernels::Target> device_target(const std::string& id) {
  if (id == "cpu") return kernels::Target::cpu;
  TRY(parse(id));
  return kernels::Target::gpu;
}

bool device_has_dnn_library(const std::string& id) {
  const auto wanted = parse(id);
  if (!wanted || std::string(wanted->kind->prefix) != "cuda") return false;
  const char* const set = std::getenv("GRADLOOM_CUDNN");
  if (set != nullptr && std::string(set) == "0") return false;
  const auto path = find_plugin(wanted->kind->plugin);
  const auto plugin = path ? Plugin::load(*path) : Result<std::shared_ptr<const Plugin>>(path.error());
  return !plugin || (*plugin)->table().has_dnn_library() != 0;
}

Result<std::unique_ptr<Device>> open_device(const std::string& id) {
  if (id == "cpu") return make_cpu_device();
  const PluginDevice wanted = TRY(parse(id));
  const std::string refused = "device '" + id + "' cannot be used";
  const auto path = find_plugin(wanted.kind->plugin);
  if (!path) return with_context(path.error(), refused);
  auto plugin = Plugin::load(*path);
  if (!plugin) return with_context(plugin.error(), refused);
  auto device = open_gpu_device(std::move(plugin).value(), wanted.index, id);
  if (!device) return with_context(device.error(), refused);
  return std::move(device).value();
}

DeviceState device_state(const std::string& id) {
  const auto wanted = id == "cpu" ? Result<PluginDevice>(Error{Errc::device, "no plugin"}) : parse(id);
  const auto path = wanted ? find_plugin(wanted->kind->plugin) : Result<std::string>(wanted.error());
  const auto plugin = path ? Plugin::load(*path) : Result<std::shared_ptr<const Plugin>>(path.error());
  return plugin ? gpu_state(**plugin, wanted->index) : DeviceState();
}

std::vector<DeviceInfo> list_devices() {
  std::vector<DeviceInfo> devices{make_cpu_device()->info()};
  for (const PluginKind& kind : kPlugins) {
    const auto path = find_plugin(kind.plugin);
    if (!path && !kind.numbered) continue;  // only tests have it
    const auto plugin = path ? Plugin::load(*path) : Result<std::shared_ptr<const Plugin>>(path.error());
    if (plugin) {
      for (DeviceInfo& info : list_gpu_devices(**plugin, kind.prefix)) {
        if (!kind.numbered) info.id = kind.prefix;
        devices.push_back(std::move(info));
      }
    } else {
      DeviceInfo info;
      info.id = kind.numbered ? std::string(kind.prefix) + ":0" : kind.prefix;
      info.why_not = plugin.error().message;
      devices.push_back(std::move(info));
    }
  }
  return devices;
}

// ---- helpers of every device ----------------------------------------------------------------------------------------------------

Status Device::upload(void* target, const void* source, std::size_t bytes) {
  TRY(copy(Queue::compute, target, source, bytes));
  return synchronize();
}

Status Device::download(void* target, const void* source, std::size_t bytes) {
  TRY(copy(Queue::compute, target, source, bytes));
  return synchronize();
}

Status Device::synchronize() {
  TRY(wait(TRY(fence())));
  return {};
}

}  // namespace gradloom
