// The place in a model file of a tensor's contents that were left out when protobuf parsed it. The TensorProto
// itself holds the place, in two fields that ONNX does not define and that the scan refuses in files, so that
// copies of the proto hold it too.
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
