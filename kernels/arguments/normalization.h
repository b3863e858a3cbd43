// Arguments of normalizations (conventions: kernels/arguments.h).
#pragma once

#include "kernels/types.h"

namespace gradloom::kernels {

// Normalizations: `parameters` is the type of scale, bias, running statistics and of the gradients of scale
// and bias: that of x, or f32 where x is half. mean and inv_std have the type of x, f32 where that is half.
// x, y: [rows, cols]; scale, bias: [cols] (bias may be null); mean, inv_std: [rows].  (ONNX-17)
// centered = false: nothing is subtracted, inv_std is 1 / root mean square, mean is not touched.  (ONNX-23
// RMSNormalization)
struct LayerNormArgs {
  DType dtype;
  std::int64_t rows, cols;
  double epsilon;
  const void *x, *scale, *bias;
  void *y, *mean, *inv_std;
  bool centered = true;
  DType parameters = dtype;
};
// dx: [rows, cols]; dscale, dbias: [cols] (each may be null). One pass over dy and x.
struct LayerNormGradArgs {
  DType dtype;
  std::int64_t rows, cols;
  const void *dy, *x, *scale, *mean, *inv_std;
  void *dx, *dscale, *dbias;
  void* workspace;
  bool centered = true;
  DType parameters = dtype;
  const void* added = nullptr;  // [rows, cols] or null: dx is that much more
};

// x, y: [n, groups * channels, spatial]; scale, bias: [groups * channels]; mean, inv_std: [n, groups].
// (ONNX-21 GroupNormalization; InstanceNormalization is the case of one channel per group)
struct GroupNormArgs {
  DType dtype;
  std::int64_t n, groups, channels, spatial;
  double epsilon;
  const void *x, *scale, *bias;
  void *y, *mean, *inv_std;
  DType parameters = dtype;
};
// dx like x; dscale, dbias: [groups * channels] (each may be null).
struct GroupNormGradArgs {
  DType dtype;
  std::int64_t n, groups, channels, spatial;
  const void *dy, *x, *scale, *mean, *inv_std;
  void *dx, *dscale, *dbias;
  void* workspace;
  DType parameters = dtype;
};

// BatchNorm, x, y: [n, c, spatial]; scale, bias, running_*: [c]. The batch variance is biased, for y as for
//   running = running * momentum + batch * (1 - momentum)     (ONNX-14/15)
// where `unbias` multiplies the batch's variance: n / (n - 1) of n numbers in a channel is PyTorch's.
// With training = false, y comes from the running statistics; the *_out and saved_* pointers may be null.
// Channels in blocks: x, y: [n, c / block, spatial, block].
// y may be f(xhat * scale + bias + added) in one pass: added like x, or null; f bounds: relu from 0, clip from low to high.
// What is added to and bounded is rounded as if it had been written.
enum class NormActivation : std::uint8_t { none, relu, clip };
struct BatchNormArgs {
  DType dtype;
  bool training;
  std::int64_t n, c, spatial;
  double epsilon, momentum;
  const void *x, *scale, *bias, *running_mean, *running_var;
  void *y, *running_mean_out, *running_var_out, *saved_mean, *saved_inv_std;  // saved_*: [c]
  void* workspace = nullptr;
  DType parameters = dtype;
  std::int64_t block = 1;
  double unbias = 1;
  NormActivation activation = NormActivation::none;
  double low = 0, high = 0;
  const void* added = nullptr;
};
// With an activation (nothing added) the gradient passes where xhat * scale + bias, which is computed again, is above 0 (relu) or
// beyond neither bound (clip).
struct BatchNormGradArgs {
  DType dtype;
  bool training;
  std::int64_t n, c, spatial;
  const void *dy, *x, *scale, *saved_mean, *saved_inv_std;
  void *dx, *dscale, *dbias;
  void* workspace = nullptr;
  DType parameters = dtype;
  std::int64_t block = 1;
  NormActivation activation = NormActivation::none;
  double low = 0, high = 0;
  const void* bias = nullptr;  // with an activation
};

// Local response normalization over channels, x, y: [n, c, inner]; the window of channel i are the `size`
// channels from i - (size - 1) / 2 on, those inside x (ONNX LRN-13):
//   s = bias + alpha / size * sum of x^2 over the window, y = x s^-beta
//   dx = dy s^-beta - 2 alpha beta / size x (sum of dy x s^(-beta - 1) over the windows that channel i is in)
// The gradient takes windows of at most kLrnGradWindow channels. On GPUs it is a sequence of kernels.
constexpr std::int64_t kLrnGradWindow = 64;
struct LrnShape {
  std::int64_t n, c, inner, size;
  double alpha, beta, bias;
};
struct LrnArgs {
  DType dtype;
  LrnShape shape;
  const void* x;
  void* y;
};
struct LrnGradArgs {
  DType dtype;
  LrnShape shape;
  const void *dy, *x;
  void* dx;
};

}  // namespace gradloom::kernels

// clang-format off
// Its kernels: K(name, arguments).
#define GRADLOOM_NORMALIZATION_KERNELS(K) \
  K(layer_norm, LayerNormArgs) K(layer_norm_grad, LayerNormGradArgs) K(group_norm, GroupNormArgs) \
  K(group_norm_grad, GroupNormGradArgs) K(batch_norm, BatchNormArgs) \
  K(batch_norm_grad, BatchNormGradArgs)
// clang-format on
