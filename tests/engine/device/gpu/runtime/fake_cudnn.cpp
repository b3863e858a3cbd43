// libcudnn for tests of who calls it: takes every description, has one engine, computes nothing. Failures are on demand by
// "create TYPE", "finalize TYPE" (cudnnBackendDescriptorType_t) and "execute".
#include "engine/device/gpu/runtime/cudnn_api.h"
#include "tests/engine/device/gpu/runtime/fake_calls.h"

#include <cstring>

using namespace gradloom::kernels::gpu;

namespace {

struct Descriptor {
  int type;
};
std::int64_t engine_workspace = 0;

cudnnStatus_t counted(const std::string& name) {
  return cudnnStatus_t(gradloom::test::fake_calls().call(name));
}

}  // namespace

#define FAKE extern "C" __attribute__((visibility("default")))

FAKE void fake_engine_workspace(std::int64_t bytes) { engine_workspace = bytes; }

FAKE std::size_t cudnnGetVersion() { return 91900; }
FAKE const char* cudnnGetErrorString(cudnnStatus_t status) {
  return status == 2000   ? "CUDNN_STATUS_BAD_PARAM"
         : status == 3000 ? "CUDNN_STATUS_NOT_SUPPORTED"
                          : "CUDNN_STATUS_EXECUTION_FAILED";
}
FAKE void cudnnGetLastErrorString(char* text, std::size_t capacity) {
  std::strncpy(text, "on demand", capacity);
}
FAKE cudnnStatus_t cudnnCreate(cudnnHandle_t* handle) {
  static Descriptor one;
  *handle = reinterpret_cast<cudnnHandle_t>(&one);
  return counted("create handle");
}
FAKE cudnnStatus_t cudnnDestroy(cudnnHandle_t) { return counted("destroy handle"); }
FAKE cudnnStatus_t cudnnSetStream(cudnnHandle_t, void*) { return counted("set stream"); }
FAKE cudnnStatus_t cudnnBackendCreateDescriptor(cudnnBackendDescriptorType_t type,
                                                cudnnBackendDescriptor_t* descriptor) {
  *descriptor = new Descriptor{int(type)};
  return counted("create " + std::to_string(type));
}
FAKE cudnnStatus_t cudnnBackendDestroyDescriptor(cudnnBackendDescriptor_t descriptor) {
  delete static_cast<Descriptor*>(descriptor);
  return CUDNN_STATUS_SUCCESS;
}
FAKE cudnnStatus_t cudnnBackendFinalize(cudnnBackendDescriptor_t descriptor) {
  return counted("finalize " + std::to_string(static_cast<Descriptor*>(descriptor)->type));
}
FAKE cudnnStatus_t cudnnBackendSetAttribute(cudnnBackendDescriptor_t, cudnnBackendAttributeName_t,
                                            cudnnBackendAttributeType_t, std::int64_t, const void*) {
  return counted("set");
}
FAKE cudnnStatus_t cudnnBackendGetAttribute(cudnnBackendDescriptor_t, cudnnBackendAttributeName_t name,
                                            cudnnBackendAttributeType_t, std::int64_t, std::int64_t* count,
                                            void* values) {
  const bool notes = name == CUDNN_ATTR_ENGINE_NUMERICAL_NOTE || name == CUDNN_ATTR_ENGINE_BEHAVIOR_NOTE;
  *count = notes ? 0 : 1;
  const std::int64_t number = name == CUDNN_ATTR_EXECUTION_PLAN_WORKSPACE_SIZE ? engine_workspace : 17;
  if (name == CUDNN_ATTR_EXECUTION_PLAN_WORKSPACE_SIZE || name == CUDNN_ATTR_ENGINE_GLOBAL_INDEX)
    std::memcpy(values, &number, sizeof number);
  return counted("get");
}
FAKE cudnnStatus_t cudnnBackendExecute(cudnnHandle_t, cudnnBackendDescriptor_t, cudnnBackendDescriptor_t) {
  return counted("execute");
}
