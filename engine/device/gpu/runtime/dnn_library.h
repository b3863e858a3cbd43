// The vendor's library of convolutions, pooling, normalization and attention: cuDNN, opened at run time. One
// object per context. GRADLOOM_CUDNN=0 leaves it out.
#pragma once

#include <memory>
#include <string>

#include "engine/device/gpu/runtime/answer.h"
#include "engine/device/gpu/runtime/dnn_problem.h"

namespace gradloom::kernels::gpu {

class DnnLibrary;  // defined by the file of the vendor's library
struct CloseDnnLibrary {
  void operator()(DnnLibrary* library) const;
};
using DnnLibraryPtr = std::unique_ptr<DnnLibrary, CloseDnnLibrary>;

// Null when the library is not found here, does not open or is not wanted: *why. capability: the device's, 90 for
// sm_90.
DnnLibraryPtr open_dnn_library(int capability, Answer* why);
// Queues the call on `stream` (cudaStream_t). Not taken, and to be done otherwise: there is none, the library does not take it, or failed at
// it once, or sees it for the first time while the stream is being recorded (capturing).
// Deterministic, f32 computed in f32 (TF32 only with GRADLOOM_TF32=1).
Answer run_dnn(DnnLibrary& library, const std::optional<DnnCall>& call, void* stream, bool capturing);
// "cudnn 9.19.0"; "" when there is none, or it is not wanted.
std::string dnn_library_version();

}  // namespace gradloom::kernels::gpu
