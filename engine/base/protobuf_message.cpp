// The wire format of protobuf: a key (number * 8 + wire type), then a varint, a fixed number or a length with its bytes.
#include "engine/base/protobuf_message.h"

#include <bit>

namespace gradloom {
namespace {

enum WireType : std::uint32_t { kVarint = 0, kFixed64 = 1, kLength = 2, kFixed32 = 5 };

std::uint32_t key(std::uint32_t field, WireType type) { return field << 3 | type; }

}  // namespace

void ProtobufMessage::varint(std::uint64_t value) {
  while (value >= 0x80) {
    text_ += static_cast<char>(value | 0x80);
    value >>= 7;
  }
  text_ += static_cast<char>(value);
}

void ProtobufMessage::little_endian(std::uint64_t value, int bytes) {
  for (int i = 0; i < bytes; ++i) text_ += static_cast<char>(value >> (8 * i));
}

void ProtobufMessage::integer(std::uint32_t field, std::int64_t value) {
  varint(key(field, kVarint));
  varint(static_cast<std::uint64_t>(value));
}

void ProtobufMessage::fixed64(std::uint32_t field, std::uint64_t value) {
  varint(key(field, kFixed64));
  little_endian(value, 8);
}

void ProtobufMessage::real(std::uint32_t field, double value) {
  fixed64(field, std::bit_cast<std::uint64_t>(value));
}

void ProtobufMessage::real32(std::uint32_t field, float value) {
  varint(key(field, kFixed32));
  little_endian(std::bit_cast<std::uint32_t>(value), 4);
}

void ProtobufMessage::bytes(std::uint32_t field, std::string_view value) {
  varint(key(field, kLength));
  varint(value.size());
  text_ += value;
}

}  // namespace gradloom
