// The arguments of the kernels, one plain struct each, the same for every device: on the CPU the pointers are
// host memory, on a GPU memory of that device (but lists of pointers and sizes, shapes and programs are
// always host memory). Kernels take no memory, cannot fail on valid arguments and log nothing.
//
// Conventions: all tensors dense row-major. `dtype` is f32 or f64 (on a GPU also f16 or bf16: half types) for
// floating point work, accumulated in at least f32 in an order that depends on the shape alone. Letters: rows
// x cols for anything normalized or reduced over its last axes; outer x n x inner when the axis is inside.
#pragma once

#include "kernels/elementwise.h"
#include "kernels/types.h"

namespace gradloom::kernels {

// What random kernels read of a step, in the memory of the device (new contents for every replay of a step).
struct RandomState {
  std::uint64_t seed = 0, step = 0;
};

// out = program(inputs). Philox4x32-10: counter = (element_index / 4, step), key = seed ^ node key. random:
// null when the program draws none.
struct ElementwiseArgs {
  const EwProgram* program;
  const void* const* inputs;
  void* const* outputs;
  const RandomState* random;
};

// y = u >= ratio ? x * (1 / (1 - ratio)) : 0, x, y: [batch, rows, columns] dense, a part of a larger tensor:
// the random number u of element (b, r, c) is that of number first + b * batch_step + r * row_step + c there
// (kernels/philox.h). May be in place.
struct DropoutArgs {
  DType dtype;
  std::int64_t batch, rows, columns, first, batch_step, row_step;
  double ratio;
  std::uint64_t key;
  const void* x;
  void* y;
  const RandomState* random;
};

// out[i0..] = in[permuted/strided index]: transpose, slice, expand, split, concat pieces, pad interior.
// dims: iteration space; strides in elements; negative in_strides allowed (Slice with negative step).
struct StridedCopyArgs {
  std::size_t element_bytes;
  int rank;
  std::int64_t dims[kEwMaxRank], in_strides[kEwMaxRank], out_strides[kEwMaxRank];
  const void* in;  // already advanced to the first element
  void* out;
};

struct FillArgs {
  std::size_t element_bytes;
  std::int64_t count;
  const void* value;
  void* out;
};

// out = data, host memory read when the kernel is queued. GPU only, for small tensors known when planning: at
// most kStoreMaxBytes.
constexpr std::int64_t kStoreMaxBytes = 1 << 16;
struct StoreArgs {
  std::int64_t bytes;
  const void* data;
  void* out;
};

enum class Reduction : std::uint8_t { sum, mean, max, min, prod, l1, l2, sum_square, log_sum_exp };
// in: [outer, n, inner] -> out: [outer, inner]. dtype f32, f64, i32, i64. Fixed summation order.
struct ReduceArgs {
  DType dtype;
  Reduction op;
  std::int64_t outer, n, inner;
  const void* in;
  void* out;
  void* workspace;
};

// y = softmax or log-softmax over n. in, out: [outer, n, inner].  (ONNX-13 Softmax)
struct SoftmaxArgs {
  DType dtype;
  bool log;
  std::int64_t outer, n, inner;
  const void* x;
  void* y;
};
// softmax: dx = y * (dy - sum(dy * y));  log: dx = dy - exp(y) * sum(dy)
struct SoftmaxGradArgs {
  DType dtype;
  bool log;
  std::int64_t outer, n, inner;
  const void *dy, *y;
  void* dx;
};

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

// Training BatchNorm, x, y: [n, c, spatial]; scale, bias, running_*: [c]. Batch variance is biased for
// normalization; the running variance takes the biased one too (ONNX-14/15): running = running * momentum +
// batch * (1 - momentum). With training = false: y from running statistics; the *_out and saved_* pointers
// may be null. Channels in blocks: x, y: [n, c / block, spatial, block].
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
};
struct BatchNormGradArgs {
  DType dtype;
  bool training;
  std::int64_t n, c, spatial;
  const void *dy, *x, *scale, *saved_mean, *saved_inv_std;
  void *dx, *dscale, *dbias;
  void* workspace = nullptr;
  DType parameters = dtype;
  std::int64_t block = 1;
};

// data: [outer, axis_size, inner], indices: [count] (i32 or i64, negative counts from the end) -> out:
// [outer, count, inner]. For indices out of range the kernel writes zeros.
struct GatherArgs {
  std::size_t element_bytes;
  DType index_dtype;
  std::int64_t outer, axis_size, inner, count;
  const void *data, *indices;
  void* out;
};
// ddata[o, indices[k], :] += dy[o, k, :]; ddata is overwritten. Deterministic: additions in order of k per
// destination row.
struct GatherGradArgs {
  DType dtype, index_dtype;
  std::int64_t outer, axis_size, inner, count;
  const void *dy, *indices;
  void* ddata;
  void* workspace;
};

// Places of a tensor that indices choose. Items are numbered row-major over dims and lie in [outer, n, inner]
// so that items of different outer or inner never share a place. Item i begins at sum_d i_d base[d]; each of
// its `depth` indices, neighbours in the index tensor, moves it by steps[j]. sizes[j]: positions along j;
// negative indices count from the end, an item with one out of range has no place. At a place lie `block`
// elements, and places are multiples of `block` apart. (ONNX GatherElements, GatherND, ScatterElements,
// ScatterND)
struct IndexWalk {
  DType index_dtype;
  int rank, depth;
  std::int64_t outer, n, inner, block;
  std::int64_t dims[kEwMaxRank], base[kEwMaxRank], sizes[kEwMaxRank], steps[kEwMaxRank];
};
// out[i, :] = data[place(i), :], zeros for items without a place.
struct IndexGatherArgs {
  std::size_t element_bytes;
  IndexWalk walk;
  const void *data, *indices;
  void* out;
};
// out[place(i), :] = updates[i, :] or reduced with it, in order of i; `out` holds the data before, `places`
// blocks of it. none: any dtype; reductions: f32, f64 (on a GPU half types), i32, i64. Floats are accumulated
// in their own type, half types in f32.
enum class ScatterReduction : std::uint8_t { none, add, mul, max, min };
struct IndexScatterArgs {
  DType dtype;
  ScatterReduction reduction;
  IndexWalk walk;
  std::int64_t places;
  const void *indices, *updates;
  void *out, *workspace;
};
// out[o, d, i] = values[indices[o, i] == d ? 1 : 0]; negative indices count from depth. values: [off, on].
// Any index type. (ONNX-11 OneHot)
struct OneHotArgs {
  std::size_t element_bytes;
  DType index_dtype;
  std::int64_t outer, depth, inner;
  const void *indices, *values;
  void* out;
};
// The first lengths[b] positions in time turned around, the rest copied. x, y: [batch, time, inner], or
// [time, batch, inner] with time_first.
struct ReverseSequenceArgs {
  std::size_t element_bytes;
  bool time_first;
  std::int64_t batch, time, inner;
  const void* x;
  const std::int64_t* lengths;
  void* y;
};
// Upper (column - row >= k) or lower (column - row <= k) triangles, zeros elsewhere. k: one number; null: 0.
struct TriluArgs {
  std::size_t element_bytes;
  bool upper;
  std::int64_t matrices, rows, cols;
  const void* x;
  const std::int64_t* k;
  void* y;
};

// Matrices one after the other (kernels/determinant.h). y: [matrices].
struct DeterminantArgs {
  DType dtype;
  std::int64_t matrices, n;  // n x n each
  const void* x;
  void *y, *workspace;
};
// dx = dy times the cofactors of x. dy: [matrices].
struct DeterminantGradArgs {
  DType dtype;
  std::int64_t matrices, n;
  const void *dy, *x;
  void *dx, *workspace;
};
// Running sums over n, of floats in f64. x, y: [outer, n, inner] of f32, f64 (on a GPU half types), i32, i64.
struct CumSumArgs {
  DType dtype;
  bool exclusive, reverse;
  std::int64_t outer, n, inner;
  const void* x;
  void* y;
};
// Index of the largest or smallest of n elements, the first or the last of equal ones; NaN wins. Any number
// type. y: [outer, inner].
struct ArgExtremeArgs {
  DType dtype;
  bool largest, last;
  std::int64_t outer, n, inner;
  const void* x;
  std::int64_t* y;
};
// The k largest or smallest of n elements in order, equal ones by index; NaN is the largest number. values,
// indices: [outer, k, inner].
struct TopKArgs {
  DType dtype;
  bool largest;
  std::int64_t outer, n, inner, k;
  const void* x;
  void* values;
  std::int64_t* indices;
  void* workspace;
};
// y[o, j, i] = sum over e in [begin[j], begin[j + 1]) of weight[e] * x[o, index[e], i], in order of e. x:
// [outer, in, inner], y: [outer, out, inner]. A sparse matrix times an axis: interpolation, padding, and the
// gradients of both.
struct ResampleArgs {
  DType dtype;
  std::int64_t outer, in, out, inner;
  const std::int32_t *begin, *index;
  const double* weight;
  const void* x;
  void* y;
};
// Two neighbouring axes at once, x: [outer, rows.in, cols.in, inner], y: [outer, rows.out, cols.out, inner];
// inner at most 64. The CPU's: for GPUs it is one resample after the other.
struct ResampleTable {
  std::int64_t in, out;
  const std::int32_t *begin, *index;
  const double* weight;
};
struct ResamplePlanesArgs {
  DType dtype;
  std::int64_t outer, inner;
  ResampleTable rows, cols;
  const void* x;
  void* y;
};
// x: [n, c, in], grid: [n, out, rank] with the last spatial dim first, in [-1, 1]; y: [n, c, out]. Sizes
// begin at kGridRank - rank. Source: ONNX GridSample-20 and its reference implementation.
enum class GridMode : std::uint8_t { linear, nearest, cubic };
enum class GridPadding : std::uint8_t { zeros, border, reflection };
constexpr int kGridRank = 3;
constexpr std::int64_t kMostGridPixels = std::int64_t{1} << 30;  // of an image
struct GridSampleArgs {
  DType dtype;
  GridMode mode;
  GridPadding padding;
  bool align_corners;
  int rank;
  std::int64_t n, c, in[kGridRank], out[kGridRank];  // unused leading sizes are 1
  const void *x, *grid;
  void *y, *workspace;  // workspace: the CPU's
};
// shape: of the forward, its pointers x and grid set. dx, dgrid: each may be null.
struct GridSampleGradArgs {
  GridSampleArgs shape;
  const void* dy;
  void *dx, *dgrid, *workspace;
};

// log_prob: [outer, n, inner], labels: [outer, inner] (i32/i64). loss: scalar (mean or sum) or [outer, inner]
// (none). weight: [n] or null. Rows whose label is ignore_index (when has_ignore) add nothing; mean divides
// by the summed weight.
enum class LossReduction : std::uint8_t { none, sum, mean };
struct NllLossArgs {
  DType dtype, label_dtype;
  LossReduction reduction;
  std::int64_t outer, n, inner;
  bool has_ignore;
  std::int64_t ignore_index;
  const void *log_prob, *labels, *weight;
  void* loss;
  void* total_weight;  // total_weight: scalar, f32 where dtype is half, for the gradient
  void* workspace = nullptr;
};
struct NllLossGradArgs {
  DType dtype, label_dtype;
  LossReduction reduction;
  std::int64_t outer, n, inner;
  bool has_ignore;
  std::int64_t ignore_index;
  const void *dloss, *labels, *weight, *total_weight;
  void* dlog_prob;
};
// Softmax and cross-entropy in one pass: loss as above, log_sum_exp: [outer, inner] kept for the gradient,
// f32 where dtype is half. losses: the type of loss, its gradient and weight: dtype, or f32 where that is
// half.
struct SoftmaxCrossEntropyArgs {
  DType dtype, label_dtype;
  LossReduction reduction;
  std::int64_t outer, n, inner;
  bool has_ignore;
  std::int64_t ignore_index;
  const void *logits, *labels, *weight;
  void *loss, *log_sum_exp, *total_weight;
  void* workspace;
  DType losses = dtype;
};
// dlogits = (softmax - onehot) * weight[label] * dloss / total_weight, from logits and log_sum_exp; dlogits
// may be logits.
struct SoftmaxCrossEntropyGradArgs {
  DType dtype, label_dtype;
  LossReduction reduction;
  std::int64_t outer, n, inner;
  bool has_ignore;
  std::int64_t ignore_index;
  const void *dloss, *logits, *labels, *weight, *log_sum_exp, *total_weight;
  void* dlogits;
  DType losses = dtype;
};

// Windows of a pooling over planes of n * c; spatial dims are depth, height, width, missing ones in front
// are 1. Channels in blocks: planes of n * c / block, each of `block` neighbours per position: x: [planes,
// in, block], y: [planes, out, block], and so for positions.
struct PoolShape {
  std::int64_t planes, in[3], out[3], kernel[3], stride[3], pad_begin[3], pad_end[3], dilation[3];
  std::int64_t block = 1;
};
// x: [planes, in], y: [planes, out]. Padding never wins a max. argmax: i64 row-major index into the plane;
// indices: ONNX's, into the whole of x, row-major or (column_major) with the first spatial dim fastest. Each
// may be null.
struct MaxPoolArgs {
  DType dtype;
  PoolShape shape;
  const void* x;
  void* y;
  std::int64_t* argmax;
  bool column_major = false;
  std::int64_t* indices = nullptr;
};
// Depth and height of a 3-d plane count as one dim here: h = depth * height.
struct MaxPoolGradArgs {
  DType dtype;
  std::int64_t planes, h, w, oh, ow;
  const void* dy;
  const std::int64_t* argmax;
  void* dx;
  std::int64_t block = 1;
};
// What the sum over a window is divided by: its taps inside x, those inside x and its pads (the last window
// of ceil_mode may reach beyond), or nothing.
enum class PoolDivisor : std::uint8_t { inside, padded, one };
struct AveragePoolArgs {
  DType dtype;
  PoolShape shape;
  PoolDivisor divisor;
  const void* x;
  void* y;
};
struct AveragePoolGradArgs {
  DType dtype;
  PoolShape shape;
  PoolDivisor divisor;
  const void* dy;
  void* dx;
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

// Multi-tensor optimizers: one kernel updates `count` tensors of sizes[i] elements, in place (the *_out
// pointer equals the input or not; both work). lr: f64 scalar, step: i64 scalar (1 at the first update),
// grad_scale: scalar of dtype or null. PyTorch semantics (torch.optim.SGD/Adam/AdamW 1.13); LAMB: You et al.
// 2019, algorithm 2, with bias correction.
enum class OptimizerKind : std::uint8_t { sgd, adam, adamw, lamb };
struct OptimizerArgs {
  DType dtype;
  OptimizerKind kind;
  std::int64_t count;
  const std::int64_t* sizes;
  double beta1, beta2, epsilon, weight_decay;  // Adam family
  double momentum, dampening;
  bool nesterov, maximize;  // SGD
  const double* lr;
  const std::int64_t* step;
  const void* grad_scale;
  const bool* apply;  // false: nothing changes (on a GPU in place); null: true
  const void* const* grad;
  const void* const* param;
  const void* const* state1;
  const void* const* state2;  // m / momentum, v
  void* const* param_out;
  void* const* state1_out;
  void* const* state2_out;
  void* workspace;  // LAMB: update vectors' norms
};
// out (scalar of dtype) = sqrt(sum over tensors of sum of squares), f64 accumulation in fixed order.
struct GlobalNormArgs {
  DType dtype;
  std::int64_t count;
  const std::int64_t* sizes;
  const void* const* tensors;
  void* out;
  void* workspace;
};

// gelu_tanh_grad: times the slope of gelu_tanh at `aux`.
enum class Activation : std::uint8_t { none, relu, gelu_erf, gelu_tanh, gelu_tanh_grad };
enum class GemmOperand : std::uint8_t { none, a, b };
// C[b] = activation(alpha * A[b] B[b] + bias (+ C when accumulate)). Strides in elements; a batch stride of 0
// broadcasts. On the CPU f64 and relu only, without aux and sums: the other products are in prepared/.
struct GemmArgs {
  DType dtype;
  int batch_rank;
  std::int64_t batch_dims[kEwMaxRank], a_batch[kEwMaxRank], b_batch[kEwMaxRank], c_batch[kEwMaxRank];
  std::int64_t m, n, k, a_row, a_col, b_row, b_col, c_row, c_col;
  double alpha;
  Activation activation;
  bool accumulate;
  const void *a, *b, *bias;
  void* c;  // bias: [n] or null
  void* workspace;
  std::size_t workspace_bytes;  // GPU libraries only; may be null and 0
  // Laid out as C. gelu_tanh: what the activation is applied to is written there (null: it is not);
  // gelu_tanh_grad: read.
  void* aux = nullptr;
  // sums: over k, of A ([m]) or of B ([n]), which is [k, m] or [k, n] dense in memory: the gradient of a bias
  // beside that of its weight. Not with batch dims.
  GemmOperand sums_of = GemmOperand::none;
  void* sums = nullptr;
};

// Convolution. x: [n, c, d, h, w], w: [k, c / groups, t, r, s], bias: [k] or null, y: [n, k, od, oh, ow];
// 2-d: d = t = od = 1. (ONNX Conv)
struct ConvolutionDesc {
  DType dtype = DType::f32;
  std::int64_t n, c, h, w, k, r, s, oh, ow;
  std::int64_t stride_h = 1, stride_w = 1, pad_top = 0, pad_left = 0, pad_bottom = 0, pad_right = 0;
  std::int64_t dilation_h = 1, dilation_w = 1, groups = 1;
  bool bias = false;
  std::int64_t d = 1, t = 1, od = 1, stride_d = 1, pad_front = 0, pad_back = 0, dilation_d = 1;
  std::int64_t x_block = 1, y_block = 1;  // of channels: x: [n, c / x_block, d, h, w, x_block], y likewise
};
enum class ConvolutionKind : std::uint8_t { forward, backward_data, backward_weights };
// forward: a = x, b = w, bias, out = y.  backward_data: a = dy, b = w, out = dx.  backward_weights: a = dy, b
// = x, out = dw. GPU only: the CPU's convolutions are in prepared/.
struct ConvolutionArgs {
  ConvolutionDesc shape;
  ConvolutionKind kind;
  const void *a, *b, *bias;
  void* out;
  void* workspace;
  std::size_t workspace_bytes = 0;  // GPU libraries only; may be 0
};

// One step of a recurrent network, every element (item of the batch, hidden unit) by itself; the products are
// made before it. Gates in ONNX's order: rnn: i; gru: z r h; lstm: i o f c. gru_linear: linear_before_reset.
// (ONNX-22 RNN, GRU, LSTM)
enum class RecurrentKind : std::uint8_t { rnn, gru, gru_linear, lstm };
enum class RecurrentFunction : std::uint8_t {
  sigmoid,
  tanh,
  relu,
  affine,
  leaky_relu,
  thresholded_relu,
  scaled_tanh,
  hard_sigmoid,
  elu,
  softsign,
  softplus
};
struct RecurrentActivation {
  RecurrentFunction function;
  double alpha, beta;
};
struct RecurrentCell {
  DType dtype;
  RecurrentKind kind;
  bool reverse;                        // an item of length n is read from position n - 1 down
  bool coupled;                        // lstm: the forget gate is 1 - the input gate
  double clip;                         // of what activations get; infinite: none
  RecurrentActivation activations[3];  // f, g, h of the formulas
  std::int64_t steps, batch, hidden;
  std::int64_t gates, slots;  // per unit: of the products, and of what is kept for the gradient
  // From one position or item to the next, in elements: of what belongs to the input, and to the output.
  std::int64_t x_time, x_batch, y_time, y_batch;
  // [batch] or null: beyond its length an item keeps its state and its output is 0.
  const std::int32_t* lengths;
};
// part 1: the second half of a gru's step, after the product of slot 3 (r * h) with the recurrent weights of
// the hidden gate.
struct RecurrentStepArgs {
  RecurrentCell cell;
  std::int64_t step;
  int part;
  // x W^T: rows of gates * hidden (x_time, x_batch); h R^T: [batch, gates * hidden].
  const void *input, *product;
  const void *bias, *peepholes;  // [2, gates * hidden], [3, hidden] or null
  const void *h, *c;             // [batch, hidden], before the step
  void* kept;  // [batch, slots * hidden]: inputs of the activations; gru: slot 3 is r * h, or h R^T + bias
  void *h_next, *c_next, *y;  // y may be null
};
// dh, dc: in: of the states after the step; out: of those before it, without what comes through the products.
// gru: part 1 after the product of dkept's hidden gate with its recurrent weights (dreset: [batch, hidden]).
struct RecurrentStepGradArgs {
  RecurrentCell cell;
  std::int64_t step;
  int part;
  const void *dy, *peepholes, *kept, *h, *c, *c_next, *dreset;  // dy (y_time, y_batch) may be null
  void *dh, *dc;
  // Rows of gates * hidden: of `input` (x_time, x_batch), and of `product` [batch, ..].
  void *dinput, *dproduct;
};

// Bytes of workspace that a kernel needs on a device of this kind: from the arguments without their pointers.
enum class Target : std::uint8_t { cpu, gpu };
std::size_t workspace_bytes(Target target, const ReduceArgs& args);
std::size_t workspace_bytes(Target target, const LayerNormGradArgs& args);
std::size_t workspace_bytes(Target target, const GroupNormGradArgs& args);
std::size_t workspace_bytes(Target target, const BatchNormArgs& args);
std::size_t workspace_bytes(Target target, const BatchNormGradArgs& args);
std::size_t workspace_bytes(Target target, const GatherGradArgs& args);
std::size_t workspace_bytes(Target target, const IndexScatterArgs& args);
std::size_t workspace_bytes(Target target, const DeterminantArgs& args);
std::size_t workspace_bytes(Target target, const DeterminantGradArgs& args);
std::size_t workspace_bytes(Target target, const TopKArgs& args);
std::size_t workspace_bytes(Target target, const GridSampleArgs& args);
std::size_t workspace_bytes(Target target, const GridSampleGradArgs& args);
std::size_t workspace_bytes(Target target, const NllLossArgs& args);
std::size_t workspace_bytes(Target target, const SoftmaxCrossEntropyArgs& args);
std::size_t workspace_bytes(Target target, const OptimizerArgs& args);
std::size_t workspace_bytes(Target target, const GlobalNormArgs& args);
std::size_t workspace_bytes(Target target, const ConvolutionArgs& args);  // gpu
std::size_t workspace_bytes(Target target, const GemmArgs& args);         // gpu

}  // namespace gradloom::kernels
