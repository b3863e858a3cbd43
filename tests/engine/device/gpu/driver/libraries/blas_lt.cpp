// libcublasLt, or in HIP's spelling libhipblaslt, for the strict driver: products that are computed, on the host, when their turn in the
// stream comes. What the library refuses is refused with its status, and what callers must not do is a complaint.
// Sources: cublasLt.h's comments; cuBLAS documentation, "Using
// the cuBLASLt API": cublasLtMatmul() (table of types; workspace at 256 bytes; C and D in place), cublasLtMatrixLayoutAttribute_t,
// cublasLtEpilogue_t, cublasLtMatmulPreferenceAttributes_t; comments of hipblaslt.h. Only what the plugin uses of it is known here.
#include <algorithm>
#include <bit>
#include <cstring>
#include <iterator>
#include <string>
#include <vector>

#include "tests/engine/device/gpu/driver/libraries/door.h"
#include "tests/engine/device/gpu/driver/libraries/product.h"

using namespace gradloom::kernels::gpu;
using namespace gradloom::strict;

namespace {

#if defined(GRADLOOM_HIP)
#define LT "hipblasLt"
#define LT_NAME(name) hipblasLt##name
constexpr int kAllocFailed = 2, kInvalidValue = 3, kExecutionFailed = 5,
              kInternalError = 6;  // hipblasStatus_t
#else
#define LT "cublasLt"
#define LT_NAME(name) cublasLt##name
constexpr int kAllocFailed = 3, kInvalidValue = 7, kExecutionFailed = 13, kInternalError = 14;
#endif
constexpr LibraryStatuses kCreates{kInvalidValue, kAllocFailed, kAllocFailed},
    kOthers{kInvalidValue, kAllocFailed, kInternalError},
    kRuns{kInvalidValue, kAllocFailed, kExecutionFailed};

struct Handle {};
struct Description {
  cublasComputeType_t compute;
  cudaDataType_t scale;
  std::int32_t transpose_a = CUBLAS_OP_N, transpose_b = CUBLAS_OP_N;
  std::uint32_t epilogue = CUBLASLT_EPILOGUE_DEFAULT;
  void *bias = nullptr, *aux = nullptr;
  std::int64_t aux_ld = 0;
  std::int32_t bias_type = -1;                         // -1: D's
  const float *a_scale = nullptr, *b_scale = nullptr;  // of codes of 8 bits
};
struct Layout {
  cudaDataType_t type;
  std::uint64_t rows, cols;
  std::int64_t ld, stride = 0;
  std::int32_t batch = 1;
};
struct Preference {
  std::uint64_t workspace = 0;
  std::uint32_t reductions = 7, a_boundary = 256, b_boundary = 256, c_boundary = 256, d_boundary = 256;
};
Made<Handle>& handles() {
  static auto& all = *new Made<Handle>(LT " handles");
  return all;
}
Made<Description>& descriptions() {
  static auto& all = *new Made<Description>(LT " descriptions");
  return all;
}
Made<Layout>& layouts() {
  static auto& all = *new Made<Layout>(LT " layouts");
  return all;
}
Made<Preference>& preferences() {
  static auto& all = *new Made<Preference>(LT " preferences");
  return all;
}

cublasStatus_t status(int number) { return cublasStatus_t(number); }

// The attribute has exactly its size.
template <class T>
void take(LibraryCall& call, const void* value, std::size_t bytes, T* to) {
  if (bytes == sizeof(T))
    std::memcpy(to, value, bytes);
  else
    call.wrong("an attribute of " + std::to_string(sizeof(T)) + " bytes is given as one of " +
               std::to_string(bytes));
}

// ---- what a problem must be -------------------------------------------------------------------------------------------------------

struct Problem {
  const Description* desc = nullptr;
  Layout a{}, b{}, c{}, d{};
};

std::string shape(const Layout& m) { return std::to_string(m.rows) + " x " + std::to_string(m.cols); }

void check_layout(LibraryCall& call, const Layout& m, const char* name) {
  const std::string which = std::string("matrix ") + name;
  if (m.rows == 0 || m.cols == 0) call.wrong(which + " is empty");
  if (m.ld < std::int64_t(m.rows))
    call.wrong(which + ": columns of " + std::to_string(m.rows) + " are " + std::to_string(m.ld) + " apart");
  if (m.batch < 1) call.wrong(which + ": a batch of " + std::to_string(m.batch));
}

// No element of D is that of two places.
void check_overlap(LibraryCall& call, const Layout& d) {
  std::vector<std::pair<std::int64_t, std::int64_t>> dims;  // step, count
  if (d.cols > 1) dims.emplace_back(d.ld, std::int64_t(d.cols));
  if (d.batch > 1) dims.emplace_back(d.stride, d.batch);
  std::sort(dims.begin(), dims.end());
  std::int64_t reach = std::int64_t(d.rows);
  for (const auto& [step, count] : dims) {
    if (step < reach) call.wrong("elements of matrix D overlap");
    reach += (count - 1) * step;
  }
}

void check_epilogue(LibraryCall& call, const Problem& p) {
  const int what = int(p.desc->epilogue);
  constexpr int kKnown[] = {
      CUBLASLT_EPILOGUE_DEFAULT,   CUBLASLT_EPILOGUE_RELU,          CUBLASLT_EPILOGUE_BIAS,
      CUBLASLT_EPILOGUE_RELU_BIAS, CUBLASLT_EPILOGUE_GELU,          CUBLASLT_EPILOGUE_GELU_BIAS,
      CUBLASLT_EPILOGUE_GELU_AUX,  CUBLASLT_EPILOGUE_GELU_AUX_BIAS, CUBLASLT_EPILOGUE_DGELU,
      CUBLASLT_EPILOGUE_BGRADA,    CUBLASLT_EPILOGUE_BGRADB};
  if (std::find(std::begin(kKnown), std::end(kKnown), what) == std::end(kKnown))
    call.wrong("epilogue " + std::to_string(what));
  const bool bias = (what & (kBias | kSumsOfA | kSumsOfB)) != 0, aux = (what & kAux) != 0;
  if (bias != (p.desc->bias != nullptr))
    call.wrong(bias ? "no bias pointer" : "a bias pointer that no epilogue uses");
  if (aux != (p.desc->aux != nullptr))
    call.wrong(aux ? "no auxiliary pointer" : "an auxiliary pointer that no epilogue uses");
  if (bias && p.desc->bias_type >= 0 && p.desc->bias_type != int(p.d.type))
    call.wrong("a bias of another type than the result's");
  if (!aux) return;
  if (p.desc->aux_ld % 8 != 0 || p.desc->aux_ld < std::int64_t(p.d.rows))
    call.wrong("auxiliary columns of " + std::to_string(p.d.rows) + " are " + std::to_string(p.desc->aux_ld) +
               " apart, which is less or no multiple of 8");
  if (reinterpret_cast<std::uintptr_t>(p.desc->aux) % 16 != 0)
    call.wrong("the auxiliary pointer is not at a boundary of 16 bytes");
  if (p.d.batch > 1) call.wrong("an auxiliary matrix, and a batch without a stride of it");
}

// What is wrong with it in every version and on every device.
void check(LibraryCall& call, const Problem& p) {
  const std::pair<const Layout*, const char*> all[] = {{&p.a, "A"}, {&p.b, "B"}, {&p.c, "C"}, {&p.d, "D"}};
  for (const auto& [m, name] : all) {
    check_layout(call, *m, name);
    if (m->batch != p.d.batch) call.wrong("the batches are of different sizes");
  }
  const bool ta = p.desc->transpose_a != CUBLAS_OP_N, tb = p.desc->transpose_b != CUBLAS_OP_N;
  const std::uint64_t m = ta ? p.a.cols : p.a.rows, k = ta ? p.a.rows : p.a.cols,
                      inner = tb ? p.b.cols : p.b.rows, n = tb ? p.b.rows : p.b.cols;
  if (k != inner || p.d.rows != m || p.d.cols != n || p.c.rows != m || p.c.cols != n)
    call.wrong("a product of " + shape(p.a) + (ta ? " transposed" : "") + " and " + shape(p.b) +
               (tb ? " transposed" : "") + " is no " + shape(p.d));
  check_overlap(call, p.d);
  check_epilogue(call, p);
  const bool codes = is_code(p.a.type) || is_code(p.b.type);
  if (codes != (p.desc->a_scale != nullptr) || codes != (p.desc->b_scale != nullptr))
    call.wrong(codes ? "codes of 8 bits without their scales" : "scales of what is no code of 8 bits");
}

// Codes of 8 bits: "To use FP8 kernels, the following set of requirements must be satisfied": A transposed and B not, all lines
// multiples of 16 bytes, both of one type or E4M3 and E5M2, sums of f32.
bool supports_codes(const Problem& p) {
#if defined(GRADLOOM_HIP)
  return false;
#else
  const auto whole = [](const Layout& m) {
    const std::uint64_t width = Matrix{m.type, 1, 1, 1}.width();
    return m.rows * width % 16 == 0 && std::uint64_t(m.ld) * width % 16 == 0;
  };
  const bool types = is_code(p.a.type) && is_code(p.b.type) &&
                     (p.a.type == CUDA_R_8F_E4M3 || p.b.type == CUDA_R_8F_E4M3) &&
                     (p.d.type == CUDA_R_32F || p.d.type == CUDA_R_16F || p.d.type == CUDA_R_16BF);
  return types && p.desc->transpose_a == CUBLAS_OP_T && p.desc->transpose_b == CUBLAS_OP_N &&
         p.desc->compute == CUBLAS_COMPUTE_32F && p.desc->scale == CUDA_R_32F && whole(p.a) && whole(p.b) &&
         whole(p.d);
#endif
}

// The table of cublasLtMatmul(): types that go together. Epilogues are those of f32's sums.
bool supported(const Problem& p) {
  if (p.c.type != p.d.type) return false;
  if (is_code(p.a.type) || is_code(p.b.type)) return supports_codes(p);
  if (p.a.type != p.b.type) return false;
#if defined(GRADLOOM_HIP)
  if (p.desc->compute == CUBLAS_COMPUTE_64F) return false;
#endif
  if (p.desc->compute == CUBLAS_COMPUTE_64F)
    return p.desc->scale == CUDA_R_64F && p.a.type == CUDA_R_64F && p.d.type == CUDA_R_64F &&
           p.desc->epilogue == CUBLASLT_EPILOGUE_DEFAULT;
  if (p.desc->scale != CUDA_R_32F) return false;
  if (p.a.type == CUDA_R_32F) return p.d.type == CUDA_R_32F;
  const bool half = p.a.type == CUDA_R_16F || p.a.type == CUDA_R_16BF;
  return half && p.desc->compute == CUBLAS_COMPUTE_32F && (p.d.type == p.a.type || p.d.type == CUDA_R_32F);
}

Problem problem_of(LibraryCall& call, cublasLtHandle_t handle, cublasLtMatmulDesc_t desc,
                   cublasLtMatrixLayout_t a, cublasLtMatrixLayout_t b, cublasLtMatrixLayout_t c,
                   cublasLtMatrixLayout_t d) {
  Problem p;
  (void)handles().get(call, handle);
  p.desc = descriptions().get(call, desc);
  const std::pair<cublasLtMatrixLayout_t, Layout*> all[] = {{a, &p.a}, {b, &p.b}, {c, &p.c}, {d, &p.d}};
  for (const auto& [from, to] : all)
    if (const Layout* const layout = layouts().get(call, from); layout != nullptr) *to = *layout;
  if (!call.failed()) check(call, p);
  return p;
}

// ---- algorithms -------------------------------------------------------------------------------------------------------------------

constexpr std::uint64_t kMark = 0x6c62756353747263;
enum Scheme : std::uint64_t { whole = 0, in_place = 1, compute_type = 2 };  // cublasLtReductionScheme_t

// What cublasLtMatmulAlgo_t holds.
struct Algorithm {
  std::uint64_t mark = kMark, problem = 0, id = 0, slices = 1, scheme = whole, workspace = 0;
  std::uint64_t boundaries = 0;  // of A, B, C, D: 16 bits each
  std::uint64_t unused = 0;
};
#if defined(GRADLOOM_HIP)
// It holds a solution's number alone: what that is the library knows.
std::vector<Algorithm>& solutions() {
  static auto& all = *new std::vector<Algorithm>;
  return all;
}
Algorithm algorithm_of(const cublasLtMatmulAlgo_t& from) {
  const std::size_t number = std::uint32_t(from.data[0]);
  return number < solutions().size() ? solutions()[number] : Algorithm{0};
}
cublasLtMatmulAlgo_t kept(const Algorithm& from) {
  auto& all = solutions();
  const auto same = [&](const Algorithm& a) {
    return a.problem == from.problem && a.id == from.id && a.boundaries == from.boundaries;
  };
  const auto found = std::find_if(all.begin(), all.end(), same);
  const std::size_t number = std::size_t(found - all.begin());
  if (found == all.end()) all.push_back(from);
  return {{number, 0, from.workspace}};
}
#else
static_assert(sizeof(Algorithm) == sizeof(cublasLtMatmulAlgo_t));
Algorithm algorithm_of(const cublasLtMatmulAlgo_t& from) { return std::bit_cast<Algorithm>(from); }
cublasLtMatmulAlgo_t kept(const Algorithm& from) { return std::bit_cast<cublasLtMatmulAlgo_t>(from); }
#endif

std::uint64_t number_of(const Problem& p) {
  std::uint64_t number = 14695981039346656037u;  // FNV-1a
  const auto add = [&](std::uint64_t x) { number = (number ^ x) * 1099511628211u; };
  for (const Layout* const m : {&p.a, &p.b, &p.c, &p.d})
    for (const std::uint64_t x : {std::uint64_t(m->type), m->rows, m->cols, std::uint64_t(m->ld),
                                  std::uint64_t(m->stride), std::uint64_t(m->batch)})
      add(x);
  for (const std::uint64_t x : {std::uint64_t(p.desc->compute), std::uint64_t(p.desc->epilogue),
                                std::uint64_t(p.desc->transpose_a), std::uint64_t(p.desc->transpose_b)})
    add(x);
  return number;
}

std::uint64_t boundaries_of(const Problem& p, const Preference& wish) {
  const std::pair<const Layout*, std::uint32_t> all[] = {
      {&p.a, wish.a_boundary}, {&p.b, wish.b_boundary}, {&p.c, wish.c_boundary}, {&p.d, wish.d_boundary}};
  std::uint64_t result = 0;
  for (int i = 0; i < 4; ++i) {
    const Layout& m = *all[i].first;
    const std::uint64_t width = Matrix{m.type, 1, 1, 1}.width();
    // Loads of 16 bytes where all columns begin at such a boundary.
    const bool wide = all[i].second >= 16 && std::uint64_t(m.ld) * width % 16 == 0;
    result |= (wide ? 16 : width) << (16 * i);
  }
  return result;
}

// Those that the preference allows, the fastest first: in slices, then whole. In place is added up with atomics.
std::vector<Algorithm> algorithms_for(const Problem& p, const Preference& wish) {
  const std::uint64_t k = p.desc->transpose_a != CUBLAS_OP_N ? p.a.rows : p.a.cols;
  std::vector<Algorithm> all;
  const auto add = [&](std::uint64_t id, std::uint64_t slices, Scheme scheme) {
    Algorithm a{kMark, number_of(p), id, slices, scheme};
    a.boundaries = boundaries_of(p, wish);
    if (slices > 1) a.workspace = slices * p.d.rows * p.d.cols * (p.d.type == CUDA_R_64F ? 8 : 4);
    if (a.workspace <= wish.workspace) all.push_back(a);
  };
  if (k >= 64 && (wish.reductions & in_place) != 0) add(72, 2, in_place);
  for (const std::uint64_t slices : {4, 2})
    if (k >= 32 * slices && (wish.reductions & compute_type) != 0) add(66 + slices, slices, compute_type);
  add(66, 1, whole);
  return all;
}

void give(const Algorithm& from, cublasLtMatmulHeuristicResult_t* to) {
  *to = {};
  to->algo = kept(from);
  to->workspaceSize = from.workspace;
  to->wavesCount = 1;
}

// What cublasLtMatmul checks of where things are.
bool check_places(LibraryCall& call, const Problem& p, const Algorithm& algorithm, const Product& product,
                  std::size_t workspace_bytes) {
  const std::pair<const Matrix*, const void*> all[] = {{&product.a, product.a_at},
                                                       {&product.b, product.b_at},
                                                       {&product.c, product.c_at},
                                                       {&product.d, product.d_at}};
  const char* const names[] = {"matrix A", "matrix B", "matrix C", "matrix D"};
  for (int i = 0; i < 4; ++i) {
    if (i == 2 && product.beta == 0) continue;  // it is not read
    const std::size_t boundary = algorithm.boundaries >> (16 * i) & 0xffff;
    (void)call.device_memory(names[i], all[i].second, all[i].first->bytes(), boundary);
  }
  for (const float* const scale : {product.a_scale, product.b_scale})
    if (scale != nullptr) (void)call.device_memory("a scale", scale, sizeof(float), sizeof(float));
  const std::size_t width = product.d.width();
  const std::int64_t length = (p.desc->epilogue & kSumsOfB) != 0 ? product.d.cols : product.d.rows;
  if (product.bias != nullptr)
    (void)call.device_memory("the bias", product.bias, std::size_t(length) * width, width);
  if (product.aux != nullptr)
    (void)call.device_memory("the auxiliary matrix", product.aux,
                             std::size_t((product.d.cols - 1) * product.aux_ld + product.d.rows) * width, 16);
  if (product.c_at == product.d_at && (p.c.ld != p.d.ld || p.c.stride != p.d.stride || p.c.type != p.d.type))
    call.wrong("C and D in one place, of different layouts");
  if (product.workspace != nullptr)
    (void)call.device_memory("the workspace", product.workspace, workspace_bytes, 256);
  if (algorithm.workspace > (product.workspace != nullptr ? workspace_bytes : 0))
    call.wrong("a workspace of " + std::to_string(workspace_bytes) + " bytes, of which the algorithm needs " +
               std::to_string(algorithm.workspace));
  return !call.failed();
}

Matrix matrix(const Layout& m) {
  return {m.type, std::int64_t(m.rows), std::int64_t(m.cols), m.ld, m.batch, m.stride};
}

double scalar(const Problem& p, const void* at) {
  return p.desc->scale == CUDA_R_64F ? *static_cast<const double*>(at)
                                     : double(*static_cast<const float*>(at));
}

}  // namespace

#define EXPORTED extern "C" __attribute__((visibility("default")))

EXPORTED cublasStatus_t LT_NAME(Create)(cublasLtHandle_t* handle) {
  const LibraryCall call(LT "Create", kCreates, STRICT_ALLOCATES);
  if (!call.failed()) *handle = reinterpret_cast<cublasLtHandle_t>(handles().make({}));
  return status(call.status());
}
EXPORTED cublasStatus_t LT_NAME(Destroy)(cublasLtHandle_t handle) {
  LibraryCall call(LT "Destroy", kOthers);
  return status(handles().destroy(call, handle));
}
#if defined(GRADLOOM_HIP)
EXPORTED cublasStatus_t hipblasLtGetVersion(cublasLtHandle_t handle, int* version) {
  LibraryCall call("hipblasLtGetVersion", kOthers);
  if (!call.failed() && handles().get(call, handle) != nullptr) *version = 100000;
  return status(call.status());
}
#else
EXPORTED std::size_t cublasLtGetVersion() { return 130100; }
EXPORTED const char* cublasLtGetStatusName(cublasStatus_t status) {
  switch (int(status)) {
    case kAllocFailed: return "CUBLAS_STATUS_ALLOC_FAILED";
    case kInvalidValue: return "CUBLAS_STATUS_INVALID_VALUE";
    case kExecutionFailed: return "CUBLAS_STATUS_EXECUTION_FAILED";
    case kInternalError: return "CUBLAS_STATUS_INTERNAL_ERROR";
    case CUBLAS_STATUS_NOT_SUPPORTED: return "CUBLAS_STATUS_NOT_SUPPORTED";
    default: return "CUBLAS_STATUS_NOT_INITIALIZED";
  }
}
#endif

EXPORTED cublasStatus_t LT_NAME(MatmulDescCreate)(cublasLtMatmulDesc_t* desc, cublasComputeType_t compute,
                                                  cudaDataType_t scale) {
  const LibraryCall call(LT "MatmulDescCreate", kCreates);
  if (!call.failed()) *desc = reinterpret_cast<cublasLtMatmulDesc_t>(descriptions().make({compute, scale}));
  return status(call.status());
}
EXPORTED cublasStatus_t LT_NAME(MatmulDescDestroy)(cublasLtMatmulDesc_t desc) {
  LibraryCall call(LT "MatmulDescDestroy", kOthers);
  return status(descriptions().destroy(call, desc));
}
EXPORTED cublasStatus_t LT_NAME(MatmulDescSetAttribute)(cublasLtMatmulDesc_t handle,
                                                        cublasLtMatmulDescAttributes_t attribute,
                                                        const void* value, std::size_t bytes) {
  LibraryCall call(LT "MatmulDescSetAttribute", kOthers);
  Description* const desc = call.failed() ? nullptr : descriptions().get(call, handle);
  if (desc == nullptr) return status(call.status());
  switch (attribute) {
    case CUBLASLT_MATMUL_DESC_TRANSA: take(call, value, bytes, &desc->transpose_a); break;
    case CUBLASLT_MATMUL_DESC_TRANSB: take(call, value, bytes, &desc->transpose_b); break;
    case CUBLASLT_MATMUL_DESC_EPILOGUE: take(call, value, bytes, &desc->epilogue); break;
    case CUBLASLT_MATMUL_DESC_BIAS_POINTER: take(call, value, bytes, &desc->bias); break;
    case CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_POINTER: take(call, value, bytes, &desc->aux); break;
    case CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_LD: take(call, value, bytes, &desc->aux_ld); break;
#if defined(GRADLOOM_HIP)
    case CUBLASLT_MATMUL_DESC_BIAS_DATA_TYPE: take(call, value, bytes, &desc->bias_type); break;
#else
    case CUBLASLT_MATMUL_DESC_A_SCALE_POINTER: take(call, value, bytes, &desc->a_scale); break;
    case CUBLASLT_MATMUL_DESC_B_SCALE_POINTER: take(call, value, bytes, &desc->b_scale); break;
#endif
    default: call.wrong("attribute " + std::to_string(attribute));
  }
  return status(call.status());
}

EXPORTED cublasStatus_t LT_NAME(MatrixLayoutCreate)(cublasLtMatrixLayout_t* layout, cudaDataType_t type,
                                                    std::uint64_t rows, std::uint64_t cols, std::int64_t ld) {
  const LibraryCall call(LT "MatrixLayoutCreate", kCreates);
  if (!call.failed())
    *layout = reinterpret_cast<cublasLtMatrixLayout_t>(layouts().make({type, rows, cols, ld}));
  return status(call.status());
}
EXPORTED cublasStatus_t LT_NAME(MatrixLayoutDestroy)(cublasLtMatrixLayout_t layout) {
  LibraryCall call(LT "MatrixLayoutDestroy", kOthers);
  return status(layouts().destroy(call, layout));
}
EXPORTED cublasStatus_t LT_NAME(MatrixLayoutSetAttribute)(cublasLtMatrixLayout_t handle,
                                                          cublasLtMatrixLayoutAttribute_t attribute,
                                                          const void* value, std::size_t bytes) {
  LibraryCall call(LT "MatrixLayoutSetAttribute", kOthers);
  Layout* const layout = call.failed() ? nullptr : layouts().get(call, handle);
  if (layout == nullptr) return status(call.status());
  switch (attribute) {
    case CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT: take(call, value, bytes, &layout->batch); break;
    case CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET: take(call, value, bytes, &layout->stride); break;
    default: call.wrong("attribute " + std::to_string(attribute));
  }
  return status(call.status());
}

EXPORTED cublasStatus_t LT_NAME(MatmulPreferenceCreate)(cublasLtMatmulPreference_t* preference) {
  const LibraryCall call(LT "MatmulPreferenceCreate", kCreates);
  if (!call.failed()) *preference = reinterpret_cast<cublasLtMatmulPreference_t>(preferences().make({}));
  return status(call.status());
}
EXPORTED cublasStatus_t LT_NAME(MatmulPreferenceDestroy)(cublasLtMatmulPreference_t preference) {
  LibraryCall call(LT "MatmulPreferenceDestroy", kOthers);
  return status(preferences().destroy(call, preference));
}
EXPORTED cublasStatus_t LT_NAME(MatmulPreferenceSetAttribute)(cublasLtMatmulPreference_t handle,
                                                              cublasLtMatmulPreferenceAttributes_t attribute,
                                                              const void* value, std::size_t bytes) {
  LibraryCall call(LT "MatmulPreferenceSetAttribute", kOthers);
  Preference* const wish = call.failed() ? nullptr : preferences().get(call, handle);
  if (wish == nullptr) return status(call.status());
  switch (attribute) {
    case CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES: take(call, value, bytes, &wish->workspace); break;
#if !defined(GRADLOOM_HIP)
    case CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK: take(call, value, bytes, &wish->reductions); break;
    case CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES: take(call, value, bytes, &wish->a_boundary); break;
    case CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES: take(call, value, bytes, &wish->b_boundary); break;
    case CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES: take(call, value, bytes, &wish->c_boundary); break;
    case CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES: take(call, value, bytes, &wish->d_boundary); break;
#endif
    default: call.wrong("attribute " + std::to_string(attribute));
  }
  return status(call.status());
}

EXPORTED cublasStatus_t LT_NAME(MatmulAlgoGetHeuristic)(cublasLtHandle_t handle, cublasLtMatmulDesc_t desc,
                                                        cublasLtMatrixLayout_t a, cublasLtMatrixLayout_t b,
                                                        cublasLtMatrixLayout_t c, cublasLtMatrixLayout_t d,
                                                        cublasLtMatmulPreference_t preference, int capacity,
                                                        cublasLtMatmulHeuristicResult_t* results,
                                                        int* count) {
  LibraryCall call(LT "MatmulAlgoGetHeuristic", kOthers);
  *count = 0;
  if (call.failed()) return status(call.status());
  const Problem p = problem_of(call, handle, desc, a, b, c, d);
  const Preference* const wish = preferences().get(call, preference);
  if (capacity < 1) call.wrong("no room for a result");
  if (call.failed()) return status(call.status());
  if (!supported(p)) return CUBLAS_STATUS_NOT_SUPPORTED;
  for (const Algorithm& algorithm : algorithms_for(p, *wish))
    if (*count < capacity) give(algorithm, &results[(*count)++]);
  return *count > 0 ? CUBLAS_STATUS_SUCCESS : CUBLAS_STATUS_NOT_SUPPORTED;
}

#if !defined(GRADLOOM_HIP)
EXPORTED cublasStatus_t cublasLtMatmulAlgoCheck(cublasLtHandle_t handle, cublasLtMatmulDesc_t desc,
                                                cublasLtMatrixLayout_t a, cublasLtMatrixLayout_t b,
                                                cublasLtMatrixLayout_t c, cublasLtMatrixLayout_t d,
                                                const cublasLtMatmulAlgo_t* algo,
                                                cublasLtMatmulHeuristicResult_t* result) {
  LibraryCall call("cublasLtMatmulAlgoCheck", kOthers);
  if (call.failed()) return status(call.status());
  const Problem p = problem_of(call, handle, desc, a, b, c, d);
  if (call.failed()) return status(call.status());
  const auto algorithm = algorithm_of(*algo);
  if (algorithm.mark != kMark || algorithm.problem != number_of(p) || !supported(p))
    return CUBLAS_STATUS_NOT_SUPPORTED;
  give(algorithm, result);
  return CUBLAS_STATUS_SUCCESS;
}

EXPORTED cublasStatus_t cublasLtMatmulAlgoConfigGetAttribute(const cublasLtMatmulAlgo_t* algo,
                                                             cublasLtMatmulAlgoConfigAttributes_t attribute,
                                                             void* value, std::size_t bytes,
                                                             std::size_t* written) {
  LibraryCall call("cublasLtMatmulAlgoConfigGetAttribute", kOthers);
  if (call.failed()) return status(call.status());
  const auto algorithm = algorithm_of(*algo);
  const std::int32_t number = attribute == CUBLASLT_ALGO_CONFIG_ID          ? std::int32_t(algorithm.id)
                              : attribute == CUBLASLT_ALGO_CONFIG_TILE_ID   ? 20
                              : attribute == CUBLASLT_ALGO_CONFIG_STAGES_ID ? 36
                                                                            : std::int32_t(algorithm.slices);
  if (algorithm.mark != kMark || bytes != sizeof number)
    return status(call.wrong("no algorithm, or no int32_t"));
  std::memcpy(value, &number, bytes);
  *written = bytes;
  return CUBLAS_STATUS_SUCCESS;
}
#endif

EXPORTED cublasStatus_t LT_NAME(Matmul)(cublasLtHandle_t handle, cublasLtMatmulDesc_t desc, const void* alpha,
                                        const void* a, cublasLtMatrixLayout_t a_layout, const void* b,
                                        cublasLtMatrixLayout_t b_layout, const void* beta, const void* c,
                                        cublasLtMatrixLayout_t c_layout, void* d,
                                        cublasLtMatrixLayout_t d_layout, const cublasLtMatmulAlgo_t* algo,
                                        void* workspace, std::size_t workspace_bytes, void* stream) {
  LibraryCall call(LT "Matmul", kRuns);
  if (call.failed()) return status(call.status());
  const Problem p = problem_of(call, handle, desc, a_layout, b_layout, c_layout, d_layout);
  if (!call.failed() && !supported(p)) call.wrong("types that do not go together");
  if (call.failed()) return status(call.status());
  const auto algorithm = algorithm_of(*algo);
  if (algorithm.mark != kMark || algorithm.problem != number_of(p))
    return status(call.wrong("the algorithm is none, or another problem's"));
  static bool last_first = false;
  if (algorithm.scheme == in_place) last_first = !last_first;  // whoever comes first adds first
  const Description& how = *p.desc;
  const Product product{matrix(p.a),
                        matrix(p.b),
                        matrix(p.c),
                        matrix(p.d),
                        how.transpose_a != CUBLAS_OP_N,
                        how.transpose_b != CUBLAS_OP_N,
                        how.compute == CUBLAS_COMPUTE_32F_FAST_TF32,
                        cublasLtEpilogue_t(how.epilogue),
                        scalar(p, alpha),
                        scalar(p, beta),
                        a,
                        b,
                        c,
                        d,
                        how.bias,
                        how.aux,
                        how.aux_ld,
                        int(algorithm.slices),
                        algorithm.scheme == in_place && last_first,
                        how.a_scale,
                        how.b_scale,
                        workspace};
  if (!check_places(call, p, algorithm, product, workspace_bytes)) return status(call.status());
  return status(call.submit(stream, "product", [product] { run(product); }));
}
