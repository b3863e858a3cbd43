// Products by cuBLASLt, or in HIP hipBLASLt, opened at run time; with epilogues. One object per context.
#pragma once

#include <cstddef>
#include <memory>
#include <string>

#include "engine/device/gpu/runtime/algorithms.h"
#include "engine/device/gpu/runtime/answer.h"
#include "kernels/arguments.h"
#include "kernels/library_kernels.h"

namespace gradloom::kernels::gpu {

class BlasLt;
struct CloseBlasLt {
  void operator()(BlasLt* library) const;
};
using BlasLtPtr = std::unique_ptr<BlasLt, CloseBlasLt>;

// Memory of the device that products may use.
struct ProductWorkspace {
  void* at = nullptr;
  std::size_t bytes = 0;
};

// Null when the library is not found here or does not open: *why. `spare` serves products that bring no workspace, one after another.
BlasLtPtr open_blas_lt(const ProductWorkspace& spare, Answer* why);
const std::string& blas_lt_name(const BlasLt& library);  // "cublasLt 13.1.0"
// The same, and "" when there is none; hipBLASLt's number is known once it was opened.
std::string blas_lt_version();

// As run_gemm, tune_gemm (gemm_library.h).
Answer run_product(BlasLt& library, const GemmArgs& args, void* stream);
Answer run_product(BlasLt& library, const Fp8ProductArgs& args, void* stream);
bool tune_product(BlasLt& library, const GemmArgs& args, void* stream, int candidates,
                  AlgorithmTable& algorithms);

}  // namespace gradloom::kernels::gpu
