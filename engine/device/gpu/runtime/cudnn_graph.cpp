#include "engine/device/gpu/runtime/cudnn_graph.h"

#include <limits>

namespace gradloom::kernels::gpu {

CudnnGraph::Value CudnnGraph::add_tensor(const DnnTensor& t, cudnnDataType_t type, bool is_virtual,
                                         bool by_value) {
  CudnnDescriptor& d = part(CUDNN_BACKEND_TENSOR_DESCRIPTOR);
  d.set(CUDNN_ATTR_TENSOR_DATA_TYPE, type)
      .set(CUDNN_ATTR_TENSOR_DIMENSIONS, t.dims)
      .set(CUDNN_ATTR_TENSOR_STRIDES, t.strides)
      .set(CUDNN_ATTR_TENSOR_UNIQUE_ID, t.id)
      .set(CUDNN_ATTR_TENSOR_BYTE_ALIGNMENT, std::int64_t{kDnnAlignment});
  if (is_virtual) d.set(CUDNN_ATTR_TENSOR_IS_VIRTUAL, CUDNN_TYPE_BOOLEAN, &is_virtual);
  if (by_value) d.set(CUDNN_ATTR_TENSOR_IS_BY_VALUE, CUDNN_TYPE_BOOLEAN, &by_value);
  d.finalize();
  return {&d, t.dims};
}

CudnnGraph::Value CudnnGraph::tensor(const DnnTensor& t) {
  tensors_.push_back(t.id);
  return add_tensor(t, cudnn_type(t.dtype), false, false);
}

CudnnGraph::Value CudnnGraph::scalar(double value, std::size_t rank) {
  scalars_.emplace_back(new_id(), float(value));
  return add_tensor(dense_tensor(scalars_.back().first, DType::f32, DnnSizes(rank, 1)), CUDNN_DATA_FLOAT,
                    false, true);
}

void CudnnGraph::pointwise(cudnnPointwiseMode_t mode, const Value& x, const Value* b, const Value& y,
                           const Value* select) {
  CudnnDescriptor& how = part(CUDNN_BACKEND_POINTWISE_DESCRIPTOR);
  const cudnnDataType_t type = mode == CUDNN_POINTWISE_CMP_GE ? CUDNN_DATA_BOOLEAN : CUDNN_DATA_FLOAT;
  how.set(CUDNN_ATTR_POINTWISE_MODE, CUDNN_TYPE_POINTWISE_MODE, &mode)
      .set(CUDNN_ATTR_POINTWISE_MATH_PREC, type)
      .finalize();
  CudnnDescriptor& o = operation(CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR);
  o.set(CUDNN_ATTR_OPERATION_POINTWISE_PW_DESCRIPTOR, how)
      .set(CUDNN_ATTR_OPERATION_POINTWISE_XDESC, *x.tensor)
      .set(CUDNN_ATTR_OPERATION_POINTWISE_YDESC, *y.tensor);
  if (b != nullptr) o.set(CUDNN_ATTR_OPERATION_POINTWISE_BDESC, *b->tensor);
  if (select != nullptr) o.set(CUDNN_ATTR_OPERATION_POINTWISE_TDESC, *select->tensor);
  o.finalize();
}

CudnnGraph::Value CudnnGraph::pointwise(cudnnPointwiseMode_t mode, const Value& x, const Value& b) {
  Value y = between(x.dims);
  pointwise(mode, x, &b, y);
  return y;
}

CudnnGraph::Value CudnnGraph::pointwise(cudnnPointwiseMode_t mode, const Value& x) {
  Value y = between(x.dims);
  pointwise(mode, x, nullptr, y);
  return y;
}

CudnnGraph::Value CudnnGraph::generated_index(const Value& like, std::int64_t axis) {
  const cudnnPointwiseMode_t mode = CUDNN_POINTWISE_GEN_INDEX;
  CudnnDescriptor& how = part(CUDNN_BACKEND_POINTWISE_DESCRIPTOR);
  how.set(CUDNN_ATTR_POINTWISE_MODE, CUDNN_TYPE_POINTWISE_MODE, &mode)
      .set(CUDNN_ATTR_POINTWISE_MATH_PREC, CUDNN_DATA_FLOAT)
      .set(CUDNN_ATTR_POINTWISE_AXIS, axis)
      .finalize();
  Value index = between(like.dims, CUDNN_DATA_INT32);
  operation(CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR)
      .set(CUDNN_ATTR_OPERATION_POINTWISE_PW_DESCRIPTOR, how)
      .set(CUDNN_ATTR_OPERATION_POINTWISE_XDESC, *like.tensor)
      .set(CUDNN_ATTR_OPERATION_POINTWISE_YDESC, *index.tensor)
      .finalize();
  return index;
}

// Engines before 9.10 want the lowest number in the place of minus infinity.
CudnnGraph::Value CudnnGraph::hide_future(const Value& x) {
  const auto rank = std::int64_t(x.dims.size());
  const float least = cudnn().version() < 91000 ? std::numeric_limits<float>::lowest()
                                                : -std::numeric_limits<float>::infinity();
  const Value row = generated_index(x, rank - 2), column = generated_index(x, rank - 1),
              seen = between(x.dims, CUDNN_DATA_BOOLEAN), hidden = scalar(least, x.dims.size());
  pointwise(CUDNN_POINTWISE_CMP_GE, row, &column, seen);
  Value y = between(x.dims);
  pointwise(CUDNN_POINTWISE_BINARY_SELECT, x, &hidden, y, &seen);
  return y;
}

CudnnGraph::Value CudnnGraph::reduce_last(cudnnReduceTensorOp_t what, const Value& x) {
  DnnSizes dims = x.dims;
  dims.back() = 1;
  Value y = between(dims);
  CudnnDescriptor& how = part(CUDNN_BACKEND_REDUCTION_DESCRIPTOR);
  how.set(CUDNN_ATTR_REDUCTION_OPERATOR, CUDNN_TYPE_REDUCTION_OPERATOR_TYPE, &what)
      .set(CUDNN_ATTR_REDUCTION_COMP_TYPE, CUDNN_DATA_FLOAT)
      .finalize();
  operation(CUDNN_BACKEND_OPERATION_REDUCTION_DESCRIPTOR)
      .set(CUDNN_ATTR_OPERATION_REDUCTION_DESC, how)
      .set(CUDNN_ATTR_OPERATION_REDUCTION_XDESC, *x.tensor)
      .set(CUDNN_ATTR_OPERATION_REDUCTION_YDESC, *y.tensor)
      .finalize();
  return y;
}

void CudnnGraph::matmul(const Value& a, const Value& b, const Value& c) {
  CudnnDescriptor& how = part(CUDNN_BACKEND_MATMUL_DESCRIPTOR);
  how.set(CUDNN_ATTR_MATMUL_COMP_TYPE, CUDNN_DATA_FLOAT).finalize();
  operation(CUDNN_BACKEND_OPERATION_MATMUL_DESCRIPTOR)
      .set(CUDNN_ATTR_OPERATION_MATMUL_DESC, how)
      .set(CUDNN_ATTR_OPERATION_MATMUL_ADESC, *a.tensor)
      .set(CUDNN_ATTR_OPERATION_MATMUL_BDESC, *b.tensor)
      .set(CUDNN_ATTR_OPERATION_MATMUL_CDESC, *c.tensor)
      .finalize();
}

void CudnnGraph::reshape(const Value& x, const Value& y) {
  operation(CUDNN_BACKEND_OPERATION_RESHAPE_DESCRIPTOR)
      .set(CUDNN_ATTR_OPERATION_RESHAPE_XDESC, *x.tensor)
      .set(CUDNN_ATTR_OPERATION_RESHAPE_YDESC, *y.tensor)
      .finalize();
}

bool CudnnGraph::finish(cudnnHandle_t handle) {
  std::vector<cudnnBackendDescriptor_t> all;
  for (const CudnnDescriptor& o : operations_) {
    if (!o.good()) return false;
    all.push_back(o.get());
  }
  graph_ = CudnnDescriptor(CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR);
  graph_.set(CUDNN_ATTR_OPERATIONGRAPH_OPS, CUDNN_TYPE_BACKEND_DESCRIPTOR, all.data(), all.size());
  if (handle != nullptr) graph_.set(CUDNN_ATTR_OPERATIONGRAPH_HANDLE, CUDNN_TYPE_HANDLE, &handle);
  return graph_.finalize().good();
}

}  // namespace gradloom::kernels::gpu
