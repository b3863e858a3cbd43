// Loading of GPU plugins (engine/device/gpu/plugin.h). A plugin that is missing, foreign, of another version or
// without a driver gives a reason, never a failure to start.
#pragma once

#include <memory>
#include <string>

#include "engine/base/result.h"
#include "engine/device/gpu/plugin.h"

namespace gradloom {

// A loaded shared library with its table; unloaded with the last owner.
class Plugin {
 public:
  // `path`: the library. Errors (exit 6): cannot be opened, no entry, version,
  // size or kernel list of another build.
  static Result<std::shared_ptr<const Plugin>> load(const std::string& path);
  ~Plugin();
  const GpuPlugin& table() const { return *table_; }
  const std::string& path() const { return path_; }
  void* symbol(const char* name) const;  // further exports (the host executor's recording), or null
  // Turns a status of this plugin into an Error with its message: "cuda:0:
  // allocating 3.0 GiB: out of memory".
  Error error(GpuStatus status, const GpuContext* context, const std::string& what) const;

 private:
  Plugin() = default;
  std::string path_;
  void* library_ = nullptr;
  const GpuPlugin* table_ = nullptr;
};

}  // namespace gradloom
