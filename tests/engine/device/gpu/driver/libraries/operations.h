// cuDNN's operations on the host: a graph of them over tensors with dims and strides. Sums are f64, what a tensor holds has its type.
#pragma once

#include <library_types.h>

#include <cstddef>
#include <memory>
#include <vector>

#include "engine/device/gpu/runtime/cudnn_api.h"

namespace gradloom::strict {

using Sizes = std::vector<std::int64_t>;

struct Array {
  std::int64_t id = 0;
  kernels::gpu::cudnnDataType_t type{};
  Sizes dims, strides;
  std::int64_t boundary = 16;  // bytes
  bool is_virtual = false, by_value = false;
  void* at = nullptr;                              // its first element: memory of the device, or `held`
  std::shared_ptr<std::vector<std::byte>> held{};  // of a virtual one, or a value

  cudaDataType_t stored() const;
  std::size_t width() const { return stored() == CUDA_R_32F ? 4 : 2; }
  std::int64_t count() const;  // of elements
  std::size_t bytes() const;   // from its first to behind its last one
};

struct Window {
  Sizes kernel, stride, pad_begin, pad_end, dilation;  // kernel: of poolings
};
// x, b, t: read; y, z, u: written; numbers in `tensors` of the graph, -1: none. Convolutions: x and w (b) with y, whichever is
// written. Normalizations: x, scale (b), bias or dy (t), ..: see operations.cpp.
struct Operation {
  kernels::gpu::cudnnBackendDescriptorType_t type;
  int mode = 0;  // of a pointwise operation, a reduction, a pooling
  std::int64_t axis = 0;
  Window window{};
  std::vector<int> read, written;
};
struct OperationGraph {
  std::vector<Array> tensors;
  std::vector<Operation> operations;
};

void run(OperationGraph graph);

}  // namespace gradloom::strict
