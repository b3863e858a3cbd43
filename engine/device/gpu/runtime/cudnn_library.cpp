#include "engine/device/gpu/runtime/cudnn_library.h"

namespace gradloom::kernels::gpu {

CudnnLibrary::CudnnLibrary() {
  ready = library && library.bind(version, "cudnnGetVersion") && library.bind(create_handle, "cudnnCreate") &&
          library.bind(destroy_handle, "cudnnDestroy") && library.bind(set_stream, "cudnnSetStream") &&
          library.bind(create, "cudnnBackendCreateDescriptor") &&
          library.bind(destroy, "cudnnBackendDestroyDescriptor") &&
          library.bind(set, "cudnnBackendSetAttribute") && library.bind(get, "cudnnBackendGetAttribute") &&
          library.bind(finalize, "cudnnBackendFinalize") && library.bind(execute, "cudnnBackendExecute") &&
          library.bind(error_text, "cudnnGetErrorString") &&
          library.bind(last_error, "cudnnGetLastErrorString") && version() >= 90000;
}

std::string cudnn_words(cudnnStatus_t status) {
  char more[160] = "";
  cudnn().last_error(more, sizeof more);
  more[sizeof more - 1] = 0;
  return cudnn().error_text(status) + (more[0] != 0 ? ": " + std::string(more) : "");
}

const CudnnLibrary& cudnn() {
  static const CudnnLibrary library;
  return library;
}

}  // namespace gradloom::kernels::gpu
