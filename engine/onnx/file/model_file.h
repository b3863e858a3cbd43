// An ONNX file as a ModelProto: read once from end to end, looked over on the wire, then parsed, all but the
// contents of its large tensors.
#pragma once

#include <onnx/onnx_pb.h>

#include <memory>
#include <string>

#include "engine/base/input_file.h"
#include "engine/base/limits.h"

namespace gradloom {

struct ModelFile {
  onnx::ModelProto model;  // whose large tensors tell where their contents are (contents_in_file.h)
  std::shared_ptr<const InputFile> file;  // in which they are
  std::string content_hash;               // of exactly the bytes that were read; equals hash_file_hex(path)
};

Result<ModelFile> read_model_file(const std::string& path, const Limits& limits);

// With its contents.
Result<onnx::TensorProto> read_tensor_proto(const std::string& path, const Limits& limits);

}  // namespace gradloom
