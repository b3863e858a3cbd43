// The table of plugin.h for the host executor: device "host-gpu" runs every GPU kernel on the CPU, for tests of kernels and of the code
// that drives plugins. Environment, read by open():
//   GRADLOOM_HOSTGPU_ORDER=ascending|descending|shuffled:SEED   order of threads and blocks (executor.h)
//   GRADLOOM_HOSTGPU_LAZY=1        work runs only when something waits for it, as late as a GPU could: finds missing waits
//   GRADLOOM_HOSTGPU_MEMORY_MB=N   device memory
//   GRADLOOM_HOSTGPU_FAIL=...      failures on demand (faults.h)
//   GRADLOOM_HOST_CXX=...          compiler of generated programs (module.h)
// Stricter than a GPU: writes around allocations are found after each kernel, copies that leave an allocation and calls that would break
// a recording on a GPU fail.
#include "kernels/gpu/plugin.h"

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <deque>

#include "kernels/gpu/abi.h"
#include "kernels/gpu/host/executor.h"
#include "kernels/gpu/host/faults.h"
#include "kernels/gpu/host/memory.h"
#include "kernels/gpu/host/module.h"
#include "kernels/gpu/host/recording.h"
#include "kernels/gpu/host/symbols.h"

namespace gradloom::kernels::gpu {
bool queue_kernel(unsigned id, const void* args, std::size_t bytes, void* stream);   // runtime/kernel_table.cu
}

namespace gradloom::kernels::gpu::host {
namespace {

// One piece of work in a stream or a graph.
struct Operation {
  HostGpuOperation kind;
  int stream, plan_step;
  int event = -1;
  std::uint64_t serial = 0;   // of the event: which of its records
  std::shared_ptr<const KeptLaunch> launch;
  std::string kernel;
  void* target = nullptr;
  const void* source = nullptr;
  std::size_t bytes = 0;
  int byte = 0;
  std::uint64_t correlation = 0, graph_node = 0;
};

struct Event {
  std::uint64_t recorded = 0, done = 0;   // serial numbers of its records
  int stream = 0;
  std::int64_t time_ns = 0;
};

constexpr std::size_t kMostRecords = 65536, kMostActivities = 1 << 20;

}  // namespace
}  // namespace gradloom::kernels::gpu::host

struct GpuContext {
  gradloom::kernels::gpu::host::Memory memory;
  std::array<std::deque<gradloom::kernels::gpu::host::Operation>, GPU_STREAMS> queues;
  std::array<gradloom::kernels::gpu::host::Event, GPU_EVENTS> events;
  gradloom::kernels::gpu::host::InjectedFaults faults;
  gradloom::kernels::gpu::host::ThreadOrder order;
  bool lazy = false, lost = false;
  int plan_step = -1;

  bool capturing = false, capture_broken = false;
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
namespace {

thread_local std::string thread_message;

GpuStatus report(GpuContext* context, GpuStatus status, const std::string& message) {
  (context != nullptr ? context->message : thread_message) = message;
  if (context != nullptr && status == GPU_DEVICE_LOST) context->lost = true;
  return status;
}

std::int64_t now_ns() {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

template <std::size_t n>
void copy_text(char (&to)[n], const std::string& from) {
  std::snprintf(to, n, "%s", from.c_str());
}

void add_activity(GpuContext* context, GpuActivity activity, const std::string& name) {
  if (context->activities.size() == kMostActivities) {
    ++context->lost_activities;
    return;
  }
  copy_text(activity.name, name);
  context->activities.push_back(activity);
}

bool is_stream(int32_t stream) { return stream >= 0 && stream < GPU_STREAMS; }
bool is_event(int32_t event) { return event >= 0 && event < GPU_EVENTS; }

// One call of the table: refuses on a lost device and while recording, fails on demand, writes the API row of the trace.
class Call {
 public:
  enum Capture { allowed, forbidden };
  Call(GpuContext* context, const char* entry, Capture capture = allowed) : context_(context), entry_(entry), start_ns_(now_ns()) {
    ++context->correlation;
    if (context->lost) {
      status_ = GPU_DEVICE_LOST;   // the message of the loss stays
    } else if (const GpuStatus wanted = context->faults.call(entry); wanted != GPU_OK) {
      status_ = report(context, wanted, std::string(entry) + ": failure on demand");
    } else if (context->capturing && capture == forbidden) {
      context->capture_broken = true;
      status_ = report(context, GPU_FAILED, std::string(entry) + " is not possible while work is recorded");
    }
  }
  ~Call() {
    if (context_->trace_level != GPU_TRACE_ALL) return;
    add_activity(context_, {GPU_ACTIVITY_API, context_->plan_step, -1, start_ns_, now_ns(), 0, context_->correlation, 0, {}}, entry_);
  }
  Call(const Call&) = delete;
  Call& operator=(const Call&) = delete;

  // Also wrong: a stream or an event (when given) that does not exist.
  GpuStatus status(int32_t stream = 0, int32_t event = 0) {
    if (status_ != GPU_OK || (is_stream(stream) && is_event(event))) return status_;
    return report(context_, GPU_FAILED, std::string(entry_) + ": no stream " + std::to_string(stream) + " or no event " + std::to_string(event));
  }

 private:
  GpuContext* context_;
  const char* entry_;
  std::int64_t start_ns_;
  GpuStatus status_ = GPU_OK;
};

// ---- queues ---------------------------------------------------------------------------------------------------------------------

GpuStatus run_until(GpuContext* context, int event, std::uint64_t serial);

GpuStatus execute_kernel(GpuContext* context, const Operation& operation) {
  if (const auto fault = run(operation.launch->get(), context->order))
    return report(context, fault->of_launch ? GPU_LAUNCH_FAILED : GPU_DEVICE_LOST, fault->text);
  if (const auto damage = context->memory.damage()) return report(context, GPU_DEVICE_LOST, "kernel " + operation.kernel + ": " + *damage);
  return GPU_OK;
}

GpuStatus execute(GpuContext* context, const Operation& operation) {
  const std::int64_t start_ns = now_ns();
  GpuStatus status = GPU_OK;
  GpuActivityKind kind = GPU_ACTIVITY_KERNEL;
  switch (operation.kind) {
    case HOST_GPU_KERNEL:
      status = execute_kernel(context, operation);
      break;
    case HOST_GPU_COPY:
      kind = GPU_ACTIVITY_COPY;
      std::memmove(operation.target, operation.source, operation.bytes);
      break;
    case HOST_GPU_FILL:
      kind = GPU_ACTIVITY_FILL;
      std::memset(operation.target, operation.byte, operation.bytes);
      break;
    case HOST_GPU_WAIT_EVENT:
      return run_until(context, operation.event, operation.serial);
    case HOST_GPU_RECORD_EVENT:
      context->events[std::size_t(operation.event)].done = operation.serial;
      context->events[std::size_t(operation.event)].time_ns = start_ns;
      return GPU_OK;
    default:
      return GPU_OK;
  }
  if (context->trace_level != GPU_TRACE_OFF) {
    const char* name = kind == GPU_ACTIVITY_COPY ? "copy" : "fill";
    add_activity(context,
                 {kind, operation.plan_step, operation.stream, start_ns, now_ns(), std::int64_t(operation.bytes), operation.correlation,
                  operation.graph_node, {}},
                 kind == GPU_ACTIVITY_KERNEL ? operation.kernel : name);
  }
  return status;
}

GpuStatus run_next(GpuContext* context, std::size_t stream) {
  const Operation operation = std::move(context->queues[stream].front());
  context->queues[stream].pop_front();
  return execute(context, operation);
}

GpuStatus run_all(GpuContext* context, std::size_t stream) {
  GpuStatus status = GPU_OK;
  while (status == GPU_OK && !context->queues[stream].empty()) status = run_next(context, stream);
  return status;
}

GpuStatus run_all(GpuContext* context) {
  GpuStatus status = GPU_OK;
  for (std::size_t stream = 0; status == GPU_OK && stream < GPU_STREAMS; ++stream) status = run_all(context, stream);
  return status;
}

// The record was queued before whoever waits for it, so this ends.
GpuStatus run_until(GpuContext* context, int event, std::uint64_t serial) {
  const Event& wanted = context->events[std::size_t(event)];
  GpuStatus status = GPU_OK;
  for (std::size_t stream = 0; status == GPU_OK && wanted.done < serial && stream < GPU_STREAMS; ++stream) {
    auto& queue = context->queues[stream];
    const auto is_record = [&](const Operation& o) { return o.kind == HOST_GPU_RECORD_EVENT && o.event == event && o.serial <= serial; };
    while (status == GPU_OK && wanted.done < serial && std::any_of(queue.begin(), queue.end(), is_record)) status = run_next(context, stream);
  }
  return status;
}

void add_record(GpuContext* context, const Operation& operation) {
  HostGpuRecord record = {operation.kind, operation.stream, operation.event, operation.plan_step, operation.graph_node != 0,
                          operation.target, operation.source, operation.bytes, {}};
  copy_text(record.name, operation.kernel);
  if (context->records.size() == kMostRecords) context->records.pop_front();
  context->records.push_back(record);
}

GpuStatus queue(GpuContext* context, Operation operation) {
  if (context->capturing && operation.stream == GPU_COMPUTE) {
    operation.correlation = 0;
    operation.graph_node = context->captured.size() + 1;
    context->captured.push_back(std::move(operation));
    return GPU_OK;
  }
  add_record(context, operation);
  const auto stream = std::size_t(operation.stream);
  context->queues[stream].push_back(std::move(operation));
  return context->lazy ? GPU_OK : run_all(context, stream);
}

Operation operation_of(GpuContext* context, HostGpuOperation kind, int stream) {
  Operation operation{kind, stream, context->plan_step};
  operation.correlation = context->correlation;
  return operation;
}

GpuStatus queue_launch(GpuContext* context, int32_t stream, const Launch& launch) {
  if (const auto fault = check(launch)) return report(context, GPU_LAUNCH_FAILED, fault->text);
  Operation operation = operation_of(context, HOST_GPU_KERNEL, stream);
  operation.launch = std::make_shared<KeptLaunch>(launch);
  operation.kernel = kernel_symbol(launch.kernel).name;
  return queue(context, std::move(operation));
}

// ---- devices and contexts -------------------------------------------------------------------------------------------------------

// Calls without a context.
GpuStatus free_call(const char* entry) {
  static InjectedFaults faults;
  const GpuStatus wanted = faults.call(entry);
  return wanted == GPU_OK ? GPU_OK : report(nullptr, wanted, std::string(entry) + ": failure on demand");
}

GpuStatus check_index(const char* entry, int32_t index) {
  const GpuStatus status = free_call(entry);
  return status != GPU_OK || index == 0 ? status : report(nullptr, GPU_NO_DEVICE, "there is one host-gpu device: 0");
}

const char* message(const GpuContext* context) { return context != nullptr ? context->message.c_str() : thread_message.c_str(); }

GpuStatus device_count(int32_t* count) {
  *count = 1;
  return free_call("device_count");
}

GpuStatus describe(int32_t index, GpuDescription* description) {
  const GpuStatus status = check_index("describe", index);
  if (status != GPU_OK) return status;
  *description = {};
  copy_text(description->name, "host executor (" + std::to_string(kWarp) + "-lane warps)");
  copy_text(description->architecture, "host");
  description->memory_bytes = std::int64_t(Memory::limit_bytes());
  description->free_bytes = std::int64_t(Memory::limit_bytes() - std::min(Memory::limit_bytes(), Memory::used_bytes()));
  description->warp_size = kWarp;
  description->multiprocessors = 1;
  description->shared_bytes_per_block = std::int32_t(kSharedBytes);
  return GPU_OK;
}

GpuStatus environment(int32_t index, GpuEnvironment* environment) {
  const GpuStatus status = check_index("environment", index);
  if (status == GPU_OK) *environment = {-1, -1, -1, -1, -1, -1, -1, 0, {}};   // nothing of it is measured
  return status;
}

GpuContext* latest = nullptr;   // opened; for those who only know the plugin (read_recording)

GpuStatus open(int32_t index, GpuContext** context) {
  const GpuStatus status = check_index("open", index);
  if (status != GPU_OK) return status;
  ThreadOrder order;
  if (const char* text = std::getenv("GRADLOOM_HOSTGPU_ORDER")) {
    const auto chosen = parse_thread_order(text);
    if (!chosen) return report(nullptr, GPU_FAILED, std::string("GRADLOOM_HOSTGPU_ORDER=") + text + ": ascending, descending or shuffled:SEED");
    order = *chosen;
  }
  auto opened = std::make_unique<GpuContext>();
  opened->order = order;
  const char* lazy = std::getenv("GRADLOOM_HOSTGPU_LAZY");
  opened->lazy = lazy != nullptr && std::strcmp(lazy, "1") == 0;
  *context = latest = opened.release();
  return GPU_OK;
}

void close(GpuContext* context) {
  if (latest == context) latest = nullptr;
  delete context;
}

// ---- memory ---------------------------------------------------------------------------------------------------------------------

GpuStatus allocate(GpuContext* context, std::size_t bytes, int32_t pinned, void** memory) {
  Call call(context, "allocate", Call::forbidden);
  if (call.status() != GPU_OK) return call.status();
  *memory = context->memory.allocate(bytes, pinned != 0);
  if (*memory != nullptr) return GPU_OK;
  return report(context, GPU_OUT_OF_MEMORY,
                "allocate " + std::to_string(bytes) + (pinned != 0 ? " bytes of pinned host memory" : " bytes of device memory (") +
                    (pinned != 0 ? "" : std::to_string(Memory::used_bytes()) + " of " + std::to_string(Memory::limit_bytes()) + " in use)"));
}

GpuStatus release(GpuContext* context, void* memory, int32_t pinned) {
  Call call(context, "release", Call::forbidden);
  if (call.status() != GPU_OK || memory == nullptr) return call.status();
  if (const GpuStatus status = run_all(context); status != GPU_OK) return status;   // work that uses it
  const auto wrong = context->memory.release(memory, pinned != 0);
  return wrong ? report(context, GPU_DEVICE_LOST, "release: " + *wrong) : GPU_OK;
}

GpuStatus copy(GpuContext* context, int32_t stream, void* target, const void* source, std::size_t bytes) {
  Call call(context, "copy");
  if (call.status(stream) != GPU_OK || bytes == 0) return call.status(stream);
  for (const void* at : {static_cast<const void*>(target), source})
    if (const auto wrong = context->memory.leaves(at, bytes)) return report(context, GPU_LAUNCH_FAILED, "copy: " + *wrong);
  const bool asynchronous = context->memory.owns(target) && context->memory.owns(source);
  if (!asynchronous && context->capturing && stream == GPU_COMPUTE) {
    context->capture_broken = true;
    return report(context, GPU_FAILED, "copy of memory that is not pinned is not possible while work is recorded");
  }
  Operation operation = operation_of(context, HOST_GPU_COPY, stream);
  operation.target = target;
  operation.source = source;
  operation.bytes = bytes;
  const GpuStatus status = queue(context, std::move(operation));
  return status != GPU_OK || asynchronous ? status : run_all(context, std::size_t(stream));
}

GpuStatus fill(GpuContext* context, int32_t stream, void* target, int32_t byte, std::size_t bytes) {
  Call call(context, "fill");
  if (call.status(stream) != GPU_OK || bytes == 0) return call.status(stream);
  if (const auto wrong = context->memory.leaves(target, bytes)) return report(context, GPU_LAUNCH_FAILED, "fill: " + *wrong);
  Operation operation = operation_of(context, HOST_GPU_FILL, stream);
  operation.target = target;
  operation.bytes = bytes;
  operation.byte = byte;
  return queue(context, std::move(operation));
}

// ---- work -----------------------------------------------------------------------------------------------------------------------

GpuStatus run_kernel(GpuContext* context, int32_t stream, std::uint32_t kernel_id, const void* args, std::size_t args_bytes) {
  Call call(context, "run");
  if (call.status(stream) != GPU_OK) return call.status(stream);
  LaunchList list;
  {
    // A copy that is gone when the kernel runs: a kernel must not keep pointers into its launcher's arguments.
    const auto copied = std::make_unique<std::byte[]>(args_bytes);
    std::memcpy(copied.get(), args, args_bytes);
    if (!queue_kernel(kernel_id, copied.get(), args_bytes, static_cast<Queue*>(&list)))
      return report(context, GPU_UNSUPPORTED,
                    "kernel " + std::to_string(kernel_id) + ": no such kernel here, or its arguments are of another version");
  }
  GpuStatus status = GPU_OK;
  for (const KeptLaunch& launch : list.launches)
    if (status == GPU_OK) status = queue_launch(context, stream, launch.get());
  return status;
}

GpuStatus compile(GpuContext* context, const char* source, const char* const* entries, int32_t count, const char* cache_folder,
                  GpuModule** module) {
  Call call(context, "compile", Call::forbidden);
  if (call.status() != GPU_OK) return call.status();
  auto compiled = std::unique_ptr<GpuModule>(new GpuModule{Module(source, {entries, entries + count}, cache_folder)});
  if (!compiled->module.error().empty()) return report(context, GPU_LAUNCH_FAILED, "compile: " + compiled->module.error());
  *module = compiled.release();
  return GPU_OK;
}

void unload(GpuContext* context, GpuModule* module) {
  (void)run_all(context);   // work that uses it; an error shows in the next call too
  delete module;
}

GpuStatus run_program(GpuContext* context, int32_t stream, GpuModule* module, int32_t index, GpuDim grid, GpuDim block, const void* params,
                      std::size_t bytes) {
  Call call(context, "run_program");
  if (call.status(stream) != GPU_OK) return call.status(stream);
  if (index < 0 || std::size_t(index) >= module->module.entries().size())
    return report(context, GPU_LAUNCH_FAILED, "run_program: no entry " + std::to_string(index));
  const Module::Entry entry = module->module.entries()[std::size_t(index)];
  return queue_launch(context, stream,
                      {reinterpret_cast<const void*>(entry), {grid.x, grid.y, grid.z}, {block.x, block.y, block.z}, 0, entry, params, bytes});
}

GpuStatus mark(GpuContext* context, int32_t plan_step, const char*) {
  Call call(context, "mark");
  if (call.status() == GPU_OK) context->plan_step = plan_step;
  return call.status();
}

// ---- order ----------------------------------------------------------------------------------------------------------------------

// Events of the compute stream inside a recording would be dependencies of the graph; nothing needs them.
GpuStatus check_event_call(GpuContext* context, Call& call, int32_t stream, int32_t event) {
  const GpuStatus status = call.status(stream, event);
  if (status != GPU_OK || !context->capturing || stream != GPU_COMPUTE) return status;
  context->capture_broken = true;
  return report(context, GPU_FAILED, "events of the compute stream are not possible while work is recorded");
}

GpuStatus record_event(GpuContext* context, int32_t stream, int32_t event) {
  Call call(context, "record_event");
  if (const GpuStatus status = check_event_call(context, call, stream, event); status != GPU_OK) return status;
  Operation operation = operation_of(context, HOST_GPU_RECORD_EVENT, stream);
  operation.event = event;
  operation.serial = ++context->events[std::size_t(event)].recorded;
  return queue(context, std::move(operation));
}

GpuStatus wait_event(GpuContext* context, int32_t stream, int32_t event) {
  Call call(context, "wait_event");
  if (const GpuStatus status = check_event_call(context, call, stream, event); status != GPU_OK) return status;
  Operation operation = operation_of(context, HOST_GPU_WAIT_EVENT, stream);
  operation.event = event;
  operation.serial = context->events[std::size_t(event)].recorded;   // its latest record now; none: nothing to wait for
  return queue(context, std::move(operation));
}

GpuStatus query_event(GpuContext* context, int32_t event) {
  Call call(context, "query_event", Call::forbidden);
  if (call.status(0, event) != GPU_OK) return call.status(0, event);
  const Event& asked = context->events[std::size_t(event)];
  if (asked.done == asked.recorded) return GPU_OK;
  const GpuStatus status = run_until(context, event, asked.recorded);   // next time it has happened
  return status == GPU_OK ? GPU_NOT_READY : status;
}

GpuStatus synchronize_event(GpuContext* context, int32_t event) {
  Call call(context, "synchronize_event", Call::forbidden);
  if (call.status(0, event) != GPU_OK) return call.status(0, event);
  Operation operation = operation_of(context, HOST_GPU_SYNCHRONIZE_EVENT, -1);
  operation.event = event;
  add_record(context, operation);
  return run_until(context, event, context->events[std::size_t(event)].recorded);
}

GpuStatus elapsed_ns(GpuContext* context, int32_t from_event, int32_t to_event, std::int64_t* ns) {
  Call call(context, "elapsed_ns", Call::forbidden);
  if (call.status(0, from_event) != GPU_OK || call.status(0, to_event) != GPU_OK) return call.status(0, is_event(from_event) ? to_event : from_event);
  const Event &from = context->events[std::size_t(from_event)], &to = context->events[std::size_t(to_event)];
  if (from.recorded == 0 || to.recorded == 0) return report(context, GPU_FAILED, "elapsed_ns: an event was never recorded");
  if (from.done != from.recorded || to.done != to.recorded) return report(context, GPU_NOT_READY, "elapsed_ns: work before an event still runs");
  *ns = to.time_ns - from.time_ns;
  return GPU_OK;
}

GpuStatus synchronize(GpuContext* context) {
  Call call(context, "synchronize", Call::forbidden);
  if (call.status() != GPU_OK) return call.status();
  add_record(context, operation_of(context, HOST_GPU_SYNCHRONIZE, -1));
  const GpuStatus status = run_all(context);
  if (status != GPU_OK) return status;
  const auto damage = context->memory.damage();
  return damage ? report(context, GPU_DEVICE_LOST, *damage) : GPU_OK;
}

// ---- recording ------------------------------------------------------------------------------------------------------------------

GpuStatus begin_capture(GpuContext* context) {
  Call call(context, "begin_capture", Call::forbidden);
  if (call.status() != GPU_OK) return call.status();
  context->capturing = true;
  context->capture_broken = false;
  context->captured.clear();
  return GPU_OK;
}

GpuStatus end_capture(GpuContext* context, GpuGraph** graph) {
  Call call(context, "end_capture");
  const bool began = context->capturing;
  context->capturing = false;
  if (call.status() != GPU_OK) return call.status();
  if (!began || context->capture_broken)
    return report(context, GPU_FAILED, began ? "a call between begin_capture and end_capture has broken the recording" : "end_capture without begin_capture");
  *graph = new GpuGraph{std::move(context->captured)};
  return GPU_OK;
}

GpuStatus run_graph(GpuContext* context, GpuGraph* graph) {
  Call call(context, "run_graph", Call::forbidden);
  GpuStatus status = call.status();
  for (const Operation& operation : graph->operations)
    if (status == GPU_OK) status = queue(context, operation);
  return status;
}

void destroy_graph(GpuContext*, GpuGraph* graph) { delete graph; }   // queued work has copies

// ---- profiling ------------------------------------------------------------------------------------------------------------------

GpuStatus set_trace(GpuContext* context, int32_t level) {
  Call call(context, "set_trace");
  if (call.status() == GPU_OK) context->trace_level = level;
  return call.status();
}

GpuStatus read_trace(GpuContext* context, int32_t flush, GpuActivity* activities, int32_t capacity, int32_t* count) {
  Call call(context, "read_trace");
  *count = 0;
  GpuStatus status = call.status();
  if (status == GPU_OK && flush != 0 && !context->capturing) status = run_all(context);
  if (status != GPU_OK) return status;
  if (context->lost_activities > 0 && capacity > 0) {
    activities[(*count)++] = {GPU_ACTIVITY_LOST, -1, -1, now_ns(), now_ns(), context->lost_activities, 0, 0, {}};
    context->lost_activities = 0;
  }
  for (; *count < capacity && !context->activities.empty(); context->activities.pop_front()) activities[(*count)++] = context->activities.front();
  return GPU_OK;
}

GpuStatus read_recording(GpuContext* context, HostGpuRecord* records, int32_t capacity, int32_t* count) {
  if (context == nullptr) context = latest;
  if (context == nullptr) return report(nullptr, GPU_FAILED, "no context is open");
  for (*count = 0; *count < capacity && !context->records.empty(); context->records.pop_front()) records[(*count)++] = context->records.front();
  return GPU_OK;
}

constexpr GpuPlugin kPlugin = {
    GRADLOOM_GPU_VERSION, sizeof(GpuPlugin), kernel_abi(), "host-gpu",
    message, device_count, describe, environment, open, close,
    allocate, release, copy, fill,
    run_kernel, compile, unload, run_program, mark,
    record_event, wait_event, query_event, synchronize_event, elapsed_ns, synchronize,
    begin_capture, end_capture, run_graph, destroy_graph,
    set_trace, read_trace,
};

}  // namespace
}  // namespace gradloom::kernels::gpu::host

extern "C" {
__attribute__((visibility("default"))) const GpuPlugin* gradloom_gpu_plugin(std::uint32_t version) {
  return version == GRADLOOM_GPU_VERSION ? &gradloom::kernels::gpu::host::kPlugin : nullptr;
}
__attribute__((visibility("default"))) GpuStatus gradloom_hostgpu_recording(GpuContext* context, HostGpuRecord* records, int32_t capacity,
                                                                            int32_t* count) {
  return gradloom::kernels::gpu::host::read_recording(context, records, capacity, count);
}
}
