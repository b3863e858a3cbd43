// The HIP runtime by any of its names: libamdhip64.so.5, .6 and .7 have the functions that we and the compiler's kernel stubs call, with
// the same parameters, under the names that are defined here. So one plugin serves all three, and is loaded where there is none: then
// its calls answer hipErrorNoDevice. Of structs that they share only opaque handles are used, and the numbers of attributes and errors,
// which are the same in the three (hip_runtime_api.h of 5.2, 6.0 and 7.0); the one that differs is read by its layouts below.
#include "engine/device/gpu/runtime/hip_runtime.h"

#include <cstring>
#include <vector>

#include "engine/device/gpu/runtime/library.h"

namespace gradloom::kernels::gpu {
namespace {

Library& runtime() {  // never destroyed: kernels are taken back after the last destructor
  static Library& library =
      *new Library{"libamdhip64.so.7", "libamdhip64.so.6", "libamdhip64.so.5", "libamdhip64.so"};
  return library;
}

// Function `name` of the runtime, null when it has none.
template <class F>
F* function(const char* name) {
  F* found = nullptr;
  (void)runtime().bind(found, name);
  return found;
}

// Bytes from the start of the struct to its members.
struct PropertyLayout {
  const char* function;
  std::size_t total, shared, warp, processors, architecture, bytes;
};
constexpr PropertyLayout kR0600 = {"hipGetDevicePropertiesR0600", 288, 296, 308, 388, 1160, 1472};
constexpr PropertyLayout kBefore6 = {"hipGetDeviceProperties", 256, 264, 276, 336, 396, 792};
constexpr PropertyLayout kOurs = HIP_VERSION_MAJOR >= 6 ? kR0600 : kBefore6;  // as the headers here have it
static_assert(offsetof(hipDeviceProp_t, totalGlobalMem) == kOurs.total);
static_assert(offsetof(hipDeviceProp_t, sharedMemPerBlock) == kOurs.shared);
static_assert(offsetof(hipDeviceProp_t, warpSize) == kOurs.warp);
static_assert(offsetof(hipDeviceProp_t, multiProcessorCount) == kOurs.processors);
static_assert(offsetof(hipDeviceProp_t, gcnArchName) == kOurs.architecture);
static_assert(sizeof(hipDeviceProp_t) == kOurs.bytes);

}  // namespace

hipError_t device_properties(HipProperties* properties, int device) {
  const PropertyLayout* layout = &kR0600;
  auto* get = function<hipError_t(void*, int)>(layout->function);
  if (get == nullptr) get = function<hipError_t(void*, int)>((layout = &kBefore6)->function);
  if (get == nullptr) return hipErrorNoDevice;
  std::vector<char> bytes(4 * kR0600.bytes, 0);  // more than any has
  const hipError_t error = get(bytes.data(), device);
  *properties = {};
  if (error != hipSuccess) return error;
  const auto read = [&](auto& member, std::size_t at) {
    std::memcpy(&member, bytes.data() + at, sizeof member);
  };
  read(properties->name, 0);
  read(properties->gcnArchName, layout->architecture);
  properties->name[sizeof properties->name - 1] =
      properties->gcnArchName[sizeof properties->gcnArchName - 1] = '\0';
  read(properties->totalGlobalMem, layout->total);
  read(properties->sharedMemPerBlock, layout->shared);
  read(properties->warpSize, layout->warp);
  read(properties->multiProcessorCount, layout->processors);
  return error;
}

void* optional_hip_function(const char* name) { return runtime() ? runtime().symbol(name) : nullptr; }

std::string missing_runtime() { return runtime() ? "" : runtime().error(); }

}  // namespace gradloom::kernels::gpu

// ---- the runtime's functions ----------------------------------------------------------------------------------------------------

using gradloom::kernels::gpu::function;

// FORWARD(result without a runtime, type, name, (parameters), (arguments))
#define FORWARD(missing, Type, name, Parameters, arguments)   \
  extern "C" Type name Parameters {                           \
    using Function = Type Parameters;                         \
    static Function* const there = function<Function>(#name); \
    return there != nullptr ? there arguments : (missing);    \
  }
#define FORWARD_CALL(name, Parameters, arguments) \
  FORWARD(hipErrorNoDevice, hipError_t, name, Parameters, arguments)

FORWARD_CALL(hipGetDeviceCount, (int* count), (count))
FORWARD_CALL(hipGetDevice, (int* device), (device))
FORWARD_CALL(hipSetDevice, (int device), (device))
FORWARD_CALL(hipDeviceSynchronize, (), ())
FORWARD_CALL(hipDeviceGetAttribute, (int* value, hipDeviceAttribute_t attribute, int device),
             (value, attribute, device))
FORWARD_CALL(hipDeviceGetUuid, (hipUUID * uuid, hipDevice_t device), (uuid, device))
FORWARD_CALL(hipDriverGetVersion, (int* version), (version))
FORWARD_CALL(hipRuntimeGetVersion, (int* version), (version))
FORWARD_CALL(hipGetLastError, (), ())
FORWARD("hipErrorNoDevice", const char*, hipGetErrorName, (hipError_t error), (error))
FORWARD("no HIP runtime", const char*, hipGetErrorString, (hipError_t error), (error))

FORWARD_CALL(hipMalloc, (void** memory, std::size_t bytes), (memory, bytes))
FORWARD_CALL(hipFree, (void* memory), (memory))
FORWARD_CALL(hipHostMalloc, (void** memory, std::size_t bytes, unsigned flags), (memory, bytes, flags))
FORWARD_CALL(hipHostFree, (void* memory), (memory))
FORWARD_CALL(hipMemGetInfo, (std::size_t * free, std::size_t* total), (free, total))
FORWARD_CALL(hipMemcpyAsync,
             (void* target, const void* source, std::size_t bytes, hipMemcpyKind kind, hipStream_t stream),
             (target, source, bytes, kind, stream))
FORWARD_CALL(hipMemsetAsync, (void* target, int byte, std::size_t bytes, hipStream_t stream),
             (target, byte, bytes, stream))

FORWARD_CALL(hipStreamCreateWithFlags, (hipStream_t * stream, unsigned flags), (stream, flags))
FORWARD_CALL(hipStreamDestroy, (hipStream_t stream), (stream))
FORWARD_CALL(hipStreamWaitEvent, (hipStream_t stream, hipEvent_t event, unsigned flags),
             (stream, event, flags))
FORWARD_CALL(hipLaunchHostFunc, (hipStream_t stream, hipHostFn_t call, void* user), (stream, call, user))
FORWARD_CALL(hipStreamBeginCapture, (hipStream_t stream, hipStreamCaptureMode mode), (stream, mode))
FORWARD_CALL(hipStreamIsCapturing, (hipStream_t stream, hipStreamCaptureStatus* status), (stream, status))
FORWARD_CALL(hipStreamEndCapture, (hipStream_t stream, hipGraph_t* graph), (stream, graph))
FORWARD_CALL(hipEventCreateWithFlags, (hipEvent_t * event, unsigned flags), (event, flags))
FORWARD_CALL(hipEventDestroy, (hipEvent_t event), (event))
FORWARD_CALL(hipEventRecord, (hipEvent_t event, hipStream_t stream), (event, stream))
FORWARD_CALL(hipEventQuery, (hipEvent_t event), (event))
FORWARD_CALL(hipEventSynchronize, (hipEvent_t event), (event))
FORWARD_CALL(hipEventElapsedTime, (float* ms, hipEvent_t from, hipEvent_t to), (ms, from, to))

FORWARD_CALL(hipGraphInstantiate,
             (hipGraphExec_t * program, hipGraph_t graph, hipGraphNode_t* node, char* log, std::size_t bytes),
             (program, graph, node, log, bytes))
FORWARD_CALL(hipGraphLaunch, (hipGraphExec_t program, hipStream_t stream), (program, stream))
FORWARD_CALL(hipGraphExecDestroy, (hipGraphExec_t program), (program))
FORWARD_CALL(hipGraphDestroy, (hipGraph_t graph), (graph))

FORWARD_CALL(hipModuleLoadData, (hipModule_t * module, const void* code), (module, code))
FORWARD_CALL(hipModuleUnload, (hipModule_t module), (module))
FORWARD_CALL(hipModuleGetFunction, (hipFunction_t * program, hipModule_t module, const char* name),
             (program, module, name))
FORWARD_CALL(hipModuleLaunchKernel,
             (hipFunction_t program, unsigned grid_x, unsigned grid_y, unsigned grid_z, unsigned block_x,
              unsigned block_y, unsigned block_z, unsigned shared_bytes, hipStream_t stream, void** params,
              void** extra),
             (program, grid_x, grid_y, grid_z, block_x, block_y, block_z, shared_bytes, stream, params,
              extra))
FORWARD(nullptr, const char*, hipKernelNameRef, (const hipFunction_t program), (program))
FORWARD(nullptr, const char*, hipKernelNameRefByPtr, (const void* kernel, hipStream_t stream),
        (kernel, stream))

// What the compiler calls for kernels of the plugin: when it is loaded and unloaded, and around each <<<>>>.
FORWARD(nullptr, void**, __hipRegisterFatBinary, (const void* code), (code))
FORWARD((void)0, void, __hipUnregisterFatBinary, (void** code), (code))
FORWARD((void)0, void, __hipRegisterFunction,
        (void** code, const void* kernel, char* name, const char* device_name, unsigned threads, void* thread,
         void* block, dim3* block_dims, dim3* grid_dims, int* wave),
        (code, kernel, name, device_name, threads, thread, block, block_dims, grid_dims, wave))
FORWARD_CALL(__hipPushCallConfiguration,
             (dim3 grid, dim3 block, std::size_t shared_bytes, hipStream_t stream),
             (grid, block, shared_bytes, stream))
FORWARD_CALL(__hipPopCallConfiguration,
             (dim3 * grid, dim3* block, std::size_t* shared_bytes, hipStream_t* stream),
             (grid, block, shared_bytes, stream))
FORWARD_CALL(hipLaunchKernel,
             (const void* kernel, dim3 grid, dim3 block, void** params, std::size_t shared_bytes,
              hipStream_t stream),
             (kernel, grid, block, params, shared_bytes, stream))
