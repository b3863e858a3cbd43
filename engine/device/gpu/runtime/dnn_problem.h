// Convolutions, poolings, batch normalizations and attention as the vendors' graph libraries want them:
// tensors with dims and strides. A problem that such a library would solve differently from our kernels is not
// handed to it. Plain C++.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <variant>
#include <vector>

#include "kernels/library_kernels.h"

namespace gradloom::kernels::gpu {

using DnnSizes = std::vector<std::int64_t>;
inline constexpr std::uintptr_t kDnnAlignment = 16;  // bytes, of every address

struct DnnTensor {
  std::int64_t id;  // within the problem
  DType dtype;
  DnnSizes dims, strides;
};
DnnTensor dense_tensor(std::int64_t id, DType dtype, DnnSizes dims);

// y = x * w for every kind of convolution: backward_data computes x from y and w, backward_weights w from y
// and x. 2 spatial dims where depth is 1 throughout, else 3.
struct ConvolutionProblem {
  ConvolutionKind kind;
  DnnTensor x, w, y;
  DnnSizes stride, pad_begin, pad_end, dilation;
};
// y from x, or backward the gradient of x from that of y. 2 or 3 spatial dims.
enum class PoolMode : std::uint8_t { max, average_inside, average_padded };
struct PoolProblem {
  PoolMode mode;
  bool backward;
  DnnTensor x, y;
  DnnSizes kernel, stride, pad_begin, pad_end;
};
// Training. forward: y, mean, inv_std from x, scale, bias. backward: dx, dscale, dbias (in the places of y,
// scale's and bias's gradients) from x, dy, scale, mean, inv_std.
struct BatchNormProblem {
  bool backward;
  double epsilon;
  DnnTensor x, y, dx, scale, bias, dscale, mean, inv_std;
};
// [batch, heads, rows or keys, columns]. forward: y and log_sum_exp; backward: dq, dk, dv from dy, y and
// log_sum_exp, with row_sums (of dy * y) on the way.
struct AttentionProblem {
  bool backward, causal;
  double scale;
  DnnTensor q, k, v, y, log_sum_exp, row_sums, dy, dq, dk, dv;
  std::optional<DnnTensor> mask;
};
using DnnProblem = std::variant<ConvolutionProblem, PoolProblem, BatchNormProblem, AttentionProblem>;

// A problem, and where its tensors are.
struct DnnCall {
  struct Place {
    std::int64_t id;
    void* address;
  };
  DnnProblem problem;
  std::vector<Place> places;
  void* workspace = nullptr;
  std::size_t workspace_bytes = 0;
};
// The call that does a kernel's work; nothing: it is not for a library.
std::optional<DnnCall> dnn_call(const ConvolutionArgs& args);  // without the bias
// Not with positions of the maxima, nor dilated. The gradient of max pooling reads positions, which no
// library knows: it is ours alone.
std::optional<DnnCall> dnn_call(const MaxPoolArgs& args);
std::optional<DnnCall> dnn_call(const AveragePoolArgs& args);
std::optional<DnnCall> dnn_call(const AveragePoolGradArgs& args);
// Training of [n, c]; without the running statistics. In NCHW cuDNN has one engine, which copies images to
// channels last and back: a workspace of two to three tensors, and twice the traffic of our kernel.
std::optional<DnnCall> dnn_call(const BatchNormArgs& args);
std::optional<DnnCall> dnn_call(const BatchNormGradArgs& args);
// Half types alone: f32 would be rounded to TF32.
std::optional<DnnCall> dnn_call(const AttentionArgs& args);
std::optional<DnnCall> dnn_call(const AttentionGradArgs& args);

// True when every address is there and at a boundary of kDnnAlignment.
bool aligned(const DnnCall& call);
// Everything that the choice of an algorithm depends on.
std::vector<std::int64_t> key_of(const DnnCall& call);

}  // namespace gradloom::kernels::gpu
