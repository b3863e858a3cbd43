// The vendor's matrix products: cuBLASLt or rocBLAS, opened at run time. One object per context.
#pragma once

#include <memory>
#include <string>

#include "kernels/arguments.h"

namespace gradloom::kernels::gpu {

class GemmLibrary;  // defined by the file of the vendor's library
struct CloseGemmLibrary {
  void operator()(GemmLibrary* library) const;
};
using GemmLibraryPtr = std::unique_ptr<GemmLibrary, CloseGemmLibrary>;

// Null when the library is not found here.
GemmLibraryPtr open_gemm_library();
// Queues the product on `stream` (cudaStream_t, hipStream_t). False: it has a form that the library does not
// take or no deterministic algorithm was found, nothing was queued. capturing: the stream is being recorded,
// so nothing may be measured.
bool run_gemm(GemmLibrary& library, const GemmArgs& args, void* stream, bool capturing);
// "cublasLt 13.1.0"; "" when there is none.
std::string gemm_library_version();

}  // namespace gradloom::kernels::gpu
