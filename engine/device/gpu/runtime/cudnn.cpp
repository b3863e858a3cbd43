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

  Answer run(const std::optional<DnnCall>& call, void* stream, bool capturing) {
    if (!call) return refused("it is not handed this problem (type, shape, strides or workspace)");
    Known* const known = plan_of(*call, capturing);
    if (known == nullptr) return failed("first seen while the step is recorded");
    if (known->plan == nullptr) return known->why_not;
    if (!aligned(*call)) return refused("an address is not at a boundary of 16 bytes");
    if (const cudnnStatus_t status = cudnn().set_stream(handle_, stream); status != CUDNN_STATUS_SUCCESS)
      return failed("cudnnSetStream: " + cudnn_words(status));
    const Answer answer = known->plan->run(handle_, call->places, call->workspace);
    if (!answer.taken) *known = {nullptr, answer};
    return answer;
  }

 private:
  struct Known {
    std::unique_ptr<CudnnPlan> plan;  // null: refused
    Answer why_not;
  };

  // Null: it must not be planned now.
  Known* plan_of(const DnnCall& call, bool capturing) {
    std::vector<std::int64_t> key = key_of(call);
    auto found = plans_.find(key);
    if (found == plans_.end()) {
      if (capturing) return nullptr;
      Known made;
      made.plan = CudnnPlan::create(device_, call.problem, call.workspace_bytes, &made.why_not);
      found = plans_.emplace(std::move(key), std::move(made)).first;
    }
    return &found->second;
  }

  cudnnHandle_t handle_;
  CudnnDevice device_;
  std::map<std::vector<std::int64_t>, Known> plans_;
};

void CloseDnnLibrary::operator()(DnnLibrary* library) const { delete library; }

DnnLibraryPtr open_dnn_library(int capability, Answer* why) {
  cudnnHandle_t handle = nullptr;
  *why = refused("GRADLOOM_CUDNN=0");
  if (!switched("GRADLOOM_CUDNN", true)) return nullptr;
  *why = failed(cudnn().library ? "cudnn is too old or lacks functions" : cudnn().library.error());
  if (!cudnn().ready) return nullptr;
  if (const cudnnStatus_t status = cudnn().create_handle(&handle); status != CUDNN_STATUS_SUCCESS) {
    *why = failed("cudnnCreate: " + cudnn_words(status));
    return nullptr;
  }
  return DnnLibraryPtr(new DnnLibrary(handle, capability));
}

Answer run_dnn(DnnLibrary& library, const std::optional<DnnCall>& call, void* stream, bool capturing) {
  return library.run(call, stream, capturing);
}

std::string dnn_library_version() {
  const std::size_t version = cudnn_version();  // 91900
  if (version == 0 || !switched("GRADLOOM_CUDNN", true)) return "";
  return "cudnn " + std::to_string(version / 10000) + "." + std::to_string(version / 100 % 100) + "." +
         std::to_string(version % 100);
}

}  // namespace gradloom::kernels::gpu
