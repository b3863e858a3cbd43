// TensorProto <-> Tensor. f16, bf16 and small floats travel as stored bits; bool is normalized to 0 and 1.
// Elements of two and four bits are packed in files, the first in the lowest bits, and take a byte each here.
#pragma once

#include <map>
#include <memory>
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

// Finds the contents of tensors: in the proto, in the model's file (contents_in_file.h), or in the files of
// external tensors, all inside the model's folder. Also the account of how much memory the contents of one
// model may take; those that stay in a file count too, as something will need them.
class TensorReader {
 public:
  // Without a folder external data is refused. `model`: the file whose tensors are read, where some left their
  // contents in it.
  TensorReader(const Limits& limits, std::string folder, std::shared_ptr<const InputFile> model = nullptr);
  Result<Tensor> read(const onnx::TensorProto& proto);
  // The same; its errors name the initializer.
  Result<Tensor> read_initializer(const onnx::TensorProto& proto);
  // The same as `read`, but large contents that lie in a file as they would in memory stay there.
  Result<Tensor> refer(const onnx::TensorProto& proto);

 private:
  struct Found {
    Type type;
    std::int64_t file_bytes = 0;            // of the contents where they are
    std::shared_ptr<const InputFile> file;  // null: in the proto
    std::int64_t offset = 0;
    bool stays_open = false;
  };
  // Checks everything, and counts the contents.
  Result<Found> find(const onnx::TensorProto& proto);
  static Result<Tensor> load(const onnx::TensorProto& proto, const Found& found);
  Status locate(const onnx::TensorProto& proto, Found& found);
  Status open_external(const std::string& location, Found& found);
  const Limits& limits_;
  std::string folder_;
  std::int64_t budget_bytes_;
  std::shared_ptr<const InputFile> model_;
  std::map<std::string, std::shared_ptr<const InputFile>> files_;
};

// Dims and type, and no contents; the name is left alone.
void write_type(const Type& type, onnx::TensorProto* proto);
// And raw_data. REQUIRES contents in memory.
void write_tensor(const Tensor& tensor, onnx::TensorProto* proto);

}  // namespace gradloom
