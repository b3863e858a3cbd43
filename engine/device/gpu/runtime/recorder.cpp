#include "engine/device/gpu/runtime/recorder.h"

#include <time.h>

#include <algorithm>
#include <cstdio>

namespace gradloom::kernels::gpu {

std::int64_t monotonic_ns() {
  timespec now = {};
  clock_gettime(CLOCK_MONOTONIC, &now);
  return std::int64_t(now.tv_sec) * 1'000'000'000 + now.tv_nsec;
}

void PlanSteps::node(std::uint64_t node, int step) {
  if (step < 0) return;
  const std::lock_guard lock(mutex_);
  nodes_[node] = step;
}

void PlanSteps::node_copied(std::uint64_t from, std::uint64_t to) {
  const std::lock_guard lock(mutex_);
  const auto found = nodes_.find(from);
  if (found != nodes_.end()) nodes_[to] = found->second;
}

int PlanSteps::of_node(std::uint64_t node) {
  const std::lock_guard lock(mutex_);
  const auto found = nodes_.find(node);
  return found != nodes_.end() ? found->second : -1;
}

void ActivityQueue::add(const GpuActivity& activity) {
  const std::lock_guard lock(mutex_);
  finished_.push_back(activity);
}

std::size_t ActivityQueue::take(GpuActivity* activities, std::size_t capacity) {
  const std::lock_guard lock(mutex_);
  const std::size_t count = std::min(capacity, finished_.size());
  std::copy_n(finished_.begin(), count, activities);
  finished_.erase(finished_.begin(), finished_.begin() + std::ptrdiff_t(count));
  return count;
}

GpuActivity activity_of(GpuActivityKind kind, std::int64_t start_ns, std::int64_t end_ns, const char* name) {
  GpuActivity activity = {};
  activity.kind = kind;
  activity.plan_step = -1;
  activity.start_ns = start_ns;
  activity.end_ns = end_ns;
  std::snprintf(activity.name, sizeof activity.name, "%s", name != nullptr ? name : "");
  return activity;
}

}  // namespace gradloom::kernels::gpu
