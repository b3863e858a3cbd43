// Convolutions as the vendors' graph libraries want them: tensors with dims and strides. Plain C++.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "kernels/arguments.h"

namespace gradloom::kernels::gpu {

using DnnSizes = std::vector<std::int64_t>;

struct DnnTensor {
  std::int64_t id;  // within the problem
  DnnSizes dims, strides;
};

// y = x * w for every kind of convolution: backward_data computes x from y and w, backward_weights w from y
// and x. 2 spatial dims where depth is 1 throughout, else 3.
struct ConvolutionProblem {
  DType dtype = DType::f32;
  ConvolutionKind kind = ConvolutionKind::forward;
  DnnTensor x, w, y;
  DnnSizes stride, pad_begin, pad_end, dilation;
};
ConvolutionProblem convolution_problem(const ConvolutionArgs& args);

// Addresses of x, w and y. const or not is the kind's matter.
std::array<void*, 3> tensors_of(const ConvolutionArgs& args);
// True when every address is at a boundary of `bytes`.
bool aligned(const std::array<void*, 3>& tensors, std::uintptr_t bytes);

// Everything that the choice of an algorithm depends on.
std::vector<std::int64_t> key_of(const ConvolutionArgs& args);

}  // namespace gradloom::kernels::gpu
