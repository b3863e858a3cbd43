// rocBLAS for the strict driver in HIP's spelling: products on the host, when their turn in the stream comes. Declared after its public
// documentation (rocblas-functions.h, rocblas-types.h). It holds callers to what that asks for, and to what makes its results the same
// in every step: workspace that was given, so that it takes none while work is recorded, and no atomics.
#include "tests/engine/device/gpu/driver/libraries/door.h"
#include "tests/engine/device/gpu/driver/libraries/product.h"

namespace gradloom::strict {
namespace {

constexpr LibraryStatuses kStatuses{11, 5, 6};  // invalid value, memory error, internal error
constexpr int kPlain = 111, kTransposed = 112, kStandard = 0;

struct Handle {
  void* stream = nullptr;
  void* workspace = nullptr;
  std::size_t workspace_bytes = 0;
  bool atomics = true;
};
Made<Handle>& handles() {
  static auto& made = *new Made<Handle>("rocBLAS handles");
  return made;
}

// rocblas_datatype; false: products have none of it here.
bool type_of(int rocblas, cudaDataType_t* type) {
  switch (rocblas) {
    case 150: *type = CUDA_R_16F; return true;
    case 151: *type = CUDA_R_32F; return true;
    case 152: *type = CUDA_R_64F; return true;
    case 168: *type = CUDA_R_16BF; return true;
    default: return false;
  }
}

// An operand as it is stored, whose lines are `rows` elements.
struct Stored {
  int type, ld;
  std::int64_t rows, cols, stride;
};
bool describe(LibraryCall& call, const char* what, const Stored& s, int batch, Matrix* to) {
  cudaDataType_t type{};
  if (!type_of(s.type, &type))
    call.wrong(std::string(what) + " is of a type that it has no products of");
  else if (s.ld < s.rows)
    call.wrong(std::string(what) + " has columns of " + std::to_string(s.rows) + " elements, " +
               std::to_string(s.ld) + " apart");
  *to = {type, s.rows, s.cols, s.ld, batch, s.stride};
  return !call.failed();
}

// Products of half types have sums in f32, and results of their own type or of that.
bool go_together(const Product& p, int compute_type) {
  cudaDataType_t sums{};
  if (!type_of(compute_type, &sums) || p.a.type != p.b.type || p.c.type != p.d.type) return false;
  const bool half = p.a.type == CUDA_R_16F || p.a.type == CUDA_R_16BF;
  if (!half) return p.a.type == sums && p.d.type == sums;
  return sums == CUDA_R_32F && (p.d.type == p.a.type || p.d.type == CUDA_R_32F);
}

bool in_memory(LibraryCall& call, const Product& p) {
  const auto there = [&](const char* what, const void* at, const Matrix& m) {
    return call.device_memory(what, at, m.bytes(), m.width());
  };
  if (p.d.rows * p.d.cols == 0) return true;
  return there("A", p.a_at, p.a) && there("B", p.b_at, p.b) && there("D", p.d_at, p.d) &&
         (p.beta == 0 || there("C", p.c_at, p.c));
}

}  // namespace
}  // namespace gradloom::strict

#define EXPORTED extern "C" __attribute__((visibility("default")))
using gradloom::strict::handles, gradloom::strict::kStatuses, gradloom::strict::LibraryCall;

EXPORTED int rocblas_create_handle(void** handle) {
  const LibraryCall call("rocblas_create_handle", kStatuses, STRICT_ALLOCATES);
  if (!call.failed()) *handle = handles().make({});
  return call.status();
}
EXPORTED int rocblas_destroy_handle(void* handle) {
  LibraryCall call("rocblas_destroy_handle", kStatuses);
  return handles().destroy(call, handle);
}
EXPORTED int rocblas_set_stream(void* handle, void* stream) {
  LibraryCall call("rocblas_set_stream", kStatuses);
  if (call.failed()) return call.status();
  if (auto* const of = handles().get(call, handle)) of->stream = stream;
  return call.status();
}
EXPORTED int rocblas_set_atomics_mode(void* handle, int mode) {
  LibraryCall call("rocblas_set_atomics_mode", kStatuses);
  if (call.failed()) return call.status();
  if (auto* const of = handles().get(call, handle)) of->atomics = mode != 0;
  return call.status();
}
EXPORTED int rocblas_set_workspace(void* handle, void* memory, std::size_t bytes) {
  LibraryCall call("rocblas_set_workspace", kStatuses);
  if (call.failed()) return call.status();
  auto* const of = handles().get(call, handle);
  if (of == nullptr || !call.device_memory("the workspace", memory, bytes, 256)) return call.status();
  of->workspace = memory;
  of->workspace_bytes = bytes;
  return call.status();
}
EXPORTED int rocblas_get_version_string(char* text, std::size_t bytes) {
  constexpr char kVersion[] = "5.0.0";
  if (bytes < sizeof kVersion) return 4;
  for (std::size_t i = 0; i < sizeof kVersion; ++i) text[i] = kVersion[i];
  return 0;
}
EXPORTED int rocblas_gemm_strided_batched_ex(void* handle, int a_op, int b_op, int m, int n, int k,
                                             const void* alpha, const void* a, int a_type, int a_ld,
                                             std::int64_t a_stride, const void* b, int b_type, int b_ld,
                                             std::int64_t b_stride, const void* beta, const void* c,
                                             int c_type, int c_ld, std::int64_t c_stride, void* d, int d_type,
                                             int d_ld, std::int64_t d_stride, int batch, int compute_type,
                                             int algorithm, std::int32_t solution, std::uint32_t flags) {
  using namespace gradloom::strict;
  LibraryCall call("rocblas_gemm_strided_batched_ex", kStatuses);
  if (call.failed()) return call.status();
  const Handle* const of = handles().get(call, handle);
  if (of == nullptr) return call.status();
  if (of->workspace_bytes == 0)
    return call.wrong("it takes memory when a product wants some, which a recording forbids");
  if (of->atomics) return call.wrong("sums by atomics have other bits in every step");
  const bool a_turned = a_op == kTransposed, b_turned = b_op == kTransposed;
  if ((!a_turned && a_op != kPlain) || (!b_turned && b_op != kPlain) || algorithm != kStandard ||
      solution != 0 || flags != 0 || batch < 1 || m < 0 || n < 0 || k < 0)
    return call.wrong("an operation, algorithm or size that there is not");
  Product p{};
  p.transpose_a = a_turned;
  p.transpose_b = b_turned;
  p.epilogue = gradloom::kernels::gpu::CUBLASLT_EPILOGUE_DEFAULT;
  if (!describe(call, "A", {a_type, a_ld, a_turned ? k : m, a_turned ? m : k, a_stride}, batch, &p.a) ||
      !describe(call, "B", {b_type, b_ld, b_turned ? n : k, b_turned ? k : n, b_stride}, batch, &p.b) ||
      !describe(call, "C", {c_type, c_ld, m, n, c_stride}, batch, &p.c) ||
      !describe(call, "D", {d_type, d_ld, m, n, d_stride}, batch, &p.d))
    return call.status();
  if (!go_together(p, compute_type)) return call.wrong("types that do not go together");
  const bool f64 = p.a.type == CUDA_R_64F;
  const auto number = [&](const void* at) {
    return f64 ? *static_cast<const double*>(at) : double(*static_cast<const float*>(at));
  };
  p.alpha = number(alpha);
  p.beta = number(beta);
  p.a_at = a;
  p.b_at = b;
  p.c_at = c;
  p.d_at = d;
  p.slices = 1;
  if (!in_memory(call, p)) return call.status();
  return call.submit(of->stream, "product", [p] { run(p); });
}
