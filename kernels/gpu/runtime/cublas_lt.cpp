// Products by cuBLASLt. f32 is computed in f32 (TF32 only with GRADLOOM_TF32=1), bf16 accumulates in f32.
// Reductions that use atomics are ruled out, so the same algorithm gives the same bits.
//
// The algorithm of a shape is the library's first suggestion, which is the same in every run.
// GRADLOOM_GEMM_SEARCH=N times the first N once per shape and keeps the fastest: faster at times, but which
// one wins may differ between runs, and with it the last bits.
#include <cublasLt.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <map>
#include <vector>

#include "kernels/gpu/runtime/column_major.h"
#include "kernels/gpu/runtime/gemm_library.h"
#include "kernels/gpu/runtime/library.h"
#include "kernels/gpu/runtime/names.h"

namespace gradloom::kernels::gpu {
namespace {

struct Functions {
  Library library{"libcublasLt.so.13", "libcublasLt.so.12", "libcublasLt.so"};
  decltype(&cublasLtCreate) create = nullptr;
  decltype(&cublasLtDestroy) destroy = nullptr;
  decltype(&cublasLtGetVersion) version = nullptr;
  decltype(&cublasLtMatmulDescCreate) desc_create = nullptr;
  decltype(&cublasLtMatmulDescDestroy) desc_destroy = nullptr;
  decltype(&cublasLtMatmulDescSetAttribute) desc_set = nullptr;
  decltype(&cublasLtMatrixLayoutCreate) layout_create = nullptr;
  decltype(&cublasLtMatrixLayoutDestroy) layout_destroy = nullptr;
  decltype(&cublasLtMatrixLayoutSetAttribute) layout_set = nullptr;
  decltype(&cublasLtMatmulPreferenceCreate) preference_create = nullptr;
  decltype(&cublasLtMatmulPreferenceDestroy) preference_destroy = nullptr;
  decltype(&cublasLtMatmulPreferenceSetAttribute) preference_set = nullptr;
  decltype(&cublasLtMatmulAlgoGetHeuristic) heuristic = nullptr;
  decltype(&cublasLtMatmul) matmul = nullptr;
  bool ready = false;

  Functions() {
    ready = library && library.bind(create, "cublasLtCreate") && library.bind(destroy, "cublasLtDestroy") &&
            library.bind(version, "cublasLtGetVersion") &&
            library.bind(desc_create, "cublasLtMatmulDescCreate") &&
            library.bind(desc_destroy, "cublasLtMatmulDescDestroy") &&
            library.bind(desc_set, "cublasLtMatmulDescSetAttribute") &&
            library.bind(layout_create, "cublasLtMatrixLayoutCreate") &&
            library.bind(layout_destroy, "cublasLtMatrixLayoutDestroy") &&
            library.bind(layout_set, "cublasLtMatrixLayoutSetAttribute") &&
            library.bind(preference_create, "cublasLtMatmulPreferenceCreate") &&
            library.bind(preference_destroy, "cublasLtMatmulPreferenceDestroy") &&
            library.bind(preference_set, "cublasLtMatmulPreferenceSetAttribute") &&
            library.bind(heuristic, "cublasLtMatmulAlgoGetHeuristic") &&
            library.bind(matmul, "cublasLtMatmul");
  }
};
const Functions& lt() {
  static const Functions functions;
  return functions;
}

int setting(const char* name, int otherwise) {
  const char* value = std::getenv(name);
  return value != nullptr && *value != 0 ? std::atoi(value) : otherwise;
}

struct Types {
  cudaDataType_t data, scale;
  cublasComputeType_t compute;
};
bool types_of(DType type, Types* types) {
  switch (type) {
    case DType::f32:
      *types = {CUDA_R_32F, CUDA_R_32F,
                setting("GRADLOOM_TF32", 0) != 0 ? CUBLAS_COMPUTE_32F_FAST_TF32 : CUBLAS_COMPUTE_32F};
      return true;
    case DType::bf16:
      *types = {CUDA_R_16BF, CUDA_R_32F, CUBLAS_COMPUTE_32F};
      return true;
    case DType::f64:
      *types = {CUDA_R_64F, CUDA_R_64F, CUBLAS_COMPUTE_64F};
      return true;
    default:
      return false;
  }
}

// gelu_erf has none: the library's GELU is the tanh form.
bool epilogue_of(const GemmArgs& args, cublasLtEpilogue_t* epilogue) {
  const bool bias = args.bias != nullptr;
  switch (args.activation) {
    case Activation::none:
      *epilogue = bias ? CUBLASLT_EPILOGUE_BIAS : CUBLASLT_EPILOGUE_DEFAULT;
      break;
    case Activation::relu:
      *epilogue = bias ? CUBLASLT_EPILOGUE_RELU_BIAS : CUBLASLT_EPILOGUE_RELU;
      break;
    case Activation::gelu_tanh:
      *epilogue = bias ? CUBLASLT_EPILOGUE_GELU_BIAS : CUBLASLT_EPILOGUE_GELU;
      break;
    default:
      return false;
  }
  return args.dtype != DType::f64 || *epilogue == CUBLASLT_EPILOGUE_DEFAULT;
}

// The library picks faster algorithms for better boundaries.
std::uint32_t boundary_of(const void* p) {
  const auto bits = reinterpret_cast<std::uintptr_t>(p) | 256u;
  return std::uint32_t(bits & (~bits + 1));
}

// Everything that the choice of an algorithm depends on.
using Key = std::array<std::int64_t, 20>;

// What cublasLtMatmul is called with, destroyed with it.
struct Call {
  cublasLtMatmulDesc_t desc = nullptr;
  cublasLtMatrixLayout_t x = nullptr, y = nullptr, d = nullptr;
  ~Call() {
    if (desc != nullptr) lt().desc_destroy(desc);
    for (const cublasLtMatrixLayout_t layout : {x, y, d}) {
      if (layout != nullptr) lt().layout_destroy(layout);
    }
  }
};

}  // namespace

class GemmLibrary {
 public:
  explicit GemmLibrary(cublasLtHandle_t handle) : handle_(handle) {}
  ~GemmLibrary() { lt().destroy(handle_); }
  GemmLibrary(const GemmLibrary&) = delete;
  GemmLibrary& operator=(const GemmLibrary&) = delete;

  bool run(const GemmArgs& args, void* stream, bool capturing) {
    ColumnMajor product;
    Types types;
    cublasLtEpilogue_t epilogue;
    if (!types_of(args.dtype, &types) || !epilogue_of(args, &epilogue) || !column_major(args, &product))
      return false;
    Call call;
    if (!describe(args, product, types, epilogue, call)) return false;
    const Key key = key_of(args, product, epilogue);
    auto chosen = algorithms_.find(key);
    if (chosen == algorithms_.end()) {
      std::vector<cublasLtMatmulHeuristicResult_t> found = suggestions(args, call);
      // Accumulating products cannot be tried: each trial would add to the result.
      const bool may_time = !capturing && !args.accumulate && found.size() > 1;
      Choice choice;
      if (!found.empty())
        choice = {true, found[may_time ? fastest(args, call, found, cudaStream_t(stream)) : 0].algo};
      chosen = algorithms_.emplace(key, choice).first;
    }
    return chosen->second.found && multiply(args, call, chosen->second.algorithm, cudaStream_t(stream));
  }

 private:
  struct Choice {
    bool found = false;
    cublasLtMatmulAlgo_t algorithm = {};
  };

  static Key key_of(const GemmArgs& args, const ColumnMajor& p, cublasLtEpilogue_t epilogue) {
    return {std::int64_t(args.dtype),
            p.rows,
            p.cols,
            p.inner,
            p.x_transposed,
            p.y_transposed,
            p.x_ld,
            p.y_ld,
            p.d_ld,
            p.batch,
            p.x_batch,
            p.y_batch,
            p.d_batch,
            std::int64_t(epilogue),
            args.accumulate,
            std::int64_t(args.workspace_bytes),
            boundary_of(args.a),
            boundary_of(args.b),
            boundary_of(args.c),
            boundary_of(args.bias)};
  }

  static bool layout(cublasLtMatrixLayout_t* made, cudaDataType_t type, std::int64_t rows, std::int64_t cols,
                     bool transposed, std::int64_t ld, std::int64_t batch, std::int64_t stride) {
    if (lt().layout_create(made, type, std::uint64_t(transposed ? cols : rows),
                           std::uint64_t(transposed ? rows : cols), ld) != 0)
      return false;
    const std::int32_t count = std::int32_t(batch);
    return lt().layout_set(*made, CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT, &count, sizeof count) == 0 &&
           lt().layout_set(*made, CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET, &stride, sizeof stride) == 0;
  }

  static bool describe(const GemmArgs& args, const ColumnMajor& p, const Types& types,
                       cublasLtEpilogue_t epilogue, Call& call) {
    if (lt().desc_create(&call.desc, types.compute, types.scale) != 0) return false;
    const auto set = [&](cublasLtMatmulDescAttributes_t attribute, const auto& value) {
      return lt().desc_set(call.desc, attribute, &value, sizeof value) == 0;
    };
    const cublasOperation_t x = p.x_transposed ? CUBLAS_OP_T : CUBLAS_OP_N,
                            y = p.y_transposed ? CUBLAS_OP_T : CUBLAS_OP_N;
    return set(CUBLASLT_MATMUL_DESC_TRANSA, x) && set(CUBLASLT_MATMUL_DESC_TRANSB, y) &&
           set(CUBLASLT_MATMUL_DESC_EPILOGUE, epilogue) &&
           (args.bias == nullptr || set(CUBLASLT_MATMUL_DESC_BIAS_POINTER, args.bias)) &&
           layout(&call.x, types.data, p.rows, p.inner, p.x_transposed, p.x_ld, p.batch, p.x_batch) &&
           layout(&call.y, types.data, p.inner, p.cols, p.y_transposed, p.y_ld, p.batch, p.y_batch) &&
           layout(&call.d, types.data, p.rows, p.cols, false, p.d_ld, p.batch, p.d_batch);
  }

  std::vector<cublasLtMatmulHeuristicResult_t> suggestions(const GemmArgs& args, const Call& call) const {
    std::vector<cublasLtMatmulHeuristicResult_t> found(
        std::size_t(std::clamp(setting("GRADLOOM_GEMM_SEARCH", 1), 1, 32)));
    cublasLtMatmulPreference_t preference = nullptr;
    if (lt().preference_create(&preference) != 0) return {};
    const auto set = [&](cublasLtMatmulPreferenceAttributes_t attribute, const auto& value) {
      return lt().preference_set(preference, attribute, &value, sizeof value) == 0;
    };
    const std::uint64_t workspace = args.workspace != nullptr ? args.workspace_bytes : 0;
    const std::uint32_t no_atomics =
        CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE | CUBLASLT_REDUCTION_SCHEME_OUTPUT_TYPE;
    int count = 0;
    const bool asked = set(CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, workspace) &&
                       set(CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK, no_atomics) &&
                       set(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, boundary_of(args.b)) &&
                       set(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES, boundary_of(args.a)) &&
                       set(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, boundary_of(args.c)) &&
                       set(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES, boundary_of(args.c)) &&
                       lt().heuristic(handle_, call.desc, call.x, call.y, call.d, call.d, preference,
                                      int(found.size()), found.data(), &count) == 0;
    lt().preference_destroy(preference);
    found.resize(asked ? std::size_t(count) : 0);
    std::erase_if(found,
                  [&](const auto& result) { return result.state != 0 || result.workspaceSize > workspace; });
    return found;
  }

  bool multiply(const GemmArgs& args, const Call& call, const cublasLtMatmulAlgo_t& algorithm,
                cudaStream_t stream) const {
    const double alpha = args.alpha, beta = args.accumulate ? 1 : 0;
    const float alpha_f32 = float(alpha), beta_f32 = float(beta);
    const bool f64 = args.dtype == DType::f64;
    const void* scale = f64 ? static_cast<const void*>(&alpha) : &alpha_f32;
    const void* keep = f64 ? static_cast<const void*>(&beta) : &beta_f32;
    const std::size_t workspace = args.workspace != nullptr ? args.workspace_bytes : 0;
    return lt().matmul(handle_, call.desc, scale, args.b, call.x, args.a, call.y, keep, args.c, call.d,
                       args.c, call.d, &algorithm, args.workspace, workspace, stream) == 0;
  }

  // Index of the fastest of one run each, after one to load its code.
  std::size_t fastest(const GemmArgs& args, const Call& call,
                      const std::vector<cublasLtMatmulHeuristicResult_t>& found, cudaStream_t stream) const {
    cudaEvent_t from = nullptr, to = nullptr;
    std::size_t best = 0;
    if (cudaEventCreate(&from) == cudaSuccess && cudaEventCreate(&to) == cudaSuccess) {
      float best_ms = 1e30f, ms = 0;
      for (std::size_t i = 0; i < found.size(); ++i) {
        const bool timed =
            multiply(args, call, found[i].algo, stream) && cudaEventRecord(from, stream) == cudaSuccess &&
            multiply(args, call, found[i].algo, stream) && cudaEventRecord(to, stream) == cudaSuccess &&
            cudaEventSynchronize(to) == cudaSuccess && cudaEventElapsedTime(&ms, from, to) == cudaSuccess;
        if (timed && ms < best_ms) {
          best_ms = ms;
          best = i;
        }
      }
    }
    if (from != nullptr) (void)cudaEventDestroy(from);
    if (to != nullptr) (void)cudaEventDestroy(to);
    return best;
  }

  cublasLtHandle_t handle_;
  std::map<Key, Choice> algorithms_;
};

void CloseGemmLibrary::operator()(GemmLibrary* library) const { delete library; }

bool run_gemm(GemmLibrary& library, const GemmArgs& args, void* stream, bool capturing) {
  return library.run(args, stream, capturing);
}

GemmLibraryPtr open_gemm_library() {
  cublasLtHandle_t handle = nullptr;
  if (!lt().ready || lt().create(&handle) != 0) return nullptr;
  return GemmLibraryPtr(new GemmLibrary(handle));
}

std::string gemm_library_version() {
  if (!lt().ready) return "";
  const std::size_t version = lt().version();  // 130100
  return "cublasLt " + std::to_string(version / 10000) + "." + std::to_string(version / 100 % 100) + "." +
         std::to_string(version % 100);
}

}  // namespace gradloom::kernels::gpu
