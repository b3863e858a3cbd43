// The functions that we call of libcudnn, which is opened at run time. They are null where it is not found.
#pragma once

#include <string>

#include "engine/device/gpu/runtime/cudnn_api.h"
#include "engine/device/gpu/runtime/library.h"

namespace gradloom::kernels::gpu {

struct CudnnLibrary {
  Library library{"libcudnn.so.9", "libcudnn.so"};
  CudnnGetVersion* version = nullptr;
  CudnnCreate* create_handle = nullptr;
  CudnnDestroy* destroy_handle = nullptr;
  CudnnSetStream* set_stream = nullptr;
  CudnnCreateDescriptor* create = nullptr;
  CudnnDestroyDescriptor* destroy = nullptr;
  CudnnSetAttribute* set = nullptr;
  CudnnGetAttribute* get = nullptr;
  CudnnDestroyDescriptor* finalize = nullptr;
  CudnnExecute* execute = nullptr;
  CudnnGetErrorString* error_text = nullptr;
  CudnnGetLastErrorString* last_error = nullptr;
  bool ready = false;  // all of it is there, and the library is cuDNN 9 or later

  CudnnLibrary();
};
const CudnnLibrary& cudnn();
// "CUDNN_STATUS_BAD_PARAM: ..." of a call of this thread that failed just now.
std::string cudnn_words(cudnnStatus_t status);
// The library has no engine for it: no mistake of anyone.
inline bool is_refusal(cudnnStatus_t status) { return status >= 3000 && status < 4000; }

}  // namespace gradloom::kernels::gpu
