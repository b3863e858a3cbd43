// HIP's spelling of the strict driver, with which the plugin's sources become libgradloom_hip.so of tests: each function is CUDA's, whose
// numbers are the same. The two vendors' headers do not agree with each other, so both are declared here by what goes through them.
#include <cstddef>
#include <string>

using Handle = void*;

// HIP(Name, (parameters), (arguments)): hipName is cudaName.
#define HIP(Name, Parameters, arguments) \
  extern "C" int cuda##Name Parameters;  \
  extern "C" int hip##Name Parameters { return cuda##Name arguments; }

HIP(GetDeviceCount, (int* count), (count))
HIP(GetDevice, (int* device), (device))
HIP(SetDevice, (int device), (device))
HIP(DeviceSynchronize, (), ())
HIP(DriverGetVersion, (int* version), (version))
HIP(RuntimeGetVersion, (int* version), (version))
HIP(GetLastError, (), ())
HIP(Malloc, (void** memory, std::size_t bytes), (memory, bytes))
HIP(Free, (void* memory), (memory))
HIP(MemGetInfo, (std::size_t * free, std::size_t* total), (free, total))
HIP(MemcpyAsync, (void* target, const void* source, std::size_t bytes, int kind, Handle stream),
    (target, source, bytes, kind, stream))
HIP(MemsetAsync, (void* target, int byte, std::size_t bytes, Handle stream), (target, byte, bytes, stream))
HIP(StreamCreateWithFlags, (Handle * stream, unsigned flags), (stream, flags))
HIP(StreamDestroy, (Handle stream), (stream))
HIP(StreamWaitEvent, (Handle stream, Handle event, unsigned flags), (stream, event, flags))
HIP(LaunchHostFunc, (Handle stream, void (*function)(void*), void* user), (stream, function, user))
HIP(StreamBeginCapture, (Handle stream, int mode), (stream, mode))
HIP(StreamIsCapturing, (Handle stream, int* status), (stream, status))
HIP(StreamEndCapture, (Handle stream, Handle* graph), (stream, graph))
HIP(EventCreateWithFlags, (Handle * event, unsigned flags), (event, flags))
HIP(EventDestroy, (Handle event), (event))
HIP(EventRecord, (Handle event, Handle stream), (event, stream))
HIP(EventQuery, (Handle event), (event))
HIP(EventSynchronize, (Handle event), (event))
HIP(EventElapsedTime, (float* ms, Handle from, Handle to), (ms, from, to))
HIP(GraphLaunch, (Handle program, Handle stream), (program, stream))
HIP(GraphExecDestroy, (Handle program), (program))
HIP(GraphDestroy, (Handle graph), (graph))

extern "C" const char* cudaGetErrorName(int error);
extern "C" const char* cudaGetErrorString(int error);
extern "C" const char* hipGetErrorName(int error) {
  static thread_local std::string name;
  name = "hip" + std::string(cudaGetErrorName(error)).substr(4);
  return name.c_str();
}
extern "C" const char* hipGetErrorString(int error) { return cudaGetErrorString(error); }

// What has other parameters.
extern "C" int cudaHostAlloc(void** memory, std::size_t bytes, unsigned flags);
extern "C" int hipHostMalloc(void** memory, std::size_t bytes, unsigned flags) {
  return cudaHostAlloc(memory, bytes, flags);
}
extern "C" int cudaFreeHost(void* memory);
extern "C" int hipHostFree(void* memory) { return cudaFreeHost(memory); }
extern "C" int cudaGraphInstantiate(Handle* program, Handle graph, unsigned long long flags);
extern "C" int hipGraphInstantiate(Handle* program, Handle graph, Handle*, char*, std::size_t) {
  return cudaGraphInstantiate(program, graph, 0);
}
extern "C" int cudaDeviceGetAttribute(int* value, int attribute, int device);
extern "C" int hipDeviceGetAttribute(int* value, int attribute, int device) {
  return cudaDeviceGetAttribute(value, attribute, device);
}
extern "C" int hipDeviceGetUuid(void*, int) { return 801; }  // not supported

// The driver's functions for what is compiled at run time.
extern "C" int cudaGetDriverEntryPointByVersion(const char* name, void** function, unsigned version,
                                                unsigned long long flags, int* found);
namespace {

// The driver's function of this name with these arguments; the error of asking for it.
template <class... Args>
int driver_call(const char* name, Args... args) {
  void* function = nullptr;
  int found = 0;
  const int error = cudaGetDriverEntryPointByVersion(name, &function, 12000, 0, &found);
  return error != 0 ? error : reinterpret_cast<int (*)(Args...)>(function)(args...);
}

}  // namespace
extern "C" int hipModuleLoadData(Handle* module, const void* code) {
  return driver_call("cuModuleLoadData", module, code);
}
extern "C" int hipModuleUnload(Handle module) { return driver_call("cuModuleUnload", module); }
extern "C" int hipModuleGetFunction(Handle* program, Handle module, const char* name) {
  return driver_call("cuModuleGetFunction", program, module, name);
}
extern "C" int hipModuleLaunchKernel(Handle program, unsigned grid_x, unsigned grid_y, unsigned grid_z,
                                     unsigned block_x, unsigned block_y, unsigned block_z,
                                     unsigned shared_bytes, Handle stream, void** params, void** extra) {
  return driver_call("cuLaunchKernel", program, grid_x, grid_y, grid_z, block_x, block_y, block_z,
                     shared_bytes, stream, params, extra);
}
extern "C" const char* hipKernelNameRef(Handle) { return nullptr; }
extern "C" const char* hipKernelNameRefByPtr(const void*, Handle) { return nullptr; }
