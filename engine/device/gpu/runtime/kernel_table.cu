// From kernel ids to the launchers of kernels/gpu/*.cu.
#include "kernels/gpu/batch_norm.h"
#include "kernels/gpu/kernels.h"
#include "kernels/launcher.h"

namespace gradloom::kernels::gpu {

bool queue_kernel(unsigned id, const void* args, std::size_t bytes, void* stream) {
  switch (KernelId(id)) {
#define GRADLOOM_CASE(name, Args)                                       \
  case KernelId::name:                                                  \
    if (bytes != sizeof(Args)) return false;                            \
    name(*static_cast<const Args*>(args), static_cast<Stream>(stream)); \
    return true;
    GRADLOOM_GPU_KERNELS(GRADLOOM_CASE)
#undef GRADLOOM_CASE
    default: return false;
  }
}

void queue_convolution_bias(const ConvolutionArgs& args, void* stream) {
  convolution_bias(args, static_cast<Stream>(stream));
}
void queue_batch_norm_running(const BatchNormArgs& args, void* stream) {
  batch_norm_running(args, static_cast<Stream>(stream));
}
void queue_gemm_epilogue(const GemmArgs& args, void* stream) {
  gemm_epilogue(args, static_cast<Stream>(stream));
}

}  // namespace gradloom::kernels::gpu
