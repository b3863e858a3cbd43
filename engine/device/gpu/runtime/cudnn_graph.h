// cuDNN's graph (backend) interface in C++: descriptors, and a graph of operations over tensors that is built
// of them. Only the files of cuDNN include this one.
#pragma once

#include <algorithm>
#include <deque>
#include <string>
#include <utility>
#include <vector>

#include "engine/device/gpu/runtime/cudnn_library.h"
#include "engine/device/gpu/runtime/dnn_problem.h"

namespace gradloom::kernels::gpu {

// A descriptor of the library. The first failure stays, with the library's words: what is done with it afterwards does
// nothing.
class CudnnDescriptor {
 public:
  CudnnDescriptor() = default;
  explicit CudnnDescriptor(cudnnBackendDescriptorType_t type) {
    good_ = true;
    check(cudnn().create(type, &descriptor_));
  }
  CudnnDescriptor(CudnnDescriptor&& other) noexcept
      : descriptor_(std::exchange(other.descriptor_, nullptr)),
        good_(std::exchange(other.good_, false)),
        status_(other.status_),
        words_(std::move(other.words_)) {}
  CudnnDescriptor& operator=(CudnnDescriptor&& other) noexcept {
    std::swap(descriptor_, other.descriptor_);
    std::swap(good_, other.good_);
    std::swap(status_, other.status_);
    std::swap(words_, other.words_);
    return *this;
  }
  ~CudnnDescriptor() {
    if (descriptor_ != nullptr) (void)cudnn().destroy(descriptor_);
  }

  template <class T>
  CudnnDescriptor& set(cudnnBackendAttributeName_t name, cudnnBackendAttributeType_t type, const T* values,
                       std::size_t count = 1) {
    if (good_) check(cudnn().set(descriptor_, name, type, std::int64_t(count), values));
    return *this;
  }
  CudnnDescriptor& set(cudnnBackendAttributeName_t name, const DnnSizes& sizes) {
    return set(name, CUDNN_TYPE_INT64, sizes.data(), sizes.size());
  }
  CudnnDescriptor& set(cudnnBackendAttributeName_t name, std::int64_t value) {
    return set(name, CUDNN_TYPE_INT64, &value);
  }
  CudnnDescriptor& set(cudnnBackendAttributeName_t name, cudnnDataType_t type) {
    return set(name, CUDNN_TYPE_DATA_TYPE, &type);
  }
  CudnnDescriptor& set(cudnnBackendAttributeName_t name, const CudnnDescriptor& part) {
    if (good_ && !part.good_) fail(part.status_, part.words_);
    return set(name, CUDNN_TYPE_BACKEND_DESCRIPTOR, &part.descriptor_);
  }
  CudnnDescriptor& finalize() {
    if (good_) check(cudnn().finalize(descriptor_));
    return *this;
  }

  bool good() const { return good_; }
  // Of the first failure.
  cudnnStatus_t status() const { return status_; }
  const std::string& words() const { return words_; }
  cudnnBackendDescriptor_t get() const { return descriptor_; }
  // At most `capacity` values; how many were read, or -1: the call failed.
  template <class T>
  std::int64_t read(cudnnBackendAttributeName_t name, cudnnBackendAttributeType_t type, T* values,
                    std::int64_t capacity) const {
    std::int64_t count = 0;
    const bool done = good_ && cudnn().get(descriptor_, name, type, capacity, &count, values) == 0;
    return done ? std::min(count, capacity) : -1;
  }

 private:
  void check(cudnnStatus_t status) {
    if (status != CUDNN_STATUS_SUCCESS) fail(status, cudnn_words(status));
  }
  void fail(cudnnStatus_t status, std::string words) {
    good_ = false;
    status_ = status;
    words_ = std::move(words);
  }

  cudnnBackendDescriptor_t descriptor_ = nullptr;
  bool good_ = false;
  cudnnStatus_t status_ = CUDNN_STATUS_SUCCESS;
  std::string words_;
};

// Operations over tensors, in their order. References that its functions give stay as long as it does.
class CudnnGraph {
 public:
  // A tensor of the graph and its dims.
  struct Value {
    const CudnnDescriptor* tensor;
    DnnSizes dims;
  };

  // In memory: its address comes with every run, by its id.
  Value tensor(const DnnTensor& t);
  // Between two operations, not in memory. Without strides: dense.
  Value between(const DnnTensor& t, cudnnDataType_t type) { return add_tensor(t, type, true, false); }
  Value between(const DnnSizes& dims, cudnnDataType_t type = CUDNN_DATA_FLOAT) {
    return between(dense_tensor(new_id(), DType::f32, dims), type);
  }
  std::int64_t new_id() { return next_id_++; }  // of a tensor that has none of its own
  // One f32 number of as many dims as the tensors have, the same in every run.
  Value scalar(double value, std::size_t rank);

  // Another descriptor that operations refer to (a window, the mode of a reduction).
  CudnnDescriptor& part(cudnnBackendDescriptorType_t type) { return parts_.emplace_back(type); }
  // The next operation; whoever adds it sets its attributes and finalizes it.
  CudnnDescriptor& operation(cudnnBackendDescriptorType_t type) { return operations_.emplace_back(type); }

  // Operations that fusions are made of; everything is computed in f32.
  void pointwise(cudnnPointwiseMode_t mode, const Value& x, const Value* b, const Value& y,
                 const Value* select = nullptr);
  Value pointwise(cudnnPointwiseMode_t mode, const Value& x, const Value& b);
  Value pointwise(cudnnPointwiseMode_t mode, const Value& x);
  // Where row < column the score is minus infinity. x: [.., rows, columns].
  Value hide_future(const Value& x);
  Value reduce_last(cudnnReduceTensorOp_t operation, const Value& x);  // to one element of the last dim
  void matmul(const Value& a, const Value& b, const Value& c);
  void reshape(const Value& x, const Value& y);

  // Makes the operations a graph; nothing is added after it. handle: null for a described device.
  bool finish(cudnnHandle_t handle);
  const CudnnDescriptor& descriptor() const { return graph_; }
  // What finish() found wrong: an operation, or the graph of them.
  const CudnnDescriptor& failure() const {
    const auto wrong = std::find_if(operations_.begin(), operations_.end(),
                                    [](const CudnnDescriptor& operation) { return !operation.good(); });
    return wrong != operations_.end() ? *wrong : graph_;
  }
  const std::vector<std::int64_t>& tensors() const { return tensors_; }  // ids of those in memory
  const std::vector<std::pair<std::int64_t, float>>& scalars() const { return scalars_; }  // id, value

  static cudnnDataType_t cudnn_type(DType type) {
    return type == DType::f16    ? CUDNN_DATA_HALF
           : type == DType::bf16 ? CUDNN_DATA_BFLOAT16
                                 : CUDNN_DATA_FLOAT;
  }

 private:
  Value add_tensor(const DnnTensor& t, cudnnDataType_t type, bool is_virtual, bool by_value);
  Value generated_index(const Value& like, std::int64_t axis);

  std::deque<CudnnDescriptor> parts_, operations_;
  std::vector<std::int64_t> tensors_;
  std::vector<std::pair<std::int64_t, float>> scalars_;
  CudnnDescriptor graph_;
  std::int64_t next_id_ = 1000;
};

}  // namespace gradloom::kernels::gpu
