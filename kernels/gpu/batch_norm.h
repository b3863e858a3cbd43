// The part of batch normalization that a library does not compute.
#pragma once

#include "kernels/arguments.h"
#include "kernels/gpu/gpu.h"

namespace gradloom::kernels::gpu {

// The running statistics from saved_mean and saved_inv_std, all of them f32: ONNX takes the biased variance
// of the batch, libraries the unbiased one.
void batch_norm_running(const BatchNormArgs& args, Stream stream);

}  // namespace gradloom::kernels::gpu
