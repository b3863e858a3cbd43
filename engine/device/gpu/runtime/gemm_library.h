// The vendor's matrix products: cuBLASLt, or hipBLASLt and rocBLAS, opened at run time. One object per context.
#pragma once

#include <memory>
#include <string>

#include "kernels/arguments.h"
#include "kernels/library_kernels.h"
#include "engine/device/gpu/runtime/algorithms.h"
#include "engine/device/gpu/runtime/answer.h"

namespace gradloom::kernels::gpu {

class GemmLibrary;
struct CloseGemmLibrary {
  void operator()(GemmLibrary* library) const;
};
using GemmLibraryPtr = std::unique_ptr<GemmLibrary, CloseGemmLibrary>;

// Null when the library is not found here or does not open: *why.
GemmLibraryPtr open_gemm_library(Answer* why);
// What the product is added to: the library reads it as its C and writes D.
inline bool adds(const GemmArgs& args) { return args.accumulate || args.addend != nullptr; }
inline const void* added_to(const GemmArgs& args) { return args.addend != nullptr ? args.addend : args.c; }
// Anything but the product (and what it is added to).
inline bool has_epilogue(const GemmArgs& args) {
  return args.bias != nullptr || args.activation != Activation::none || args.sums_of != GemmOperand::none;
}
// The product alone.
inline GemmArgs without_epilogue(GemmArgs args) {
  args.bias = nullptr;
  args.activation = Activation::none;
  args.aux = args.sums = nullptr;
  args.sums_of = GemmOperand::none;
  return args;
}
// Queues the product on `stream` (cudaStream_t, hipStream_t). Not taken: it has a form that the library does not
// have, no deterministic algorithm was found or a call failed, and nothing was queued. The answer is the same whether
// the stream is being recorded or not. used: the library whose answer it is, with its version.
Answer run_gemm(GemmLibrary& library, const GemmArgs& args, void* stream, std::string* used);
// The same for codes of 8 bits.
Answer run_fp8_product(GemmLibrary& library, const Fp8ProductArgs& args, void* stream, std::string* used);
// Chooses the algorithm of the product: the one that `algorithms` was given, if the library accepts it, else
// the fastest of `candidates`; what was chosen is noted there. False: not taken. Overwrites C, aux and sums.
bool tune_gemm(GemmLibrary& library, const GemmArgs& args, void* stream, int candidates,
               AlgorithmTable& algorithms);
// "cublasLt 13.1.0", "hipblaslt, rocblas 5.0.0"; "" when there is none.
std::string gemm_library_version();

}  // namespace gradloom::kernels::gpu
