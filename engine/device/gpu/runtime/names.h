// One spelling for the runtime libraries of CUDA and HIP, whose functions, types and error numbers agree but
// for a prefix: GPU(Malloc) is cudaMalloc or hipMalloc. What differs has a function here.
#pragma once

#if defined(GRADLOOM_HIP)
#include "engine/device/gpu/runtime/hip_runtime.h"
#define GPU(name) hip##name
#else
#include <cuda_runtime.h>
#define GPU(name) cuda##name
#endif

#include <cstddef>
#include <string>

namespace gradloom::kernels::gpu {

using Error = GPU(Error_t);
#if defined(GRADLOOM_HIP)
using DeviceProperties = HipProperties;
#else
using DeviceProperties = cudaDeviceProp;
#endif

#if defined(GRADLOOM_HIP)
constexpr const char* kKind = "hip";
constexpr const char* kPrefix = "hip";

inline Error allocate_pinned(void** memory, std::size_t bytes) {
  return hipHostMalloc(memory, bytes, hipHostMallocDefault);
}
inline Error release_pinned(void* memory) { return hipHostFree(memory); }
inline Error instantiate(hipGraphExec_t* program, hipGraph_t graph) {
  return hipGraphInstantiate(program, graph, nullptr, nullptr, 0);
}
inline Error upload(hipGraphExec_t, hipStream_t) { return hipSuccess; }  // not in HIP 5
#else
constexpr const char* kKind = "cuda";
constexpr const char* kPrefix = "cuda";

inline Error allocate_pinned(void** memory, std::size_t bytes) {
  return cudaHostAlloc(memory, bytes, cudaHostAllocDefault);
}
inline Error release_pinned(void* memory) { return cudaFreeHost(memory); }
inline Error device_properties(cudaDeviceProp* properties, int device) {
  return cudaGetDeviceProperties(properties, device);
}
inline std::string missing_runtime() { return ""; }  // it is part of the plugin
inline Error instantiate(cudaGraphExec_t* program, cudaGraph_t graph) {
  return cudaGraphInstantiate(program, graph, 0);
}
inline Error upload(cudaGraphExec_t program, cudaStream_t stream) { return cudaGraphUpload(program, stream); }
#endif

}  // namespace gradloom::kernels::gpu
