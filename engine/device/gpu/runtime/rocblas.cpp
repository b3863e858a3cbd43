// Products by rocBLAS: the products themselves, without bias, activation and sums; half types
// accumulate in f32. gfx90a's matrix instructions take subnormal numbers of half types for 0. Its
// headers are in no package here, so the few functions are declared after its public documentation
// (rocblas-functions.h, rocblas-types.h).
//
// A handle takes device memory when a product wants more than it has, which a step that is recorded forbids. So it is given workspace
// of ours when it is opened, and never takes any: a product has the same answer, and the same bits,
// whether its step is recorded or not. What such a product would want beyond that, the library does without.
#include "engine/device/gpu/runtime/rocblas.h"

#include "engine/device/gpu/runtime/column_major.h"
#include "engine/device/gpu/runtime/gemm_library.h"
#include "engine/device/gpu/runtime/library.h"

namespace gradloom::kernels::gpu {
namespace {

using Handle = void*;
constexpr int kPlain = 111, kTransposed = 112;                  // rocblas_operation
constexpr int kF16 = 150, kF32 = 151, kF64 = 152, kBf16 = 168;  // rocblas_datatype
constexpr int kStandard = 0;                                    // rocblas_gemm_algo
constexpr int kNoAtomics = 0;                                   // rocblas_atomics_mode

struct Functions {
  Library library{"librocblas.so.5", "librocblas.so.4", "librocblas.so.3", "librocblas.so.0",
                  "librocblas.so"};
  int (*create)(Handle*) = nullptr;
  int (*destroy)(Handle) = nullptr;
  int (*set_stream)(Handle, void*) = nullptr;
  int (*set_atomics)(Handle, int) = nullptr;
  int (*set_workspace)(Handle, void* memory, std::size_t bytes) = nullptr;
  int (*version)(char*, std::size_t) = nullptr;
  int (*gemm)(Handle, int x_op, int y_op, int m, int n, int k, const void* alpha, const void* x, int x_type,
              int x_ld, std::int64_t x_stride, const void* y, int y_type, int y_ld, std::int64_t y_stride,
              const void* beta, const void* c, int c_type, int c_ld, std::int64_t c_stride, void* d,
              int d_type, int d_ld, std::int64_t d_stride, int batch, int compute_type, int algorithm,
              std::int32_t solution, std::uint32_t flags) = nullptr;
  bool ready = false;

  Functions() {
    ready = library && library.bind(create, "rocblas_create_handle") &&
            library.bind(destroy, "rocblas_destroy_handle") &&
            library.bind(set_stream, "rocblas_set_stream") &&
            library.bind(set_atomics, "rocblas_set_atomics_mode") &&
            library.bind(set_workspace, "rocblas_set_workspace") &&
            library.bind(version, "rocblas_get_version_string") &&
            library.bind(gemm, "rocblas_gemm_strided_batched_ex");
  }
};
const Functions& rocblas() {
  static const Functions functions;
  return functions;
}

}  // namespace

class Rocblas {
 public:
  explicit Rocblas(Handle handle) : handle_(handle) {}
  ~Rocblas() { rocblas().destroy(handle_); }
  Rocblas(const Rocblas&) = delete;
  Rocblas& operator=(const Rocblas&) = delete;

  Answer run(const GemmArgs& args, void* stream) {
    ColumnMajor p;
    if (has_epilogue(args)) return refused("it has no epilogues");
    if (!column_major(args, &p)) return refused("these strides have no form that it has");
    int type = 0;
    if (args.dtype == DType::f32) type = kF32;
    if (args.dtype == DType::f64) type = kF64;
    if (args.dtype == DType::f16) type = kF16;
    if (args.dtype == DType::bf16) type = kBf16;
    if (type == 0) return refused("it has no products of this type");
    if (const int status = rocblas().set_stream(handle_, stream); status != 0)
      return failed("rocblas_set_stream: status " + std::to_string(status));
    const int c_type = args.wide_c ? kF32 : type;
    const double alpha = args.alpha, beta = adds(args) ? 1 : 0;
    const float alpha_f32 = float(alpha), beta_f32 = float(beta);
    const bool f64 = type == kF64;
    const void* scale = f64 ? static_cast<const void*>(&alpha) : &alpha_f32;
    const void* keep = f64 ? static_cast<const void*>(&beta) : &beta_f32;
    const int status = rocblas().gemm(
        handle_, p.x_transposed ? kTransposed : kPlain, p.y_transposed ? kTransposed : kPlain, int(p.rows),
        int(p.cols), int(p.inner), scale, p.x(args), type, int(p.x_ld), p.x_batch, p.y(args), type,
        int(p.y_ld), p.y_batch, keep, added_to(args), c_type, int(p.d_ld), p.d_batch, args.c, c_type,
        int(p.d_ld), p.d_batch, int(p.batch), f64 ? kF64 : kF32, kStandard, 0, 0);
    return status == 0 ? taken_by("standard algorithm")
                       : failed("rocblas_gemm_strided_batched_ex: status " + std::to_string(status));
  }

 private:
  Handle handle_;
};

void CloseRocblas::operator()(Rocblas* library) const { delete library; }

Answer run_product(Rocblas& library, const GemmArgs& args, void* stream) { return library.run(args, stream); }

RocblasPtr open_rocblas(const ProductWorkspace& workspace, Answer* why) {
  Handle handle = nullptr;
  const int created = rocblas().ready ? rocblas().create(&handle) : 0;
  if (handle == nullptr) {
    *why = failed(rocblas().ready ? "rocblas_create_handle: status " + std::to_string(created)
                                  : rocblas().library.error());
    return nullptr;
  }
  RocblasPtr opened(new Rocblas(handle));
  if (const int atomics = rocblas().set_atomics(handle, kNoAtomics); atomics != 0) {
    *why = failed("rocblas_set_atomics_mode: status " + std::to_string(atomics));
  } else if (const int given = rocblas().set_workspace(handle, workspace.at, workspace.bytes); given != 0) {
    *why = failed("rocblas_set_workspace: status " + std::to_string(given));
  } else {
    return opened;
  }
  return nullptr;
}

std::string rocblas_version() {
  char text[64] = "";
  return rocblas().ready && rocblas().version(text, sizeof text) == 0 ? "rocblas " + std::string(text) : "";
}

}  // namespace gradloom::kernels::gpu
