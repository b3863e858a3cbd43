// libcublasLt for tests of who calls it: it multiplies nothing, and its heuristic suggests algorithms 0, 1, ..
#include "engine/device/gpu/runtime/cublas_lt_api.h"
#include "tests/engine/device/gpu/runtime/fake_calls.h"

#include <algorithm>
#include <cstring>
#include <map>

using namespace gradloom::kernels::gpu;

namespace {

struct Layout {
  cudaDataType_t type;
};
std::size_t most_workspace = 0;
cudaDataType_t d_type = CUDA_R_8I;
Layout layouts[3];
int next_layout = 0;

cublasStatus_t counted(const char* name) { return cublasStatus_t(gradloom::test::fake_calls().call(name)); }
template <class T>
cublasStatus_t made(const char* name, T** handle) {
  static char something;
  *handle = reinterpret_cast<T*>(&something);
  return counted(name);
}

}  // namespace

#define FAKE extern "C" __attribute__((visibility("default")))

// What the latest call said: preference's workspace, D's type.
FAKE std::size_t fake_workspace() { return most_workspace; }
FAKE int fake_d_type() { return d_type; }

FAKE cublasStatus_t cublasLtCreate(cublasLtHandle_t* handle) { return made("create", handle); }
FAKE cublasStatus_t cublasLtDestroy(cublasLtHandle_t) { return counted("destroy"); }
FAKE std::size_t cublasLtGetVersion() { return 130100; }
FAKE const char* cublasLtGetStatusName(cublasStatus_t status) {
  return status == 15 ? "CUBLAS_STATUS_NOT_SUPPORTED" : status == 14 ? "CUBLAS_STATUS_INTERNAL_ERROR" : "?";
}
FAKE cublasStatus_t cublasLtMatmulDescCreate(cublasLtMatmulDesc_t* desc, cublasComputeType_t,
                                             cudaDataType_t) {
  return made("desc create", desc);
}
FAKE cublasStatus_t cublasLtMatmulDescDestroy(cublasLtMatmulDesc_t) { return counted("desc destroy"); }
FAKE cublasStatus_t cublasLtMatmulDescSetAttribute(cublasLtMatmulDesc_t, cublasLtMatmulDescAttributes_t,
                                                   const void*, std::size_t) {
  return counted("desc set");
}
FAKE cublasStatus_t cublasLtMatrixLayoutCreate(cublasLtMatrixLayout_t* layout, cudaDataType_t type,
                                               std::uint64_t, std::uint64_t, std::int64_t) {
  Layout& next = layouts[next_layout++ % 3];
  next.type = type;
  *layout = reinterpret_cast<cublasLtMatrixLayout_t>(&next);
  return counted("layout create");
}
FAKE cublasStatus_t cublasLtMatrixLayoutDestroy(cublasLtMatrixLayout_t) { return counted("layout destroy"); }
FAKE cublasStatus_t cublasLtMatrixLayoutSetAttribute(cublasLtMatrixLayout_t, cublasLtMatrixLayoutAttribute_t,
                                                     const void*, std::size_t) {
  return counted("layout set");
}
FAKE cublasStatus_t cublasLtMatmulPreferenceCreate(cublasLtMatmulPreference_t* preference) {
  return made("preference create", preference);
}
FAKE cublasStatus_t cublasLtMatmulPreferenceDestroy(cublasLtMatmulPreference_t) {
  return counted("preference destroy");
}
FAKE cublasStatus_t cublasLtMatmulPreferenceSetAttribute(cublasLtMatmulPreference_t,
                                                         cublasLtMatmulPreferenceAttributes_t attribute,
                                                         const void* value, std::size_t bytes) {
  if (attribute == CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES) std::memcpy(&most_workspace, value, bytes);
  return counted("preference set");
}
FAKE cublasStatus_t cublasLtMatmulAlgoGetHeuristic(cublasLtHandle_t, cublasLtMatmulDesc_t,
                                                   cublasLtMatrixLayout_t, cublasLtMatrixLayout_t,
                                                   cublasLtMatrixLayout_t, cublasLtMatrixLayout_t d,
                                                   cublasLtMatmulPreference_t, int capacity,
                                                   cublasLtMatmulHeuristicResult_t* results, int* count) {
  d_type = reinterpret_cast<const Layout*>(d)->type;
  for (*count = 0; *count < std::min(capacity, 3); ++*count) results[*count].algo.data[0] = *count;
  return counted("heuristic");
}
FAKE cublasStatus_t cublasLtMatmulAlgoCheck(cublasLtHandle_t, cublasLtMatmulDesc_t, cublasLtMatrixLayout_t,
                                            cublasLtMatrixLayout_t, cublasLtMatrixLayout_t,
                                            cublasLtMatrixLayout_t, const cublasLtMatmulAlgo_t*,
                                            cublasLtMatmulHeuristicResult_t*) {
  return counted("check");
}
FAKE cublasStatus_t cublasLtMatmulAlgoConfigGetAttribute(const cublasLtMatmulAlgo_t* algo,
                                                         cublasLtMatmulAlgoConfigAttributes_t attribute,
                                                         void* value, std::size_t, std::size_t* written) {
  const std::map<int, int> values = {{CUBLASLT_ALGO_CONFIG_ID, 66 + int(algo->data[0])},
                                     {CUBLASLT_ALGO_CONFIG_TILE_ID, 20},
                                     {CUBLASLT_ALGO_CONFIG_STAGES_ID, 36},
                                     {CUBLASLT_ALGO_CONFIG_SPLITK_NUM, 1}};
  std::memcpy(value, &values.at(attribute), sizeof(int));
  *written = sizeof(int);
  return counted("algo get");
}
FAKE cublasStatus_t cublasLtMatmul(cublasLtHandle_t, cublasLtMatmulDesc_t, const void*, const void*,
                                   cublasLtMatrixLayout_t, const void*, cublasLtMatrixLayout_t, const void*,
                                   const void*, cublasLtMatrixLayout_t, void*, cublasLtMatrixLayout_t,
                                   const cublasLtMatmulAlgo_t*, void*, std::size_t, void*) {
  return counted("matmul");
}
