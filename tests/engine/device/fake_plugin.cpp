// A plugin for tests of the loader and of failing devices. It computes nothing: memory is host memory,
// kernels do nothing, order is at once. Variants by definition: FAKE_NO_ENTRY, FAKE_VERSION, FAKE_ABI. At run
// time GRADLOOM_FAKE="entry=status" or "entry@n=status" makes (the n-th call of) an entry fail with that
// status; GRADLOOM_FAKE_MB limits its memory; has_dnn_library "fails" with 1 where there is one.
#include <atomic>
#include <cstdlib>
#include <cstring>
#include <map>
#include <string>

#include "engine/device/gpu/abi.h"
#include "engine/device/gpu/plugin.h"
#include "kernels/launcher.h"

struct GpuContext {
  int unused;
};
struct GpuModule {
  int unused;
};
struct GpuGraph {
  int unused;
};

namespace {

std::string last_message;
std::size_t taken = 0;

GpuStatus outcome(const char* entry) {
  static std::atomic<int> calls{0};
  last_message.clear();
  const char* const wanted = std::getenv("GRADLOOM_FAKE");
  if (wanted == nullptr) {
    calls = 0;
    return GPU_OK;
  }
  const std::string text = wanted, name = text.substr(0, text.find_first_of("@="));
  if (name != entry) return GPU_OK;
  const std::size_t at = text.find('@');
  ++calls;
  if (at != std::string::npos && calls != std::atoi(text.c_str() + at + 1)) return GPU_OK;
  last_message = std::string("fake failure of ") + entry;
  return static_cast<GpuStatus>(std::atoi(text.c_str() + text.find('=') + 1));
}

const char* message(const GpuContext*) { return last_message.c_str(); }
GpuStatus device_count(int32_t* count) {
  *count = 2;
  return outcome("device_count");
}
GpuStatus describe(int32_t index, GpuDescription* d) {
  std::memset(d, 0, sizeof *d);
  std::strcpy(d->name, index == 0 ? "Fake GPU" : "Fake GPU two");
  std::strcpy(d->architecture, "fake_10");
  std::strcpy(d->driver, "1.0");
  std::strcpy(d->runtime, "1.0");
  const char* const limit = std::getenv("GRADLOOM_FAKE_MB");
  d->memory_bytes = d->free_bytes = limit != nullptr ? std::atoll(limit) << 20 : std::int64_t{1} << 34;
  d->warp_size = 32;
  return outcome("describe");
}
GpuStatus environment(int32_t, GpuEnvironment* e) {
  std::memset(e, 0, sizeof *e);
  return outcome("environment");
}
GpuStatus open_context(int32_t, GpuContext** context) {
  const GpuStatus status = outcome("open");
  if (status == GPU_OK) *context = new GpuContext{};
  return status;
}
void close_context(GpuContext* context) { delete context; }
GpuStatus allocate(GpuContext*, size_t bytes, int32_t, void** memory) {
  const GpuStatus status = outcome("allocate");
  if (status == GPU_OK) *memory = std::aligned_alloc(64, (bytes + 63) / 64 * 64);
  ++taken;
  return status;
}
GpuStatus release(GpuContext*, void* memory, int32_t) {
  std::free(memory);
  return outcome("release");
}
GpuStatus copy(GpuContext*, int32_t, void* target, const void* source, size_t bytes) {
  const GpuStatus status = outcome("copy");
  if (status == GPU_OK) std::memcpy(target, source, bytes);
  return status;
}
GpuStatus fill(GpuContext*, int32_t, void* target, int32_t byte, size_t bytes) {
  std::memset(target, byte, bytes);
  return outcome("fill");
}
GpuStatus run(GpuContext*, int32_t, uint32_t, const void*, size_t) { return outcome("run"); }
GpuStatus offer(GpuContext*, int32_t, uint32_t, const void*, size_t, int32_t* queued) {
  *queued = 0;
  return outcome("offer");
}
void implementation(const GpuContext*, GpuImplementation* to) { *to = {}; }
int32_t has_dnn_library() { return outcome("has_dnn_library"); }
// Every kernel that is tuned counts as one problem, "kernel ID",
// whose algorithm is one byte: what was set, else 7.
std::map<std::string, GpuAlgorithm> given, chosen;
GpuStatus tune(GpuContext*, uint32_t kernel_id, const void*, size_t, int32_t) {
  const std::string problem = "kernel " + std::to_string(kernel_id);
  GpuAlgorithm algorithm{{}, {7}, 1, 5};
  std::memcpy(algorithm.problem, problem.c_str(), problem.size() + 1);
  chosen[problem] = given.count(problem) != 0 ? given[problem] : algorithm;
  return outcome("tune");
}
GpuStatus set_algorithm(GpuContext*, const GpuAlgorithm* algorithm) {
  given[algorithm->problem] = *algorithm;
  return outcome("set_algorithm");
}
GpuStatus algorithms(GpuContext*, GpuAlgorithm* to, int32_t capacity, int32_t* count) {
  *count = 0;
  for (const auto& [problem, algorithm] : chosen) {
    if (*count < capacity) to[*count] = algorithm;
    ++*count;
  }
  return outcome("algorithms");
}
GpuStatus compile(GpuContext*, const char*, const char* const*, int32_t, const char*, GpuModule** module) {
  const GpuStatus status = outcome("compile");
  if (status == GPU_OK) *module = new GpuModule{};
  return status;
}
void unload(GpuContext*, GpuModule* module) { delete module; }
GpuStatus run_program(GpuContext*, int32_t, GpuModule*, int32_t, GpuDim, GpuDim, const void*, size_t) {
  return outcome("run_program");
}
GpuStatus mark(GpuContext*, int32_t, const char*) { return outcome("mark"); }
GpuStatus make_event(GpuContext*, int32_t* event) {
  *event = GPU_EVENTS;
  return outcome("make_event");
}
GpuStatus record_event(GpuContext*, int32_t, int32_t) { return outcome("record_event"); }
GpuStatus wait_event(GpuContext*, int32_t, int32_t) { return outcome("wait_event"); }
GpuStatus query_event(GpuContext*, int32_t) { return outcome("query_event"); }
GpuStatus synchronize_event(GpuContext*, int32_t) { return outcome("synchronize_event"); }
GpuStatus elapsed_ns(GpuContext*, int32_t, int32_t, int64_t* ns) {
  *ns = 0;
  return outcome("elapsed_ns");
}
GpuStatus synchronize(GpuContext*) { return outcome("synchronize"); }
GpuStatus begin_capture(GpuContext*) { return outcome("begin_capture"); }
GpuStatus end_capture(GpuContext*, GpuGraph** graph) {
  const GpuStatus status = outcome("end_capture");
  if (status == GPU_OK) *graph = new GpuGraph{};
  return status;
}
GpuStatus call_host(GpuContext*, int32_t, void (*function)(void*), void* user) {
  function(user);  // the work is done before the call returns, as everything here
  return outcome("call_host");
}
void ranks_library(GpuImplementation* implementation) { *implementation = {}; }
GpuStatus make_ranks_id(GpuContext*, uint8_t*) { return GPU_FAILED; }
GpuStatus join_ranks(GpuContext*, const uint8_t*, int32_t, int32_t, int64_t) { return GPU_FAILED; }
GpuStatus exchange(GpuContext*, int32_t, const GpuExchange*) { return GPU_FAILED; }
GpuStatus ranks_state(GpuContext*) { return GPU_OK; }
void leave_ranks(GpuContext*) {}
GpuStatus join_stream(GpuContext*, void*, int32_t, int32_t* recorded) {
  *recorded = 0;
  return outcome("join_stream");
}
GpuStatus run_graph(GpuContext*, GpuGraph*) { return outcome("run_graph"); }
void destroy_graph(GpuContext*, GpuGraph* graph) { delete graph; }
GpuStatus set_trace(GpuContext*, int32_t) { return outcome("set_trace"); }
GpuStatus read_trace(GpuContext*, int32_t, GpuActivity*, int32_t, int32_t* count) {
  *count = 0;
  return outcome("read_trace");
}

#ifndef FAKE_VERSION
#define FAKE_VERSION GRADLOOM_GPU_VERSION
#endif
#ifdef FAKE_ABI
constexpr std::uint64_t kAbi = FAKE_ABI;
#else
constexpr std::uint64_t kAbi = gradloom::kernels::gpu::kernel_abi();
#endif

const GpuPlugin table = {
    FAKE_VERSION,           sizeof(GpuPlugin), kAbi,        "fake",       message,
    device_count,           describe,          environment, open_context, close_context,
    GRADLOOM_GPU_FUNCTIONS,
};

}  // namespace

#ifndef FAKE_NO_ENTRY
extern "C" __attribute__((visibility("default"))) const GpuPlugin* gradloom_gpu_plugin(uint32_t) {
  return &table;
}
#else
extern "C" __attribute__((visibility("default"))) const void* another_library() { return &table; }
#endif
