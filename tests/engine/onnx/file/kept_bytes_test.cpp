#include "engine/onnx/file/kept_bytes.h"

#include <gtest/gtest.h>

#include <string>

namespace gradloom {
namespace {

TEST(KeptBytes, GrowOverBlocksAndAreReadOnce) {
  std::string bytes((5 << 20) / 2, '\0');
  for (std::size_t i = 0; i < bytes.size(); ++i) bytes[i] = static_cast<char>(i * 2654435761u >> 24);
  KeptBytes kept;
  for (std::size_t at = 0; at < bytes.size(); at += 77'777)
    kept.append(std::string_view(bytes).substr(at, 77'777));
  ASSERT_EQ(kept.size(), bytes.size());
  const std::size_t edge = (1 << 20) - 1;
  kept.overwrite(edge, "xyz");  // over the end of a block
  bytes.replace(edge, 3, "xyz");

  KeptBytesStream stream(std::move(kept));
  std::string read;
  const void* data = nullptr;
  int size = 0;
  ASSERT_TRUE(stream.Next(&data, &size));
  stream.BackUp(size - 10);
  read.append(static_cast<const char*>(data), 10);
  while (stream.Next(&data, &size))
    read.append(static_cast<const char*>(data), static_cast<std::size_t>(size));
  EXPECT_EQ(read, bytes);
  EXPECT_EQ(stream.ByteCount(), static_cast<std::int64_t>(bytes.size()));
}

TEST(KeptBytes, SkipsToTheEndAndNotBeyond) {
  KeptBytes kept;
  kept.append("0123456789");
  KeptBytesStream stream(std::move(kept));
  EXPECT_TRUE(stream.Skip(9));
  const void* data = nullptr;
  int size = 0;
  ASSERT_TRUE(stream.Next(&data, &size));
  EXPECT_EQ(std::string(static_cast<const char*>(data), static_cast<std::size_t>(size)), "9");
  EXPECT_FALSE(stream.Skip(1));
  EXPECT_FALSE(stream.Next(&data, &size));
}

}  // namespace
}  // namespace gradloom
