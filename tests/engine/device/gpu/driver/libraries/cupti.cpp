// libcupti for the strict driver: records of the work that the driver has run, in buffers of the caller, which a thread of its own asks for and
// gives back; callbacks of calls that queue work, and of nodes of graphs. What callers must not do is a complaint. Sources: CUPTI's
// documentation, "Activity API" and "Callback API"; comments of cupti_activity.h and cupti_callbacks.h: buffers at boundaries of 8 bytes,
// not to be touched between request and completion; one subscriber; the clock before the first activity.
#include <chrono>
#include <cstring>
#include <map>
#include <mutex>
#include <set>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "engine/device/gpu/runtime/cupti_api.h"
#include "tests/engine/device/gpu/driver/libraries/door.h"

using namespace gradloom::kernels::gpu::cupti_api;
using namespace gradloom::strict;

namespace {

constexpr Result kInvalidParameter = 1, kInvalidOperation = 7, kOutOfMemory = 8, kUnknown = 999;
constexpr LibraryStatuses kStatuses{kInvalidParameter, kOutOfMemory, kUnknown};
constexpr CallbackId kCudaGraphLaunch = 311;

struct Buffer {
  std::uint8_t* data = nullptr;
  std::size_t bytes = 0;
  std::vector<std::uint8_t> written;  // what must be there when it is given back
};

// What the driver's thread and CUPTI's share.
struct State {
  std::mutex mutex;
  CallbackFn* callback = nullptr;  // null: nobody has subscribed
  void* self = nullptr;
  std::set<std::pair<Domain, CallbackId>> callbacks;
  RequestFn* request = nullptr;
  CompleteFn* complete = nullptr;
  ClockFn* clock = nullptr;
  std::set<ActivityKind> kinds;
  Buffer buffer;                                    // being filled
  std::map<const std::uint8_t*, std::size_t> full;  // given back: bytes of records
  std::size_t dropped = 0;
  std::set<std::string> names;                     // records refer to them
  std::map<std::uint32_t, std::uint64_t> entered;  // when, by correlation
};
State& state() {
  static State& one = *new State;
  return one;
}

std::uint64_t now() {
  const ClockFn* const clock = state().clock;
  return clock != nullptr ? clock()
                          : std::uint64_t(std::chrono::system_clock::now().time_since_epoch().count());
}

void complain(const std::string& what) { door().complain(("CUPTI: " + what).c_str()); }

// The caller's functions are called by a thread that is CUPTI's.
template <class F>
void apart(const F& call) {
  std::thread(call).join();
}

// ---- buffers ----------------------------------------------------------------------------------------------------------------------

void give_back() {
  State& s = state();
  Buffer buffer;
  {
    const std::lock_guard lock(s.mutex);
    if (s.buffer.data == nullptr || s.buffer.written.empty()) return;
    buffer = std::exchange(s.buffer, {});
    s.full[buffer.data] = buffer.written.size();
  }
  if (std::memcmp(buffer.data, buffer.written.data(), buffer.written.size()) != 0)
    complain("a buffer was changed before it was given back");
  apart([&] { s.complete(nullptr, 0, buffer.data, buffer.bytes, buffer.written.size()); });
}

// False: there is none.
bool ask_for_buffer() {
  State& s = state();
  Buffer buffer;
  std::size_t most = 0;
  apart([&] { s.request(&buffer.data, &buffer.bytes, &most); });
  if (buffer.data == nullptr) return false;
  if (reinterpret_cast<std::uintptr_t>(buffer.data) % 8 != 0)
    complain("a buffer that does not begin at a boundary of 8 bytes");
  if (buffer.bytes < sizeof(KernelActivity))
    complain("a buffer of " + std::to_string(buffer.bytes) + " bytes");
  std::memset(buffer.data, 0xA5, buffer.bytes);
  const std::lock_guard lock(s.mutex);
  s.full.erase(buffer.data);  // its records were read
  s.buffer = std::move(buffer);
  return true;
}

template <class Record>
void add(const Record& record) {
  static_assert(sizeof(Record) % 8 == 0);
  State& s = state();
  if (s.buffer.data != nullptr && s.buffer.written.size() + sizeof record > s.buffer.bytes) give_back();
  if (s.buffer.data == nullptr && !ask_for_buffer()) {
    ++s.dropped;
    return;
  }
  const std::lock_guard lock(s.mutex);
  const auto* const bytes = reinterpret_cast<const std::uint8_t*>(&record);
  std::memcpy(s.buffer.data + s.buffer.written.size(), bytes, sizeof record);
  s.buffer.written.insert(s.buffer.written.end(), bytes, bytes + sizeof record);
}

std::size_t bytes_of(ActivityKind kind) {
  switch (kind) {
    case kConcurrentKernel: return sizeof(KernelActivity);
    case kMemcpy: return sizeof(MemcpyActivity);
    case kMemset: return sizeof(MemsetActivity);
    default: return sizeof(ApiActivity);
  }
}

// ---- what the driver tells --------------------------------------------------------------------------------------------------------

struct ApiCall {
  Domain domain;
  CallbackId id;
  const char* name;
};
constexpr ApiCall kCalls[] = {{kRuntimeApi, kCudaLaunchKernel13, "cudaLaunchKernel"},
                              {kDriverApi, kCuLaunchKernel, "cuLaunchKernel"},
                              {kDriverApi, kCuLaunchKernelEx, "cuLaunchKernelEx"},
                              {kRuntimeApi, kCudaMemcpyAsync, "cudaMemcpyAsync"},
                              {kRuntimeApi, kCudaMemsetAsync, "cudaMemsetAsync"},
                              {kRuntimeApi, kCudaGraphLaunch, "cudaGraphLaunch"}};

unsigned called(int kind, int leaves, std::uint32_t correlation) {
  State& s = state();
  const ApiCall& call = kCalls[kind];
  if (s.callback != nullptr && s.callbacks.count({call.domain, call.id}) != 0) {
    CallbackData data{};
    data.site = leaves != 0 ? 1 : kApiEnter;
    data.function = call.name;
    data.correlation = correlation;
    s.callback(s.self, call.domain, call.id, &data);
  }
  if (leaves == 0) s.entered[correlation] = now();
  if (leaves != 0 && s.kinds.count(kRuntime) != 0 && call.domain == kRuntimeApi) {
    ApiActivity record{};
    record.kind = kRuntime;
    record.call = call.id;
    record.start = s.entered[correlation];
    record.end = now();
    record.correlation = correlation;
    add(record);
  }
  if (leaves != 0) s.entered.erase(correlation);
  const unsigned kernels = 1u << STRICT_KERNEL | 1u << STRICT_PROGRAM | 1u << STRICT_LIBRARY_KERNEL;
  return (s.kinds.count(kConcurrentKernel) != 0 ? kernels : 0) |
         (s.kinds.count(kMemcpy) != 0 ? 1u << STRICT_COPY : 0) |
         (s.kinds.count(kMemset) != 0 ? 1u << STRICT_FILL : 0);
}

// A node's address is its number.
void node_made(std::uint64_t node, std::uint64_t original) {
  State& s = state();
  const CallbackId id = original != 0 ? kGraphNodeCloned : kGraphNodeCreated;
  if (s.callback == nullptr || s.callbacks.count({kResource, id}) == 0) return;
  GraphData graph{nullptr, nullptr, reinterpret_cast<void*>(node), reinterpret_cast<void*>(original)};
  const ResourceData data{nullptr, nullptr, &graph};
  s.callback(s.self, kResource, id, &data);
}

template <class Record>
Record record_of(const StrictRan& ran, ActivityKind kind) {
  Record record{};
  record.kind = kind;
  record.start = ran.start;
  record.end = ran.end;
  record.stream = ran.stream;
  record.correlation = ran.correlation;
  record.graph_node = ran.node;
  return record;
}

void ran(const StrictRan* work) {
  if (work->kind == STRICT_COPY) {
    auto record = record_of<MemcpyActivity>(*work, kMemcpy);
    record.bytes = work->bytes;
    return add(record);
  }
  if (work->kind == STRICT_FILL) {
    auto record = record_of<MemsetActivity>(*work, kMemset);
    record.bytes = work->bytes;
    return add(record);
  }
  auto record = record_of<KernelActivity>(*work, kConcurrentKernel);
  record.name = state().names.insert(work->name).first->c_str();
  add(record);
}

constexpr StrictObserver kObserver{called, node_made, now, ran};

}  // namespace

#define EXPORTED extern "C" __attribute__((visibility("default")))

EXPORTED Result cuptiGetVersion(std::uint32_t* version) {
  const LibraryCall call("cuptiGetVersion", kStatuses);
  *version = 130001;
  return call.status();
}
EXPORTED Result cuptiGetResultString(Result result, const char** text) {
  *text = result == kInsufficientPrivileges ? "CUPTI_ERROR_INSUFFICIENT_PRIVILEGES"
          : result == kMultipleSubscribers  ? "CUPTI_ERROR_MULTIPLE_SUBSCRIBERS_NOT_SUPPORTED"
          : result == kInvalidParameter     ? "CUPTI_ERROR_INVALID_PARAMETER"
          : result == kInvalidOperation     ? "CUPTI_ERROR_INVALID_OPERATION"
                                            : "CUPTI_ERROR_UNKNOWN";
  return kSuccess;
}

EXPORTED Result cuptiSubscribe(Subscriber* subscriber, CallbackFn* callback, void* self) {
  LibraryCall call("cuptiSubscribe", kStatuses);
  if (call.failed()) return call.status();
  State& s = state();
  if (s.callback != nullptr) return kMultipleSubscribers;
  if (callback == nullptr) return call.wrong("no function");
  s.callback = callback;
  s.self = self;
  *subscriber = &s;
  door().observe(&kObserver);
  return kSuccess;
}
EXPORTED Result cuptiUnsubscribe(Subscriber subscriber) {
  LibraryCall call("cuptiUnsubscribe", kStatuses);
  State& s = state();
  if (subscriber != &s || s.callback == nullptr) return call.wrong("there is no such subscriber");
  s.callback = nullptr;
  s.callbacks.clear();
  return call.status();
}
EXPORTED Result cuptiFinalize() {
  LibraryCall call("cuptiFinalize", kStatuses);
  return call.wrong("graphs that were recorded under CUPTI break, and another profiler may be at work");
}
EXPORTED Result cuptiEnableCallback(std::uint32_t enable, Subscriber subscriber, Domain domain,
                                    CallbackId id) {
  LibraryCall call("cuptiEnableCallback", kStatuses);
  if (call.failed()) return call.status();
  State& s = state();
  if (subscriber != &s || s.callback == nullptr) return call.wrong("there is no such subscriber");
  if (enable != 0)
    s.callbacks.insert({domain, id});
  else
    s.callbacks.erase({domain, id});
  return kSuccess;
}
EXPORTED Result cuptiGetCallbackName(Domain domain, CallbackId id, const char** name) {
  const LibraryCall call("cuptiGetCallbackName", kStatuses);
  if (call.failed()) return call.status();
  for (const ApiCall& known : kCalls) {
    if (known.domain == domain && known.id == id) {
      *name = known.name;
      return kSuccess;
    }
  }
  return kInvalidParameter;
}

EXPORTED Result cuptiActivityRegisterCallbacks(RequestFn* request, CompleteFn* complete) {
  LibraryCall call("cuptiActivityRegisterCallbacks", kStatuses);
  if (call.failed()) return call.status();
  if (request == nullptr || complete == nullptr) return call.wrong("no function");
  state().request = request;
  state().complete = complete;
  return kSuccess;
}
EXPORTED Result cuptiActivityRegisterTimestampCallback(ClockFn* clock) {
  LibraryCall call("cuptiActivityRegisterTimestampCallback", kStatuses);
  if (call.failed()) return call.status();
  if (clock == nullptr || !state().kinds.empty())
    return call.wrong("no clock, or one that comes after an activity was enabled");
  state().clock = clock;
  return kSuccess;
}
EXPORTED Result cuptiActivityEnable(ActivityKind kind) {
  LibraryCall call("cuptiActivityEnable", kStatuses);
  if (call.failed()) return call.status();
  if (state().complete == nullptr) call.wrong("before functions for buffers were registered");
  if (kind != kMemcpy && kind != kMemset && kind != kRuntime && kind != kConcurrentKernel)
    call.wrong("activity " + std::to_string(kind));
  if (!call.failed()) state().kinds.insert(kind);
  return call.status();
}
EXPORTED Result cuptiActivityDisable(ActivityKind kind) {
  const LibraryCall call("cuptiActivityDisable", kStatuses);
  if (!call.failed()) state().kinds.erase(kind);
  return call.status();
}
EXPORTED Result cuptiActivityFlushAll(std::uint32_t) {
  LibraryCall call("cuptiActivityFlushAll", kStatuses);
  if (call.failed()) return call.status();
  if (state().complete == nullptr) return call.wrong("before functions for buffers were registered");
  give_back();
  return kSuccess;
}
// *record: null, or the one before.
EXPORTED Result cuptiActivityGetNextRecord(std::uint8_t* buffer, std::size_t valid_bytes, Activity** record) {
  LibraryCall call("cuptiActivityGetNextRecord", kStatuses);
  if (call.failed()) return call.status();
  State& s = state();
  std::size_t bytes = 0;
  {
    const std::lock_guard lock(s.mutex);
    const auto found = s.full.find(buffer);
    bytes = found != s.full.end() ? found->second : 0;
  }
  if (bytes == 0 || bytes != valid_bytes)
    return call.wrong("a buffer that was not given back, or not with so many bytes");
  auto* const at =
      *record == nullptr ? buffer : reinterpret_cast<std::uint8_t*>(*record) + bytes_of((*record)->kind);
  if (at < buffer || at > buffer + bytes) return call.wrong("a record of another buffer");
  if (at == buffer + bytes) return kNoMoreRecords;
  *record = reinterpret_cast<Activity*>(at);
  return kSuccess;
}
EXPORTED Result cuptiActivityGetNumDroppedRecords(void*, std::uint32_t, std::size_t* dropped) {
  const LibraryCall call("cuptiActivityGetNumDroppedRecords", kStatuses);
  if (!call.failed()) *dropped = std::exchange(state().dropped, 0);
  return call.status();
}
EXPORTED Result cuptiGetGraphNodeId(void* node, std::uint64_t* id) {
  const LibraryCall call("cuptiGetGraphNodeId", kStatuses);
  *id = reinterpret_cast<std::uint64_t>(node);
  return call.status();
}
EXPORTED Result cuptiGetStreamIdEx(void*, void* stream, std::uint8_t, std::uint32_t* id) {
  LibraryCall call("cuptiGetStreamIdEx", kStatuses);
  if (call.failed()) return call.status();
  *id = door().stream_id(stream);
  return *id != 0 ? kSuccess : call.wrong("the stream is none");
}
