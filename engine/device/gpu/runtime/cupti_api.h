// What we use of CUPTI, declared after its headers (cupti_activity.h, cupti_callbacks.h), which a toolkit need not have.
// Records begin alike in versions 12 and 13, and no more of them is read. Where the headers are installed,
// tests/engine/device/gpu/runtime/declarations_test.cpp compares them with this.
#pragma once

#include <cstddef>
#include <cstdint>

namespace gradloom::kernels::gpu::cupti_api {

using Result = int;  // CUptiResult
constexpr Result kSuccess = 0, kNoMoreRecords = 12, kInsufficientPrivileges = 35, kMultipleSubscribers = 39;

using ActivityKind = int;  // CUpti_ActivityKind
constexpr ActivityKind kMemcpy = 1, kMemset = 2, kRuntime = 5, kConcurrentKernel = 10;

using Domain = int;  // CUpti_CallbackDomain
constexpr Domain kDriverApi = 1, kRuntimeApi = 2, kResource = 3;

using CallbackId = std::uint32_t;  // CUpti_CallbackId
constexpr CallbackId kCudaMemcpyAsync = 41, kCudaMemsetAsync = 51, kCudaLaunchKernel = 211,
                     kCudaLaunchKernelEx = 430, kCudaLaunchKernel13 = 505, kCuLaunchKernel = 307,
                     kCuLaunchKernelEx = 652, kGraphNodeCreated = 13, kGraphNodeCloned = 20;

constexpr int kApiEnter = 0;  // CUpti_ApiCallbackSite

struct Activity {
  ActivityKind kind;
};
struct KernelActivity {  // CUpti_ActivityKernel9, 10
  ActivityKind kind;
  std::uint8_t cache_config, shared_memory_config;
  std::uint16_t registers;
  int cache_requested, cache_executed;
  std::uint64_t start, end, completed;
  std::uint32_t device, context, stream;
  std::int32_t grid[3], block[3], static_shared, dynamic_shared;
  std::uint32_t local_per_thread, local_total, correlation;
  std::int64_t grid_id;
  const char* name;
  void* reserved;
  std::uint64_t queued, submitted;
  std::uint8_t launch_type, carveout_requested, carveout, padding;
  std::uint32_t shared_executed;
  std::uint64_t graph_node;
};
struct MemcpyActivity {  // CUpti_ActivityMemcpy5, 6
  ActivityKind kind;
  std::uint8_t copy_kind, from_kind, to_kind, flags;
  std::uint64_t bytes, start, end;
  std::uint32_t device, context, stream, correlation, runtime_correlation, padding;
  void* reserved;
  std::uint64_t graph_node;
};
struct MemsetActivity {  // CUpti_ActivityMemset4
  ActivityKind kind;
  std::uint32_t value;
  std::uint64_t bytes, start, end;
  std::uint32_t device, context, stream, correlation;
  std::uint16_t flags, memory_kind;
  std::uint32_t padding;
  void* reserved;
  std::uint64_t graph_node;
};
struct ApiActivity {  // CUpti_ActivityAPI
  ActivityKind kind;
  CallbackId call;
  std::uint64_t start, end;
  std::uint32_t process, thread, correlation, returned;
};
struct CallbackData {  // CUpti_CallbackData
  int site;
  const char* function;
  const void* params;
  void* returned;
  const char* symbol;
  void* context;
  std::uint32_t context_number;
  std::uint64_t* data;
  std::uint32_t correlation;
};
struct ResourceData {  // CUpti_ResourceData
  void *context, *handle, *descriptor;
};
struct GraphData {  // CUpti_GraphData
  void *graph, *original_graph, *node, *original_node;
};

using Subscriber = void*;  // CUpti_SubscriberHandle
using CallbackFn = void(void* self, Domain domain, CallbackId id, const void* data);
using RequestFn = void(std::uint8_t** buffer, std::size_t* bytes, std::size_t* most_records);
using CompleteFn = void(void* context, std::uint32_t stream, std::uint8_t* buffer, std::size_t bytes,
                        std::size_t valid_bytes);
using ClockFn = std::uint64_t();

using GetVersion = Result(std::uint32_t* version);
using GetResultString = Result(Result result, const char** text);
using Subscribe = Result(Subscriber* subscriber, CallbackFn* callback, void* self);
using Unsubscribe = Result(Subscriber subscriber);
using EnableCallback = Result(std::uint32_t enable, Subscriber subscriber, Domain domain, CallbackId id);
using GetCallbackName = Result(Domain domain, CallbackId id, const char** name);
using RegisterCallbacks = Result(RequestFn* request, CompleteFn* complete);
using RegisterTimestampCallback = Result(ClockFn* clock);
using Enable = Result(ActivityKind kind);  // and disable
using FlushAll = Result(std::uint32_t flag);
using GetNextRecord = Result(std::uint8_t* buffer, std::size_t valid_bytes, Activity** record);
using GetNumDroppedRecords = Result(void* context, std::uint32_t stream, std::size_t* dropped);
using GetGraphNodeId = Result(void* node, std::uint64_t* id);
using GetStreamIdEx = Result(void* context, void* stream, std::uint8_t per_thread, std::uint32_t* id);

}  // namespace gradloom::kernels::gpu::cupti_api
