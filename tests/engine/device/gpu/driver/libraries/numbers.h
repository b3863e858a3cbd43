// Numbers of the device's types on the host.
#pragma once

#include "engine/device/gpu/runtime/blas_lt_api.h"  // cudaDataType_t, in either spelling

#include <cmath>
#include <cstdint>

#include "engine/base/bf16.h"

namespace gradloom::strict {

#if !defined(GRADLOOM_HIP)
// OCP 8-bit Floating Point Specification 1.0, tables 1 and 2.
inline double number_of_code(cudaDataType_t type, std::uint8_t code) {
  const bool e4m3 = type == CUDA_R_8F_E4M3;
  const int fraction_bits = e4m3 ? 3 : 2, bias = e4m3 ? 7 : 15, size = code & 0x7f;
  const int exponent = size >> fraction_bits, fraction = size & ((1 << fraction_bits) - 1);
  const double sign = code > 0x7f ? -1 : 1;
  if (e4m3 ? size == 0x7f : size > 0x7c) return NAN;
  if (!e4m3 && size == 0x7c) return sign * INFINITY;
  const double part = std::ldexp(fraction, -fraction_bits);
  return sign * (exponent == 0 ? std::ldexp(part, 1 - bias) : std::ldexp(1 + part, exponent - bias));
}
inline bool is_code(cudaDataType_t type) { return type == CUDA_R_8F_E4M3 || type == CUDA_R_8F_E5M2; }
#else
inline bool is_code(cudaDataType_t) { return false; }
#endif

template <class Sum>
Sum load(cudaDataType_t type, const void* at, std::int64_t i) {
#if !defined(GRADLOOM_HIP)
  if (is_code(type)) return Sum(number_of_code(type, static_cast<const std::uint8_t*>(at)[i]));
#endif
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
