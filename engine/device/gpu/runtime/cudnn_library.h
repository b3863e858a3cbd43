// The functions that we call of libcudnn, which is opened at run time. They are null where it is not found.
#pragma once

#include <cudnn.h>

#include <string>

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
  decltype(&cudnnGetErrorString) error_text = nullptr;
  decltype(&cudnnGetLastErrorString) last_error = nullptr;
  bool ready = false;  // all of it is there, and the library is cuDNN 9 or later

  CudnnLibrary();
};
const CudnnLibrary& cudnn();
// "CUDNN_STATUS_BAD_PARAM: ..." of a call of this thread that failed just now.
std::string cudnn_words(cudnnStatus_t status);
// The library has no engine for it: no mistake of anyone.
inline bool is_refusal(cudnnStatus_t status) { return status >= 3000 && status < 4000; }

}  // namespace gradloom::kernels::gpu
