// What we declare of NVIDIA's libraries against their headers, where these are installed: this file compiles, or it does not.
#include "engine/device/gpu/runtime/blas_lt_api.h"
#include "engine/device/gpu/runtime/cudnn_api.h"
#include "engine/device/gpu/runtime/cupti_api.h"
#include "engine/device/gpu/runtime/nccl_api.h"

#include <gtest/gtest.h>

#include <cstddef>
#include <type_traits>

#pragma GCC diagnostic ignored "-Wdeprecated-declarations"  // newer headers would have us use newer forms

#if __has_include(<cublasLt.h>)
#include <cublasLt.h>
#define HAVE_CUBLAS_LT 1
#endif
#if __has_include(<cudnn.h>)
#include <cudnn.h>
#define HAVE_CUDNN 1
#endif
#if __has_include(<nccl.h>)
#include <nccl.h>
#define HAVE_NCCL 1
#endif
#if __has_include(<cupti.h>)
#include <cupti.h>
#define HAVE_CUPTI 1
#endif

namespace ours = gradloom::kernels::gpu;

namespace {

// As a call passes it: pointers and handles are addresses, enums and integers of a size are alike.
template <class Ours, class Theirs>
constexpr bool alike() {
  if constexpr (std::is_pointer_v<Ours> || std::is_pointer_v<Theirs>)
    return std::is_pointer_v<Ours> && std::is_pointer_v<Theirs>;
  else if constexpr (std::is_void_v<Ours> || std::is_void_v<Theirs>)
    return std::is_void_v<Ours> == std::is_void_v<Theirs>;
  else
    return sizeof(Ours) == sizeof(Theirs);
}
template <class Ours, class Theirs>
struct Same : std::false_type {};
template <class R, class... A, class Q, class... B>
struct Same<R(A...), Q(B...)> {
  static constexpr bool all() {
    if constexpr (sizeof...(A) == sizeof...(B))
      return alike<R, Q>() && (alike<A, B>() && ...);
    else
      return false;
  }
  static constexpr bool value = all();
};

#if HAVE_CUBLAS_LT
#define VALUE(type, name, number) static_assert(long{ours::name} == long{::name});
#include "engine/device/gpu/runtime/cublas_lt_values.def"
static_assert(sizeof(ours::cublasLtMatmulAlgo_t) == sizeof(::cublasLtMatmulAlgo_t));
static_assert(sizeof(ours::cublasLtMatmulHeuristicResult_t) == sizeof(::cublasLtMatmulHeuristicResult_t));
static_assert(offsetof(ours::cublasLtMatmulHeuristicResult_t, state) ==
              offsetof(::cublasLtMatmulHeuristicResult_t, state));
static_assert(offsetof(ours::cublasLtMatmulHeuristicResult_t, workspaceSize) ==
              offsetof(::cublasLtMatmulHeuristicResult_t, workspaceSize));
#define SAME(Ours, theirs) static_assert(Same<ours::Ours, decltype(theirs)>::value)
SAME(CublasLtCreate, ::cublasLtCreate);
SAME(CublasLtDestroy, ::cublasLtDestroy);
SAME(CublasLtGetVersion, ::cublasLtGetVersion);
SAME(CublasLtGetStatusName, ::cublasLtGetStatusName);
SAME(CublasLtDescCreate, ::cublasLtMatmulDescCreate);
SAME(CublasLtDescDestroy, ::cublasLtMatmulDescDestroy);
SAME(CublasLtDescSet, ::cublasLtMatmulDescSetAttribute);
SAME(CublasLtLayoutCreate, ::cublasLtMatrixLayoutCreate);
SAME(CublasLtLayoutDestroy, ::cublasLtMatrixLayoutDestroy);
SAME(CublasLtLayoutSet, ::cublasLtMatrixLayoutSetAttribute);
SAME(CublasLtPreferenceCreate, ::cublasLtMatmulPreferenceCreate);
SAME(CublasLtPreferenceDestroy, ::cublasLtMatmulPreferenceDestroy);
SAME(CublasLtPreferenceSet, ::cublasLtMatmulPreferenceSetAttribute);
SAME(CublasLtHeuristic, ::cublasLtMatmulAlgoGetHeuristic);
SAME(CublasLtAlgoCheck, ::cublasLtMatmulAlgoCheck);
SAME(CublasLtAlgoGet, ::cublasLtMatmulAlgoConfigGetAttribute);
SAME(CublasLtMatmul, ::cublasLtMatmul);
#endif

#if HAVE_CUDNN
#define VALUE(type, name, number) static_assert(long{ours::name} == long{::name});
#include "engine/device/gpu/runtime/cudnn_values.def"
static_assert(sizeof(ours::cudnnFraction_t) == sizeof(::cudnnFraction_t));
static_assert(sizeof(ours::cudnnDataType_t) == sizeof(::cudnnDataType_t), "attributes are read at this size");
SAME(CudnnGetVersion, ::cudnnGetVersion);
SAME(CudnnCreate, ::cudnnCreate);
SAME(CudnnDestroy, ::cudnnDestroy);
SAME(CudnnSetStream, ::cudnnSetStream);
SAME(CudnnCreateDescriptor, ::cudnnBackendCreateDescriptor);
SAME(CudnnDestroyDescriptor, ::cudnnBackendDestroyDescriptor);
SAME(CudnnDestroyDescriptor, ::cudnnBackendFinalize);
SAME(CudnnSetAttribute, ::cudnnBackendSetAttribute);
SAME(CudnnGetAttribute, ::cudnnBackendGetAttribute);
SAME(CudnnExecute, ::cudnnBackendExecute);
SAME(CudnnGetErrorString, ::cudnnGetErrorString);
SAME(CudnnGetLastErrorString, ::cudnnGetLastErrorString);
#endif

#if HAVE_NCCL
#define VALUE(type, name, number) static_assert(long{ours::name} == long{::name});
#include "engine/device/gpu/runtime/nccl_values.def"
static_assert(sizeof(ours::ncclUniqueId) == sizeof(::ncclUniqueId));
SAME(NcclGetVersion, ::ncclGetVersion);
SAME(NcclGetUniqueId, ::ncclGetUniqueId);
SAME(NcclCommInitRank, ::ncclCommInitRank);
SAME(NcclCommAbort, ::ncclCommAbort);
SAME(NcclCommGetAsyncError, ::ncclCommGetAsyncError);
SAME(NcclAllReduce, ::ncclAllReduce);
SAME(NcclReduce, ::ncclReduce);
SAME(NcclBroadcast, ::ncclBroadcast);
SAME(NcclReduceScatter, ::ncclReduceScatter);
SAME(NcclAllGather, ::ncclAllGather);
SAME(NcclGroup, ::ncclGroupStart);
SAME(NcclGroup, ::ncclGroupEnd);
SAME(NcclGetErrorString, ::ncclGetErrorString);
SAME(NcclGetLastError, ::ncclGetLastError);
#endif

#if HAVE_CUPTI
namespace api = ours::cupti_api;
#if CUPTI_API_VERSION >= 130000
using Kernel = CUpti_ActivityKernel10;
using Memcpy = CUpti_ActivityMemcpy6;
static_assert(api::kCudaLaunchKernel13 == CUPTI_RUNTIME_TRACE_CBID___cudaLaunchKernel_v13000);
#else
using Kernel = CUpti_ActivityKernel9;
using Memcpy = CUpti_ActivityMemcpy5;
#endif
#define AT(Ours, member, Theirs, theirs)                                   \
  static_assert(offsetof(api::Ours, member) == offsetof(Theirs, theirs) && \
                sizeof(api::Ours) <= sizeof(Theirs))
AT(KernelActivity, start, Kernel, start);
AT(KernelActivity, end, Kernel, end);
AT(KernelActivity, stream, Kernel, streamId);
AT(KernelActivity, correlation, Kernel, correlationId);
AT(KernelActivity, name, Kernel, name);
AT(KernelActivity, graph_node, Kernel, graphNodeId);
AT(MemcpyActivity, bytes, Memcpy, bytes);
AT(MemcpyActivity, start, Memcpy, start);
AT(MemcpyActivity, end, Memcpy, end);
AT(MemcpyActivity, stream, Memcpy, streamId);
AT(MemcpyActivity, correlation, Memcpy, correlationId);
AT(MemcpyActivity, graph_node, Memcpy, graphNodeId);
AT(MemsetActivity, bytes, CUpti_ActivityMemset4, bytes);
AT(MemsetActivity, start, CUpti_ActivityMemset4, start);
AT(MemsetActivity, end, CUpti_ActivityMemset4, end);
AT(MemsetActivity, stream, CUpti_ActivityMemset4, streamId);
AT(MemsetActivity, correlation, CUpti_ActivityMemset4, correlationId);
AT(MemsetActivity, graph_node, CUpti_ActivityMemset4, graphNodeId);
AT(ApiActivity, call, CUpti_ActivityAPI, cbid);
AT(ApiActivity, start, CUpti_ActivityAPI, start);
AT(ApiActivity, end, CUpti_ActivityAPI, end);
AT(ApiActivity, correlation, CUpti_ActivityAPI, correlationId);
AT(CallbackData, site, CUpti_CallbackData, callbackSite);
AT(CallbackData, correlation, CUpti_CallbackData, correlationId);
AT(ResourceData, descriptor, CUpti_ResourceData, resourceDescriptor);
AT(GraphData, node, CUpti_GraphData, node);
AT(GraphData, original_node, CUpti_GraphData, originalNode);
static_assert(api::kSuccess == CUPTI_SUCCESS);
static_assert(api::kNoMoreRecords == CUPTI_ERROR_MAX_LIMIT_REACHED);
static_assert(api::kInsufficientPrivileges == CUPTI_ERROR_INSUFFICIENT_PRIVILEGES);
static_assert(api::kMultipleSubscribers == CUPTI_ERROR_MULTIPLE_SUBSCRIBERS_NOT_SUPPORTED);
static_assert(api::kMemcpy == CUPTI_ACTIVITY_KIND_MEMCPY && api::kMemset == CUPTI_ACTIVITY_KIND_MEMSET);
static_assert(api::kRuntime == CUPTI_ACTIVITY_KIND_RUNTIME);
static_assert(api::kConcurrentKernel == CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL);
static_assert(api::kDriverApi == CUPTI_CB_DOMAIN_DRIVER_API &&
              api::kRuntimeApi == CUPTI_CB_DOMAIN_RUNTIME_API && api::kResource == CUPTI_CB_DOMAIN_RESOURCE);
static_assert(api::kCudaMemcpyAsync == CUPTI_RUNTIME_TRACE_CBID_cudaMemcpyAsync_v3020);
static_assert(api::kCudaMemsetAsync == CUPTI_RUNTIME_TRACE_CBID_cudaMemsetAsync_v3020);
static_assert(api::kCudaLaunchKernel == CUPTI_RUNTIME_TRACE_CBID_cudaLaunchKernel_v7000);
static_assert(api::kCudaLaunchKernelEx == CUPTI_RUNTIME_TRACE_CBID_cudaLaunchKernelExC_v11060);
static_assert(api::kCuLaunchKernel == CUPTI_DRIVER_TRACE_CBID_cuLaunchKernel);
static_assert(api::kCuLaunchKernelEx == CUPTI_DRIVER_TRACE_CBID_cuLaunchKernelEx);
static_assert(api::kGraphNodeCreated == CUPTI_CBID_RESOURCE_GRAPHNODE_CREATED);
static_assert(api::kGraphNodeCloned == CUPTI_CBID_RESOURCE_GRAPHNODE_CLONED);
static_assert(api::kApiEnter == CUPTI_API_ENTER);
SAME(cupti_api::GetVersion, ::cuptiGetVersion);
SAME(cupti_api::GetResultString, ::cuptiGetResultString);
SAME(cupti_api::Subscribe, ::cuptiSubscribe);
SAME(cupti_api::Unsubscribe, ::cuptiUnsubscribe);
SAME(cupti_api::EnableCallback, ::cuptiEnableCallback);
SAME(cupti_api::GetCallbackName, ::cuptiGetCallbackName);
SAME(cupti_api::RegisterCallbacks, ::cuptiActivityRegisterCallbacks);
SAME(cupti_api::RegisterTimestampCallback, ::cuptiActivityRegisterTimestampCallback);
SAME(cupti_api::Enable, ::cuptiActivityEnable);
SAME(cupti_api::Enable, ::cuptiActivityDisable);
SAME(cupti_api::FlushAll, ::cuptiActivityFlushAll);
SAME(cupti_api::GetNextRecord, ::cuptiActivityGetNextRecord);
SAME(cupti_api::GetNumDroppedRecords, ::cuptiActivityGetNumDroppedRecords);
SAME(cupti_api::GetGraphNodeId, ::cuptiGetGraphNodeId);
SAME(cupti_api::GetStreamIdEx, ::cuptiGetStreamIdEx);
static_assert(Same<api::CallbackFn, std::remove_pointer_t<CUpti_CallbackFunc>>::value);
static_assert(Same<api::RequestFn, std::remove_pointer_t<CUpti_BuffersCallbackRequestFunc>>::value);
static_assert(Same<api::CompleteFn, std::remove_pointer_t<CUpti_BuffersCallbackCompleteFunc>>::value);
#endif

}  // namespace

TEST(Declarations, AgreeWithTheHeadersThatAreHere) {
#if HAVE_CUBLAS_LT && HAVE_CUDNN && HAVE_CUPTI && HAVE_NCCL
  SUCCEED();
#else
  GTEST_SKIP() << "a header is not installed: cuBLASLt, cuDNN, CUPTI or NCCL";
#endif
}
