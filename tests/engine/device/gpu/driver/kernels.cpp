#include "tests/engine/device/gpu/driver/kernels.h"

#include <new>

#include "engine/device/gpu/host/executor.h"
#include "engine/device/gpu/host/symbols.h"

namespace gradloom::strict {

namespace host = kernels::gpu::host;

class KeptKernel {
 public:
  explicit KeptKernel(const host::Launch& launch)
      : launch_(launch), name_(host::kernel_symbol(launch.kernel).name) {}
  const host::Launch& get() const { return launch_.get(); }
  const std::string& name() const { return name_; }

 private:
  host::KeptLaunch launch_;
  std::string name_;
};

const std::string& name_of(const KeptKernel& kernel) { return kernel.name(); }

std::optional<std::string> launch_fault(const KeptKernel& kernel) {
  const auto fault = host::check(kernel.get());
  return fault ? std::optional(fault->text) : std::nullopt;
}

std::optional<std::string> run(const KeptKernel& kernel) {
  const auto fault = host::run(kernel.get(), {});
  return fault ? std::optional(fault->text) : std::nullopt;
}

KernelPtr keep_program(void (*entry)(const void*), ThreeDims grid, ThreeDims block, std::size_t shared_bytes,
                       const void* params, std::size_t bytes) {
  return std::make_shared<KeptKernel>(host::Launch{reinterpret_cast<const void*>(entry),
                                                   {grid.x, grid.y, grid.z},
                                                   {block.x, block.y, block.z},
                                                   shared_bytes,
                                                   entry,
                                                   params,
                                                   bytes});
}

LaunchDoor::LaunchDoor() : queue{} {
  static_assert(sizeof(host::Queue) == sizeof queue);
  new (queue) host::Queue{[](host::Queue* door, const host::Launch& taken) {
    launch(reinterpret_cast<CUstream_st*>(door), std::make_shared<KeptKernel>(taken));
  }};
}

}  // namespace gradloom::strict
