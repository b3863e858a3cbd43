// Work by cuDNN: one plan per problem, made when it is first run. A problem that fails once, when it is
// planned or when it is run, is not tried again.
#include <algorithm>
#include <map>

#include "engine/device/gpu/runtime/cudnn_library.h"
#include "engine/device/gpu/runtime/cudnn_plan.h"
#include "engine/device/gpu/runtime/dnn_library.h"

namespace gradloom::kernels::gpu {

class DnnLibrary {
 public:
  DnnLibrary(cudnnHandle_t handle, int capability)
      : handle_(handle), device_{handle, "", capability, switched("GRADLOOM_TF32", false)} {}
  ~DnnLibrary() {
    plans_.clear();
    (void)cudnn().destroy_handle(handle_);
  }
  DnnLibrary(const DnnLibrary&) = delete;
  DnnLibrary& operator=(const DnnLibrary&) = delete;

  bool run(const DnnCalls& calls, cudaStream_t stream, bool capturing) {
    std::vector<Plan*> plans;
    for (const DnnCall& call : calls) plans.push_back(plan_of(call, capturing));
    // All of them or none.
    if (plans.empty() || std::count(plans.begin(), plans.end(), nullptr) != 0 ||
        !std::all_of(calls.begin(), calls.end(), aligned))
      return false;
    if (cudnn().set_stream(handle_, stream) != 0) return false;
    for (std::size_t i = 0; i < calls.size(); ++i) {
      if ((*plans[i])->run(handle_, calls[i].places, calls[i].workspace)) continue;
      plans[i]->reset();
      return false;
    }
    return true;
  }

 private:
  using Plan = std::unique_ptr<CudnnPlan>;

  // Null: the library refuses the problem, or it must not be planned now.
  Plan* plan_of(const DnnCall& call, bool capturing) {
    std::vector<std::int64_t> key = key_of(call);
    auto found = plans_.find(key);
    if (found == plans_.end()) {
      if (capturing) return nullptr;
      found = plans_.emplace(std::move(key), CudnnPlan::create(device_, call.problem, call.workspace_bytes))
                  .first;
    }
    return found->second != nullptr ? &found->second : nullptr;
  }

  cudnnHandle_t handle_;
  CudnnDevice device_;
  std::map<std::vector<std::int64_t>, Plan> plans_;  // null: refused
};

void CloseDnnLibrary::operator()(DnnLibrary* library) const { delete library; }

DnnLibraryPtr open_dnn_library(int capability) {
  cudnnHandle_t handle = nullptr;
  if (!switched("GRADLOOM_CUDNN", true) || !cudnn().ready || cudnn().create_handle(&handle) != 0)
    return nullptr;
  return DnnLibraryPtr(new DnnLibrary(handle, capability));
}

bool run_dnn(DnnLibrary& library, const DnnCalls& calls, void* stream, bool capturing) {
  return library.run(calls, cudaStream_t(stream), capturing);
}

std::string dnn_library_version() {
  const std::size_t version = cudnn_version();  // 91900
  if (version == 0 || !switched("GRADLOOM_CUDNN", true)) return "";
  return "cudnn " + std::to_string(version / 10000) + "." + std::to_string(version / 100 % 100) + "." +
         std::to_string(version % 100);
}

}  // namespace gradloom::kernels::gpu
