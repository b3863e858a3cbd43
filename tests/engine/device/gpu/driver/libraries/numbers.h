// Numbers of the device's types on the host.
#pragma once

#include "engine/device/gpu/runtime/blas_lt_api.h"  // cudaDataType_t, in either spelling

#include <cstdint>

#include "engine/base/bf16.h"

namespace gradloom::strict {

template <class Sum>
Sum load(cudaDataType_t type, const void* at, std::int64_t i) {
  switch (type) {
    case CUDA_R_64F: return Sum(static_cast<const double*>(at)[i]);
    case CUDA_R_32F: return Sum(static_cast<const float*>(at)[i]);
    case CUDA_R_16F: return Sum(static_cast<const _Float16*>(at)[i]);
    default: return Sum(bf16_to_f32(static_cast<const std::uint16_t*>(at)[i]));  // CUDA_R_16BF
  }
}
template <class Sum>
void store(cudaDataType_t type, void* at, std::int64_t i, Sum x) {
  switch (type) {
    case CUDA_R_64F: static_cast<double*>(at)[i] = double(x); return;
    case CUDA_R_32F: static_cast<float*>(at)[i] = float(x); return;
    case CUDA_R_16F: static_cast<_Float16*>(at)[i] = _Float16(x); return;
    default: static_cast<std::uint16_t*>(at)[i] = f32_to_bf16(float(x));
  }
}

}  // namespace gradloom::strict
