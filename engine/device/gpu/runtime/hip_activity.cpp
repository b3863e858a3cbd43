// Activity records by the callbacks that libamdhip64 5 exports for roctracer, which is in no package here.
// Their header is not installed either: the types below are those of ROCm 5.2's prof_protocol.h, and the
// calls were checked against the library's code.
//
// The runtime gives each command a number, tells it to one callback in the thread that queues the command,
// and a record with that number to another when the command has finished. Records carry no kernel names:
// those are of what the thread has said that it launches. API calls are not recorded: GPU_TRACE_ALL is as
// GPU_TRACE_KERNELS. Commands of a graph are made when it is launched, so they have the plan step of the
// launch and are called "kernel".
#include <mutex>
#include <set>

#include "engine/device/gpu/runtime/activity.h"
#include "engine/device/gpu/runtime/library.h"
#include "engine/device/gpu/runtime/recorder.h"

namespace gradloom::kernels::gpu {
namespace {

struct Record {  // activity_record_t
  std::uint32_t domain, kind, op;
  std::uint64_t correlation, begin_ns, end_ns;
  std::int32_t device;
  std::uint64_t queue, bytes;
};
static_assert(sizeof(Record) == 64);

constexpr unsigned kDispatch = 0, kCopy = 1;    // operations
constexpr std::uint32_t kFillCommand = 0x1207;  // CL_COMMAND_FILL_BUFFER, the kind of a memset
using QueuedFn = void(std::uint64_t correlation);
using FinishedFn = void(std::uint32_t op, Record* record, void* arg);

// Later runtimes have other functions for this.
struct Callbacks {
  void (*init)(QueuedFn*, FinishedFn*, void* arg) = nullptr;
  bool (*enable)(unsigned op, bool on) = nullptr;
  Callbacks() {
    init = reinterpret_cast<decltype(init)>(optional_hip_function("hipInitActivityCallback"));
    enable = reinterpret_cast<decltype(enable)>(optional_hip_function("hipEnableActivityCallback"));
  }
};
const Callbacks& callbacks() {
  static const Callbacks functions;
  return functions;
}
bool has_callbacks() { return callbacks().init != nullptr && callbacks().enable != nullptr; }

// Nanoseconds from the clock of records (the HSA system clock) to CLOCK_MONOTONIC,
// taken in the shortest of some tries.
bool clock_offset(std::int64_t* offset_ns) {
  constexpr int kTimestamp = 2, kFrequency = 3;  // hsa_system_info_t
  Library hsa{"libhsa-runtime64.so.1"};
  int (*info)(int, void*) = nullptr;
  std::uint64_t ticks = 0, per_second = 0;
  if (!hsa.bind(info, "hsa_system_get_info") || info(kFrequency, &per_second) != 0 || per_second == 0)
    return false;
  std::int64_t shortest = INT64_MAX;
  for (int i = 0; i < 8; ++i) {
    const std::int64_t before = monotonic_ns();
    if (info(kTimestamp, &ticks) != 0) return false;
    const std::int64_t after = monotonic_ns();
    if (after - before >= shortest) continue;
    shortest = after - before;
    *offset_ns = before + shortest / 2 - std::int64_t(double(ticks) * (1e9 / double(per_second)));
  }
  return true;
}

thread_local int current_step = -1;
thread_local const char* current_name = nullptr;

// A name that stays when the module that had it is unloaded.
const char* kept(const char* name) {
  static std::mutex& mutex = *new std::mutex;
  static auto& names = *new std::set<std::string>;
  if (name == nullptr) return nullptr;
  const std::lock_guard lock(mutex);
  return names.insert(name).first->c_str();
}

struct Recorder {
  PlanSteps steps;
  WorkNames names;
  ActivityQueue queue;
  std::int64_t offset_ns = 0;
  bool on = false;
};
// Never destroyed: the runtime's threads may call until the process is gone.
Recorder& recorder() {
  static Recorder& one = *new Recorder;
  return one;
}

void queued(std::uint64_t correlation) {
  recorder().steps.queued(correlation, current_step);
  recorder().names.queued(correlation, current_name);
}

void finished(std::uint32_t op, Record* record, void*) {
  Recorder& self = recorder();
  GpuActivityKind kind = GPU_ACTIVITY_KERNEL;
  if (op != kDispatch) kind = record->kind == kFillCommand ? GPU_ACTIVITY_FILL : GPU_ACTIVITY_COPY;
  const char* const names[] = {"kernel", "copy", "fill"};
  const char* const name = kind == GPU_ACTIVITY_KERNEL ? self.names.of(record->correlation) : nullptr;
  GpuActivity activity =
      activity_of(kind, std::int64_t(record->begin_ns) + self.offset_ns,
                  std::int64_t(record->end_ns) + self.offset_ns, name != nullptr ? name : names[kind]);
  activity.bytes = kind == GPU_ACTIVITY_KERNEL ? 0 : std::int64_t(record->bytes);
  activity.correlation = record->correlation;
  activity.plan_step = self.steps.of_correlation(record->correlation);
  activity.stream = GPU_COMPUTE;  // records name hardware queues, not streams
  self.queue.add(activity);
}

}  // namespace

bool start_activity(GpuTraceLevel, const hipStream_t (&)[GPU_STREAMS], std::string* error) {
  Recorder& self = recorder();
  if (!has_callbacks()) {
    *error = "this HIP runtime exports no activity callbacks (5.2 does)";
    return false;
  }
  if (!clock_offset(&self.offset_ns)) {
    *error = "the HSA clock cannot be read";
    return false;
  }
  if (!self.on) callbacks().init(queued, finished, nullptr);
  self.on = callbacks().enable(kDispatch, true) && callbacks().enable(kCopy, true);
  return self.on;
}

void stop_activity() {
  if (!recorder().on) return;
  (void)callbacks().enable(kDispatch, false);
  (void)callbacks().enable(kCopy, false);
  recorder().on = false;
}

void set_activity_step(int plan_step) { current_step = plan_step; }

void note_kernel(const void* kernel) {
  const bool wanted = kernel != nullptr && recorder().on;
  current_name = wanted ? kept(hipKernelNameRefByPtr(kernel, nullptr)) : nullptr;
}

void note_program(hipFunction_t function) {
  const bool wanted = function != nullptr && recorder().on;
  current_name = wanted ? kept(hipKernelNameRef(function)) : nullptr;
}

// The runtime hands records over when commands finish: after synchronizing there is nothing to flush.
std::size_t read_activity(bool, GpuActivity* activities, std::size_t capacity) {
  return recorder().queue.take(activities, capacity);
}

std::string activity_version() { return has_callbacks() ? "hip activity callbacks" : ""; }

}  // namespace gradloom::kernels::gpu
