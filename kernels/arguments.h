// The arguments of the kernels, one plain struct each, the same for every device: on the CPU the pointers are host memory, on a GPU
// memory of that device (but lists of pointers and sizes, shapes and programs are always host memory).
// Kernels take no memory, cannot fail on valid arguments and log nothing.
//
// Conventions: all tensors dense row-major. `dtype` is f32 or f64 (and bf16 on a GPU) for floating point work, accumulated in at
// least f32 in an order that depends on the shape alone. Letters: rows x cols for anything normalized or reduced over its last
// axes; outer x n x inner when the axis is inside.
#pragma once

#include "kernels/elementwise.h"
#include "kernels/types.h"

namespace gradloom::kernels {

// What random kernels read of a step, in the memory of the device (a recorded step is replayed with new contents).
struct RandomState { std::uint64_t seed = 0, step = 0; };

// out = program(inputs). Philox4x32-10: counter = (element_index / 4, step), key = seed ^ node key. random: null when the program draws none.
struct ElementwiseArgs {
  const EwProgram* program;
  const void* const* inputs;
  void* const* outputs;
  const RandomState* random;
};

// out[i0..] = in[permuted/strided index]: transpose, slice, expand, split, concat pieces, pad interior.
// dims: iteration space; strides in elements; negative in_strides allowed (Slice with negative step).
struct StridedCopyArgs {
  std::size_t element_bytes;
  int rank;
  std::int64_t dims[kEwMaxRank], in_strides[kEwMaxRank], out_strides[kEwMaxRank];
  const void* in;   // already advanced to the first element
  void* out;
};

struct FillArgs { std::size_t element_bytes; std::int64_t count; const void* value; void* out; };

// out = data, host memory read when the kernel is queued. GPU only, for small tensors known when planning: at most kStoreMaxBytes.
constexpr std::int64_t kStoreMaxBytes = 1 << 16;
struct StoreArgs { std::int64_t bytes; const void* data; void* out; };

enum class Reduction : std::uint8_t { sum, mean, max, min, prod, l1, l2, sum_square, log_sum_exp };
// in: [outer, n, inner] -> out: [outer, inner]. dtype f32, f64, i32, i64. Fixed summation order.
struct ReduceArgs { DType dtype; Reduction op; std::int64_t outer, n, inner; const void* in; void* out; void* workspace; };

// y = softmax or log-softmax over n. in, out: [outer, n, inner].  (ONNX-13 Softmax)
struct SoftmaxArgs { DType dtype; bool log; std::int64_t outer, n, inner; const void* x; void* y; };
// softmax: dx = y * (dy - sum(dy * y));  log: dx = dy - exp(y) * sum(dy)
struct SoftmaxGradArgs { DType dtype; bool log; std::int64_t outer, n, inner; const void *dy, *y; void* dx; };

// x, y: [rows, cols]; scale, bias: [cols] (bias may be null); mean, inv_std: [rows], dtype of x.  (ONNX-17)
struct LayerNormArgs { DType dtype; std::int64_t rows, cols; double epsilon; const void *x, *scale, *bias; void *y, *mean, *inv_std; };
// dx: [rows, cols]; dscale, dbias: [cols] (each may be null). One pass over dy and x.
struct LayerNormGradArgs { DType dtype; std::int64_t rows, cols; const void *dy, *x, *scale, *mean, *inv_std; void *dx, *dscale, *dbias; void* workspace; };

// Training BatchNorm, x, y: [n, c, spatial]; scale, bias, running_*: [c]. Batch variance is biased for normalization; the running
// variance takes the biased one too (ONNX-14/15): running = running * momentum + batch * (1 - momentum).
// With training = false: y from running statistics; the *_out and saved_* pointers may be null.
struct BatchNormArgs {
  DType dtype; bool training; std::int64_t n, c, spatial; double epsilon, momentum;
  const void *x, *scale, *bias, *running_mean, *running_var;
  void *y, *running_mean_out, *running_var_out, *saved_mean, *saved_inv_std;  // saved_*: [c]
  void* workspace = nullptr;
};
struct BatchNormGradArgs {
  DType dtype; bool training; std::int64_t n, c, spatial;
  const void *dy, *x, *scale, *saved_mean, *saved_inv_std; void *dx, *dscale, *dbias; void* workspace = nullptr;
};

// data: [outer, axis_size, inner], indices: [count] (i32 or i64, negative counts from the end) -> out: [outer, count, inner].
// Out-of-range indices are clamped by the caller's validation; the kernel writes zeros for them.
struct GatherArgs { std::size_t element_bytes; DType index_dtype; std::int64_t outer, axis_size, inner, count; const void *data, *indices; void* out; };
// ddata[o, indices[k], :] += dy[o, k, :]; ddata is overwritten. Deterministic: additions in order of k per destination row.
struct GatherGradArgs { DType dtype, index_dtype; std::int64_t outer, axis_size, inner, count; const void *dy, *indices; void* ddata; void* workspace; };

// log_prob: [outer, n, inner], labels: [outer, inner] (i32/i64). loss: scalar (mean or sum) or [outer, inner] (none).
// weight: [n] or null. Rows whose label is ignore_index (when has_ignore) add nothing; mean divides by the summed weight.
enum class LossReduction : std::uint8_t { none, sum, mean };
struct NllLossArgs {
  DType dtype, label_dtype; LossReduction reduction; std::int64_t outer, n, inner; bool has_ignore; std::int64_t ignore_index;
  const void *log_prob, *labels, *weight; void* loss; void* total_weight;  // total_weight: scalar of dtype, for the gradient
};
struct NllLossGradArgs {
  DType dtype, label_dtype; LossReduction reduction; std::int64_t outer, n, inner; bool has_ignore; std::int64_t ignore_index;
  const void *dloss, *labels, *weight, *total_weight; void* dlog_prob;
};
// Softmax and cross-entropy in one pass: loss as above, log_sum_exp: [outer, inner] kept for the gradient.
struct SoftmaxCrossEntropyArgs {
  DType dtype, label_dtype; LossReduction reduction; std::int64_t outer, n, inner; bool has_ignore; std::int64_t ignore_index;
  const void *logits, *labels, *weight; void *loss, *log_sum_exp, *total_weight; void* workspace;
};
// dlogits = (softmax - onehot) * weight[label] * dloss / total_weight, from logits and log_sum_exp; dlogits may be logits.
struct SoftmaxCrossEntropyGradArgs {
  DType dtype, label_dtype; LossReduction reduction; std::int64_t outer, n, inner; bool has_ignore; std::int64_t ignore_index;
  const void *dloss, *logits, *labels, *weight, *log_sum_exp, *total_weight; void* dlogits;
};

// 2-d pooling, x: [n*c, h, w], y: [n*c, oh, ow]. Padding never wins a max. argmax: i64 index into h*w of the plane (may be null).
struct MaxPoolArgs {
  DType dtype; std::int64_t planes, h, w, oh, ow, kh, kw, stride_h, stride_w, pad_top, pad_left, dilation_h, dilation_w;
  const void* x; void* y; std::int64_t* argmax;
};
struct MaxPoolGradArgs { DType dtype; std::int64_t planes, h, w, oh, ow; const void* dy; const std::int64_t* argmax; void* dx; };
struct AveragePoolArgs {
  DType dtype; std::int64_t planes, h, w, oh, ow, kh, kw, stride_h, stride_w, pad_top, pad_left; bool count_include_pad;
  const void* x; void* y;
};
struct AveragePoolGradArgs {
  DType dtype; std::int64_t planes, h, w, oh, ow, kh, kw, stride_h, stride_w, pad_top, pad_left; bool count_include_pad;
  const void* dy; void* dx;
};

// Multi-tensor optimizers: one kernel updates `count` tensors of sizes[i] elements, in place (the *_out pointer equals
// the input or not; both work). lr: f64 scalar, step: i64 scalar (1 at the first update), grad_scale: scalar of dtype or null.
// PyTorch semantics (torch.optim.SGD/Adam/AdamW 1.13); LAMB: You et al. 2019, algorithm 2, with bias correction.
enum class OptimizerKind : std::uint8_t { sgd, adam, adamw, lamb };
struct OptimizerArgs {
  DType dtype; OptimizerKind kind; std::int64_t count; const std::int64_t* sizes;
  double beta1, beta2, epsilon, weight_decay;     // Adam family
  double momentum, dampening; bool nesterov, maximize;  // SGD
  const double* lr; const std::int64_t* step; const void* grad_scale;
  const void* const* grad; const void* const* param; const void* const* state1; const void* const* state2;  // m / momentum, v
  void* const* param_out; void* const* state1_out; void* const* state2_out;
  void* workspace;                                 // LAMB: update vectors' norms
};
// out (scalar of dtype) = sqrt(sum over tensors of sum of squares), f64 accumulation in fixed order.
struct GlobalNormArgs { DType dtype; std::int64_t count; const std::int64_t* sizes; const void* const* tensors; void* out; void* workspace; };

enum class Activation : std::uint8_t { none, relu, gelu_erf, gelu_tanh };
// C[b] = activation(alpha * A[b] B[b] + bias (+ C when accumulate)). Strides in elements; a batch stride of 0 broadcasts. On the CPU
// f64 and relu only: the other products are in prepared/.
struct GemmArgs {
  DType dtype; int batch_rank; std::int64_t batch_dims[kEwMaxRank], a_batch[kEwMaxRank], b_batch[kEwMaxRank], c_batch[kEwMaxRank];
  std::int64_t m, n, k, a_row, a_col, b_row, b_col, c_row, c_col;
  double alpha; Activation activation; bool accumulate;
  const void *a, *b, *bias; void* c;               // bias: [n] or null
  void* workspace; std::size_t workspace_bytes;    // GPU libraries only; may be null and 0
};

// 2-d convolution. x: [n, c, h, w], w: [k, c / groups, r, s], bias: [k] or null, y: [n, k, oh, ow]. (ONNX Conv)
struct ConvolutionDesc {
  DType dtype = DType::f32;
  std::int64_t n, c, h, w, k, r, s, oh, ow;
  std::int64_t stride_h = 1, stride_w = 1, pad_top = 0, pad_left = 0, pad_bottom = 0, pad_right = 0;
  std::int64_t dilation_h = 1, dilation_w = 1, groups = 1;
  bool bias = false;
};
enum class ConvolutionKind : std::uint8_t { forward, backward_data, backward_weights };
// forward: a = x, b = w, bias, out = y.  backward_data: a = dy, b = w, out = dx.  backward_weights: a = dy, b = x, out = dw.
// GPU only: the CPU's convolutions are in prepared/.
struct ConvolutionArgs { ConvolutionDesc shape; ConvolutionKind kind; const void *a, *b, *bias; void* out; void* workspace; };

// Bytes of workspace that a kernel needs on a device of this kind: from the arguments without their pointers.
enum class Target : std::uint8_t { cpu, gpu };
std::size_t workspace_bytes(Target target, const ReduceArgs& args);
std::size_t workspace_bytes(Target target, const LayerNormGradArgs& args);
std::size_t workspace_bytes(Target target, const BatchNormArgs& args);
std::size_t workspace_bytes(Target target, const BatchNormGradArgs& args);
std::size_t workspace_bytes(Target target, const GatherGradArgs& args);
std::size_t workspace_bytes(Target target, const SoftmaxCrossEntropyArgs& args);
std::size_t workspace_bytes(Target target, const OptimizerArgs& args);
std::size_t workspace_bytes(Target target, const GlobalNormArgs& args);
std::size_t workspace_bytes(Target target, const ConvolutionArgs& args);   // gpu
std::size_t workspace_bytes(Target target, const GemmArgs& args);          // gpu

}  // namespace gradloom::kernels
