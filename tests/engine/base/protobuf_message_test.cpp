#include "engine/base/protobuf_message.h"

#include <gtest/gtest.h>

#include <limits>

namespace gradloom {
namespace {

std::string hex(std::string_view bytes) {
  std::string text;
  for (const char byte : bytes) {
    constexpr const char* kDigits = "0123456789abcdef";
    text += kDigits[static_cast<unsigned char>(byte) >> 4];
    text += kDigits[static_cast<unsigned char>(byte) & 15];
  }
  return text;
}

// The examples of protobuf's own description of its encoding, and the ends of each kind.
TEST(ProtobufMessage, FieldsAsTheWireFormatHasThem) {
  ProtobufMessage message;
  message.integer(1, 150);
  EXPECT_EQ(hex(message.text()), "089601");
  message.clear();
  message.bytes(2, "testing");
  EXPECT_EQ(hex(message.text()), "120774657374696e67");
  message.clear();
  message.integer(1, 0);
  message.integer(16, 127);
  message.integer(1, -1);
  EXPECT_EQ(hex(message.text()),
            "0800"
            "80017f"
            "08ffffffffffffffffff01");
  message.clear();
  message.fixed64(47, 0x0102030405060708);
  message.real(1, 1.0);
  message.real32(2, -2.0F);
  EXPECT_EQ(hex(message.text()),
            "f9020807060504030201"
            "09000000000000f03f"
            "15000000c0");
}

TEST(ProtobufMessage, MessagesInMessages) {
  ProtobufMessage inner, outer;
  EXPECT_TRUE(inner.empty());
  inner.integer(1, 150);
  outer.message(3, inner);
  EXPECT_EQ(hex(outer.text()), "1a03089601");
  outer.append(inner.text());
  EXPECT_EQ(hex(outer.text()), "1a03089601089601");
  const std::string large(300, 'x');
  ProtobufMessage text;
  text.bytes(1, large);
  EXPECT_EQ(hex(text.text().substr(0, 3)), "0aac02") << "a length of two bytes";
}

}  // namespace
}  // namespace gradloom
