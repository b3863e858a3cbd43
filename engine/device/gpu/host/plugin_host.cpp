// The table of plugin.h for the host executor: device "host-gpu" runs every GPU kernel on the CPU, for tests
// of kernels and of the code that drives plugins. Environment, read by open():
//   GRADLOOM_HOSTGPU_ORDER=ascending|descending|shuffled:SEED   order of threads and blocks (executor.h)
//   GRADLOOM_HOSTGPU_LAZY=1|compute   work runs only when something waits for it, as late as a GPU could: finds missing waits.
//                                  compute: of the compute stream alone, while copies run as early as their waits let them
//   GRADLOOM_HOSTGPU_MEMORY_MB=N   device memory
//   GRADLOOM_HOSTGPU_FAIL=...      failures on demand (faults.h)
//   GRADLOOM_HOSTGPU_FASTEST=0|1   which algorithm of products tune() finds (products.h)
//   GRADLOOM_HOST_CXX=...          compiler of generated programs (module.h)
// Stricter than a GPU: writes around allocations are found after each kernel, copies that leave an allocation
// and calls that would break a recording on a GPU fail.
#include "engine/device/gpu/plugin.h"

#include <cstdlib>
#include <cstring>

#include "engine/device/gpu/host/context.h"
#include "engine/device/gpu/host/products.h"

namespace gradloom::kernels::gpu {
bool queue_kernel(unsigned id, const void* args, std::size_t bytes, void* stream);  // runtime/kernel_table.cu
}

namespace gradloom::kernels::gpu::host {
namespace {

// ---- devices and contexts -------------------------------------------------------------------------------------------------------

// Calls without a context.
GpuStatus free_call(const char* entry) {
  static InjectedFaults faults;
  const GpuStatus wanted = faults.call(entry);
  return wanted == GPU_OK ? GPU_OK : report(nullptr, wanted, std::string(entry) + ": failure on demand");
}

GpuStatus check_index(const char* entry, int32_t index) {
  const GpuStatus status = free_call(entry);
  return status != GPU_OK || index == 0 ? status
                                        : report(nullptr, GPU_NO_DEVICE, "there is one host-gpu device: 0");
}

const char* message(const GpuContext* context) {
  return context != nullptr ? context->message.c_str() : thread_message().c_str();
}

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
  description->free_bytes =
      std::int64_t(Memory::limit_bytes() - std::min(Memory::limit_bytes(), Memory::used_bytes()));
  description->warp_size = kWarp;
  description->multiprocessors = 1;
  description->shared_bytes_per_block = std::int32_t(kSharedBytes);
  return GPU_OK;
}

GpuStatus environment(int32_t index, GpuEnvironment* environment) {
  const GpuStatus status = check_index("environment", index);
  if (status == GPU_OK) *environment = {-1, -1, -1, -1, -1, -1, -1, 0, {}};  // nothing of it is measured
  return status;
}

GpuContext* latest = nullptr;  // opened; for those who only know the plugin (read_recording)

GpuStatus open(int32_t index, GpuContext** context) {
  const GpuStatus status = check_index("open", index);
  if (status != GPU_OK) return status;
  ThreadOrder order;
  if (const char* text = std::getenv("GRADLOOM_HOSTGPU_ORDER")) {
    const auto chosen = parse_thread_order(text);
    if (!chosen)
      return report(
          nullptr, GPU_FAILED,
          std::string("GRADLOOM_HOSTGPU_ORDER=") + text + ": ascending, descending or shuffled:SEED");
    order = *chosen;
  }
  auto opened = std::make_unique<GpuContext>();
  opened->order = order;
  const char* lazy = std::getenv("GRADLOOM_HOSTGPU_LAZY");
  if (lazy != nullptr && std::strcmp(lazy, "1") == 0) opened->lazy.fill(true);
  if (lazy != nullptr && std::strcmp(lazy, "compute") == 0) opened->lazy[GPU_COMPUTE] = true;
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
                "allocate " + std::to_string(bytes) +
                    (pinned != 0 ? " bytes of pinned host memory" : " bytes of device memory (") +
                    (pinned != 0 ? ""
                                 : std::to_string(Memory::used_bytes()) + " of " +
                                       std::to_string(Memory::limit_bytes()) + " in use)"));
}

GpuStatus release(GpuContext* context, void* memory, int32_t pinned) {
  Call call(context, "release", Call::forbidden);
  if (call.status() != GPU_OK || memory == nullptr) return call.status();
  if (const GpuStatus status = run_all(context); status != GPU_OK) return status;  // work that uses it
  const auto wrong = context->memory.release(memory, pinned != 0);
  return wrong ? report(context, GPU_DEVICE_LOST, "release: " + *wrong) : GPU_OK;
}

GpuStatus copy(GpuContext* context, int32_t stream, void* target, const void* source, std::size_t bytes) {
  Call call(context, "copy");
  if (call.status(stream) != GPU_OK || bytes == 0) return call.status(stream);
  for (const void* at : {static_cast<const void*>(target), source})
    if (const auto wrong = context->memory.leaves(at, bytes))
      return report(context, GPU_LAUNCH_FAILED, "copy: " + *wrong);
  const bool asynchronous = context->memory.owns(target) && context->memory.owns(source);
  if (!asynchronous && is_captured(context, stream)) {
    context->capture_broken = true;
    return report(context, GPU_FAILED,
                  "copy of memory that is not pinned is not possible while work is recorded");
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
  if (const auto wrong = context->memory.leaves(target, bytes))
    return report(context, GPU_LAUNCH_FAILED, "fill: " + *wrong);
  Operation operation = operation_of(context, HOST_GPU_FILL, stream);
  operation.target = target;
  operation.bytes = bytes;
  operation.byte = byte;
  return queue(context, std::move(operation));
}

GpuStatus call_host(GpuContext* context, int32_t stream, void (*function)(void*), void* user) {
  Call call(context, "call_host");
  if (call.status(stream) != GPU_OK) return call.status(stream);
  Operation operation = operation_of(context, HOST_GPU_CALL, stream);
  operation.function = function;
  operation.user = user;
  return queue(context, std::move(operation));
}

// There is no library of exchanges here.
void ranks_library(GpuImplementation* to) { *to = {}; }
GpuStatus without_ranks(GpuContext* context) {
  return report(context, GPU_UNSUPPORTED, "host-gpu joins no ranks");
}
GpuStatus make_ranks_id(GpuContext* context, std::uint8_t*) { return without_ranks(context); }
GpuStatus join_ranks(GpuContext* context, const std::uint8_t*, int32_t, int32_t, std::int64_t) {
  return without_ranks(context);
}
GpuStatus exchange(GpuContext* context, int32_t, const GpuExchange*) { return without_ranks(context); }
GpuStatus ranks_state(GpuContext*) { return GPU_OK; }
void leave_ranks(GpuContext*) {}

// ---- work -----------------------------------------------------------------------------------------------------------------------

// Null: not a product.
const GemmArgs* product_of(std::uint32_t kernel_id, const void* args, std::size_t args_bytes) {
  const bool product = KernelId(kernel_id) == KernelId::gemm && args_bytes == sizeof(GemmArgs);
  return product ? static_cast<const GemmArgs*>(args) : nullptr;
}

GpuStatus launch_kernel(GpuContext* context, int32_t stream, std::uint32_t kernel_id, const void* args,
                        std::size_t args_bytes) {
  LaunchList list;
  {
    // A copy that is gone when the kernel runs: a kernel must not keep pointers into
    // its launcher's arguments.
    const auto copied = std::make_unique<std::byte[]>(args_bytes);
    std::memcpy(copied.get(), args, args_bytes);
    if (!queue_kernel(kernel_id, copied.get(), args_bytes, static_cast<Queue*>(&list)))
      return report(context, GPU_UNSUPPORTED,
                    "kernel " + std::to_string(kernel_id) +
                        ": no such kernel here, or its arguments are of another version");
  }
  GpuStatus status = GPU_OK;
  for (const KeptLaunch& launch : list.launches)
    if (status == GPU_OK) status = queue_launch(context, stream, launch.get());
  return status;
}

GpuStatus run(GpuContext* context, int32_t stream, std::uint32_t kernel_id, const void* args,
              std::size_t args_bytes) {
  Call call(context, "run");
  if (call.status(stream) != GPU_OK) return call.status(stream);
  if (kernel_id < std::uint32_t(KernelId::count)) {
    const char* const name = kernel_name(KernelId(kernel_id));
    if (const GpuStatus wanted = context->faults.call(name); wanted != GPU_OK)
      return report(context, wanted, std::string(name) + ": failure on demand");
  }
  GpuImplementation& told = context->implementation;
  told = {};
  const GemmArgs* const product = product_of(kernel_id, args, args_bytes);
  const auto problem = product != nullptr ? product_problem(*product) : std::nullopt;
  if (product != nullptr && !problem) copy_text(told.detail, "there is one way to compute it");
  if (is_flash_attention(KernelId(kernel_id))) copy_text(told.detail, kFlashAttentionName);
  if (!problem) return launch_kernel(context, stream, kernel_id, args, args_bytes);
  if (const GpuStatus wanted = context->faults.call("library"); wanted != GPU_OK) {
    copy_text(told.detail,
              std::string(kProductLibrary) + ": status " + std::to_string(wanted) + " on demand");
    told.failed = 1;
    return launch_kernel(context, stream, kernel_id, args, args_bytes);
  }
  const auto chosen = context->product_algorithms.find(*problem);
  const std::int32_t algorithm = chosen == context->product_algorithms.end() ? 0 : chosen->second;
  copy_text(told.library, kProductLibrary);
  copy_text(told.detail, algorithm == 0 ? "slices" : "whole");
  const GemmArgs with = with_algorithm(*product, algorithm);
  return launch_kernel(context, stream, kernel_id, &with, sizeof with);
}

void implementation(const GpuContext* context, GpuImplementation* to) { *to = context->implementation; }

// There is no such library here.
GpuStatus offer(GpuContext* context, int32_t stream, std::uint32_t, const void*, std::size_t,
                int32_t* taken) {
  Call call(context, "offer");
  *taken = 0;
  return call.status(stream);
}
int32_t has_dnn_library() { return 0; }

GpuStatus tune(GpuContext* context, std::uint32_t kernel_id, const void* args, std::size_t args_bytes,
               int32_t candidates) {
  Call call(context, "tune", Call::forbidden);
  if (call.status() != GPU_OK) return call.status();
  const GemmArgs* const product = product_of(kernel_id, args, args_bytes);
  const auto problem = product != nullptr ? product_problem(*product) : std::nullopt;
  if (!problem || context->product_algorithms.count(*problem) != 0) return GPU_OK;
  const GpuAlgorithm* const given = context->algorithms.given(*problem);
  const auto kept = given != nullptr ? algorithm_number(*given) : std::nullopt;
  std::int32_t best = kept ? std::int32_t(*kept) : -1;  // none yet
  std::int64_t best_ns = kept ? given->time_ns : 0;
  for (std::int32_t i = 0; !kept && i < std::min(candidates, kProductAlgorithms); ++i) {
    const GemmArgs with = with_algorithm(*product, i);
    const std::int64_t start_ns = now_ns();
    GpuStatus status = launch_kernel(context, GPU_COMPUTE, kernel_id, &with, sizeof with);
    if (status == GPU_OK) status = run_all(context);
    if (status != GPU_OK) return status;
    const std::int64_t ns = now_ns() - start_ns;
    if (best < 0 || (fastest_by_setting() ? i == *fastest_by_setting() : ns < best_ns)) {
      best = i;
      best_ns = ns;
    }
  }
  const auto number = std::uint8_t(std::max(best, 0));
  context->product_algorithms[*problem] = number;
  context->algorithms.choose(*problem, &number, 1, best_ns);
  return GPU_OK;
}

GpuStatus set_algorithm(GpuContext* context, const GpuAlgorithm* algorithm) {
  Call call(context, "set_algorithm");
  if (call.status() == GPU_OK) (void)context->algorithms.give(*algorithm);
  return call.status();
}

GpuStatus algorithms(GpuContext* context, GpuAlgorithm* rows, int32_t capacity, int32_t* count) {
  Call call(context, "algorithms");
  *count = call.status() == GPU_OK ? context->algorithms.list(rows, capacity) : 0;
  return call.status();
}

GpuStatus compile(GpuContext* context, const char* source, const char* const* entries, int32_t count,
                  const char* cache_folder, GpuModule** module) {
  Call call(context, "compile", Call::forbidden);
  if (call.status() != GPU_OK) return call.status();
  auto compiled =
      std::unique_ptr<GpuModule>(new GpuModule{Module(source, {entries, entries + count}, cache_folder)});
  if (!compiled->module.error().empty())
    return report(context, GPU_LAUNCH_FAILED, "compile: " + compiled->module.error());
  *module = compiled.release();
  return GPU_OK;
}

void unload(GpuContext* context, GpuModule* module) {
  (void)run_all(context);  // work that uses it; an error shows in the next call too
  delete module;
}

GpuStatus run_program(GpuContext* context, int32_t stream, GpuModule* module, int32_t index, GpuDim grid,
                      GpuDim block, const void* params, std::size_t bytes) {
  Call call(context, "run_program");
  if (call.status(stream) != GPU_OK) return call.status(stream);
  if (index < 0 || std::size_t(index) >= module->module.entries().size())
    return report(context, GPU_LAUNCH_FAILED, "run_program: no entry " + std::to_string(index));
  const Module::Entry entry = module->module.entries()[std::size_t(index)];
  return queue_launch(context, stream,
                      {reinterpret_cast<const void*>(entry),
                       {grid.x, grid.y, grid.z},
                       {block.x, block.y, block.z},
                       0,
                       entry,
                       params,
                       bytes});
}

GpuStatus mark(GpuContext* context, int32_t plan_step, const char*) {
  Call call(context, "mark");
  if (call.status() == GPU_OK) context->plan_step = plan_step;
  return call.status();
}

// ---- order ----------------------------------------------------------------------------------------------------------------------

GpuStatus make_event(GpuContext* context, int32_t* event) {
  Call call(context, "make_event", Call::forbidden);
  if (call.status() != GPU_OK) return call.status();
  *event = int32_t(context->events.size());
  context->events.emplace_back();
  return GPU_OK;
}

// Events of streams that are being recorded become dependencies of the graph.
GpuStatus record_in_capture(GpuContext* context, int32_t stream, Operation operation) {
  const int event = operation.event;
  const GpuStatus status = queue(context, std::move(operation));
  context->capture.events[event] = context->capture.knows[std::size_t(stream)];
  return status;
}

GpuStatus wait_in_capture(GpuContext* context, int32_t stream, Operation operation) {
  const auto recorded = context->capture.events.find(operation.event);
  if (recorded == context->capture.events.end()) {
    context->capture_broken = true;
    return report(context, GPU_FAILED,
                  "a stream cannot wait for an event from outside while work is recorded");
  }
  Capture::Clock& knows = context->capture.knows[std::size_t(stream)];
  for (std::size_t s = 0; s < knows.size(); ++s) knows[s] = std::max(knows[s], recorded->second[s]);
  context->capture.takes_part[std::size_t(stream)] = true;
  return queue(context, std::move(operation));
}

GpuStatus record_event(GpuContext* context, int32_t stream, int32_t event) {
  Call call(context, "record_event");
  if (call.status(stream, event) != GPU_OK) return call.status(stream, event);
  Operation operation = operation_of(context, HOST_GPU_RECORD_EVENT, stream);
  operation.event = event;
  if (is_captured(context, stream)) return record_in_capture(context, stream, std::move(operation));
  context->capture.events.erase(event);
  operation.serial = ++context->events[std::size_t(event)].recorded;
  return queue(context, std::move(operation));
}

GpuStatus wait_event(GpuContext* context, int32_t stream, int32_t event) {
  Call call(context, "wait_event");
  if (call.status(stream, event) != GPU_OK) return call.status(stream, event);
  Operation operation = operation_of(context, HOST_GPU_WAIT_EVENT, stream);
  operation.event = event;
  if (is_captured(context, stream) || (context->capturing && context->capture.events.count(event) != 0))
    return wait_in_capture(context, stream, std::move(operation));
  operation.serial =
      context->events[std::size_t(event)].recorded;  // its latest record now; none: nothing to wait for
  return queue(context, std::move(operation));
}

GpuStatus query_event(GpuContext* context, int32_t event) {
  Call call(context, "query_event", Call::forbidden);
  if (call.status(0, event) != GPU_OK) return call.status(0, event);
  const Event& asked = context->events[std::size_t(event)];
  if (asked.done == asked.recorded) return GPU_OK;
  const GpuStatus status = run_until(context, event, asked.recorded);  // next time it has happened
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
  if (call.status(0, from_event) != GPU_OK || call.status(0, to_event) != GPU_OK)
    return call.status(0, is_event(context, from_event) ? to_event : from_event);
  const Event &from = context->events[std::size_t(from_event)], &to = context->events[std::size_t(to_event)];
  if (from.recorded == 0 || to.recorded == 0)
    return report(context, GPU_FAILED, "elapsed_ns: an event was never recorded");
  if (from.done != from.recorded || to.done != to.recorded)
    return report(context, GPU_NOT_READY, "elapsed_ns: work before an event still runs");
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

// The program's own work on the host has run, and sees what the compute stream had when that has run, too.
GpuStatus join_stream(GpuContext* context, void*, int32_t first, int32_t* recorded) {
  *recorded = 0;
  return first != 0 ? GPU_OK : synchronize(context);
}

// ---- recording ------------------------------------------------------------------------------------------------------------------

GpuStatus begin_capture(GpuContext* context) {
  Call call(context, "begin_capture", Call::forbidden);
  if (call.status() != GPU_OK) return call.status();
  context->capturing = true;
  context->capture_broken = false;
  context->captured.clear();
  context->capture = {};
  context->capture.takes_part[GPU_COMPUTE] = true;
  return GPU_OK;
}

GpuStatus end_capture(GpuContext* context, GpuGraph** graph) {
  Call call(context, "end_capture");
  const bool began = context->capturing;
  context->capturing = false;
  if (call.status() != GPU_OK) return call.status();
  if (!began || context->capture_broken)
    return report(context, GPU_FAILED,
                  began ? "a call between begin_capture and end_capture has broken the recording"
                        : "end_capture without begin_capture");
  for (std::size_t s = 0; s < GPU_STREAMS; ++s)
    if (context->capture.knows[GPU_COMPUTE][s] < context->capture.knows[s][s])
      return report(context, GPU_FAILED,
                    "the compute stream does not wait for the recorded work of stream " + std::to_string(s));
  *graph = new GpuGraph{std::move(context->captured)};
  return GPU_OK;
}

GpuStatus run_graph(GpuContext* context, GpuGraph* graph) {
  Call call(context, "run_graph", Call::forbidden);
  GpuStatus status = call.status();
  for (Operation operation : graph->operations) {
    if (status != GPU_OK) break;
    if (operation.event >= 0) {  // of the graph's own: this run's
      Event& event = context->events[std::size_t(operation.event)];
      operation.serial = operation.kind == HOST_GPU_RECORD_EVENT ? ++event.recorded : event.recorded;
    }
    status = queue(context, std::move(operation));
  }
  return status;
}

void destroy_graph(GpuContext*, GpuGraph* graph) { delete graph; }  // queued work has copies

// ---- profiling ------------------------------------------------------------------------------------------------------------------

GpuStatus set_trace(GpuContext* context, int32_t level) {
  Call call(context, "set_trace");
  if (call.status() == GPU_OK) context->trace_level = level;
  return call.status();
}

GpuStatus read_trace(GpuContext* context, int32_t flush, GpuActivity* activities, int32_t capacity,
                     int32_t* count) {
  Call call(context, "read_trace");
  *count = 0;
  GpuStatus status = call.status();
  if (status == GPU_OK && flush != 0 && !context->capturing) status = run_all(context);
  if (status != GPU_OK) return status;
  if (context->lost_activities > 0 && capacity > 0) {
    activities[(*count)++] = {GPU_ACTIVITY_LOST,        -1, -1, now_ns(), now_ns(),
                              context->lost_activities, 0,  0,  {}};
    context->lost_activities = 0;
  }
  for (; *count < capacity && !context->activities.empty(); context->activities.pop_front())
    activities[(*count)++] = context->activities.front();
  return GPU_OK;
}

GpuStatus read_recording(GpuContext* context, HostGpuRecord* records, int32_t capacity, int32_t* count) {
  if (context == nullptr) context = latest;
  if (context == nullptr) return report(nullptr, GPU_FAILED, "no context is open");
  for (*count = 0; *count < capacity && !context->records.empty(); context->records.pop_front())
    records[(*count)++] = context->records.front();
  return GPU_OK;
}

constexpr GpuPlugin kPlugin = {
    GRADLOOM_GPU_VERSION,   sizeof(GpuPlugin), kernel_abi(), "host-gpu", message,
    device_count,           describe,          environment,  open,       close,
    GRADLOOM_GPU_FUNCTIONS,
};

}  // namespace
}  // namespace gradloom::kernels::gpu::host

extern "C" {
__attribute__((visibility("default"))) const GpuPlugin* gradloom_gpu_plugin(std::uint32_t version) {
  return version == GRADLOOM_GPU_VERSION ? &gradloom::kernels::gpu::host::kPlugin : nullptr;
}
__attribute__((visibility("default"))) GpuStatus gradloom_hostgpu_recording(GpuContext* context,
                                                                            HostGpuRecord* records,
                                                                            int32_t capacity,
                                                                            int32_t* count) {
  return gradloom::kernels::gpu::host::read_recording(context, records, capacity, count);
}
}
