// The vendor's convolutions: cuDNN, opened at run time. One object per context. GRADLOOM_CUDNN=0 leaves it
// out.
#pragma once

#include <memory>
#include <string>

#include "kernels/arguments.h"

namespace gradloom::kernels::gpu {

class DnnLibrary;  // defined by the file of the vendor's library
struct CloseDnnLibrary {
  void operator()(DnnLibrary* library) const;
};
using DnnLibraryPtr = std::unique_ptr<DnnLibrary, CloseDnnLibrary>;

// Null when the library is not found here, or is not wanted.
DnnLibraryPtr open_dnn_library();
// Queues the convolution, without its bias, on `stream` (cudaStream_t). False, and nothing was queued: the
// library does not take the problem, or failed at it once, or sees it for the first time while the stream is
// being recorded (capturing). Deterministic, f32 computed in f32 (TF32 only with GRADLOOM_TF32=1).
bool run_convolution(DnnLibrary& library, const ConvolutionArgs& args, void* stream, bool capturing);
// "cudnn 9.19.0"; "" when there is none.
std::string dnn_library_version();

}  // namespace gradloom::kernels::gpu
