// Tensors as files of one TensorProto each: the inputs, outputs and gradients of test folders.
#pragma once

#include <string>

#include "engine/base/limits.h"
#include "engine/base/tensor.h"

namespace gradloom {

struct NamedTensor {
  std::string name;
  Tensor tensor;
};
Result<NamedTensor> read_tensor_file(const std::string& path, const Limits& limits = {});
Status write_tensor_file(const std::string& path, const NamedTensor& tensor);

}  // namespace gradloom
