// The CPU as a Device: host memory and the kernels of engine/ops. One stream; launches run at once.
#include <sys/mman.h>
#include <unistd.h>

#include <cstdlib>
#include <cstring>
#include <fstream>
#include <map>
#include <mutex>

#include "engine/device/device.h"
#include "kernels/cpu.h"

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
  explicit CpuPrepared(CpuKernel kernel) : kernel_(std::move(kernel)) {}
  const std::string& name() const override { return kernel_.name; }
  std::size_t workspace_bytes() const override { return kernel_.workspace_bytes; }
  void run(const LaunchArgs& args) const { kernel_.run(args); }

 private:
  CpuKernel kernel_;
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
    info.memory_bytes = static_cast<std::int64_t>(sysconf(_SC_PHYS_PAGES)) * sysconf(_SC_PAGESIZE);
    info.free_bytes = static_cast<std::int64_t>(sysconf(_SC_AVPHYS_PAGES)) * sysconf(_SC_PAGESIZE);
    info.threads = kernels::threads();
    return info;
  }

  Result<void*> allocate(std::size_t bytes) override {
    constexpr std::size_t kHugePage = 2u << 20;
    const bool huge = bytes >= 2 * kHugePage;
    const std::size_t alignment = huge ? kHugePage : 64;
    const std::size_t rounded = std::max(alignment, (bytes + alignment - 1) / alignment * alignment);
    void* memory = std::aligned_alloc(alignment, rounded);
    if (memory == nullptr) return Error{Errc::device, "out of memory: " + std::to_string(bytes) + " bytes were asked for"};
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

  Status upload(void* target, const void* source, std::size_t bytes) override {
    std::memcpy(target, source, bytes);
    return {};
  }
  Status download(void* target, const void* source, std::size_t bytes) override {
    std::memcpy(target, source, bytes);
    return {};
  }

  Result<std::unique_ptr<PreparedKernel>> prepare(const OpDef& op, const NodeTypes& types) override {
    if (op.cpu == nullptr) return Error{Errc::device, std::string(op.name) + " has no CPU kernel"};
    return std::unique_ptr<PreparedKernel>(new CpuPrepared(TRY(op.cpu(types))));
  }

  Status launch(const PreparedKernel& kernel, const LaunchArgs& args, int) override {
    static_cast<const CpuPrepared&>(kernel).run(args);
    return {};
  }
  Status synchronize() override { return {}; }
  std::int64_t peak_bytes() const override { return peak_bytes_; }

 private:
  std::map<void*, std::size_t> live_;
  std::int64_t live_bytes_ = 0, peak_bytes_ = 0;
};

}  // namespace

std::unique_ptr<Device> make_cpu_device() { return std::make_unique<CpuDevice>(); }

}  // namespace gradloom
