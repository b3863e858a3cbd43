#include "engine/onnx/file/contents_in_file.h"

#include <google/protobuf/unknown_field_set.h>
#include <onnx/onnx_pb.h>

namespace gradloom {

namespace {

constexpr int kOffsetField = 30, kBytesField = 31;  // eight bytes each
constexpr int kWireType = 1;

using google::protobuf::UnknownField;

std::optional<std::int64_t> number_of(const onnx::TensorProto& tensor, int field) {
  const auto& fields = tensor.unknown_fields();
  for (int i = 0; i < fields.field_count(); ++i)
    if (fields.field(i).number() == field && fields.field(i).type() == UnknownField::TYPE_FIXED64)
      return static_cast<std::int64_t>(fields.field(i).fixed64());
  return std::nullopt;
}

}  // namespace

std::optional<FileRange> contents_in_file(const onnx::TensorProto& tensor) {
  const auto offset = number_of(tensor, kOffsetField), bytes = number_of(tensor, kBytesField);
  if (!offset || !bytes) return std::nullopt;
  return FileRange{*offset, *bytes};
}

void forget_contents_in_file(onnx::TensorProto& tensor) {
  if (tensor.unknown_fields().empty()) return;
  tensor.mutable_unknown_fields()->DeleteByNumber(kOffsetField);
  tensor.mutable_unknown_fields()->DeleteByNumber(kBytesField);
}

std::string wire_of(FileRange range) {
  std::string wire;
  const auto add = [&](int field, std::int64_t value) {
    const int key = field << 3 | kWireType;  // two bytes
    wire += static_cast<char>((key & 0x7f) | 0x80);
    wire += static_cast<char>(key >> 7);
    for (int shift = 0; shift < 64; shift += 8)
      wire += static_cast<char>(static_cast<std::uint64_t>(value) >> shift & 0xff);
  };
  add(kOffsetField, range.offset);
  add(kBytesField, range.bytes);
  return wire;
}

}  // namespace gradloom
