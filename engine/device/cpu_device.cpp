// The CPU as a Device: host memory and the kernels of engine/ops.
// Work has run when it is queued; nothing to wait for.
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <map>

#include "engine/base/memory.h"
#include "engine/base/text.h"
#include "engine/device/device.h"
#include "engine/ops/kernel_failed.h"
#include "kernels/cpu.h"
#include "kernels/launcher.h"

namespace gradloom {
namespace {

std::string cpu_model() {
  std::ifstream file("/proc/cpuinfo");
  std::string line;
  while (std::getline(file, line))
    if (line.rfind("model name", 0) == 0) return line.substr(line.find(':') + 2);
  return "unknown CPU";
}

class CpuPrepared final : public PreparedKernel {
 public:
  explicit CpuPrepared(Kernel kernel) : kernel_(std::move(kernel)) {}
  const std::string& name() const override { return kernel_.name; }
  std::size_t workspace_bytes() const override { return kernel_.workspace_bytes; }
  void run(const Operands& o) const {
    kernel_.run({o.inputs, o.outputs, o.workspace, o.random, kernels::cpu_launcher()});
  }

 private:
  Kernel kernel_;
};

class CpuDevice final : public Device {
 public:
  ~CpuDevice() override {
    for (const auto& [memory, bytes] : live_) std::free(memory);
  }

  DeviceInfo info() const override {
    DeviceInfo info;
    info.id = "cpu";
    info.name = cpu_model() + " (kernels: x86-64-" + kernels::cpu().isa + ")";
    info.available = true;
    info.memory_bytes = usable_memory_bytes();
    info.free_bytes = std::min(info.memory_bytes,
                               static_cast<std::int64_t>(sysconf(_SC_AVPHYS_PAGES)) * sysconf(_SC_PAGESIZE));
    info.threads = kernels::threads();
    return info;
  }

  Result<void*> allocate(std::size_t bytes, Memory) override {
    constexpr std::size_t kHugePage = 2u << 20;
    const bool huge = bytes >= 2 * kHugePage;
    const std::size_t alignment = huge ? kHugePage : 64;
    const std::size_t rounded = std::max(alignment, (bytes + alignment - 1) / alignment * alignment);
    void* memory = std::aligned_alloc(alignment, rounded);
    if (memory == nullptr)
      return Error{Errc::device, "out of memory: " + std::to_string(bytes) + " bytes were asked for"};
    if (huge) madvise(memory, rounded, MADV_HUGEPAGE);
    live_[memory] = bytes;
    live_bytes_ += static_cast<std::int64_t>(bytes);
    peak_bytes_ = std::max(peak_bytes_, live_bytes_);
    return memory;
  }

  void release(void* memory) override {
    const auto it = live_.find(memory);
    if (it == live_.end()) return;
    live_bytes_ -= static_cast<std::int64_t>(it->second);
    live_.erase(it);
    std::free(memory);
  }

  Status copy(Queue, void* target, const void* source, std::size_t bytes) override {
    if (bytes > 0) std::memcpy(target, source, bytes);  // tensors without elements have no address
    return {};
  }

  Result<std::vector<std::unique_ptr<PreparedKernel>>> prepare(
      const std::vector<KernelRequest>& requests) override {
    std::vector<std::unique_ptr<PreparedKernel>> prepared;
    for (const KernelRequest& r : requests) {
      const std::string where = "node '" + escaped(r.node) + "'";
      if (r.op->cpu == nullptr) return Error{Errc::device, where + ": " + r.op->name + " has no CPU kernel"};
      auto kernel = prepare_kernel(*r.op, r.types);
      if (!kernel) return with_context(kernel.error(), where);
      prepared.push_back(std::make_unique<CpuPrepared>(std::move(kernel).value()));
    }
    return prepared;
  }

  Status launch(const PreparedKernel& kernel, const Operands& operands, std::int32_t) override {
    try {
      static_cast<const CpuPrepared&>(kernel).run(operands);
    } catch (const KernelFailed& failed) {
      return failed.error;
    }
    return {};
  }

  Status order(Queue, Queue) override { return {}; }
  Result<Fence> fence() override { return monotonic_ns(); }
  Result<std::int64_t> wait(Fence fence) override { return fence; }
  Result<std::unique_ptr<Recording>> record(const std::function<Status()>&) override {
    return std::unique_ptr<Recording>();
  }
  Result<bool> trace(bool) override { return false; }
  Result<std::vector<Activity>> collect_trace() override { return std::vector<Activity>(); }
  std::int64_t peak_bytes() const override { return peak_bytes_; }

 private:
  std::map<void*, std::size_t> live_;
  std::int64_t live_bytes_ = 0, peak_bytes_ = 0;
};

}  // namespace

std::unique_ptr<Device> make_cpu_device() { return std::make_unique<CpuDevice>(); }

}  // namespace gradloom
