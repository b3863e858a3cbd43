// The table of plugin.h for CUDA and HIP: contexts, memory, order, recording.
// One source, two libraries (names.h).
#include "engine/device/gpu/plugin.h"

#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <new>

#include "engine/device/gpu/abi.h"
#include "engine/device/gpu/runtime/activity.h"
#include "engine/device/gpu/runtime/device.h"
#include "engine/device/gpu/runtime/modules.h"
#include "engine/device/gpu/runtime/ranges.h"
#include "engine/device/gpu/runtime/trials.h"

namespace gradloom::kernels::gpu {
namespace {

constexpr const char* kNames[] = {
#define GRADLOOM_NAME(name, Args) #name,
    GRADLOOM_CPU_KERNELS(GRADLOOM_NAME) GRADLOOM_GPU_ONLY_KERNELS(GRADLOOM_NAME)
#undef GRADLOOM_NAME
};

bool is_stream(int32_t stream) { return stream >= 0 && stream < GPU_STREAMS; }
bool is_event(const GpuContext* context, int32_t event) {
  return event >= 0 && std::size_t(event) < context->events.size();
}

// ---- devices and contexts -------------------------------------------------------------------------------------------------------

const char* message(const GpuContext* context) { return message_of(context); }

// Takes down what open() made, as far as it came; quiet, because a lost device fails every call.
void close(GpuContext* context) {
  if (context == nullptr) return;
  context->ranks.reset();  // before who waits for the device
  (void)GPU(SetDevice)(context->device);
  (void)GPU(DeviceSynchronize)();
  if (context->range_open) pop_range();
  context->gemm.reset();
  context->dnn.reset();
  for (const auto event : context->events) {
    if (event != nullptr) (void)GPU(EventDestroy)(event);
  }
  for (const auto stream : context->streams) {
    if (stream != nullptr) (void)GPU(StreamDestroy)(stream);
  }
  (void)GPU(GetLastError)();
  delete context;
}

GpuStatus add_event(GpuContext* context) {
  GPU(Event_t) event = nullptr;
  const GpuStatus status =
      check(context, GPU(EventCreateWithFlags)(&event, GPU(EventDefault)), "create event");
  if (status == GPU_OK) context->events.push_back(event);
  return status;
}

GpuStatus prepare(GpuContext* context) {
  GpuStatus status = enter(context);
  for (int i = 0; status == GPU_OK && i < GPU_STREAMS; ++i)
    status = check(context, GPU(StreamCreateWithFlags)(&context->streams[i], GPU(StreamNonBlocking)),
                   "create stream");
  for (int i = 0; status == GPU_OK && i < GPU_EVENTS; ++i) status = add_event(context);
  return status;
}

// 90 of "sm_90"; 0 of what has another name.
int capability_of(const std::string& architecture) {
  return architecture.rfind("sm_", 0) == 0 ? std::atoi(architecture.c_str() + 3) : 0;
}

GpuStatus open(int32_t index, GpuContext** context) {
  std::string architecture;
  GpuStatus status = supported_architecture(index, &architecture);
  if (status != GPU_OK) return status;
  auto* opened = new (std::nothrow) GpuContext;
  if (opened == nullptr) return report(nullptr, GPU_OUT_OF_MEMORY, "no host memory for a context");
  opened->device = index;
  opened->architecture = architecture;
  status = prepare(opened);
  if (status != GPU_OK) {
    (void)report(nullptr, status, opened->message);  // the caller gets no context to ask
    close(opened);
    return status;
  }
  opened->gemm = open_gemm_library(&opened->no_gemm);
  opened->dnn = open_dnn_library(capability_of(architecture), &opened->no_dnn);
  opened->dnn_name = opened->dnn != nullptr ? dnn_library_version() : "";
  take_ballast();
  *context = opened;
  return GPU_OK;
}

// ---- memory ---------------------------------------------------------------------------------------------------------------------

GpuStatus allocate(GpuContext* context, std::size_t bytes, int32_t pinned, void** memory) {
  GpuStatus status = enter(context);
  if (status != GPU_OK) return status;
  const Error error = pinned != 0 ? allocate_pinned(memory, bytes) : GPU(Malloc)(memory, bytes);
  if (error == GPU(Success)) return GPU_OK;
  std::string what = "allocate " + std::to_string(bytes) +
                     (pinned != 0 ? " bytes of pinned host memory" : " bytes of device memory");
  std::size_t free = 0, total = 0;
  (void)GPU(GetLastError)();
  if (pinned == 0 && GPU(MemGetInfo)(&free, &total) == GPU(Success))
    what += " (" + std::to_string(free) + " of " + std::to_string(total) + " free)";
  return report(context, error, what);
}

GpuStatus release(GpuContext* context, void* memory, int32_t pinned) {
  const GpuStatus status = enter(context);
  if (status != GPU_OK || memory == nullptr) return status;
  return check(context, pinned != 0 ? release_pinned(memory) : GPU(Free)(memory), "release memory");
}

GpuStatus copy(GpuContext* context, int32_t stream, void* target, const void* source, std::size_t bytes) {
  const GpuStatus status = enter(context);
  if (status != GPU_OK || bytes == 0) return status;
  if (!is_stream(stream)) return report(context, GPU_FAILED, "no stream " + std::to_string(stream));
  return check(context, GPU(MemcpyAsync)(target, source, bytes, GPU(MemcpyDefault), context->streams[stream]),
               "copy");
}

GpuStatus fill(GpuContext* context, int32_t stream, void* target, int32_t byte, std::size_t bytes) {
  const GpuStatus status = enter(context);
  if (status != GPU_OK || bytes == 0) return status;
  if (!is_stream(stream)) return report(context, GPU_FAILED, "no stream " + std::to_string(stream));
  return check(context, GPU(MemsetAsync)(target, byte, bytes, context->streams[stream]), "fill");
}

GpuStatus call_host(GpuContext* context, int32_t stream, void (*function)(void*), void* user) {
  const GpuStatus status = enter(context);
  if (status != GPU_OK) return status;
  if (!is_stream(stream)) return report(context, GPU_FAILED, "no stream " + std::to_string(stream));
  return check(context, GPU(LaunchHostFunc)(context->streams[stream], function, user), "call of the host");
}

// ---- ranks ----------------------------------------------------------------------------------------------------------------------

void ranks_library(GpuImplementation* to) {
  Answer why;
  const std::string name = ranks_library_version(&why);
  *to = {};
  std::snprintf(to->library, sizeof to->library, "%s", name.c_str());
  std::snprintf(to->detail, sizeof to->detail, "%s", name.empty() ? why.text.c_str() : "");
  to->failed = name.empty() && why.failed ? 1 : 0;
}

GpuStatus make_ranks_id(GpuContext* context, std::uint8_t* id) {
  const GpuStatus status = enter(context);
  if (status != GPU_OK) return status;
  const Answer made = new_ranks_id(id);
  return made.taken ? GPU_OK : report(context, GPU_FAILED, made.text);
}

GpuStatus join_ranks(GpuContext* context, const std::uint8_t* id, int32_t rank, int32_t size,
                     std::int64_t limit_ns) {
  const GpuStatus status = enter(context);
  if (status != GPU_OK) return status;
  Answer why;
  context->ranks = open_ranks(id, context->device, rank, size, limit_ns, &why);
  return context->ranks != nullptr ? GPU_OK : report(context, GPU_FAILED, why.text);
}

GpuStatus exchange(GpuContext* context, int32_t stream, const GpuExchange* wanted) {
  const GpuStatus status = enter(context);
  if (status != GPU_OK) return status;
  if (!is_stream(stream)) return report(context, GPU_FAILED, "no stream " + std::to_string(stream));
  if (context->ranks == nullptr) return report(context, GPU_FAILED, "exchange: the ranks have not joined");
  Answer why;
  context->used = ranks_library_version(&why);
  context->answer = run_exchange(*context->ranks, *wanted, context->streams[stream]);
  return context->answer.taken ? GPU_OK
                               : report(context, GPU_FAILED, context->used + ": " + context->answer.text);
}

GpuStatus ranks_state(GpuContext* context) {
  if (context->ranks == nullptr) return GPU_OK;
  const Answer state = exchanges_state(*context->ranks);
  return state.taken ? GPU_OK : report(context, GPU_FAILED, state.text);
}

void leave_ranks(GpuContext* context) { context->ranks.reset(); }

// ---- work -----------------------------------------------------------------------------------------------------------------------

// By the vendor's library, if it takes the product; what it does not do with the result is done after it.
Answer ask_library(GpuContext* context, const GemmArgs& args, GPU(Stream_t) stream) {
  if (context->gemm == nullptr) return context->no_gemm;
  const Answer whole = run_gemm(*context->gemm, args, stream, &context->used);
  if (whole.taken || !has_epilogue(args)) return whole;
  Answer product = run_gemm(*context->gemm, without_epilogue(args), stream, &context->used);
  if (!product.taken) return whole.failed ? whole : product;
  queue_gemm_epilogue(args, stream);
  return {true, whole.failed, product.text + "; epilogue by our own kernel: " + whole.text};
}

Answer ask_library(GpuContext* context, const Fp8ProductArgs& args, GPU(Stream_t) stream) {
  return context->gemm == nullptr ? context->no_gemm
                                  : run_fp8_product(*context->gemm, args, stream, &context->used);
}

template <class Args>
Answer ask_library(GpuContext* context, const Args& args, GPU(Stream_t) stream) {
  context->used = context->dnn_name;
  if (context->dnn == nullptr) return context->no_dnn;
  return run_dnn(*context->dnn, dnn_call(args), stream, context->capturing);
}

// What a library leaves to us.
template <class Args>
void complete(const Args&, GPU(Stream_t)) {}
void complete(const ConvolutionArgs& args, GPU(Stream_t) stream) { queue_convolution_bias(args, stream); }
void complete(const BatchNormArgs& args, GPU(Stream_t) stream) { queue_batch_norm_running(args, stream); }

template <class Args>
bool run_by_library(GpuContext* context, const void* args, std::size_t bytes, GPU(Stream_t) stream) {
  if (bytes != sizeof(Args)) return false;
  context->answer = ask_library(context, *static_cast<const Args*>(args), stream);
  if (!context->answer.taken) return false;
  complete(*static_cast<const Args*>(args), stream);
  return true;
}

// True: a library has computed kernel `id`.
bool run_by_library(GpuContext* context, std::uint32_t id, const void* args, std::size_t bytes,
                    GPU(Stream_t) stream) {
  switch (KernelId(id)) {
    case KernelId::gemm: return run_by_library<GemmArgs>(context, args, bytes, stream);
    case KernelId::convolution: return run_by_library<ConvolutionArgs>(context, args, bytes, stream);
    case KernelId::max_pool: return run_by_library<MaxPoolArgs>(context, args, bytes, stream);
    case KernelId::average_pool: return run_by_library<AveragePoolArgs>(context, args, bytes, stream);
    case KernelId::average_pool_grad:
      return run_by_library<AveragePoolGradArgs>(context, args, bytes, stream);
    case KernelId::batch_norm: return run_by_library<BatchNormArgs>(context, args, bytes, stream);
    case KernelId::batch_norm_grad: return run_by_library<BatchNormGradArgs>(context, args, bytes, stream);
    default: return false;
  }
}

bool offer_to_library(GpuContext* context, std::uint32_t id, const void* args, std::size_t bytes,
                      GPU(Stream_t) stream) {
  switch (LibraryKernelId(id)) {
    case LibraryKernelId::attention: return run_by_library<AttentionArgs>(context, args, bytes, stream);
    case LibraryKernelId::attention_grad:
      return run_by_library<AttentionGradArgs>(context, args, bytes, stream);
    case LibraryKernelId::fp8_product: return run_by_library<Fp8ProductArgs>(context, args, bytes, stream);
    default: return false;
  }
}

GpuStatus run(GpuContext* context, int32_t stream, std::uint32_t kernel_id, const void* args,
              std::size_t args_bytes) {
  const GpuStatus status = enter(context);
  if (status != GPU_OK) return status;
  if (!is_stream(stream)) return report(context, GPU_FAILED, "no stream " + std::to_string(stream));
  const char* name = kernel_id < std::uint32_t(KernelId::count) ? kNames[kernel_id] : "unknown kernel";
  const auto on = context->streams[stream];
  trap_when_due(on);
  context->used.clear();
  context->answer = {};
  if (is_flash_attention(KernelId(kernel_id))) context->answer.text = kFlashAttentionName;
  if (run_by_library(context, kernel_id, args, args_bytes, on))
    return check(context, GPU(GetLastError)(), name);
  if (!queue_kernel(kernel_id, args, args_bytes, on))
    return report(context, GPU_UNSUPPORTED,
                  std::string(name) + ": no such kernel here, or its arguments are of another version");
  return check(context, GPU(GetLastError)(), name);
}

GpuStatus offer(GpuContext* context, int32_t stream, std::uint32_t kernel_id, const void* args,
                std::size_t args_bytes, int32_t* taken) {
  *taken = 0;
  const GpuStatus status = enter(context);
  if (status != GPU_OK) return status;
  if (!is_stream(stream)) return report(context, GPU_FAILED, "no stream " + std::to_string(stream));
  context->used.clear();
  context->answer = {};
  *taken = offer_to_library(context, kernel_id, args, args_bytes, context->streams[stream]) ? 1 : 0;
  return check(context, GPU(GetLastError)(), "library");
}

void implementation(const GpuContext* context, GpuImplementation* to) {
  const Answer& answer = context->answer;
  const std::string asked = answer.taken || context->used.empty() ? "" : context->used + ": ";
  std::snprintf(to->library, sizeof to->library, "%s", answer.taken ? context->used.c_str() : "");
  std::snprintf(to->detail, sizeof to->detail, "%s", (asked + answer.text).c_str());
  to->failed = answer.failed ? 1 : 0;
}

int32_t has_dnn_library() { return dnn_library_version().empty() ? 0 : 1; }

void tune_product(GpuContext* context, const GemmArgs& args, int32_t candidates) {
  if (context->gemm == nullptr) return;
  const auto on = context->streams[GPU_COMPUTE];
  if (!tune_gemm(*context->gemm, args, on, candidates, context->algorithms) && has_epilogue(args))
    (void)tune_gemm(*context->gemm, without_epilogue(args), on, candidates, context->algorithms);
}

GpuStatus tune(GpuContext* context, std::uint32_t kernel_id, const void* args, std::size_t args_bytes,
               int32_t candidates) {
  const GpuStatus status = enter(context);
  if (status != GPU_OK) return status;
  if (KernelId(kernel_id) == KernelId::gemm && args_bytes == sizeof(GemmArgs))
    tune_product(context, *static_cast<const GemmArgs*>(args), candidates);
  return check(context, GPU(GetLastError)(), "choosing algorithms");
}

GpuStatus set_algorithm(GpuContext* context, const GpuAlgorithm* algorithm) {
  (void)context->algorithms.give(*algorithm);
  return GPU_OK;
}

GpuStatus algorithms(GpuContext* context, GpuAlgorithm* rows, int32_t capacity, int32_t* count) {
  *count = context->algorithms.list(rows, capacity);
  return GPU_OK;
}

GpuStatus compile(GpuContext* context, const char* source, const char* const* entries, int32_t count,
                  const char* cache_folder, GpuModule** module) {
  const GpuStatus status = enter(context);
  return status != GPU_OK ? status : compile_module(context, source, entries, count, cache_folder, module);
}

void unload(GpuContext* context, GpuModule* module) {
  (void)enter(context);
  unload_module(context, module);
}

GpuStatus run_program(GpuContext* context, int32_t stream, GpuModule* module, int32_t index, GpuDim grid,
                      GpuDim block, const void* params, std::size_t) {
  const GpuStatus status = enter(context);
  if (status != GPU_OK) return status;
  if (!is_stream(stream)) return report(context, GPU_FAILED, "no stream " + std::to_string(stream));
  trap_when_due(context->streams[stream]);
  return launch_program(context, stream, module, index, grid, block, params);
}

GpuStatus mark(GpuContext* context, int32_t plan_step, const char* name) {
  if (context->range_open) pop_range();
  context->range_open = plan_step >= 0;
  if (context->range_open) push_range(name);
  set_activity_step(plan_step);
  return GPU_OK;
}

// ---- order ----------------------------------------------------------------------------------------------------------------------

GpuStatus enter_with(GpuContext* context, int32_t stream, int32_t event) {
  const GpuStatus status = enter(context);
  if (status != GPU_OK || (is_stream(stream) && is_event(context, event))) return status;
  return report(context, GPU_FAILED,
                "no stream " + std::to_string(stream) + " or no event " + std::to_string(event));
}

GpuStatus make_event(GpuContext* context, int32_t* event) {
  GpuStatus status = enter(context);
  if (status == GPU_OK) status = add_event(context);
  if (status == GPU_OK) *event = int32_t(context->events.size()) - 1;
  return status;
}

GpuStatus record_event(GpuContext* context, int32_t stream, int32_t event) {
  const GpuStatus status = enter_with(context, stream, event);
  return status != GPU_OK ? status
                          : check(context, GPU(EventRecord)(context->events[event], context->streams[stream]),
                                  "record event");
}

GpuStatus wait_event(GpuContext* context, int32_t stream, int32_t event) {
  const GpuStatus status = enter_with(context, stream, event);
  return status != GPU_OK
             ? status
             : check(context, GPU(StreamWaitEvent)(context->streams[stream], context->events[event], 0),
                     "wait for event");
}

GpuStatus query_event(GpuContext* context, int32_t event) {
  const GpuStatus status = enter_with(context, 0, event);
  if (status != GPU_OK) return status;
  const Error error = GPU(EventQuery)(context->events[event]);
  if (error != GPU(ErrorNotReady)) return check(context, error, "query event");
  (void)GPU(GetLastError)();
  return GPU_NOT_READY;
}

GpuStatus synchronize_event(GpuContext* context, int32_t event) {
  const GpuStatus status = enter_with(context, 0, event);
  return status != GPU_OK ? status
                          : check(context, GPU(EventSynchronize)(context->events[event]), "wait for event");
}

GpuStatus elapsed_ns(GpuContext* context, int32_t from_event, int32_t to_event, std::int64_t* ns) {
  GpuStatus status = enter_with(context, 0, from_event);
  if (status == GPU_OK) status = enter_with(context, 0, to_event);
  if (status != GPU_OK) return status;
  float milliseconds = 0;
  status = check(context,
                 GPU(EventElapsedTime)(&milliseconds, context->events[from_event], context->events[to_event]),
                 "time between events");
  *ns = std::llround(double(milliseconds) * 1e6);
  return status;
}

GpuStatus synchronize(GpuContext* context) {
  const GpuStatus status = enter(context);
  return status != GPU_OK ? status : check(context, GPU(DeviceSynchronize)(), "wait for the device");
}

GpuStatus join_events(GpuContext* context, GPU(Stream_t) before, GPU(Stream_t) after) {
  GpuStatus status = enter(context);
  if (status == GPU_OK && context->join_event < 0) status = make_event(context, &context->join_event);
  if (status != GPU_OK) return status;
  const GPU(Event_t) event = context->events[context->join_event];
  status = check(context, GPU(EventRecord)(event, before), "record event");
  return status != GPU_OK ? status : check(context, GPU(StreamWaitEvent)(after, event, 0), "wait for event");
}

// The default stream cannot be recorded, and must not be asked while another one is.
GpuStatus ask_recorded(GpuContext* context, GPU(Stream_t) stream, bool* recorded) {
  *recorded = false;
  if (stream == nullptr) return GPU_OK;
  auto state = GPU(StreamCaptureStatusNone);
  const GpuStatus status =
      check(context, GPU(StreamIsCapturing)(stream, &state), "ask whether a stream is recorded");
  *recorded = state != GPU(StreamCaptureStatusNone);
  return status;
}

GpuStatus follow(GpuContext* context, GPU(Stream_t) others) {
  (void)GPU(GetDevice)(&context->callers_device);
  GpuStatus status = enter(context);
  if (status == GPU_OK) status = ask_recorded(context, others, &context->capturing);
  if (status == GPU_OK) status = join_events(context, others, context->streams[GPU_COMPUTE]);
  return status;
}

GpuStatus join_stream(GpuContext* context, void* stream, int32_t first, int32_t* recorded) {
  auto* const others = static_cast<GPU(Stream_t)>(stream);
  const GpuStatus status =
      first != 0 ? follow(context, others) : join_events(context, context->streams[GPU_COMPUTE], others);
  *recorded = context->capturing ? 1 : 0;
  if (first != 0 && status == GPU_OK) return GPU_OK;
  context->capturing = false;
  (void)GPU(SetDevice)(context->callers_device);
  return status;
}

// ---- recording ------------------------------------------------------------------------------------------------------------------

GpuStatus begin_capture(GpuContext* context) {
  GpuStatus status = enter(context);
  if (status != GPU_OK) return status;
  // Thread-local: what other threads do (the drain thread of the profiler) does not break the recording.
  status = check(context,
                 GPU(StreamBeginCapture)(context->streams[GPU_COMPUTE], GPU(StreamCaptureModeThreadLocal)),
                 "begin recording");
  context->capturing = status == GPU_OK;
  return status;
}

void destroy_graph(GpuContext* context, GpuGraph* graph) {
  if (graph == nullptr) return;
  (void)GPU(SetDevice)(context->device);
  if (graph->program != nullptr) (void)GPU(GraphExecDestroy)(graph->program);
  if (graph->graph != nullptr) (void)GPU(GraphDestroy)(graph->graph);
  delete graph;
}

GpuStatus end_capture(GpuContext* context, GpuGraph** graph) {
  GpuStatus status = enter(context);
  if (status != GPU_OK) return status;
  auto* recorded = new GpuGraph;
  context->capturing = false;
  (void)mark(context, -1, "");  // the nodes that instantiation makes are of no plan step of their own
  status =
      check(context, GPU(StreamEndCapture)(context->streams[GPU_COMPUTE], &recorded->graph), "end recording");
  if (status == GPU_OK)
    status = check(context, instantiate(&recorded->program, recorded->graph), "make graph");
  if (status == GPU_OK)
    status = check(context, upload(recorded->program, context->streams[GPU_COMPUTE]), "upload graph");
  if (status != GPU_OK) {
    destroy_graph(context, recorded);
    return status;
  }
  *graph = recorded;
  return GPU_OK;
}

GpuStatus run_graph(GpuContext* context, GpuGraph* graph) {
  const GpuStatus status = enter(context);
  return status != GPU_OK
             ? status
             : check(context, GPU(GraphLaunch)(graph->program, context->streams[GPU_COMPUTE]), "run graph");
}

// ---- profiling ------------------------------------------------------------------------------------------------------------------

GpuStatus set_trace(GpuContext* context, int32_t level) {
  const GpuStatus status = enter(context);
  if (status != GPU_OK) return status;
  if (level == GPU_TRACE_OFF) {
    stop_activity();
    return GPU_OK;
  }
  std::string error;
  return start_activity(GpuTraceLevel(level), context->streams, &error)
             ? GPU_OK
             : report(context, GPU_UNSUPPORTED, "trace: " + error);
}

GpuStatus read_trace(GpuContext* context, int32_t flush, GpuActivity* activities, int32_t capacity,
                     int32_t* count) {
  *count = 0;
  if (flush != 0 && !context->lost) {
    const GpuStatus status = synchronize(context);
    if (status != GPU_OK) return status;
  }
  *count = capacity > 0
               ? int32_t(read_activity(flush != 0 && !context->lost, activities, std::size_t(capacity)))
               : 0;
  return GPU_OK;
}

constexpr GpuPlugin kPlugin = {
    GRADLOOM_GPU_VERSION,   sizeof(GpuPlugin), kernel_abi(),       kKind, message,
    count_devices,          describe_device,   device_environment, open,  close,
    GRADLOOM_GPU_FUNCTIONS,
};

}  // namespace
}  // namespace gradloom::kernels::gpu

extern "C" __attribute__((visibility("default"))) const GpuPlugin* gradloom_gpu_plugin(
    std::uint32_t version) {
  return version == GRADLOOM_GPU_VERSION ? &gradloom::kernels::gpu::kPlugin : nullptr;
}
