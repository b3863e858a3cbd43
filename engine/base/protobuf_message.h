// A protobuf message as it is written: its fields in the order of the calls, with their numbers of the .proto file. For formats of which we
// write a few fields of many; what is read goes through libprotobuf.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace gradloom {

class ProtobufMessage {
 public:
  void integer(std::uint32_t field, std::int64_t value);  // int32, int64, uint32, uint64, bool, enum
  void fixed64(std::uint32_t field, std::uint64_t value);
  void real(std::uint32_t field, double value);
  void real32(std::uint32_t field, float value);
  void bytes(std::uint32_t field, std::string_view value);  // string, bytes
  void message(std::uint32_t field, const ProtobufMessage& value) { bytes(field, value.text()); }
  void append(std::string_view fields) { text_ += fields; }  // of another message of its kind

  std::string_view text() const { return text_; }
  bool empty() const { return text_.empty(); }
  void clear() { text_.clear(); }

 private:
  void varint(std::uint64_t value);
  void little_endian(std::uint64_t value, int bytes);

  std::string text_;
};

}  // namespace gradloom
