// What we use of cuBLASLt, declared after its headers (cublasLt.h, cublas_api.h), which a toolkit need not have. Where they
// are installed, tests/engine/device/gpu/runtime/declarations_test.cpp compares them with this. hipBLASLt (hipblaslt.h, hipblas-common.h)
// has the same calls, but for what is told of versions and algorithms, with numbers of its own: it is called in cuBLASLt's spelling.
#pragma once

#if !defined(GRADLOOM_HIP)
#include <library_types.h>
#endif

#include <cstddef>
#include <cstdint>

#if defined(GRADLOOM_HIP)
enum cudaDataType_t : int {
  CUDA_R_32F = 0,
  CUDA_R_64F = 1,
  CUDA_R_16F = 2,
  CUDA_R_16BF = 14
};  // hipDataType
#endif

namespace gradloom::kernels::gpu {

enum cublasLtMatmulAlgoConfigAttributes_t : int {};
enum cublasLtEpilogue_t : int {};
enum cublasLtMatmulDescAttributes_t : int {};
enum cublasLtMatmulPreferenceAttributes_t : int {};
enum cublasLtMatrixLayoutAttribute_t : int {};
enum cublasComputeType_t : int {};
enum cublasOperation_t : int {};
enum cublasStatus_t : int {};
enum cublasLtReductionScheme_t : std::uint32_t {};  // bits

#define VALUE(type, name, number) constexpr type name{number};
#if defined(GRADLOOM_HIP)
#include "engine/device/gpu/runtime/hipblas_lt_values.def"
#else
#include "engine/device/gpu/runtime/cublas_lt_values.def"
#endif

constexpr cublasStatus_t CUBLAS_STATUS_SUCCESS{0};

using cublasLtHandle_t = struct CublasLtHandle*;
using cublasLtMatmulDesc_t = struct CublasLtMatmulDesc*;
using cublasLtMatrixLayout_t = struct CublasLtMatrixLayout*;
using cublasLtMatmulPreference_t = struct CublasLtMatmulPreference*;
struct cublasLtMatmulAlgo_t {
#if defined(GRADLOOM_HIP)
  std::uint64_t data[3];  // the last one: how much workspace it was found for
#else
  std::uint64_t data[8];
#endif
};
struct cublasLtMatmulHeuristicResult_t {
  cublasLtMatmulAlgo_t algo;
  std::size_t workspaceSize;
  cublasStatus_t state;
  float wavesCount;
  int reserved[4];
};

using CublasLtCreate = cublasStatus_t(cublasLtHandle_t* handle);
using CublasLtDestroy = cublasStatus_t(cublasLtHandle_t handle);
#if defined(GRADLOOM_HIP)
using CublasLtGetVersion = cublasStatus_t(cublasLtHandle_t handle, int* version);
#else
using CublasLtGetVersion = std::size_t();
#endif
using CublasLtGetStatusName = const char*(cublasStatus_t status);
using CublasLtDescCreate = cublasStatus_t(cublasLtMatmulDesc_t* desc, cublasComputeType_t compute,
                                          cudaDataType_t scale);
using CublasLtDescDestroy = cublasStatus_t(cublasLtMatmulDesc_t desc);
using CublasLtDescSet = cublasStatus_t(cublasLtMatmulDesc_t desc, cublasLtMatmulDescAttributes_t attribute,
                                       const void* value, std::size_t bytes);
using CublasLtLayoutCreate = cublasStatus_t(cublasLtMatrixLayout_t* layout, cudaDataType_t type,
                                            std::uint64_t rows, std::uint64_t cols, std::int64_t ld);
using CublasLtLayoutDestroy = cublasStatus_t(cublasLtMatrixLayout_t layout);
using CublasLtLayoutSet = cublasStatus_t(cublasLtMatrixLayout_t layout,
                                         cublasLtMatrixLayoutAttribute_t attribute, const void* value,
                                         std::size_t bytes);
using CublasLtPreferenceCreate = cublasStatus_t(cublasLtMatmulPreference_t* preference);
using CublasLtPreferenceDestroy = cublasStatus_t(cublasLtMatmulPreference_t preference);
using CublasLtPreferenceSet = cublasStatus_t(cublasLtMatmulPreference_t preference,
                                             cublasLtMatmulPreferenceAttributes_t attribute,
                                             const void* value, std::size_t bytes);
using CublasLtHeuristic = cublasStatus_t(cublasLtHandle_t handle, cublasLtMatmulDesc_t desc,
                                         cublasLtMatrixLayout_t a, cublasLtMatrixLayout_t b,
                                         cublasLtMatrixLayout_t c, cublasLtMatrixLayout_t d,
                                         cublasLtMatmulPreference_t preference, int capacity,
                                         cublasLtMatmulHeuristicResult_t* results, int* count);
using CublasLtAlgoCheck = cublasStatus_t(cublasLtHandle_t handle, cublasLtMatmulDesc_t desc,
                                         cublasLtMatrixLayout_t a, cublasLtMatrixLayout_t b,
                                         cublasLtMatrixLayout_t c, cublasLtMatrixLayout_t d,
                                         const cublasLtMatmulAlgo_t* algo,
                                         cublasLtMatmulHeuristicResult_t* result);
using CublasLtAlgoGet = cublasStatus_t(const cublasLtMatmulAlgo_t* algo,
                                       cublasLtMatmulAlgoConfigAttributes_t attribute, void* value,
                                       std::size_t bytes, std::size_t* written);
using CublasLtMatmul = cublasStatus_t(cublasLtHandle_t handle, cublasLtMatmulDesc_t desc, const void* alpha,
                                      const void* a, cublasLtMatrixLayout_t a_layout, const void* b,
                                      cublasLtMatrixLayout_t b_layout, const void* beta, const void* c,
                                      cublasLtMatrixLayout_t c_layout, void* d,
                                      cublasLtMatrixLayout_t d_layout, const cublasLtMatmulAlgo_t* algo,
                                      void* workspace, std::size_t workspace_bytes, void* stream);

}  // namespace gradloom::kernels::gpu
