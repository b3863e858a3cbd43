// Where the contents of a tensor of a model file are when they were left out of what protobuf parsed. Told in
// the TensorProto itself, in two fields that ONNX has not and the scan refuses in files: copies of the proto
// tell it too.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

namespace onnx {
class TensorProto;
}

namespace gradloom {

struct FileRange {
  std::int64_t offset = 0, bytes = 0;
};

std::optional<FileRange> contents_in_file(const onnx::TensorProto& tensor);
void forget_contents_in_file(onnx::TensorProto& tensor);

// The two fields as they stand on the wire.
constexpr std::size_t kFileRangeWireBytes = 20;
std::string wire_of(FileRange range);

}  // namespace gradloom
