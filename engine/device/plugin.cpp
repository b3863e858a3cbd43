#include "engine/device/plugin.h"

#include <dlfcn.h>

#include "engine/base/text.h"
#include "engine/device/gpu/abi.h"
#include "kernels/launcher.h"

namespace gradloom {
namespace {

const char* status_text(GpuStatus status) {
  switch (status) {
    case GPU_OK: return "ok";
    case GPU_NO_DRIVER: return "no usable driver";
    case GPU_NO_DEVICE: return "no device";
    case GPU_UNSUPPORTED: return "not supported";
    case GPU_OUT_OF_MEMORY: return "out of memory";
    case GPU_LAUNCH_FAILED: return "launch failed";
    case GPU_DEVICE_LOST: return "device lost";
    case GPU_NOT_READY: return "not ready";
    case GPU_FAILED: return "failed";
  }
  return "unknown status";
}

}  // namespace

Result<std::shared_ptr<const Plugin>> Plugin::load(const std::string& path) {
  std::shared_ptr<Plugin> plugin(new Plugin());
  plugin->path_ = path;
  plugin->library_ = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (plugin->library_ == nullptr) {
    const char* why = dlerror();
    return Error{Errc::device, "cannot load the plugin: " + escaped(why != nullptr ? why : path)};
  }
  const auto entry = reinterpret_cast<GpuPluginFn>(plugin->symbol(GRADLOOM_GPU_ENTRY));
  if (entry == nullptr)
    return Error{Errc::device, escaped(path) + " is not a Gradloom plugin (no " GRADLOOM_GPU_ENTRY ")"};
  plugin->table_ = entry(GRADLOOM_GPU_VERSION);
  const GpuPlugin* table = plugin->table_;
  if (table == nullptr || table->version != GRADLOOM_GPU_VERSION)
    return Error{Errc::device, escaped(path) + " has plugin version " +
                                   (table ? std::to_string(table->version) : "unknown") +
                                   ", this program needs " + std::to_string(GRADLOOM_GPU_VERSION)};
  if (table->struct_bytes != sizeof(GpuPlugin) || table->kernel_abi != kernels::gpu::kernel_abi())
    return Error{Errc::device,
                 escaped(path) + " was built from another version of the kernels: build it again"};
  return std::shared_ptr<const Plugin>(std::move(plugin));
}

Plugin::~Plugin() {
  if (library_ != nullptr) dlclose(library_);
}

void* Plugin::symbol(const char* name) const { return dlsym(library_, name); }

Error Plugin::error(GpuStatus status, const GpuContext* context, const std::string& what) const {
  const char* message = table_->message(context);
  const std::string detail = message != nullptr && *message != 0 ? escaped(message) : status_text(status);
  std::string text = what + ": " + detail;
  if (status == GPU_DEVICE_LOST) text += " (device lost: this process can use it no more)";
  return Error{Errc::device, text};
}

}  // namespace gradloom
