// Where vendors' records become GpuActivity: a queue between the thread that receives them and
// read_activity(), and the plan step of the work that is being queued. Plain C++.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <deque>
#include <mutex>
#include <unordered_map>

#include "engine/device/gpu/plugin.h"

namespace gradloom::kernels::gpu {

// CLOCK_MONOTONIC.
std::int64_t monotonic_ns();

// Plan step of work by what the vendor calls it: a correlation id (the latest 65536 are
// kept) or a node of a graph.
class PlanSteps {
 public:
  void queued(std::uint64_t correlation, int step) {
    std::atomic<std::uint64_t>& slot = slots_[correlation % slots_.size()];
    slot.store((correlation << 24) | std::uint64_t((step + 1) & 0xffffff), std::memory_order_relaxed);
  }
  int of_correlation(std::uint64_t correlation) const {
    const std::uint64_t found = slots_[correlation % slots_.size()].load(std::memory_order_relaxed);
    return found >> 24 == (correlation & 0xffffffffffull) ? int(found & 0xffffff) - 1 : -1;
  }
  // step: -1 of nodes that come from instantiating a graph, which are copies too.
  void node(std::uint64_t node, int step);
  void node_copied(std::uint64_t from, std::uint64_t to);
  int of_node(std::uint64_t node);

 private:
  std::array<std::atomic<std::uint64_t>, 65536> slots_ = {};  // correlation << 24 | step + 1
  std::mutex mutex_;
  std::unordered_map<std::uint64_t, int> nodes_;
};

// Names of work by correlation id, of the latest 65536. They must stay.
class WorkNames {
 public:
  void queued(std::uint64_t correlation, const char* name) {
    Slot& slot = slots_[correlation % slots_.size()];
    slot.correlation.store(0, std::memory_order_relaxed);
    slot.name.store(name, std::memory_order_release);
    slot.correlation.store(correlation, std::memory_order_release);
  }
  // Null: not known.
  const char* of(std::uint64_t correlation) const {
    const Slot& slot = slots_[correlation % slots_.size()];
    if (slot.correlation.load(std::memory_order_acquire) != correlation) return nullptr;
    const char* const name = slot.name.load(std::memory_order_acquire);
    return slot.correlation.load(std::memory_order_acquire) == correlation ? name : nullptr;
  }

 private:
  struct Slot {
    std::atomic<std::uint64_t> correlation = 0;
    std::atomic<const char*> name = nullptr;
  };
  std::array<Slot, 65536> slots_ = {};
};

class ActivityQueue {
 public:
  void add(const GpuActivity& activity);
  std::size_t take(GpuActivity* activities, std::size_t capacity);

 private:
  std::mutex mutex_;
  std::deque<GpuActivity> finished_;
};

GpuActivity activity_of(GpuActivityKind kind, std::int64_t start_ns, std::int64_t end_ns, const char* name);

}  // namespace gradloom::kernels::gpu
