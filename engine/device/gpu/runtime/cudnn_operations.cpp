#include "engine/device/gpu/runtime/cudnn_operations.h"

namespace gradloom::kernels::gpu {
namespace {

using Value = CudnnGraph::Value;

// ---- convolution ------------------------------------------------------------------------------------------------------------------

const CudnnDescriptor& window(const ConvolutionProblem& p, CudnnGraph& graph) {
  const cudnnConvolutionMode_t mode = CUDNN_CROSS_CORRELATION;
  return graph.part(CUDNN_BACKEND_CONVOLUTION_DESCRIPTOR)
      .set(CUDNN_ATTR_CONVOLUTION_COMP_TYPE, CUDNN_DATA_FLOAT)
      .set(CUDNN_ATTR_CONVOLUTION_CONV_MODE, CUDNN_TYPE_CONVOLUTION_MODE, &mode)
      .set(CUDNN_ATTR_CONVOLUTION_SPATIAL_DIMS, std::int64_t(p.stride.size()))
      .set(CUDNN_ATTR_CONVOLUTION_FILTER_STRIDES, p.stride)
      .set(CUDNN_ATTR_CONVOLUTION_PRE_PADDINGS, p.pad_begin)
      .set(CUDNN_ATTR_CONVOLUTION_POST_PADDINGS, p.pad_end)
      .set(CUDNN_ATTR_CONVOLUTION_DILATIONS, p.dilation)
      .finalize();
}

// What the operation of a kind is called, and its attributes.
struct Operation {
  cudnnBackendDescriptorType_t type;
  cudnnBackendAttributeName_t alpha, beta, window, x, w, y;
};
Operation operation_of(ConvolutionKind kind) {
  switch (kind) {
    case ConvolutionKind::backward_data:
      return {CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_DATA_DESCRIPTOR,
              CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_ALPHA,
              CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_BETA,
              CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_CONV_DESC,
              CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_DX,
              CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_W,
              CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_DY};
    case ConvolutionKind::backward_weights:
      return {CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_FILTER_DESCRIPTOR,
              CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_ALPHA,
              CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_BETA,
              CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_CONV_DESC,
              CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_X,
              CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_DW,
              CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_DY};
    default:
      return {CUDNN_BACKEND_OPERATION_CONVOLUTION_FORWARD_DESCRIPTOR,
              CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_ALPHA,
              CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_BETA,
              CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_CONV_DESC,
              CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_X,
              CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_W,
              CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_Y};
  }
}

// ---- pooling ----------------------------------------------------------------------------------------------------------------------

#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wdeprecated-declarations"  // what takes their place needs a later library
constexpr cudnnNanPropagation_t kNanWins = CUDNN_PROPAGATE_NAN;
constexpr cudnnBackendAttributeType_t kNanType = CUDNN_TYPE_NAN_PROPOGATION;
constexpr cudnnBackendAttributeName_t kForwardAlpha = CUDNN_ATTR_OPERATION_RESAMPLE_FWD_ALPHA,
                                      kForwardBeta = CUDNN_ATTR_OPERATION_RESAMPLE_FWD_BETA,
                                      kBackwardAlpha = CUDNN_ATTR_OPERATION_RESAMPLE_BWD_ALPHA,
                                      kBackwardBeta = CUDNN_ATTR_OPERATION_RESAMPLE_BWD_BETA;
#pragma GCC diagnostic pop

std::vector<cudnnFraction_t> fractions(const DnnSizes& sizes) {
  std::vector<cudnnFraction_t> result;
  for (const std::int64_t size : sizes) result.push_back({size, 1});
  return result;
}

const CudnnDescriptor& window(const PoolProblem& p, CudnnGraph& graph) {
  const cudnnResampleMode_t mode = p.mode == PoolMode::max ? CUDNN_RESAMPLE_MAXPOOL
                                   : p.mode == PoolMode::average_padded
                                       ? CUDNN_RESAMPLE_AVGPOOL_INCLUDE_PADDING
                                       : CUDNN_RESAMPLE_AVGPOOL_EXCLUDE_PADDING;
  const cudnnPaddingMode_t padding = p.mode == PoolMode::max ? CUDNN_NEG_INF_PAD : CUDNN_ZERO_PAD;
  const auto kernel = fractions(p.kernel), stride = fractions(p.stride), begin = fractions(p.pad_begin),
             end = fractions(p.pad_end);
  return graph.part(CUDNN_BACKEND_RESAMPLE_DESCRIPTOR)
      .set(CUDNN_ATTR_RESAMPLE_MODE, CUDNN_TYPE_RESAMPLE_MODE, &mode)
      .set(CUDNN_ATTR_RESAMPLE_COMP_TYPE, CUDNN_DATA_FLOAT)
      .set(CUDNN_ATTR_RESAMPLE_NAN_PROPAGATION, kNanType, &kNanWins)
      .set(CUDNN_ATTR_RESAMPLE_PADDING_MODE, CUDNN_TYPE_PADDING_MODE, &padding)
      .set(CUDNN_ATTR_RESAMPLE_SPATIAL_DIMS, std::int64_t(p.kernel.size()))
      .set(CUDNN_ATTR_RESAMPLE_WINDOW_DIMS, CUDNN_TYPE_FRACTION, kernel.data(), kernel.size())
      .set(CUDNN_ATTR_RESAMPLE_STRIDES, CUDNN_TYPE_FRACTION, stride.data(), stride.size())
      .set(CUDNN_ATTR_RESAMPLE_PRE_PADDINGS, CUDNN_TYPE_FRACTION, begin.data(), begin.size())
      .set(CUDNN_ATTR_RESAMPLE_POST_PADDINGS, CUDNN_TYPE_FRACTION, end.data(), end.size())
      .finalize();
}

// ---- attention --------------------------------------------------------------------------------------------------------------------

template <class T>
void swap_last(T& dims) {
  std::swap(dims[dims.size() - 2], dims[dims.size() - 1]);
}
// The last two dims the other way round, in the same memory.
DnnTensor transposed(DnnTensor t) {
  swap_last(t.dims);
  swap_last(t.strides);
  return t;
}

// scale q k^T and what is done to it before the softmax's maximum, or behind it `shift` (per row) subtracted.
// The library knows attention by the order of these operations, which is that of NVIDIA's cudnn-frontend.
Value scores(const AttentionProblem& p, CudnnGraph& graph, const Value& q, const Value& k_transposed,
             const Value& scale, const Value* shift) {
  const Value product = graph.between({p.q.dims[0], p.q.dims[1], p.q.dims[2], p.k.dims[2]});
  graph.matmul(q, k_transposed, product);
  Value s = graph.pointwise(CUDNN_POINTWISE_MUL, product, scale);
  if (p.mask) s = graph.pointwise(CUDNN_POINTWISE_ADD, s, graph.tensor(*p.mask));
  if (shift != nullptr) s = graph.pointwise(CUDNN_POINTWISE_SUB, s, *shift);
  return p.causal ? graph.hide_future(s) : s;
}

// The library has no engine without log_sum_exp.
void add_forward(const AttentionProblem& p, CudnnGraph& graph) {
  const Value q = graph.tensor(p.q), k = graph.tensor(transposed(p.k)), v = graph.tensor(p.v),
              y = graph.tensor(p.y), log_sum_exp = graph.tensor(p.log_sum_exp);
  const Value s = scores(p, graph, q, k, graph.scalar(p.scale, 4), nullptr);
  const Value largest = graph.reduce_last(CUDNN_REDUCE_TENSOR_MAX, s);
  const Value shares = graph.pointwise(CUDNN_POINTWISE_EXP, graph.pointwise(CUDNN_POINTWISE_SUB, s, largest));
  const Value sum = graph.reduce_last(CUDNN_REDUCE_TENSOR_ADD, shares);
  const Value log_sum = graph.pointwise(CUDNN_POINTWISE_LOG, sum);
  graph.pointwise(CUDNN_POINTWISE_ADD, largest, &log_sum, log_sum_exp);
  const Value probabilities = graph.between(s.dims, CudnnGraph::cudnn_type(p.q.dtype));
  graph.pointwise(CUDNN_POINTWISE_DIV, shares, &sum, probabilities);
  graph.matmul(probabilities, v, y);
}

// The form whose sums have a fixed order: dq is a product's result and not added up in memory, for which the
// library keeps the gradient of the scores in its workspace.
void add_backward(const AttentionProblem& p, CudnnGraph& graph) {
  const cudnnDataType_t type = CudnnGraph::cudnn_type(p.q.dtype);
  const Value q = graph.tensor(p.q), k = graph.tensor(transposed(p.k)), v = graph.tensor(transposed(p.v)),
              y = graph.tensor(p.y), dy = graph.tensor(p.dy), log_sum_exp = graph.tensor(p.log_sum_exp),
              row_sums = graph.tensor(p.row_sums), dq = graph.tensor(p.dq), dk = graph.tensor(p.dk),
              dv = graph.tensor(p.dv), scale = graph.scalar(p.scale, 4), one = graph.scalar(1, 4);
  // The scores, rows and columns exchanged, in the type of the operands.
  const auto flipped = [&](const Value& s) {
    Value t = graph.between(transposed(dense_tensor(graph.new_id(), p.q.dtype, s.dims)), type);
    graph.reshape(s, t);
    return t;
  };
  const Value products = graph.pointwise(CUDNN_POINTWISE_MUL, dy, y);
  graph.pointwise(CUDNN_POINTWISE_MUL, graph.reduce_last(CUDNN_REDUCE_TENSOR_ADD, products), &one, row_sums);
  const Value probabilities =
      graph.pointwise(CUDNN_POINTWISE_EXP, scores(p, graph, q, k, scale, &log_sum_exp));
  graph.matmul(flipped(probabilities), dy, dv);
  const Value share_grads = graph.between(probabilities.dims);
  graph.matmul(dy, v, share_grads);
  const Value centered = graph.pointwise(CUDNN_POINTWISE_SUB, share_grads, row_sums);
  const Value score_grads = graph.pointwise(
      CUDNN_POINTWISE_MUL, graph.pointwise(CUDNN_POINTWISE_MUL, centered, probabilities), scale);
  graph.matmul(flipped(score_grads), q, dk);
  DnnTensor keys = p.k;
  keys.id = graph.new_id();
  const Value k_again = graph.between(keys, type);
  graph.reshape(k, k_again);
  graph.matmul(score_grads, k_again, dq);
}

}  // namespace

void add_operations(const ConvolutionProblem& p, CudnnGraph& graph) {
  const Operation o = operation_of(p.kind);
  const float alpha = 1, beta = 0;
  const CudnnDescriptor &x = *graph.tensor(p.x).tensor, &w = *graph.tensor(p.w).tensor,
                        &y = *graph.tensor(p.y).tensor, &shape = window(p, graph);
  graph.operation(o.type)
      .set(o.alpha, CUDNN_TYPE_FLOAT, &alpha)
      .set(o.beta, CUDNN_TYPE_FLOAT, &beta)
      .set(o.window, shape)
      .set(o.x, x)
      .set(o.w, w)
      .set(o.y, y)
      .finalize();
}

void add_operations(const PoolProblem& p, CudnnGraph& graph) {
  const CudnnDescriptor &x = *graph.tensor(p.x).tensor, &y = *graph.tensor(p.y).tensor,
                        &shape = window(p, graph);
  const double alpha = 1, beta = 0;
  if (p.backward)
    graph.operation(CUDNN_BACKEND_OPERATION_RESAMPLE_BWD_DESCRIPTOR)
        .set(kBackwardAlpha, CUDNN_TYPE_DOUBLE, &alpha)
        .set(kBackwardBeta, CUDNN_TYPE_DOUBLE, &beta)
        .set(CUDNN_ATTR_OPERATION_RESAMPLE_BWD_DESC, shape)
        .set(CUDNN_ATTR_OPERATION_RESAMPLE_BWD_DXDESC, x)
        .set(CUDNN_ATTR_OPERATION_RESAMPLE_BWD_DYDESC, y)
        .finalize();
  else
    graph.operation(CUDNN_BACKEND_OPERATION_RESAMPLE_FWD_DESCRIPTOR)
        .set(kForwardAlpha, CUDNN_TYPE_DOUBLE, &alpha)
        .set(kForwardBeta, CUDNN_TYPE_DOUBLE, &beta)
        .set(CUDNN_ATTR_OPERATION_RESAMPLE_FWD_DESC, shape)
        .set(CUDNN_ATTR_OPERATION_RESAMPLE_FWD_XDESC, x)
        .set(CUDNN_ATTR_OPERATION_RESAMPLE_FWD_YDESC, y)
        .finalize();
}

void add_operations(const BatchNormProblem& p, CudnnGraph& graph) {
  const cudnnBackendNormMode_t mode = CUDNN_BATCH_NORM;
  const cudnnBackendNormFwdPhase_t phase = CUDNN_NORM_FWD_TRAINING;
  const auto at = [&](const DnnTensor& t) -> const CudnnDescriptor& { return *graph.tensor(t).tensor; };
  const CudnnDescriptor &x = at(p.x), &y = at(p.y), &scale = at(p.scale), &bias = at(p.bias),
                        &mean = at(p.mean), &inv_std = at(p.inv_std);
  if (p.backward) {
    const CudnnDescriptor &dx = at(p.dx), &dscale = at(p.dscale);
    graph.operation(CUDNN_BACKEND_OPERATION_NORM_BACKWARD_DESCRIPTOR)
        .set(CUDNN_ATTR_OPERATION_NORM_BWD_MODE, CUDNN_TYPE_NORM_MODE, &mode)
        .set(CUDNN_ATTR_OPERATION_NORM_BWD_XDESC, x)
        .set(CUDNN_ATTR_OPERATION_NORM_BWD_DYDESC, y)
        .set(CUDNN_ATTR_OPERATION_NORM_BWD_SCALE_DESC, scale)
        .set(CUDNN_ATTR_OPERATION_NORM_BWD_MEAN_DESC, mean)
        .set(CUDNN_ATTR_OPERATION_NORM_BWD_INV_VARIANCE_DESC, inv_std)
        .set(CUDNN_ATTR_OPERATION_NORM_BWD_DXDESC, dx)
        .set(CUDNN_ATTR_OPERATION_NORM_BWD_DSCALE_DESC, dscale)
        .set(CUDNN_ATTR_OPERATION_NORM_BWD_DBIAS_DESC, bias)
        .finalize();
    return;
  }
  const CudnnDescriptor& epsilon = *graph.scalar(p.epsilon, p.x.dims.size()).tensor;
  graph.operation(CUDNN_BACKEND_OPERATION_NORM_FORWARD_DESCRIPTOR)
      .set(CUDNN_ATTR_OPERATION_NORM_FWD_MODE, CUDNN_TYPE_NORM_MODE, &mode)
      .set(CUDNN_ATTR_OPERATION_NORM_FWD_PHASE, CUDNN_TYPE_NORM_FWD_PHASE, &phase)
      .set(CUDNN_ATTR_OPERATION_NORM_FWD_XDESC, x)
      .set(CUDNN_ATTR_OPERATION_NORM_FWD_SCALE_DESC, scale)
      .set(CUDNN_ATTR_OPERATION_NORM_FWD_BIAS_DESC, bias)
      .set(CUDNN_ATTR_OPERATION_NORM_FWD_EPSILON_DESC, epsilon)
      .set(CUDNN_ATTR_OPERATION_NORM_FWD_MEAN_DESC, mean)
      .set(CUDNN_ATTR_OPERATION_NORM_FWD_INV_VARIANCE_DESC, inv_std)
      .set(CUDNN_ATTR_OPERATION_NORM_FWD_YDESC, y)
      .finalize();
}

void add_operations(const AttentionProblem& p, CudnnGraph& graph) {
  if (p.backward)
    add_backward(p, graph);
  else
    add_forward(p, graph);
}

}  // namespace gradloom::kernels::gpu
