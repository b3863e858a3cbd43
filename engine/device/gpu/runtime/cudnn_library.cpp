#include "engine/device/gpu/runtime/cudnn_library.h"

namespace gradloom::kernels::gpu {

CudnnLibrary::CudnnLibrary() {
  ready = library && library.bind(version, "cudnnGetVersion") && library.bind(create_handle, "cudnnCreate") &&
          library.bind(destroy_handle, "cudnnDestroy") && library.bind(set_stream, "cudnnSetStream") &&
          library.bind(create, "cudnnBackendCreateDescriptor") &&
          library.bind(destroy, "cudnnBackendDestroyDescriptor") &&
          library.bind(set, "cudnnBackendSetAttribute") && library.bind(get, "cudnnBackendGetAttribute") &&
          library.bind(finalize, "cudnnBackendFinalize") && library.bind(execute, "cudnnBackendExecute") &&
          version() >= 90000;
}

const CudnnLibrary& cudnn() {
  static const CudnnLibrary library;
  return library;
}

}  // namespace gradloom::kernels::gpu
