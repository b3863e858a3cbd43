// An ONNX file as a ModelProto: read whole, looked over on the wire, then parsed.
#pragma once

#include <onnx/onnx_pb.h>

#include <string>

#include "engine/base/limits.h"

namespace gradloom {

struct ModelFile {
  onnx::ModelProto model;
  std::string content_hash;  // of exactly the bytes that were parsed; equals hash_file_hex(path)
};

Result<ModelFile> read_model_file(const std::string& path, const Limits& limits);

Result<onnx::TensorProto> read_tensor_proto(const std::string& path, const Limits& limits);

}  // namespace gradloom
