#include "engine/base/hash.h"

#include <gtest/gtest.h>

namespace gradloom {
namespace {

TEST(Hash, PiecesHashToTheSameAsTheWhole) {
  std::string bytes(100'000, '\0');
  for (std::size_t i = 0; i < bytes.size(); ++i) bytes[i] = static_cast<char>(i * 2654435761u >> 24);
  for (const std::size_t piece : {1u, 255u, 4096u, 99'999u}) {
    StreamHash hash;
    for (std::size_t at = 0; at < bytes.size(); at += piece)
      hash.add(std::string_view(bytes).substr(at, piece));
    EXPECT_EQ(hash.hex(), hash_hex(bytes)) << piece;
  }
  EXPECT_EQ(StreamHash().hex(), hash_hex(""));
}

}  // namespace
}  // namespace gradloom
