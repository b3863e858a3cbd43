// Short forms for tests on device host-gpu: that it is there, and what the plugin was asked to do.
#pragma once

#include <dlfcn.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <set>
#include <string>
#include <vector>

#include "app/job.h"
#include "engine/base/plugins.h"
#include "engine/device/gpu/host/recording.h"
#include "engine/device/gpu_device.h"
#include "engine/ir/op.h"
#include "kernels/launcher.h"
#include "tests/engine/run/order.h"
#include "tests/paths.h"

#ifdef GRADLOOM_PLUGIN_FOLDER
#define REQUIRE_HOST_GPU()                                            \
  setenv("GRADLOOM_PLUGINS", GRADLOOM_PLUGIN_FOLDER, 1);              \
  setenv("GRADLOOM_CACHE", GRADLOOM_PLUGIN_FOLDER "/tests/cache", 1); \
  ASSERT_TRUE(find_plugin("hostgpu").ok()) << find_plugin("hostgpu").error().message
#else
#define REQUIRE_HOST_GPU() GTEST_SKIP() << "this build has no host executor (GRADLOOM_HOST_GPU is off)"
#endif

namespace gradloom {

inline OrderedRange range_of(const void* begin, std::uint64_t bytes) {
  const auto at = reinterpret_cast<std::uint64_t>(begin);
  return {at, at + bytes};
}

// What plan step `i` touches, as addresses.
inline void add_ranges(const Graph& graph, const Plan& plan, const Executor& executor, std::size_t i,
                       OrderedWork& work) {
  const Node& node = graph.nodes[plan.steps[i].node];
  const auto add = [&](ValueId v, std::vector<OrderedRange>& to) {
    if (v == kNone || plan.buffer_of[v] < 0) return;
    const Buffer& b = plan.buffers[static_cast<std::size_t>(plan.buffer_of[v])];
    std::uint64_t bytes = byte_size(graph.type(v));
    if (const auto part = plan.pieces.find(v);
        part != plan.pieces.end())  // from its first row to the end of its last
      bytes = static_cast<std::uint64_t>((part->second.rows - 1) * part->second.pitch_bytes +
                                         part->second.row_bytes);
    to.push_back(range_of(executor.memory(b.place) + b.offset + plan.offset_in_buffer(v), bytes));
  };
  for (const ValueId v : node.inputs) add(v, work.reads);
  for (const ValueId v : node.outputs) add(v, work.writes);
  if (plan.steps[i].workspace_bytes > 0)
    work.writes.push_back(range_of(executor.memory(Place::arena) + plan.steps[i].workspace_offset,
                                   static_cast<std::uint64_t>(plan.steps[i].workspace_bytes)));
  if (node.op->has(kRandom))
    work.reads.push_back(
        range_of(executor.memory(Place::input) + plan.input_bytes, sizeof(kernels::RandomState)));
}

// The calls that the plugin got for a job.
struct QueuedWork {
  std::vector<OrderedWork> work;
  std::set<int> streams;
  std::size_t kernels = 0, plan_copies = 0;  // plan_copies: that are steps of the plan

  // Without the events that order streams.
  std::vector<OrderedWork> loose() const {
    std::vector<OrderedWork> some;
    for (const OrderedWork& w : work)
      if (w.kind != OrderedWork::Kind::wait) some.push_back(w);
    return some;
  }
};

inline void add_record(const HostGpuRecord& record, Job& job, QueuedWork& queued) {
  OrderedWork w;
  w.stream = record.stream;
  w.event = record.event;
  w.name = std::string(record.name) + " (plan step " + std::to_string(record.plan_step) + ")";
  queued.streams.insert(record.stream);
  switch (record.operation) {
    case HOST_GPU_RECORD_EVENT: w.kind = OrderedWork::Kind::record; break;
    case HOST_GPU_WAIT_EVENT: w.kind = OrderedWork::Kind::wait; break;
    case HOST_GPU_SYNCHRONIZE_EVENT: w.kind = OrderedWork::Kind::host_wait; break;
    case HOST_GPU_SYNCHRONIZE: w.kind = OrderedWork::Kind::host_wait_all; break;
    case HOST_GPU_KERNEL:
      ASSERT_GE(record.plan_step, 0);
      add_ranges(job.compiled().train.graph, job.compiled().plan, job.executor(),
                 static_cast<std::size_t>(record.plan_step), w);
      ++queued.kernels;
      break;
    default:
      w.name = "copy of " + std::to_string(record.bytes) + " bytes";
      w.writes = {range_of(record.target, record.bytes)};
      if (record.operation == HOST_GPU_COPY) w.reads = {range_of(record.source, record.bytes)};
      queued.plan_copies += record.plan_step >= 0 ? 1 : 0;
      if (record.stream == GPU_UPLOAD && record.plan_step < 0)
        w.host_writes = w.reads;  // batches are written into pinned memory before they go up
  }
  queued.work.push_back(std::move(w));
}

// Takes so many steps, as many at a time as the job holds, and tells what was queued for them since the job was made.
inline void queue_steps(Job& job, std::int64_t steps, QueuedWork& queued) {
  void* const library = dlopen(find_plugin("hostgpu")->c_str(), RTLD_NOW | RTLD_LOCAL);  // the device's
  ASSERT_NE(library, nullptr);
  const auto recording = reinterpret_cast<HostGpuRecordingFn>(dlsym(library, GRADLOOM_HOST_GPU_RECORDING));
  ASSERT_NE(recording, nullptr);
  for (std::int64_t next = 1, done = 0; done < steps; ++done) {
    while (next <= steps && job.pending() <= job.depth()) ASSERT_TRUE(job.submit(next++).ok());
    ASSERT_TRUE(job.collect().ok());
  }
  std::vector<HostGpuRecord> records(1 << 16);
  int32_t count = 0;
  ASSERT_EQ(recording(nullptr, records.data(), static_cast<int32_t>(records.size()), &count), GPU_OK);
  for (int32_t r = 0; r < count; ++r) add_record(records[static_cast<std::size_t>(r)], job, queued);
  dlclose(library);
}

}  // namespace gradloom
