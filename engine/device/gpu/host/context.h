// What the plugin of the host executor keeps per device: streams as queues of work, events, the recording and
// the trace. Work runs when it is queued, or, where the context is lazy, when something waits for it.
#pragma once

#include <array>
#include <cstdint>
#include <cstdio>
#include <deque>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "engine/device/gpu/abi.h"
#include "engine/device/gpu/host/executor.h"
#include "engine/device/gpu/host/faults.h"
#include "engine/device/gpu/host/memory.h"
#include "engine/device/gpu/host/module.h"
#include "engine/device/gpu/host/recording.h"
#include "engine/device/gpu/plugin.h"
#include "engine/device/gpu/runtime/algorithms.h"

namespace gradloom::kernels::gpu::host {

// One piece of work in a stream or a graph.
struct Operation {
  HostGpuOperation kind;
  int stream, plan_step;
  int event = -1;
  std::uint64_t serial = 0;  // of the event: which of its records
  std::shared_ptr<const KeptLaunch> launch;
  std::string kernel;
  void* target = nullptr;
  const void* source = nullptr;
  std::size_t bytes = 0;
  int byte = 0;
  void (*function)(void*) = nullptr;  // of the host, and what it gets
  void* user = nullptr;
  std::uint64_t correlation = 0, graph_node = 0;
};

struct Event {
  std::uint64_t recorded = 0, done = 0;  // serial numbers of its records
  int stream = 0;
  std::int64_t time_ns = 0;
};

// Which streams belong to the recording under way, and who has waited for how much of whose work.
struct Capture {
  using Clock = std::array<std::size_t, GPU_STREAMS>;
  std::array<bool, GPU_STREAMS> takes_part{};
  std::array<Clock, GPU_STREAMS> knows{};
  std::map<int, Clock> events;  // recorded in it
};

}  // namespace gradloom::kernels::gpu::host

struct GpuContext {
  gradloom::kernels::gpu::host::Memory memory;
  std::array<std::deque<gradloom::kernels::gpu::host::Operation>, GPU_STREAMS> queues;
  std::vector<gradloom::kernels::gpu::host::Event> events{GPU_EVENTS};
  gradloom::kernels::gpu::host::InjectedFaults faults;
  gradloom::kernels::gpu::host::ThreadOrder order;
  gradloom::kernels::gpu::AlgorithmTable algorithms;
  std::map<std::string, std::int32_t> product_algorithms;  // in use, by problem
  GpuImplementation implementation{};                      // of the latest run
  std::array<bool, GPU_STREAMS> lazy{};                    // by stream
  bool lost = false;
  int plan_step = -1;

  bool capturing = false, capture_broken = false;
  gradloom::kernels::gpu::host::Capture capture;
  std::vector<gradloom::kernels::gpu::host::Operation> captured;

  std::deque<HostGpuRecord> records;
  int trace_level = GPU_TRACE_OFF;
  std::deque<GpuActivity> activities;
  std::int64_t lost_activities = 0;
  std::uint64_t correlation = 0;
  std::string message;
};

struct GpuModule {
  gradloom::kernels::gpu::host::Module module;
};

struct GpuGraph {
  std::vector<gradloom::kernels::gpu::host::Operation> operations;
};

namespace gradloom::kernels::gpu::host {

// Keeps the message for the next message() of this context, or of this thread where there
// is none; returns `status`.
GpuStatus report(GpuContext* context, GpuStatus status, const std::string& message);
// What report() kept without a context.
const std::string& thread_message();

template <std::size_t n>
void copy_text(char (&to)[n], const std::string& from) {
  std::snprintf(to, n, "%s", from.c_str());
}

inline bool is_stream(int32_t stream) { return stream >= 0 && stream < GPU_STREAMS; }
inline bool is_event(const GpuContext* context, int32_t event) {
  return event >= 0 && std::size_t(event) < context->events.size();
}

std::int64_t now_ns();  // steady clock

// Adds a row to the trace; a full trace counts what it loses.
void add_activity(GpuContext* context, GpuActivity activity, const std::string& name);

// One call of the table: refuses on a lost device and while recording, fails on demand,
// writes the API row of the trace.
class Call {
 public:
  enum Capture { allowed, forbidden };
  Call(GpuContext* context, const char* entry, Capture capture = allowed);
  ~Call();
  Call(const Call&) = delete;
  Call& operator=(const Call&) = delete;

  // Also wrong: a stream or an event (when given) that does not exist.
  GpuStatus status(int32_t stream = 0, int32_t event = 0);

 private:
  GpuContext* context_;
  const char* entry_;
  std::int64_t start_ns_;
  GpuStatus status_ = GPU_OK;
};

// An operation of this kind with the context's place in the plan.
Operation operation_of(GpuContext* context, HostGpuOperation kind, int stream);
// Writes the recording that tests read.
void add_record(GpuContext* context, const Operation& operation);
// The stream's work is recorded, not run.
bool is_captured(const GpuContext* context, int32_t stream);
// Queues work, or adds it to the graph being recorded.
GpuStatus queue(GpuContext* context, Operation operation);
GpuStatus queue_launch(GpuContext* context, int32_t stream, const Launch& launch);

// Runs what is queued: in one stream, in all, or as far as this record of an event needs.
GpuStatus run_all(GpuContext* context, std::size_t stream);
GpuStatus run_all(GpuContext* context);
GpuStatus run_until(GpuContext* context, int event, std::uint64_t serial);

}  // namespace gradloom::kernels::gpu::host
