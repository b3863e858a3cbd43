// TensorProto <-> Tensor. f16, bf16 and small floats travel as stored bits; bool is normalized to 0 and 1.
// Elements of two and four bits are packed in files, the first in the lowest bits, and take a byte each here.
#pragma once

#include <functional>
#include <map>
#include <string>

#include "engine/base/tensor.h"
#include "engine/base/input_file.h"
#include "engine/base/limits.h"

namespace onnx {
class TensorProto;
}

namespace gradloom {

// Of a TensorProto::DataType. Errors name the types that have no counterpart here (strings, complex, float6).
Result<DType> dtype_of_proto(int data_type);

// Opens the files of external tensors, all inside the model's folder, and keeps them open while a model is
// read. Also the account of how much memory the contents of one model may take.
class TensorReader {
 public:
  // Without a folder external data is refused.
  TensorReader(const Limits& limits, std::string folder);
  Result<Tensor> read(const onnx::TensorProto& proto);
  // The same; its errors name the initializer.
  Result<Tensor> read_initializer(const onnx::TensorProto& proto);
  // The same, and the raw contents of `proto` are gone afterwards: a large tensor is never in memory twice.
  Result<Tensor> take(onnx::TensorProto& proto);

 private:
  // Brings `bytes` bytes of raw_data to their place.
  using Copy = std::function<void(void* to, std::size_t bytes)>;
  Result<Tensor> read(const onnx::TensorProto& proto, const Copy& copy);
  struct External {
    const InputFile* file = nullptr;
    std::int64_t offset = 0;
  };
  Result<External> locate(const onnx::TensorProto& proto, std::int64_t bytes);
  const Limits& limits_;
  std::string folder_;
  std::int64_t budget_bytes_;
  std::map<std::string, InputFile> files_;
};

// Dims, type and raw_data; the name is left alone.
void write_tensor(const Tensor& tensor, onnx::TensorProto* proto);

}  // namespace gradloom
