// Device: memory and kernels of one processor. The only virtual interface of the engine besides Pass. The CPU is built in; CUDA and
// HIP come as plugins behind a C interface that an adapter of this class loads at run time.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "engine/base/result.h"
#include "engine/ops/op.h"

namespace gradloom {

struct DeviceInfo {
  std::string id;                 // "cpu", "cuda:0"
  std::string name;               // "AMD EPYC ..., avx512"
  bool available = false;
  std::string why_not;            // one line when not available
  std::int64_t memory_bytes = 0, free_bytes = 0;
  int threads = 0;                // CPU
};

// A kernel of one plan step, prepared on the device.
class PreparedKernel {
 public:
  virtual ~PreparedKernel() = default;
  virtual const std::string& name() const = 0;
  virtual std::size_t workspace_bytes() const = 0;
};

class Device {
 public:
  virtual ~Device() = default;
  virtual DeviceInfo info() const = 0;
  virtual Result<void*> allocate(std::size_t bytes) = 0;              // 64-byte aligned, contents undefined
  virtual void release(void* memory) = 0;
  virtual Status upload(void* target, const void* source, std::size_t bytes) = 0;
  virtual Status download(void* target, const void* source, std::size_t bytes) = 0;
  virtual Result<std::unique_ptr<PreparedKernel>> prepare(const OpDef& op, const NodeTypes& types) = 0;
  virtual Status launch(const PreparedKernel& kernel, const LaunchArgs& args, int stream) = 0;
  virtual Status synchronize() = 0;
  virtual std::int64_t peak_bytes() const = 0;                        // largest sum of live allocations so far
};

std::unique_ptr<Device> make_cpu_device();
// "cpu", "cuda:0", ...: error (exit 6) says why a device cannot be used here.
Result<std::unique_ptr<Device>> open_device(const std::string& id);
std::vector<DeviceInfo> list_devices();                              // every kind, with why_not where unavailable

}  // namespace gradloom
