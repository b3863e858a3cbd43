// Activity records by CUPTI, which is attached once, when the first step is timed, and stays: taking it off again costs
// a second, and graphs that were recorded under it break. Between timed steps no activity is enabled. Buffers exist
// before tracing; CUPTI fills them, a thread of ours turns them into GpuActivity.
//
// How work finds its plan step. Outside graphs: a callback at each launch, copy and fill notes the current
// step under the call's correlation id, which the record carries too. In graphs: a callback at each node that
// recording creates notes the step, one at each copy of a node (instantiation copies the graph) passes it on,
// and records carry the node.
#include <condition_variable>
#include <thread>
#include <utility>
#include <vector>

#include "engine/device/gpu/runtime/activity.h"
#include "engine/device/gpu/runtime/cupti_api.h"
#include "engine/device/gpu/runtime/library.h"
#include "engine/device/gpu/runtime/recorder.h"

namespace gradloom::kernels::gpu {
namespace {

using namespace cupti_api;

// That of the runtime first: the other would ask for another driver.
#if CUDART_VERSION >= 13000
constexpr const char *kFile = "libcupti.so.13", *kOther = "libcupti.so.12";
#else
constexpr const char *kFile = "libcupti.so.12", *kOther = "libcupti.so.13";
#endif

constexpr std::size_t kBufferBytes = std::size_t(2) << 20, kBuffers = 8;

struct Functions {
  Library library{kFile, kOther};
  GetVersion* version = nullptr;
  GetResultString* result_text = nullptr;
  Subscribe* subscribe = nullptr;
  Unsubscribe* unsubscribe = nullptr;
  EnableCallback* enable_callback = nullptr;
  GetCallbackName* callback_name = nullptr;
  RegisterCallbacks* register_buffers = nullptr;
  RegisterTimestampCallback* register_clock = nullptr;
  Enable *enable = nullptr, *disable = nullptr;
  FlushAll* flush = nullptr;
  GetNextRecord* next_record = nullptr;
  GetNumDroppedRecords* dropped_records = nullptr;
  GetGraphNodeId* node_id = nullptr;
  GetStreamIdEx* stream_id = nullptr;
  std::uint32_t api = 0;
  bool ready = false;

  Functions() {
    ready = library && library.bind(version, "cuptiGetVersion") &&
            library.bind(result_text, "cuptiGetResultString") && library.bind(subscribe, "cuptiSubscribe") &&
            library.bind(unsubscribe, "cuptiUnsubscribe") &&
            library.bind(enable_callback, "cuptiEnableCallback") &&
            library.bind(callback_name, "cuptiGetCallbackName") &&
            library.bind(register_buffers, "cuptiActivityRegisterCallbacks") &&
            library.bind(register_clock, "cuptiActivityRegisterTimestampCallback") &&
            library.bind(enable, "cuptiActivityEnable") && library.bind(disable, "cuptiActivityDisable") &&
            library.bind(flush, "cuptiActivityFlushAll") &&
            library.bind(next_record, "cuptiActivityGetNextRecord") &&
            library.bind(dropped_records, "cuptiActivityGetNumDroppedRecords") &&
            library.bind(node_id, "cuptiGetGraphNodeId") && library.bind(stream_id, "cuptiGetStreamIdEx") &&
            version(&api) == kSuccess;
  }
};
Functions& cupti() {
  static Functions functions;
  return functions;
}

thread_local int current_step = -1;

struct Callback {
  Domain domain;
  CallbackId id;
  std::uint32_t since = 0;  // version of CUPTI
};
constexpr Callback kCallbacks[] = {
    {kRuntimeApi, kCudaLaunchKernel},
    {kRuntimeApi, kCudaLaunchKernelEx},
    {kRuntimeApi, kCudaLaunchKernel13, 130000},
    {kRuntimeApi, kCudaMemcpyAsync},
    {kRuntimeApi, kCudaMemsetAsync},
    {kDriverApi, kCuLaunchKernel},
    {kDriverApi, kCuLaunchKernelEx},
    {kResource, kGraphNodeCreated},
    {kResource, kGraphNodeCloned},
};
constexpr ActivityKind kWork[] = {kConcurrentKernel, kMemcpy, kMemset};

// False: it worked. Else *error says what did not, in CUPTI's words.
bool failed(Result result, const char* what, std::string* error) {
  if (result == kSuccess) return false;
  const char* text = nullptr;
  (void)cupti().result_text(result, &text);
  *error =
      std::string(what) + ": " + (text != nullptr ? text : "unknown error") +
      (result == kInsufficientPrivileges ? " (profiling needs administrator rights on this machine)" : "") +
      (result == kMultipleSubscribers ? " (another profiler is attached)" : "");
  return true;
}

class Recorder {
 public:
  bool start(GpuTraceLevel level, const cudaStream_t (&streams)[GPU_STREAMS], std::string* error) {
    if (!attached_ && why_not_.empty()) attached_ = attach(&why_not_);
    *error = why_not_;
    if (!attached_) return false;
    for (int i = 0; i < GPU_STREAMS; ++i) {
      if (cupti().stream_id(nullptr, streams[i], 0, &stream_ids_[i]) != kSuccess) stream_ids_[i] = 0;
    }
    if (level_ == GPU_TRACE_OFF && !enable(error)) return false;
    if (level == GPU_TRACE_ALL && level_ != GPU_TRACE_ALL) (void)cupti().enable(kRuntime);
    if (level == GPU_TRACE_KERNELS && level_ == GPU_TRACE_ALL) disable(kRuntime);
    level_ = level;
    return true;
  }

  void stop() {
    if (level_ == GPU_TRACE_OFF) return;
    flush();
    disable();
    if (level_ == GPU_TRACE_ALL) disable(kRuntime);
    level_ = GPU_TRACE_OFF;
  }

  std::size_t read(bool flush_first, GpuActivity* activities, std::size_t capacity) {
    if (flush_first && level_ != GPU_TRACE_OFF) flush();
    return queue_.take(activities, capacity);
  }

 private:
  struct Buffer {
    std::uint8_t* data;
    std::size_t valid_bytes;
    void* context;
    std::uint32_t stream;
  };

  // Once: what fails here fails again.
  bool attach(std::string* error) {
    if (!cupti().ready) {
      *error = cupti().library.error().empty() ? "CUPTI does not tell its version" : cupti().library.error();
      return false;
    }
    if (failed(cupti().subscribe(&subscriber_, on_callback, this), "subscribe", error)) return false;
    bool bad = failed(cupti().register_clock([]() -> std::uint64_t { return std::uint64_t(monotonic_ns()); }),
                      "register clock", error) ||
               failed(cupti().register_buffers(on_request, on_complete), "register buffers", error);
    for (const Callback& callback : kCallbacks)
      if (callback.since <= cupti().api)
        bad = bad || failed(cupti().enable_callback(1, subscriber_, callback.domain, callback.id), "callback",
                            error);
    if (bad) {
      (void)cupti().unsubscribe(subscriber_);  // never finalize: another profiler may be at work
      return false;
    }
    memory_.resize(kBufferBytes * kBuffers / sizeof(std::uint64_t));  // CUPTI wants 8-byte boundaries
    full_.reserve(kBuffers);
    for (std::size_t i = 0; i < kBuffers; ++i)
      free_.push_back(reinterpret_cast<std::uint8_t*>(memory_.data()) + i * kBufferBytes);
    std::thread([this] { drain(); }).detach();  // until the process ends, as the plugin stays
    return true;
  }

  bool enable(std::string* error) {
    for (const ActivityKind kind : kWork)
      if (failed(cupti().enable(kind), "enable activities", error)) {
        disable();
        return false;
      }
    return true;
  }

  void disable() {
    for (const ActivityKind kind : kWork) disable(kind);
  }
  void disable(ActivityKind kind) {
    if (cupti().disable(kind) != kSuccess) stale_ = true;
  }

  // What one flush leaves behind comes with the next, and belongs to no window: both are told that records are missing.
  void flush() {
    const bool left = cupti().flush(0) != kSuccess;
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return full_.empty() && !busy_; });
    if (std::exchange(stale_, left) || left) lose(0);
  }
  void lose(std::size_t records) {
    GpuActivity lost = activity_of(GPU_ACTIVITY_LOST, monotonic_ns(), monotonic_ns(), "records dropped");
    lost.bytes = std::int64_t(records);
    queue_.add(lost);
  }

  void drain() {
    std::unique_lock lock(mutex_);
    while (true) {
      changed_.wait(lock, [&] { return !full_.empty(); });
      const Buffer buffer = full_.front();
      full_.erase(full_.begin());
      busy_ = true;
      lock.unlock();
      read_buffer(buffer);
      lock.lock();
      busy_ = false;
      free_.push_back(buffer.data);
      changed_.notify_all();
    }
  }

  void read_buffer(const Buffer& buffer) {
    cupti_api::Activity* record = nullptr;
    Result read = buffer.valid_bytes > 0 ? kSuccess : kNoMoreRecords;
    while (read == kSuccess) {
      read = cupti().next_record(buffer.data, buffer.valid_bytes, &record);
      if (read == kSuccess) add(record);
    }
    std::size_t dropped = 0;
    const bool told = cupti().dropped_records(buffer.context, buffer.stream, &dropped) == kSuccess;
    if (read != kNoMoreRecords || !told || dropped > 0) lose(dropped);
  }

  void add(const cupti_api::Activity* record) {
    switch (record->kind) {
      case kConcurrentKernel: {
        const auto* kernel = reinterpret_cast<const KernelActivity*>(record);
        return add_work(*kernel, GPU_ACTIVITY_KERNEL, kernel->name, 0);
      }
      case kMemcpy: {
        const auto* copy = reinterpret_cast<const MemcpyActivity*>(record);
        return add_work(*copy, GPU_ACTIVITY_COPY, "copy", std::int64_t(copy->bytes));
      }
      case kMemset: {
        const auto* fill = reinterpret_cast<const MemsetActivity*>(record);
        return add_work(*fill, GPU_ACTIVITY_FILL, "fill", std::int64_t(fill->bytes));
      }
      case kRuntime: {
        const auto* call = reinterpret_cast<const ApiActivity*>(record);
        const char* name = nullptr;
        (void)cupti().callback_name(kRuntimeApi, call->call, &name);
        GpuActivity activity =
            activity_of(GPU_ACTIVITY_API, std::int64_t(call->start), std::int64_t(call->end), name);
        activity.stream = -1;
        activity.correlation = call->correlation;
        activity.plan_step = steps_.of_correlation(call->correlation);
        return queue_.add(activity);
      }
      default: return;
    }
  }

  template <class Record>
  void add_work(const Record& record, GpuActivityKind kind, const char* name, std::int64_t bytes) {
    GpuActivity activity = activity_of(kind, std::int64_t(record.start), std::int64_t(record.end), name);
    activity.bytes = bytes;
    activity.graph_node = record.graph_node;
    activity.correlation = record.graph_node != 0 ? 0 : record.correlation;
    activity.plan_step = record.graph_node != 0 ? steps_.of_node(record.graph_node)
                                                : steps_.of_correlation(record.correlation);
    activity.stream = GPU_COMPUTE;  // graphs may run on streams of the driver's own
    for (int i = 0; i < GPU_STREAMS; ++i) {
      if (record.stream == stream_ids_[i]) activity.stream = i;
    }
    queue_.add(activity);
  }

  static void on_callback(void* self, Domain domain, CallbackId id, const void* data) {
    PlanSteps& steps = static_cast<Recorder*>(self)->steps_;
    if (domain != kResource) {
      const auto* call = static_cast<const CallbackData*>(data);
      if (call->site == kApiEnter && current_step >= 0) steps.queued(call->correlation, current_step);
      return;
    }
    const auto* graph = static_cast<const GraphData*>(static_cast<const ResourceData*>(data)->descriptor);
    std::uint64_t node = 0, original = 0;
    if (cupti().node_id(graph->node, &node) != kSuccess) return;
    if (id == kGraphNodeCreated) {
      steps.node(node, current_step);
    } else if (cupti().node_id(graph->original_node, &original) == kSuccess) {
      steps.node_copied(original, node);
    }
  }

  static void on_request(std::uint8_t** buffer, std::size_t* bytes, std::size_t* most_records);
  static void on_complete(void* context, std::uint32_t stream, std::uint8_t* buffer, std::size_t bytes,
                          std::size_t valid_bytes);

  GpuTraceLevel level_ = GPU_TRACE_OFF;
  Subscriber subscriber_ = nullptr;
  bool attached_ = false;
  std::string why_not_;  // it could not be attached
  bool stale_ = false;   // records of other times may come with the next flush
  std::uint32_t stream_ids_[GPU_STREAMS] = {};
  PlanSteps steps_;
  ActivityQueue queue_;

  std::mutex mutex_;  // of what follows
  std::condition_variable changed_;
  std::vector<std::uint64_t> memory_;
  std::vector<std::uint8_t*> free_;
  std::vector<Buffer> full_;
  bool busy_ = false;
};

// Never destroyed: CUPTI's threads may call until the process is gone.
Recorder& recorder() {
  static Recorder& one = *new Recorder;
  return one;
}

void Recorder::on_request(std::uint8_t** buffer, std::size_t* bytes, std::size_t* most_records) {
  Recorder& self = recorder();
  const std::lock_guard lock(self.mutex_);
  *most_records = 0;  // as many as fit
  *buffer = self.free_.empty() ? nullptr : self.free_.back();
  *bytes = self.free_.empty() ? 0 : kBufferBytes;  // none left: CUPTI drops and counts
  if (!self.free_.empty()) self.free_.pop_back();
}

void Recorder::on_complete(void* context, std::uint32_t stream, std::uint8_t* buffer, std::size_t,
                           std::size_t valid_bytes) {
  if (buffer == nullptr) return;
  Recorder& self = recorder();
  {
    const std::lock_guard lock(self.mutex_);
    self.full_.push_back({buffer, valid_bytes, context, stream});
  }
  self.changed_.notify_all();
}

}  // namespace

bool start_activity(GpuTraceLevel level, const cudaStream_t (&streams)[GPU_STREAMS], std::string* error) {
  return recorder().start(level, streams, error);
}
void stop_activity() { recorder().stop(); }
void set_activity_step(int plan_step) { current_step = plan_step; }
std::size_t read_activity(bool flush, GpuActivity* activities, std::size_t capacity) {
  return recorder().read(flush, activities, capacity);
}

std::string activity_version() { return cupti().ready ? "cupti " + std::to_string(cupti().api) : ""; }

}  // namespace gradloom::kernels::gpu
