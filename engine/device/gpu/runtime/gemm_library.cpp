#include "engine/device/gpu/runtime/gemm_library.h"

#include "engine/device/gpu/runtime/blas_lt.h"

#if defined(GRADLOOM_HIP)

// HIP has two: what hipBLASLt, which has kernels of the newer processors alone, does not take goes to rocBLAS. Both have one workspace,
// as large as what rocBLAS takes by itself, so that none takes memory later.
#include "engine/device/gpu/runtime/library.h"
#include "engine/device/gpu/runtime/names.h"
#include "engine/device/gpu/runtime/rocblas.h"

namespace gradloom::kernels::gpu {
namespace {

constexpr std::size_t kWorkspaceBytes = std::size_t(32) << 20;

}  // namespace

class GemmLibrary {
 public:
  GemmLibrary() = default;
  ~GemmLibrary() {
    lt_.reset();
    rocblas_.reset();
    (void)GPU(Free)(workspace_.at);
  }
  GemmLibrary(const GemmLibrary&) = delete;
  GemmLibrary& operator=(const GemmLibrary&) = delete;

  // False: none is there.
  bool open(Answer* why) {
    const Error taken = GPU(Malloc)(&workspace_.at, kWorkspaceBytes);
    if (taken != GPU(Success)) {
      workspace_.at = nullptr;
      (void)GPU(GetLastError)();
      *why = failed(std::string("no memory for its workspace: ") + GPU(GetErrorName)(taken));
      return false;
    }
    workspace_.bytes = kWorkspaceBytes;
    const bool wanted = switched("GRADLOOM_HIPBLASLT", true) && !blas_lt_version().empty();
    if (wanted) lt_ = open_blas_lt(workspace_, &no_lt_);
    rocblas_ = open_rocblas(workspace_, why);
    return lt_ != nullptr || rocblas_ != nullptr;
  }

  Answer run(const GemmArgs& args, void* stream, std::string* used) {
    Answer first = no_lt_;
    if (lt_ != nullptr) {
      *used = blas_lt_name(*lt_);
      first = run_product(*lt_, args, stream);
      if (first.taken || rocblas_ == nullptr) return first;
    }
    *used = rocblas_version();
    Answer second = run_product(*rocblas_, args, stream);
    second.failed = second.failed || first.failed;
    if (!first.text.empty()) second.text += "; hipblaslt: " + first.text;
    return second;
  }

  Answer run(const Fp8ProductArgs& args, void* stream, std::string* used) {
    if (lt_ == nullptr) return no_lt_;
    *used = blas_lt_name(*lt_);
    return run_product(*lt_, args, stream);
  }

  bool tune(const GemmArgs& args, void* stream, int candidates, AlgorithmTable& algorithms) {
    // rocBLAS offers one algorithm.
    return lt_ != nullptr && tune_product(*lt_, args, stream, candidates, algorithms);
  }

 private:
  ProductWorkspace workspace_;
  BlasLtPtr lt_;
  Answer no_lt_;  // why it does not open; empty: it is not there, or not wanted
  RocblasPtr rocblas_;
};

GemmLibraryPtr open_gemm_library(Answer* why) {
  GemmLibraryPtr library(new GemmLibrary);
  if (!library->open(why)) return nullptr;
  return library;
}

std::string gemm_library_version() {
  const std::string first = blas_lt_version(), second = rocblas_version();
  return first + (first.empty() || second.empty() ? "" : ", ") + second;
}

#else

namespace gradloom::kernels::gpu {

class GemmLibrary {
 public:
  explicit GemmLibrary(BlasLtPtr lt) : lt_(std::move(lt)) {}
  template <class Args>
  Answer run(const Args& args, void* stream, std::string* used) {
    *used = blas_lt_name(*lt_);
    return run_product(*lt_, args, stream);
  }
  bool tune(const GemmArgs& args, void* stream, int candidates, AlgorithmTable& algorithms) {
    return tune_product(*lt_, args, stream, candidates, algorithms);
  }

 private:
  BlasLtPtr lt_;
};

GemmLibraryPtr open_gemm_library(Answer* why) {
  BlasLtPtr lt = open_blas_lt({}, why);
  return lt != nullptr ? GemmLibraryPtr(new GemmLibrary(std::move(lt))) : nullptr;
}

std::string gemm_library_version() { return blas_lt_version(); }

#endif

void CloseGemmLibrary::operator()(GemmLibrary* library) const { delete library; }

Answer run_gemm(GemmLibrary& library, const GemmArgs& args, void* stream, std::string* used) {
  return library.run(args, stream, used);
}

Answer run_fp8_product(GemmLibrary& library, const Fp8ProductArgs& args, void* stream, std::string* used) {
  return library.run(args, stream, used);
}

bool tune_gemm(GemmLibrary& library, const GemmArgs& args, void* stream, int candidates,
               AlgorithmTable& algorithms) {
  return library.tune(args, stream, candidates, algorithms);
}

}  // namespace gradloom::kernels::gpu
