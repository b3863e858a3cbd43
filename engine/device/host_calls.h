// What the host does in the midst of a GPU's work: kernels whose operands it gets in pinned memory (engine/ops/collectives/host_work.h).
// Private to this folder.
//
// Copies to the host, a call of it, and copies back follow each other in one stream of the device, and are recorded with the rest of a
// step. All such kernels of a plan share memory: they run one after another (engine/plan/streams.h). What fails there is kept until the
// program waits for the device; the rest of that work runs on numbers that nobody will take.
#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "engine/device/device.h"
#include "engine/device/gpu/plugin.h"
#include "engine/ops/collectives/host_work.h"

namespace gradloom {

class HostCalls;

// One kernel of a plan. The device calls run() with it: it stays where it is while work or a recording may do that.
class HostCall {
 public:
  HostCall(HostCalls& calls, HostWork work, std::string name)
      : calls_(calls), work_(std::move(work)), name_(std::move(name)) {}
  HostCall(const HostCall&) = delete;
  HostCall& operator=(const HostCall&) = delete;

  const HostWork& work() const { return work_; }
  // The ranks' devices exchange it by their library.
  bool by_library() const;
  void set_memory(std::shared_ptr<std::byte> memory) { memory_ = std::move(memory); }
  // Queues it on a stream of the device. Errors are the plugin's.
  GpuStatus queue(const GpuPlugin& api, GpuContext* context, std::int32_t stream, const Operands& operands,
                  std::int32_t plan_step);
  GpuStatus queue_by_library(const GpuPlugin& api, GpuContext* context, std::int32_t stream,
                             const Operands& operands) const;

 private:
  static void run(void* self);

  HostCalls& calls_;
  const HostWork work_;
  const std::string name_;
  std::shared_ptr<std::byte> memory_;
  std::int32_t plan_step_ = -1, stream_ = 0;
};

// Of one device; the device's threads write, the program's reads.
class HostCalls {
 public:
  // What ended the first that failed, once; all later ones are left out.
  Status take_failure();
  void trace(bool on);
  std::vector<Activity> take_activities();  // since it was on, as kernels
  // The device's library has joined the ranks; until then, and else, the host exchanges.
  void set_library(bool joined) { library_ = joined; }

 private:
  friend class HostCall;
  bool has_failed() const;
  mutable std::mutex mutex_;
  Status failure_;
  bool failed_ = false, traced_ = false, library_ = false;
  std::vector<Activity> activities_;
};

}  // namespace gradloom
