// Activity records by CUPTI, whose library is opened when tracing starts and detached when it stops: its
// hooks cost time as long as they are there. Buffers exist before tracing; CUPTI fills them, a thread of ours
// turns them into GpuActivity.
//
// How work finds its plan step. Outside graphs: a callback at each launch, copy and fill notes the current
// step under the call's correlation id, which the record carries too. In graphs: a callback at each node that
// recording creates notes the step, one at each copy of a node (instantiation copies the graph) passes it on,
// and records carry the node.
#include <cupti.h>

#include <condition_variable>
#include <thread>
#include <vector>

#include "engine/device/gpu/runtime/activity.h"
#include "engine/device/gpu/runtime/library.h"
#include "engine/device/gpu/runtime/recorder.h"

namespace gradloom::kernels::gpu {
namespace {

// Records have the layout of the headers of the same major version.
#if CUPTI_API_VERSION >= 130000
constexpr const char* kFile = "libcupti.so.13";
using KernelRecord = CUpti_ActivityKernel10;
using CopyRecord = CUpti_ActivityMemcpy6;
#else
constexpr const char* kFile = "libcupti.so.12";
using KernelRecord = CUpti_ActivityKernel9;
using CopyRecord = CUpti_ActivityMemcpy5;
#endif
using FillRecord = CUpti_ActivityMemset4;

constexpr std::size_t kBufferBytes = std::size_t(2) << 20, kBuffers = 8;
constexpr std::uint32_t kSafeDetach = 24;  // CUDA 12.6: before it, detaching breaks graphs

struct Functions {
  Library library{kFile};
  decltype(&cuptiGetVersion) version = nullptr;
  decltype(&cuptiGetResultString) result_text = nullptr;
  decltype(&cuptiSubscribe) subscribe = nullptr;
  decltype(&cuptiUnsubscribe) unsubscribe = nullptr;
  decltype(&cuptiEnableCallback) enable_callback = nullptr;
  decltype(&cuptiGetCallbackName) callback_name = nullptr;
  decltype(&cuptiActivityRegisterCallbacks) register_buffers = nullptr;
  decltype(&cuptiActivityRegisterTimestampCallback) register_clock = nullptr;
  decltype(&cuptiActivityEnable) enable = nullptr;
  decltype(&cuptiActivityDisable) disable = nullptr;
  decltype(&cuptiActivityFlushAll) flush = nullptr;
  decltype(&cuptiActivityGetNextRecord) next_record = nullptr;
  decltype(&cuptiActivityGetNumDroppedRecords) dropped_records = nullptr;
  decltype(&cuptiGetGraphNodeId) node_id = nullptr;
  decltype(&cuptiGetStreamIdEx) stream_id = nullptr;
  decltype(&cuptiFinalize) finalize = nullptr;
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
            library.bind(finalize, "cuptiFinalize") && version(&api) == CUPTI_SUCCESS;
  }
};
Functions& cupti() {
  static Functions functions;
  return functions;
}

thread_local int current_step = -1;

struct Callback {
  CUpti_CallbackDomain domain;
  CUpti_CallbackId id;
};
constexpr Callback kQueueing[] = {
    {CUPTI_CB_DOMAIN_RUNTIME_API, CUPTI_RUNTIME_TRACE_CBID_cudaLaunchKernel_v7000},
    {CUPTI_CB_DOMAIN_RUNTIME_API, CUPTI_RUNTIME_TRACE_CBID_cudaLaunchKernelExC_v11060},
#if CUPTI_API_VERSION >= 130000
    {CUPTI_CB_DOMAIN_RUNTIME_API, CUPTI_RUNTIME_TRACE_CBID___cudaLaunchKernel_v13000},
#endif
    {CUPTI_CB_DOMAIN_RUNTIME_API, CUPTI_RUNTIME_TRACE_CBID_cudaMemcpyAsync_v3020},
    {CUPTI_CB_DOMAIN_RUNTIME_API, CUPTI_RUNTIME_TRACE_CBID_cudaMemsetAsync_v3020},
    {CUPTI_CB_DOMAIN_DRIVER_API, CUPTI_DRIVER_TRACE_CBID_cuLaunchKernel},
    {CUPTI_CB_DOMAIN_DRIVER_API, CUPTI_DRIVER_TRACE_CBID_cuLaunchKernelEx},
};
constexpr Callback kNodes[] = {
    {CUPTI_CB_DOMAIN_RESOURCE, CUPTI_CBID_RESOURCE_GRAPHNODE_CREATED},
    {CUPTI_CB_DOMAIN_RESOURCE, CUPTI_CBID_RESOURCE_GRAPHNODE_CLONED},
};
constexpr CUpti_ActivityKind kWork[] = {CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL, CUPTI_ACTIVITY_KIND_MEMCPY,
                                        CUPTI_ACTIVITY_KIND_MEMSET};

class Recorder {
 public:
  bool start(GpuTraceLevel level, const cudaStream_t (&streams)[GPU_STREAMS], std::string* error) {
    if (!cupti().ready) {
      *error = cupti().library.error();
      return false;
    }
    const bool was_on = level_ != GPU_TRACE_OFF;
    if (!was_on && !attach(error)) return false;
    for (int i = 0; i < GPU_STREAMS; ++i) {
      if (cupti().stream_id(nullptr, CUstream(streams[i]), 0, &stream_ids_[i]) != CUPTI_SUCCESS)
        stream_ids_[i] = 0;
    }
    if (level == GPU_TRACE_ALL && level_ != GPU_TRACE_ALL) (void)cupti().enable(CUPTI_ACTIVITY_KIND_RUNTIME);
    if (level == GPU_TRACE_KERNELS && level_ == GPU_TRACE_ALL)
      (void)cupti().disable(CUPTI_ACTIVITY_KIND_RUNTIME);
    level_ = level;
    return true;
  }

  void stop() {
    if (level_ == GPU_TRACE_OFF) return;
    flush();
    for (const CUpti_ActivityKind kind : kWork) (void)cupti().disable(kind);
    if (level_ == GPU_TRACE_ALL) (void)cupti().disable(CUPTI_ACTIVITY_KIND_RUNTIME);
    level_ = GPU_TRACE_OFF;
    detach();
  }

  std::size_t read(bool flush_first, GpuActivity* activities, std::size_t capacity) {
    if (flush_first && level_ != GPU_TRACE_OFF) flush();
    return queue_.take(activities, capacity);
  }

 private:
  struct Buffer {
    std::uint8_t* data;
    std::size_t valid_bytes;
    CUcontext context;
    std::uint32_t stream;
  };

  bool attach(std::string* error) {
    const auto failed = [&](CUptiResult result, const char* what) {
      if (result == CUPTI_SUCCESS) return false;
      const char* text = nullptr;
      (void)cupti().result_text(result, &text);
      *error =
          std::string(what) + ": " + (text != nullptr ? text : "unknown error") +
          (result == CUPTI_ERROR_INSUFFICIENT_PRIVILEGES
               ? " (profiling needs administrator rights on this machine)"
               : "") +
          (result == CUPTI_ERROR_MULTIPLE_SUBSCRIBERS_NOT_SUPPORTED ? " (another profiler is attached)" : "");
      return true;
    };
    take_buffers();
    drain_ = std::thread([this] { drain(); });
    bool bad = failed(cupti().subscribe(&subscriber_, on_callback, this), "subscribe") ||
               failed(cupti().register_clock([]() -> std::uint64_t { return std::uint64_t(monotonic_ns()); }),
                      "register clock") ||
               failed(cupti().register_buffers(on_request, on_complete), "register buffers");
    for (const Callback& callback : kQueueing)
      bad = bad || failed(cupti().enable_callback(1, subscriber_, callback.domain, callback.id), "callback");
    for (const Callback& callback : kNodes)
      bad = bad || failed(cupti().enable_callback(1, subscriber_, callback.domain, callback.id), "callback");
    for (const CUpti_ActivityKind kind : kWork)
      bad = bad || failed(cupti().enable(kind), "enable activities");
    if (bad) detach();
    return !bad;
  }

  // The caller has flushed; work that is still queued is not recorded.
  void detach() {
    if (subscriber_ != nullptr) (void)cupti().unsubscribe(subscriber_);
    subscriber_ = nullptr;
    detached_ = cupti().api >= kSafeDetach && cupti().finalize() == CUPTI_SUCCESS;
    {
      const std::lock_guard lock(mutex_);
      ending_ = true;
    }
    changed_.notify_all();
    drain_.join();
    ending_ = false;
  }

  // All buffers are ours at first and after detaching; else CUPTI may still hold some.
  void take_buffers() {
    if (!memory_.empty() && !detached_) return;
    free_.clear();
    memory_.resize(kBufferBytes * kBuffers / sizeof(std::uint64_t));  // CUPTI wants 8-byte boundaries
    full_.reserve(kBuffers);
    for (std::size_t i = 0; i < kBuffers; ++i)
      free_.push_back(reinterpret_cast<std::uint8_t*>(memory_.data()) + i * kBufferBytes);
  }

  void flush() {
    (void)cupti().flush(0);
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return full_.empty() && !busy_; });
  }

  void drain() {
    std::unique_lock lock(mutex_);
    while (true) {
      changed_.wait(lock, [&] { return ending_ || !full_.empty(); });
      if (full_.empty()) return;
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
    CUpti_Activity* record = nullptr;
    while (buffer.valid_bytes > 0 &&
           cupti().next_record(buffer.data, buffer.valid_bytes, &record) == CUPTI_SUCCESS)
      add(record);
    std::size_t dropped = 0;
    if (cupti().dropped_records(buffer.context, buffer.stream, &dropped) == CUPTI_SUCCESS && dropped > 0) {
      GpuActivity lost = activity_of(GPU_ACTIVITY_LOST, monotonic_ns(), monotonic_ns(), "records dropped");
      lost.bytes = std::int64_t(dropped);
      queue_.add(lost);
    }
  }

  void add(const CUpti_Activity* record) {
    switch (record->kind) {
      case CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL: {
        const auto* kernel = reinterpret_cast<const KernelRecord*>(record);
        return add_work(*kernel,
                        activity_of(GPU_ACTIVITY_KERNEL, std::int64_t(kernel->start),
                                    std::int64_t(kernel->end), kernel->name),
                        0);
      }
      case CUPTI_ACTIVITY_KIND_MEMCPY: {
        const auto* copy = reinterpret_cast<const CopyRecord*>(record);
        return add_work(
            *copy, activity_of(GPU_ACTIVITY_COPY, std::int64_t(copy->start), std::int64_t(copy->end), "copy"),
            std::int64_t(copy->bytes));
      }
      case CUPTI_ACTIVITY_KIND_MEMSET: {
        const auto* fill = reinterpret_cast<const FillRecord*>(record);
        return add_work(
            *fill, activity_of(GPU_ACTIVITY_FILL, std::int64_t(fill->start), std::int64_t(fill->end), "fill"),
            std::int64_t(fill->bytes));
      }
      case CUPTI_ACTIVITY_KIND_RUNTIME: {
        const auto* call = reinterpret_cast<const CUpti_ActivityAPI*>(record);
        const char* name = nullptr;
        (void)cupti().callback_name(CUPTI_CB_DOMAIN_RUNTIME_API, call->cbid, &name);
        GpuActivity activity =
            activity_of(GPU_ACTIVITY_API, std::int64_t(call->start), std::int64_t(call->end), name);
        activity.stream = -1;
        activity.correlation = call->correlationId;
        activity.plan_step = steps_.of_correlation(call->correlationId);
        return queue_.add(activity);
      }
      default: return;
    }
  }

  template <class Record>
  void add_work(const Record& record, GpuActivity activity, std::int64_t bytes) {
    activity.bytes = bytes;
    activity.graph_node = record.graphNodeId;
    activity.correlation = record.graphNodeId != 0 ? 0 : record.correlationId;
    activity.plan_step = record.graphNodeId != 0 ? steps_.of_node(record.graphNodeId)
                                                 : steps_.of_correlation(record.correlationId);
    activity.stream = GPU_COMPUTE;  // graphs may run on streams of the driver's own
    for (int i = 0; i < GPU_STREAMS; ++i) {
      if (record.streamId == stream_ids_[i]) activity.stream = i;
    }
    queue_.add(activity);
  }

  static void CUPTIAPI on_callback(void* self, CUpti_CallbackDomain domain, CUpti_CallbackId id,
                                   const void* data) {
    PlanSteps& steps = static_cast<Recorder*>(self)->steps_;
    if (domain != CUPTI_CB_DOMAIN_RESOURCE) {
      const auto* call = static_cast<const CUpti_CallbackData*>(data);
      if (call->callbackSite == CUPTI_API_ENTER && current_step >= 0)
        steps.queued(call->correlationId, current_step);
      return;
    }
    const auto* graph =
        static_cast<const CUpti_GraphData*>(static_cast<const CUpti_ResourceData*>(data)->resourceDescriptor);
    std::uint64_t node = 0, original = 0;
    if (cupti().node_id(graph->node, &node) != CUPTI_SUCCESS) return;
    if (id == CUPTI_CBID_RESOURCE_GRAPHNODE_CREATED) {
      steps.node(node, current_step);
    } else if (cupti().node_id(graph->originalNode, &original) == CUPTI_SUCCESS) {
      steps.node_copied(original, node);
    }
  }

  static void CUPTIAPI on_request(std::uint8_t** buffer, std::size_t* bytes, std::size_t* most_records);
  static void CUPTIAPI on_complete(CUcontext context, std::uint32_t stream, std::uint8_t* buffer,
                                   std::size_t bytes, std::size_t valid_bytes);

  GpuTraceLevel level_ = GPU_TRACE_OFF;
  CUpti_SubscriberHandle subscriber_ = nullptr;
  bool detached_ = false;
  std::uint32_t stream_ids_[GPU_STREAMS] = {};
  PlanSteps steps_;
  ActivityQueue queue_;

  std::mutex mutex_;  // of what follows
  std::condition_variable changed_;
  std::vector<std::uint64_t> memory_;
  std::vector<std::uint8_t*> free_;
  std::vector<Buffer> full_;
  bool busy_ = false, ending_ = false;
  std::thread drain_;
};

// Never destroyed: CUPTI's threads may call until the process is gone.
Recorder& recorder() {
  static Recorder& one = *new Recorder;
  return one;
}

void CUPTIAPI Recorder::on_request(std::uint8_t** buffer, std::size_t* bytes, std::size_t* most_records) {
  Recorder& self = recorder();
  const std::lock_guard lock(self.mutex_);
  *most_records = 0;  // as many as fit
  *buffer = self.free_.empty() ? nullptr : self.free_.back();
  *bytes = self.free_.empty() ? 0 : kBufferBytes;  // none left: CUPTI drops and counts
  if (!self.free_.empty()) self.free_.pop_back();
}

void CUPTIAPI Recorder::on_complete(CUcontext context, std::uint32_t stream, std::uint8_t* buffer,
                                    std::size_t, std::size_t valid_bytes) {
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
