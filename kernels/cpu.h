// CPU kernels: pointers and shapes in, numbers out. Every kernel takes one plain struct of arguments.
// No allocation, no failure, no logging. Parallel with OpenMP above a size threshold; work is cut into parts that do
// not depend on the number of threads, so that the same bits come out for any thread count.
//
// Conventions: all tensors dense row-major. `dtype` is f32 or f64 for floating point work (accumulation in at least
// the same width; f32 reductions accumulate in f32 lanes over fixed blocks, partial sums in f64). Letters:
// rows x cols for anything normalized or reduced over its last axes; outer x n x inner when the axis is inside.
#pragma once

#include "kernels/elementwise.h"
#include "kernels/types.h"

namespace gradloom::kernels {

// out = program(inputs). `seed`, `step` feed Philox4x32-10: counter = (element_index / 4, step), key = seed ^ node key.
struct ElementwiseArgs {
  const EwProgram* program;
  const void* const* inputs;
  void* const* outputs;
  std::uint64_t seed, step;
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

enum class Reduction : std::uint8_t { sum, mean, max, min, prod, l1, l2, sum_square, log_sum_exp };
// in: [outer, n, inner] -> out: [outer, inner]. dtype f32, f64, i32, i64. Fixed summation order.
struct ReduceArgs { DType dtype; Reduction op; std::int64_t outer, n, inner; const void* in; void* out; void* workspace; };
std::size_t reduce_workspace_bytes(const ReduceArgs& args);

// y = softmax or log-softmax over n. in, out: [outer, n, inner].  (ONNX-13 Softmax)
struct SoftmaxArgs { DType dtype; bool log; std::int64_t outer, n, inner; const void* x; void* y; };
// softmax: dx = y * (dy - sum(dy * y));  log: dx = dy - exp(y) * sum(dy)
struct SoftmaxGradArgs { DType dtype; bool log; std::int64_t outer, n, inner; const void *dy, *y; void* dx; };

// x, y: [rows, cols]; scale, bias: [cols] (bias may be null); mean, inv_std: [rows], dtype of x.  (ONNX-17)
struct LayerNormArgs { DType dtype; std::int64_t rows, cols; double epsilon; const void *x, *scale, *bias; void *y, *mean, *inv_std; };
// dx: [rows, cols]; dscale, dbias: [cols] (each may be null). One pass over dy and x.
struct LayerNormGradArgs { DType dtype; std::int64_t rows, cols; const void *dy, *x, *scale, *mean, *inv_std; void *dx, *dscale, *dbias; void* workspace; };
std::size_t layer_norm_grad_workspace_bytes(const LayerNormGradArgs& args);

// Training BatchNorm, x, y: [n, c, spatial]; scale, bias, running_*: [c]. Batch variance is biased for normalization; the running
// variance takes the biased one too (ONNX-14/15): running = running * momentum + batch * (1 - momentum).
// With training = false: y from running statistics; the *_out and saved_* pointers may be null.
struct BatchNormArgs {
  DType dtype; bool training; std::int64_t n, c, spatial; double epsilon, momentum;
  const void *x, *scale, *bias, *running_mean, *running_var;
  void *y, *running_mean_out, *running_var_out, *saved_mean, *saved_inv_std;  // saved_*: [c]
};
struct BatchNormGradArgs {
  DType dtype; bool training; std::int64_t n, c, spatial;
  const void *dy, *x, *scale, *saved_mean, *saved_inv_std; void *dx, *dscale, *dbias;
};

// data: [outer, axis_size, inner], indices: [count] (i32 or i64, negative counts from the end) -> out: [outer, count, inner].
// Out-of-range indices are clamped by the caller's validation; the kernel writes zeros for them.
struct GatherArgs { std::size_t element_bytes; DType index_dtype; std::int64_t outer, axis_size, inner, count; const void *data, *indices; void* out; };
// ddata[o, indices[k], :] += dy[o, k, :]; ddata is overwritten. Deterministic: additions in order of k per destination row.
struct GatherGradArgs { DType dtype, index_dtype; std::int64_t outer, axis_size, inner, count; const void *dy, *indices; void* ddata; void* workspace; };
std::size_t gather_grad_workspace_bytes(const GatherGradArgs& args);

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
std::size_t softmax_cross_entropy_workspace_bytes(const SoftmaxCrossEntropyArgs& args);
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
std::size_t optimizer_workspace_bytes(const OptimizerArgs& args);
// out (scalar of dtype) = sqrt(sum over tensors of sum of squares), f64 accumulation in fixed order.
struct GlobalNormArgs { DType dtype; std::int64_t count; const std::int64_t* sizes; const void* const* tensors; void* out; void* workspace; };
std::size_t global_norm_workspace_bytes(const GlobalNormArgs& args);

// Every kernel above, one row each: name, argument struct. dispatch.cpp builds the table per x86-64 level from this list.
#define GRADLOOM_CPU_KERNELS(K)                                                                             \
  K(elementwise, ElementwiseArgs) K(strided_copy, StridedCopyArgs) K(fill, FillArgs) K(reduce, ReduceArgs)    \
  K(softmax, SoftmaxArgs) K(softmax_grad, SoftmaxGradArgs)                                                  \
  K(layer_norm, LayerNormArgs) K(layer_norm_grad, LayerNormGradArgs)                                        \
  K(batch_norm, BatchNormArgs) K(batch_norm_grad, BatchNormGradArgs)                                        \
  K(gather, GatherArgs) K(gather_grad, GatherGradArgs)                                                      \
  K(nll_loss, NllLossArgs) K(nll_loss_grad, NllLossGradArgs)                                                \
  K(softmax_cross_entropy, SoftmaxCrossEntropyArgs) K(softmax_cross_entropy_grad, SoftmaxCrossEntropyGradArgs) \
  K(max_pool, MaxPoolArgs) K(max_pool_grad, MaxPoolGradArgs)                                                \
  K(average_pool, AveragePoolArgs) K(average_pool_grad, AveragePoolGradArgs)                                \
  K(optimizer, OptimizerArgs) K(global_norm, GlobalNormArgs) K(gemm_f64, GemmF64Args)

// C[b] = alpha * A[b] B[b] + bias for doubles (oneDNN has none). Strides in elements; a batch stride of 0 broadcasts.
struct GemmF64Args {
  int batch_rank; std::int64_t batch_dims[kEwMaxRank], a_batch[kEwMaxRank], b_batch[kEwMaxRank], c_batch[kEwMaxRank];
  std::int64_t m, n, k, a_row, a_col, b_row, b_col, c_row, c_col;
  double alpha; bool relu; const double *a, *b, *bias; double* c;  // bias: [n] or null
  bool accumulate = false;                                         // C += ... (before relu)
};

struct CpuKernels {
  const char* isa;
#define GRADLOOM_MEMBER(name, Args) void (*name)(const Args&);
  GRADLOOM_CPU_KERNELS(GRADLOOM_MEMBER)
#undef GRADLOOM_MEMBER
};

// The kernels of the best x86-64 level that this machine supports (GRADLOOM_ISA=v2|v3|v4 in the environment lowers it).
const CpuKernels& cpu();

// Every compiled level that this machine supports, lowest first; returns how many (for tests and benchmarks).
int cpu_levels(const CpuKernels** levels, int capacity);

// Threads that kernels use; set once per run.
void set_threads(int threads);
int threads();

}  // namespace gradloom::kernels
