// libcupti for tests of who calls it: it records what a test puts into it, while kernels are enabled.
#include "engine/device/gpu/runtime/cupti_api.h"
#include "tests/engine/device/gpu/runtime/fake_calls.h"

#include <cstring>
#include <vector>

using namespace gradloom::kernels::gpu::cupti_api;

namespace {

CallbackFn* callback = nullptr;
void* subscriber_of = nullptr;
RequestFn* request = nullptr;
CompleteFn* complete = nullptr;
bool enabled = false;
std::vector<KernelActivity> records;
std::size_t next = 0;

int counted(const char* name) { return gradloom::test::fake_calls().call(name); }

}  // namespace

#define FAKE extern "C" __attribute__((visibility("default")))

// A kernel has run. node: of a graph; 0: none.
FAKE void fake_kernel(std::uint32_t correlation, std::uint64_t node) {
  KernelActivity kernel{};
  kernel.kind = kConcurrentKernel;
  kernel.start = 100 + 10 * records.size();
  kernel.end = kernel.start + 5;
  kernel.correlation = correlation;
  kernel.graph_node = node;
  kernel.name = "kernel";
  if (enabled) records.push_back(kernel);
}
FAKE void fake_launch(std::uint32_t correlation) {
  CallbackData data{};
  data.site = kApiEnter;
  data.correlation = correlation;
  callback(subscriber_of, kRuntimeApi, kCudaLaunchKernel, &data);
}
// Nodes are their own ids.
FAKE void fake_node(CallbackId what, std::uint64_t node, std::uint64_t original) {
  GraphData graph{nullptr, nullptr, reinterpret_cast<void*>(node), reinterpret_cast<void*>(original)};
  ResourceData data{nullptr, nullptr, &graph};
  callback(subscriber_of, kResource, what, &data);
}

FAKE Result cuptiGetVersion(std::uint32_t* version) {
  *version = 130001;
  return counted("version");
}
FAKE Result cuptiGetResultString(Result, const char** text) {
  *text = "CUPTI_ERROR_ON_DEMAND";
  return 0;
}
FAKE Result cuptiSubscribe(Subscriber* subscriber, CallbackFn* function, void* self) {
  *subscriber = &callback;
  callback = function;
  subscriber_of = self;
  return counted("subscribe");
}
FAKE Result cuptiUnsubscribe(Subscriber) { return counted("unsubscribe"); }
FAKE Result cuptiFinalize() { return counted("finalize"); }
FAKE Result cuptiEnableCallback(std::uint32_t, Subscriber, Domain, CallbackId) {
  return counted("enable callback");
}
FAKE Result cuptiGetCallbackName(Domain, CallbackId, const char** name) {
  *name = "call";
  return 0;
}
FAKE Result cuptiActivityRegisterCallbacks(RequestFn* its_request, CompleteFn* its_complete) {
  request = its_request;
  complete = its_complete;
  return counted("register buffers");
}
FAKE Result cuptiActivityRegisterTimestampCallback(ClockFn*) { return counted("register clock"); }
FAKE Result cuptiActivityEnable(ActivityKind kind) {
  const int status = counted("enable");
  if (kind == kConcurrentKernel && status == 0) enabled = true;
  return status;
}
FAKE Result cuptiActivityDisable(ActivityKind kind) {
  if (kind == kConcurrentKernel) enabled = false;
  return counted("disable");
}
FAKE Result cuptiActivityFlushAll(std::uint32_t) {
  if (!records.empty()) {
    std::uint8_t* buffer = nullptr;
    std::size_t bytes = 0, most = 0;
    request(&buffer, &bytes, &most);
    std::memcpy(buffer, records.data(), records.size() * sizeof records[0]);
    complete(nullptr, 0, buffer, bytes, records.size() * sizeof records[0]);
    records.clear();
  }
  return counted("flush");
}
FAKE Result cuptiActivityGetNextRecord(std::uint8_t* buffer, std::size_t valid_bytes, Activity** record) {
  if (next >= valid_bytes) {
    next = 0;
    return 1;
  }
  *record = reinterpret_cast<Activity*>(buffer + next);
  next += sizeof(KernelActivity);
  return 0;
}
FAKE Result cuptiActivityGetNumDroppedRecords(void*, std::uint32_t, std::size_t* dropped) {
  *dropped = 0;
  return 0;
}
FAKE Result cuptiGetGraphNodeId(void* node, std::uint64_t* id) {
  *id = reinterpret_cast<std::uint64_t>(node);
  return 0;
}
FAKE Result cuptiGetStreamIdEx(void*, void*, std::uint8_t, std::uint32_t* id) {
  *id = 7;
  return 0;
}
