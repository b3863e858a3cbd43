// Convolutions by cuDNN: one plan per problem, made when it is first run. A problem that
// fails once, when it is planned or when it is run, is not tried again.
#include <cudnn.h>

#include <map>

#include "kernels/gpu/runtime/cudnn_plan.h"
#include "kernels/gpu/runtime/dnn_library.h"
#include "kernels/gpu/runtime/library.h"

namespace gradloom::kernels::gpu {
namespace {

struct Functions {
  Library library{"libcudnn.so.9", "libcudnn.so"};
  decltype(&cudnnCreate) create = nullptr;
  decltype(&cudnnDestroy) destroy = nullptr;
  decltype(&cudnnSetStream) set_stream = nullptr;
  bool ready = false;

  Functions() {
    ready = library && library.bind(create, "cudnnCreate") && library.bind(destroy, "cudnnDestroy") &&
            library.bind(set_stream, "cudnnSetStream");
  }
};
const Functions& cudnn() {
  static const Functions functions;
  return functions;
}

}  // namespace

class DnnLibrary {
 public:
  explicit DnnLibrary(cudnnHandle_t handle) : handle_(handle) {}
  ~DnnLibrary() {
    plans_.clear();
    (void)cudnn().destroy(handle_);
  }
  DnnLibrary(const DnnLibrary&) = delete;
  DnnLibrary& operator=(const DnnLibrary&) = delete;

  bool run(const ConvolutionArgs& args, cudaStream_t stream, bool capturing) {
    if (!capturing) prepare(args);
    const auto found = plans_.find(key_of(args));
    const auto tensors = tensors_of(args);
    if (found == plans_.end() || found->second == nullptr || !aligned(tensors, 16)) return false;
    if (cudnn().set_stream(handle_, stream) == 0 && found->second->run(handle_, tensors, args.workspace))
      return true;
    found->second.reset();
    return false;
  }

 private:
  void prepare(const ConvolutionArgs& args) {
    const auto [at, fresh] = plans_.try_emplace(key_of(args));
    if (fresh)
      at->second = CudnnPlan::create(handle_, convolution_problem(args), workspace_of(args),
                                     switched("GRADLOOM_TF32", false));
  }

  static std::size_t workspace_of(const ConvolutionArgs& args) {
    return args.workspace != nullptr ? args.workspace_bytes : 0;
  }

  cudnnHandle_t handle_;
  std::map<std::vector<std::int64_t>, std::unique_ptr<CudnnPlan>> plans_;  // null: refused
};

void CloseDnnLibrary::operator()(DnnLibrary* library) const { delete library; }

DnnLibraryPtr open_dnn_library() {
  cudnnHandle_t handle = nullptr;
  if (!switched("GRADLOOM_CUDNN", true) || !cudnn().ready || cudnn_version() == 0 ||
      cudnn().create(&handle) != 0)
    return nullptr;
  return DnnLibraryPtr(new DnnLibrary(handle));
}

bool run_convolution(DnnLibrary& library, const ConvolutionArgs& args, void* stream, bool capturing) {
  return library.run(args, cudaStream_t(stream), capturing);
}

std::string dnn_library_version() {
  const std::size_t version = cudnn_version();  // 91900
  if (version == 0 || !switched("GRADLOOM_CUDNN", true)) return "";
  return "cudnn " + std::to_string(version / 10000) + "." + std::to_string(version / 100 % 100) + "." +
         std::to_string(version % 100);
}

}  // namespace gradloom::kernels::gpu
