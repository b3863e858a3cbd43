#include "engine/onnx/file/tensor_file.h"

#include <exception>

#include "engine/base/file.h"
#include "engine/base/text.h"
#include "engine/onnx/file/model_file.h"
#include "engine/onnx/file/tensor_proto.h"

namespace gradloom {

Result<NamedTensor> read_tensor_file(const std::string& path, const Limits& limits) {
  const onnx::TensorProto proto = TRY(read_tensor_proto(path, limits));
  TensorReader reader(limits, "");
  Result<Tensor> tensor = reader.read(proto);
  if (!tensor.ok()) return with_context(tensor.error(), escaped(path));
  return NamedTensor{proto.name(), std::move(*tensor)};
}

Status write_tensor_file(const std::string& path, const NamedTensor& tensor) {
  if (!tensor.tensor.defined())
    return Error{Errc::bug, "tensor '" + escaped(tensor.name) + "' has no contents"};
  if (tensor.tensor.bytes() >= (std::size_t{1} << 31) - 4096) {
    return Error{Errc::limit, escaped(path) + ": the tensor would be over 2 GiB, which ONNX files cannot be"};
  }
  onnx::TensorProto proto;
  proto.set_name(tensor.name);
  write_tensor(tensor.tensor, &proto);
  std::string bytes;
  if (!proto.SerializeToString(&bytes))
    return Error{Errc::limit, escaped(path) + ": cannot be written as protobuf"};
  return atomic_write_file(path, bytes);
}

}  // namespace gradloom
