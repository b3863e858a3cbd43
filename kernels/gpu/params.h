// The parameter of the running kernel where the launch put it. In HIP a kernel is given a structure with pointers field by field (AMDGPU's
// calling convention in clang), so that one whose arrays are indexed, or that a lambda refers to, is copied to scratch memory first and
// read there; in the kernel's argument segment it is read by scalar loads. CUDA's kernels are given their parameters so in any case.
#pragma once

#include "kernels/gpu/gpu.h"

namespace gradloom::kernels::gpu {

// The kernel's first parameter, which must be `param`.
template <class T>
GRADLOOM_DEVICE const T& first_param(const T& param) {
#if defined(__HIP_DEVICE_COMPILE__)
  return *(const T*)__builtin_amdgcn_kernarg_segment_ptr();
#else
  return param;
#endif
}

}  // namespace gradloom::kernels::gpu
