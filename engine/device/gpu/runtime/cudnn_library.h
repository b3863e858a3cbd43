// The functions that we call of libcudnn, which is opened at run time. They are null where it is not found.
#pragma once

#include <cudnn.h>

#include "engine/device/gpu/runtime/library.h"

namespace gradloom::kernels::gpu {

struct CudnnLibrary {
  Library library{"libcudnn.so.9", "libcudnn.so"};
  decltype(&cudnnGetVersion) version = nullptr;
  decltype(&cudnnCreate) create_handle = nullptr;
  decltype(&cudnnDestroy) destroy_handle = nullptr;
  decltype(&cudnnSetStream) set_stream = nullptr;
  decltype(&cudnnBackendCreateDescriptor) create = nullptr;
  decltype(&cudnnBackendDestroyDescriptor) destroy = nullptr;
  decltype(&cudnnBackendSetAttribute) set = nullptr;
  decltype(&cudnnBackendGetAttribute) get = nullptr;
  decltype(&cudnnBackendFinalize) finalize = nullptr;
  decltype(&cudnnBackendExecute) execute = nullptr;
  bool ready = false;  // all of it is there, and the library is cuDNN 9 or later

  CudnnLibrary();
};
const CudnnLibrary& cudnn();

}  // namespace gradloom::kernels::gpu
