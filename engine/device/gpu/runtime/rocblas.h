// Products by rocBLAS, opened at run time; without epilogues. One object per context.
#pragma once

#include <memory>
#include <string>

#include "engine/device/gpu/runtime/answer.h"
#include "engine/device/gpu/runtime/blas_lt.h"
#include "kernels/arguments.h"

namespace gradloom::kernels::gpu {

class Rocblas;
struct CloseRocblas {
  void operator()(Rocblas* library) const;
};
using RocblasPtr = std::unique_ptr<Rocblas, CloseRocblas>;

// Null when the library is not found here, does not open or does not take the workspace: *why.
RocblasPtr open_rocblas(const ProductWorkspace& workspace, Answer* why);
std::string rocblas_version();  // "rocblas 5.0.0"; "" when there is none

Answer run_product(Rocblas& library, const GemmArgs& args, void* stream);

}  // namespace gradloom::kernels::gpu
