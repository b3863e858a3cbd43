// Products by cuBLASLt or hipBLASLt. f32 is computed in f32 (TF32 only with GRADLOOM_TF32=1), f16 and bf16 accumulate in
// f32, and so do the slices of a product that is cut. Reductions that use atomics are ruled out, so the same
// algorithm gives the same bits; hipBLASLt cannot be asked for that, it slices with workspace, which it is given.
//
// The algorithm of a shape is the library's first suggestion, which is the same in every run. tune_gemm
// times several and keeps the fastest: faster at times, but which one wins may differ between
// processes, and with it the last bits, so the choice is kept outside (AlgorithmTable) and given back
// to those that are to have the same.
#include "engine/device/gpu/runtime/blas_lt.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <map>
#include <vector>

#include "engine/device/gpu/runtime/blas_lt_api.h"
#include "engine/device/gpu/runtime/column_major.h"
#include "engine/device/gpu/runtime/gemm_library.h"
#include "engine/device/gpu/runtime/library.h"
#include "engine/device/gpu/runtime/names.h"

namespace gradloom::kernels::gpu {
namespace {

#if defined(GRADLOOM_HIP)
#define LT "hipblasLt"
#else
#define LT "cublasLt"
#endif

struct Functions {
#if defined(GRADLOOM_HIP)
  Library library{"libhipblaslt.so.1", "libhipblaslt.so.0", "libhipblaslt.so"};
#else
  Library library{"libcublasLt.so.13", "libcublasLt.so.12", "libcublasLt.so"};
#endif
  CublasLtCreate* create = nullptr;
  CublasLtDestroy* destroy = nullptr;
  CublasLtGetVersion* version = nullptr;
  CublasLtDescCreate* desc_create = nullptr;
  CublasLtDescDestroy* desc_destroy = nullptr;
  CublasLtDescSet* desc_set = nullptr;
  CublasLtLayoutCreate* layout_create = nullptr;
  CublasLtLayoutDestroy* layout_destroy = nullptr;
  CublasLtLayoutSet* layout_set = nullptr;
  CublasLtPreferenceCreate* preference_create = nullptr;
  CublasLtPreferenceDestroy* preference_destroy = nullptr;
  CublasLtPreferenceSet* preference_set = nullptr;
  CublasLtHeuristic* heuristic = nullptr;
  CublasLtMatmul* matmul = nullptr;
#if !defined(GRADLOOM_HIP)
  CublasLtAlgoCheck* algo_check = nullptr;
  CublasLtAlgoGet* algo_get = nullptr;  // the library may lack it
#endif
  CublasLtGetStatusName* status_name = nullptr;  // the library may lack it
  bool ready = false;

  Functions() {
    ready = library && library.bind(create, LT "Create") && library.bind(destroy, LT "Destroy") &&
            library.bind(version, LT "GetVersion") && library.bind(desc_create, LT "MatmulDescCreate") &&
            library.bind(desc_destroy, LT "MatmulDescDestroy") &&
            library.bind(desc_set, LT "MatmulDescSetAttribute") &&
            library.bind(layout_create, LT "MatrixLayoutCreate") &&
            library.bind(layout_destroy, LT "MatrixLayoutDestroy") &&
            library.bind(layout_set, LT "MatrixLayoutSetAttribute") &&
            library.bind(preference_create, LT "MatmulPreferenceCreate") &&
            library.bind(preference_destroy, LT "MatmulPreferenceDestroy") &&
            library.bind(preference_set, LT "MatmulPreferenceSetAttribute") &&
            library.bind(heuristic, LT "MatmulAlgoGetHeuristic") && library.bind(matmul, LT "Matmul");
#if !defined(GRADLOOM_HIP)
    ready = ready && library.bind(algo_check, LT "MatmulAlgoCheck");
#endif
    if (!ready) return;
#if !defined(GRADLOOM_HIP)
    (void)library.bind(algo_get, LT "MatmulAlgoConfigGetAttribute");
#endif
    (void)library.bind(status_name, LT "GetStatusName");
  }
};
const Functions& lt() {
  static const Functions functions;
  return functions;
}

std::string words(const char* call, cublasStatus_t status) {
  const char* const name = lt().status_name != nullptr ? lt().status_name(status) : nullptr;
  return std::string(call) + ": " + (name != nullptr ? name : "status " + std::to_string(status));
}

#if defined(GRADLOOM_HIP)
// "solution 1234".
std::string text_of(const cublasLtMatmulAlgo_t& algorithm) {
  return "solution " + std::to_string(std::uint32_t(algorithm.data[0]));
}
#else
// "algorithm 66, tile 20, stages 36, 4 slices".
std::string text_of(const cublasLtMatmulAlgo_t& algorithm) {
  if (lt().algo_get == nullptr) return "";
  std::string text;
  const auto add = [&](const char* name, cublasLtMatmulAlgoConfigAttributes_t attribute, std::int32_t usual) {
    std::int32_t value = 0;
    std::size_t written = 0;
    if (lt().algo_get(&algorithm, attribute, &value, sizeof value, &written) != 0 || value == usual) return;
    text += (text.empty() ? "" : ", ") + std::string(name) + " " + std::to_string(value);
  };
  add("algorithm", CUBLASLT_ALGO_CONFIG_ID, -1);
  add("tile", CUBLASLT_ALGO_CONFIG_TILE_ID, 0);
  add("stages", CUBLASLT_ALGO_CONFIG_STAGES_ID, 0);
  add("split-K", CUBLASLT_ALGO_CONFIG_SPLITK_NUM, 1);
  return text;
}
#endif

// "cublasLt 13.1.0".
#if defined(GRADLOOM_HIP)
std::string version_of(cublasLtHandle_t handle) {
  int version = 0;  // 100000: 1.0.0
  if (lt().version(handle, &version) != 0) return "hipblaslt";
  return "hipblaslt " + std::to_string(version / 100000) + "." + std::to_string(version / 100 % 1000) + "." +
         std::to_string(version % 100);
}
#else
std::string version_of(cublasLtHandle_t) {
  const std::size_t version = lt().version();  // 130100
  return "cublasLt " + std::to_string(version / 10000) + "." + std::to_string(version / 100 % 100) + "." +
         std::to_string(version % 100);
}
#endif

struct Types {
  cudaDataType_t data, scale;  // C: data, or f32 where it is wide
  cublasComputeType_t compute;
};
bool types_of(DType type, Types* types) {
  switch (type) {
    case DType::f32:
      *types = {CUDA_R_32F, CUDA_R_32F,
                switched("GRADLOOM_TF32", false) ? CUBLAS_COMPUTE_32F_FAST_TF32 : CUBLAS_COMPUTE_32F};
      return true;
    case DType::f16: *types = {CUDA_R_16F, CUDA_R_32F, CUBLAS_COMPUTE_32F}; return true;
    case DType::bf16: *types = {CUDA_R_16BF, CUDA_R_32F, CUBLAS_COMPUTE_32F}; return true;
#if !defined(GRADLOOM_HIP)
    case DType::f64: *types = {CUDA_R_64F, CUDA_R_64F, CUBLAS_COMPUTE_64F}; return true;
#endif
    default: return false;
  }
}

// The library's rules for values kept beside D: lines of a multiple of 8, 16-byte boundaries, one product.
bool aux_fits(const GemmArgs& args, const ColumnMajor& p) {
  return p.batch == 1 && p.d_ld % 8 == 0 && reinterpret_cast<std::uintptr_t>(args.aux) % 16 == 0;
}

// What the library can do with the result in the product's kernel. gelu_erf has none: the library's GELU is
// the tanh form. A bias is one value per row of D, sums are of X (BGRADA, per row of D) or of Y (BGRADB),
// neither with an activation of the other's.
bool epilogue_of(const GemmArgs& args, const ColumnMajor& p, cublasLtEpilogue_t* epilogue) {
  const bool bias = args.bias != nullptr, aux = args.aux != nullptr;
  if (args.sums_of != GemmOperand::none) {
    if (bias || args.activation != Activation::none || args.batch_rank != 0) return false;
    const bool of_x = (args.sums_of == GemmOperand::a) == p.by_columns;
    *epilogue = of_x ? CUBLASLT_EPILOGUE_BGRADA : CUBLASLT_EPILOGUE_BGRADB;
    return args.dtype != DType::f64;
  }
  switch (args.activation) {
    case Activation::none: *epilogue = bias ? CUBLASLT_EPILOGUE_BIAS : CUBLASLT_EPILOGUE_DEFAULT; break;
    case Activation::relu: *epilogue = bias ? CUBLASLT_EPILOGUE_RELU_BIAS : CUBLASLT_EPILOGUE_RELU; break;
    case Activation::gelu_tanh:
      *epilogue = aux    ? (bias ? CUBLASLT_EPILOGUE_GELU_AUX_BIAS : CUBLASLT_EPILOGUE_GELU_AUX)
                  : bias ? CUBLASLT_EPILOGUE_GELU_BIAS
                         : CUBLASLT_EPILOGUE_GELU;
      break;
    case Activation::gelu_tanh_grad:
      if (bias) return false;
      *epilogue = CUBLASLT_EPILOGUE_DGELU;
      break;
    default: return false;
  }
  if (*epilogue == CUBLASLT_EPILOGUE_DEFAULT) return true;
  if (bias && p.by_columns) return false;
  return args.dtype != DType::f64 && (!aux || aux_fits(args, p));
}

// The library picks faster algorithms for better boundaries.
std::uint32_t boundary_of(const void* p) {
  const auto bits = reinterpret_cast<std::uintptr_t>(p) | 256u;
  return std::uint32_t(bits & (~bits + 1));
}

constexpr int kMostCandidates = 32;

// Everything that the choice of an algorithm depends on.
using Key = std::array<std::int64_t, 27>;

// CodeOperands of 8 bits as operands.
struct CodeOperands {
  DType a, b;
  const float *a_inverse, *b_inverse;
};

// A product as cublasLtMatmul is called for it; its descriptions are destroyed with it.
struct Problem {
  ColumnMajor product;
  Key key{};
  cublasLtMatmulDesc_t desc = nullptr;
  cublasLtMatrixLayout_t x = nullptr, y = nullptr, d = nullptr;

  Problem() = default;
  Problem(const Problem&) = delete;
  Problem& operator=(const Problem&) = delete;
  ~Problem() {
    if (desc != nullptr) lt().desc_destroy(desc);
    for (const cublasLtMatrixLayout_t layout : {x, y, d}) {
      if (layout != nullptr) lt().layout_destroy(layout);
    }
  }

  // Taken: the library has the form. The text of that is empty.
  Answer describe(const GemmArgs& args, const CodeOperands* codes);
  std::string text() const {
    std::string text;
    for (const std::int64_t number : key) text += " " + std::to_string(number);
    return text;
  }
};

Key key_of(const GemmArgs& args, const CodeOperands* codes, const ColumnMajor& p, cublasComputeType_t compute,
           cublasLtEpilogue_t epilogue) {
  return {std::int64_t(args.dtype),
          std::int64_t(codes != nullptr ? codes->a : args.dtype),
          std::int64_t(codes != nullptr ? codes->b : args.dtype),
          args.wide_c,
          std::int64_t(compute),
          p.by_columns,
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
          adds(args),
          boundary_of(args.addend),
          std::int64_t(args.workspace_bytes),
          boundary_of(args.a),
          boundary_of(args.b),
          boundary_of(args.c),
          boundary_of(args.sums_of != GemmOperand::none ? args.sums : args.bias),
          boundary_of(args.aux)};
}

cublasStatus_t layout(cublasLtMatrixLayout_t* made, cudaDataType_t type, std::int64_t rows, std::int64_t cols,
                      bool transposed, std::int64_t ld, std::int64_t batch, std::int64_t stride) {
  const std::int32_t count = std::int32_t(batch);
  cublasStatus_t status = lt().layout_create(made, type, std::uint64_t(transposed ? cols : rows),
                                             std::uint64_t(transposed ? rows : cols), ld);
  if (status == 0) status = lt().layout_set(*made, CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT, &count, sizeof count);
  if (status == 0)
    status = lt().layout_set(*made, CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET, &stride, sizeof stride);
  return status;
}

#if !defined(GRADLOOM_HIP)
// The library's rules for operands of 8 bits: both are along k in memory, all lines whole packs of 16 bytes; not both E5M2.
// Source: cuBLAS documentation, cublasLtMatmul(), "To use FP8 kernels".
std::string problem_of_codes(const GemmArgs& args, const CodeOperands& codes, const ColumnMajor& p) {
  constexpr std::int64_t kPack = 16;
  if (codes.a == DType::f8e5m2 && codes.b == DType::f8e5m2) return "it has no products of E5M2 and E5M2";
  if (args.dtype != DType::f32 && !is_half(args.dtype)) return "it has no products of 8 bits of this type";
  if (!p.x_transposed || p.y_transposed) return "codes of 8 bits must lie along the sums";
  for (const std::int64_t line : {p.inner, p.x_ld, p.y_ld, p.rows, p.cols})
    if (line % kPack != 0) return "a line of codes is no multiple of 16 bytes";
  if (p.d_ld * std::int64_t(dtype_bytes(args.dtype)) % kPack != 0)
    return "a line of the result is no multiple of 16 bytes";
  for (const void* const at : {args.a, args.b, static_cast<const void*>(args.c)})
    if (boundary_of(at) < std::uint32_t(kPack)) return "a matrix does not begin at a boundary of 16 bytes";
  return p.batch > 1 || has_epilogue(args) ? "codes of 8 bits are multiplied alone" : "";
}

cudaDataType_t code_type(DType codes) { return codes == DType::f8e5m2 ? CUDA_R_8F_E5M2 : CUDA_R_8F_E4M3; }
#endif

Answer Problem::describe(const GemmArgs& args, const CodeOperands* codes) {
  Types types;
  cublasLtEpilogue_t epilogue;
  if (!types_of(args.dtype, &types)) return refused("it has no products of this type");
  if (!column_major(args, &product)) return refused("these strides have no form that it has");
#if defined(GRADLOOM_HIP)
  // It is told of no boundaries, and reads 16 bytes at once.
  for (const void* const at : {args.a, args.b, added_to(args), static_cast<const void*>(args.c)})
    if (boundary_of(at) < 16) return refused("a matrix does not begin at a boundary of 16 bytes");
  if (product.batch > 1 && has_epilogue(args)) return refused("it has epilogues of one product alone");
#endif
#if defined(GRADLOOM_HIP)
  if (codes != nullptr) return refused("products of 8 bits are not asked of it");
#else
  if (codes != nullptr)
    if (const std::string why = problem_of_codes(args, *codes, product); !why.empty()) return refused(why);
#endif
  if (args.wide_c && !is_half(args.dtype)) return refused("only products of half types have wide results");
  if ((args.wide_c && has_epilogue(args)) || !epilogue_of(args, product, &epilogue))
    return refused("it has no such epilogue");
  const ColumnMajor& p = product;
  if (codes != nullptr) types.compute = CUBLAS_COMPUTE_32F;
  key = key_of(args, codes, p, types.compute, epilogue);
  cublasStatus_t status = lt().desc_create(&desc, types.compute, types.scale);
  if (status != 0) return failed(words(LT "MatmulDescCreate", status));
  const auto set = [&](cublasLtMatmulDescAttributes_t attribute, const auto& value) {
    if (status == 0) status = lt().desc_set(desc, attribute, &value, sizeof value);
  };
  const cublasOperation_t op_x = p.x_transposed ? CUBLAS_OP_T : CUBLAS_OP_N,
                          op_y = p.y_transposed ? CUBLAS_OP_T : CUBLAS_OP_N;
  const void* const bias = args.sums_of != GemmOperand::none ? args.sums : args.bias;
  set(CUBLASLT_MATMUL_DESC_TRANSA, op_x);
  set(CUBLASLT_MATMUL_DESC_TRANSB, op_y);
  set(CUBLASLT_MATMUL_DESC_EPILOGUE, epilogue);
  if (bias != nullptr) set(CUBLASLT_MATMUL_DESC_BIAS_POINTER, bias);
#if defined(GRADLOOM_HIP)
  if (bias != nullptr) set(CUBLASLT_MATMUL_DESC_BIAS_DATA_TYPE, types.data);
#endif
  if (args.aux != nullptr) {
    set(CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_POINTER, args.aux);
    set(CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_LD, p.d_ld);
  }
  cudaDataType_t of_x = types.data, of_y = types.data;
#if !defined(GRADLOOM_HIP)
  if (codes != nullptr) {
    of_x = code_type(p.by_columns ? codes->a : codes->b);
    of_y = code_type(p.by_columns ? codes->b : codes->a);
    set(CUBLASLT_MATMUL_DESC_A_SCALE_POINTER, p.by_columns ? codes->a_inverse : codes->b_inverse);
    set(CUBLASLT_MATMUL_DESC_B_SCALE_POINTER, p.by_columns ? codes->b_inverse : codes->a_inverse);
  }
#endif
  if (status != 0) return failed(words(LT "MatmulDescSetAttribute", status));
  for (const cublasStatus_t made :
       {layout(&x, of_x, p.rows, p.inner, p.x_transposed, p.x_ld, p.batch, p.x_batch),
        layout(&y, of_y, p.inner, p.cols, p.y_transposed, p.y_ld, p.batch, p.y_batch),
        layout(&d, args.wide_c ? CUDA_R_32F : types.data, p.rows, p.cols, false, p.d_ld, p.batch, p.d_batch)})
    if (made != 0) return failed(words(LT "MatrixLayout", made));
  return taken_by("");
}

}  // namespace

class BlasLt {
 public:
  // device: its name.
  BlasLt(cublasLtHandle_t handle, std::string name, const std::string& device, const ProductWorkspace& spare)
      : handle_(handle), name_(std::move(name)), problems_(name_ + "; " + device + ";"), spare_(spare) {}
  ~BlasLt() { lt().destroy(handle_); }
  BlasLt(const BlasLt&) = delete;
  BlasLt& operator=(const BlasLt&) = delete;
  const std::string& name() const { return name_; }

  Answer run(const GemmArgs& wanted, const CodeOperands* codes, GPU(Stream_t) stream) {
    const GemmArgs args = with_workspace(wanted);
    Problem problem;
    Answer form = problem.describe(args, codes);
    if (!form.taken) return form;
    auto chosen = choices_.find(problem.key);
    if (chosen == choices_.end())
      chosen = choices_.emplace(problem.key, first_of(suggestions(args, problem, 1))).first;
    const Choice& choice = chosen->second;
    if (!choice.answer.taken) return choice.answer;
    const cublasStatus_t status = multiply(args, problem, choice.algorithm, stream);
    return status == 0 ? choice.answer : failed(words(LT "Matmul", status));
  }

  bool tune(const GemmArgs& wanted, GPU(Stream_t) stream, int candidates, AlgorithmTable& algorithms) {
    const GemmArgs args = with_workspace(wanted);
    Problem problem;
    if (!problem.describe(args, nullptr).taken) return false;
    Choice& choice = choices_[problem.key];
    if (choice.tuned) return choice.answer.taken;
    const std::string name = problems_ + problem.text();
    std::int64_t time_ns = 0;
    choice = given(args, problem, algorithms.given(name), &time_ns);
    if (!choice.answer.taken) {
      Suggestions found = suggestions(args, problem, candidates);
      if (!found.list.empty())
        std::swap(found.list[0], found.list[fastest(args, problem, found.list, stream, &time_ns)]);
      choice = first_of(found);
    }
    choice.tuned = true;
    if (choice.answer.taken) algorithms.choose(name, &choice.algorithm, sizeof choice.algorithm, time_ns);
    return choice.answer.taken;
  }

 private:
  struct Choice {
    Answer answer;
    cublasLtMatmulAlgo_t algorithm = {};
    bool tuned = false;
  };
  static_assert(sizeof(cublasLtMatmulAlgo_t) <= GPU_ALGORITHM_BYTES);
  struct Suggestions {
    std::vector<cublasLtMatmulHeuristicResult_t> list;
    Answer none;  // why it is empty
  };

  GemmArgs with_workspace(GemmArgs args) const {
    if (args.workspace != nullptr && args.workspace_bytes >= spare_.bytes) return args;
    args.workspace = spare_.at;
    args.workspace_bytes = spare_.bytes;
    return args;
  }

  static Choice first_of(const Suggestions& found) {
    if (found.list.empty()) return {found.none, {}, false};
    return {taken_by(text_of(found.list[0].algo)), found.list[0].algo, false};
  }

  Suggestions suggestions(const GemmArgs& args, const Problem& problem, int candidates) const {
    Suggestions found;
    found.list.resize(std::size_t(std::clamp(candidates, 1, kMostCandidates)));
    cublasLtMatmulPreference_t preference = nullptr;
    cublasStatus_t status = lt().preference_create(&preference);
    if (status != 0) return {{}, failed(words(LT "MatmulPreferenceCreate", status))};
    const auto set = [&](cublasLtMatmulPreferenceAttributes_t attribute, const auto& value) {
      if (status == 0) status = lt().preference_set(preference, attribute, &value, sizeof value);
    };
    const std::uint64_t workspace = args.workspace_bytes;
    set(CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, workspace);
#if !defined(GRADLOOM_HIP)
    // Without atomics; the slices of half types are not added up in them.
    std::uint32_t reductions = CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE;
    if (!is_half(args.dtype)) reductions |= CUBLASLT_REDUCTION_SCHEME_OUTPUT_TYPE;
    set(CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK, reductions);
    set(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, boundary_of(problem.product.x(args)));
    set(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES, boundary_of(problem.product.y(args)));
    set(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, boundary_of(added_to(args)));
    set(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES, boundary_of(args.c));
#endif
    int count = 0;
    if (status == 0)
      status = lt().heuristic(handle_, problem.desc, problem.x, problem.y, problem.d, problem.d, preference,
                              int(found.list.size()), found.list.data(), &count);
    lt().preference_destroy(preference);
    found.list.resize(status == 0 ? std::size_t(count) : 0);
    std::erase_if(found.list,
                  [&](const auto& result) { return result.state != 0 || result.workspaceSize > workspace; });
    const std::string said = words(LT "MatmulAlgoGetHeuristic", status);
    if (status != 0 && status != CUBLAS_STATUS_NOT_SUPPORTED)
      found.none = failed(said);
    else
      found.none = refused(status != 0 ? said
                                       : "no deterministic algorithm within " + std::to_string(workspace) +
                                             " bytes of workspace");
    return found;
  }

  cublasStatus_t multiply(const GemmArgs& args, const Problem& problem, const cublasLtMatmulAlgo_t& algorithm,
                          GPU(Stream_t) stream) const {
    const double alpha = args.alpha, beta = adds(args) ? 1 : 0;
    const float alpha_f32 = float(alpha), beta_f32 = float(beta);
    const bool f64 = args.dtype == DType::f64;
    const void* scale = f64 ? static_cast<const void*>(&alpha) : &alpha_f32;
    const void* keep = f64 ? static_cast<const void*>(&beta) : &beta_f32;
    return lt().matmul(handle_, problem.desc, scale, problem.product.x(args), problem.x,
                       problem.product.y(args), problem.y, keep, added_to(args), problem.d, args.c, problem.d,
                       &algorithm, args.workspace_bytes > 0 ? args.workspace : nullptr, args.workspace_bytes,
                       stream);
  }

#if defined(GRADLOOM_HIP)
  // It tests no algorithm: one that it suggests itself fits.
  bool fits(const GemmArgs& args, const Problem& problem, const cublasLtMatmulAlgo_t& algorithm) const {
    const auto same = [&](const auto& result) {
      return std::memcmp(&result.algo, &algorithm, sizeof algorithm) == 0;
    };
    const Suggestions found = suggestions(args, problem, kMostCandidates);
    return std::any_of(found.list.begin(), found.list.end(), same);
  }
#else
  bool fits(const GemmArgs& args, const Problem& problem, const cublasLtMatmulAlgo_t& algorithm) const {
    cublasLtMatmulHeuristicResult_t result = {};
    return lt().algo_check(handle_, problem.desc, problem.x, problem.y, problem.d, problem.d, &algorithm,
                           &result) == 0 &&
           result.state == 0 && result.workspaceSize <= args.workspace_bytes;
  }
#endif
  // What was given for the problem, if the library takes it: it may come from anywhere.
  Choice given(const GemmArgs& args, const Problem& problem, const GpuAlgorithm* algorithm,
               std::int64_t* time_ns) const {
    Choice choice;
    if (algorithm == nullptr || algorithm->size != std::int32_t(sizeof choice.algorithm)) return choice;
    std::memcpy(&choice.algorithm, algorithm->bytes, sizeof choice.algorithm);
    if (fits(args, problem, choice.algorithm)) choice.answer = taken_by(text_of(choice.algorithm));
    *time_ns = algorithm->time_ns;
    return choice;
  }

  // Index of the one with the shortest of kRuns runs, after one to load its code.
  std::size_t fastest(const GemmArgs& args, const Problem& problem,
                      const std::vector<cublasLtMatmulHeuristicResult_t>& found, GPU(Stream_t) stream,
                      std::int64_t* time_ns) const {
    constexpr int kRuns = 4;
    GPU(Event_t) from = nullptr, to = nullptr;
    std::size_t best = 0;
    float best_ms = 1e30f;
    if (GPU(EventCreateWithFlags)(&from, GPU(EventDefault)) == GPU(Success) &&
        GPU(EventCreateWithFlags)(&to, GPU(EventDefault)) == GPU(Success)) {
      for (std::size_t i = 0; i < found.size(); ++i) {
        bool works = multiply(args, problem, found[i].algo, stream) == 0;
        for (int run = 0; works && run < kRuns; ++run) {
          float ms = 0;
          works = GPU(EventRecord)(from, stream) == GPU(Success) &&
                  multiply(args, problem, found[i].algo, stream) == 0 &&
                  GPU(EventRecord)(to, stream) == GPU(Success) && GPU(EventSynchronize)(to) == GPU(Success) &&
                  GPU(EventElapsedTime)(&ms, from, to) == GPU(Success);
          if (works && ms < best_ms) {
            best_ms = ms;
            best = i;
          }
        }
      }
    }
    if (from != nullptr) (void)GPU(EventDestroy)(from);
    if (to != nullptr) (void)GPU(EventDestroy)(to);
    *time_ns = best_ms < 1e30f ? std::int64_t(double(best_ms) * 1e6) : 0;
    return best;
  }

  cublasLtHandle_t handle_;
  std::string name_;      // library and version
  std::string problems_;  // what problems begin with: that and the device
  ProductWorkspace spare_;
  std::map<Key, Choice> choices_;
};

void CloseBlasLt::operator()(BlasLt* library) const { delete library; }

const std::string& blas_lt_name(const BlasLt& library) { return library.name(); }

Answer run_product(BlasLt& library, const GemmArgs& args, void* stream) {
  return library.run(args, nullptr, GPU(Stream_t)(stream));
}

Answer run_product(BlasLt& library, const Fp8ProductArgs& args, void* stream) {
  const CodeOperands codes{args.a_codes, args.b_codes, args.a_inverse, args.b_inverse};
  return library.run(args.product, &codes, GPU(Stream_t)(stream));
}

bool tune_product(BlasLt& library, const GemmArgs& args, void* stream, int candidates,
                  AlgorithmTable& algorithms) {
  return library.tune(args, GPU(Stream_t)(stream), candidates, algorithms);
}

BlasLtPtr open_blas_lt(const ProductWorkspace& spare, Answer* why) {
  cublasLtHandle_t handle = nullptr;
  if (!lt().ready) {
    *why = failed(lt().library.error());
    return nullptr;
  }
  if (const cublasStatus_t status = lt().create(&handle); status != 0) {
    *why = failed(words(LT "Create", status));
    return nullptr;
  }
  int device = 0;
  DeviceProperties properties = {};
  (void)GPU(GetDevice)(&device);
  (void)device_properties(&properties, device);
  return BlasLtPtr(new BlasLt(handle, version_of(handle), properties.name, spare));
}

#if defined(GRADLOOM_HIP)
// It tells its number to those who have opened it.
std::string blas_lt_version() { return lt().ready ? "hipblaslt" : ""; }
#else
std::string blas_lt_version() { return lt().ready ? version_of(nullptr) : ""; }
#endif

}  // namespace gradloom::kernels::gpu
