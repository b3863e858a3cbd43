#include "engine/base/parse_number.h"

#include <gtest/gtest.h>

#include <cstdint>

namespace gradloom {
namespace {

TEST(ParseNumber, TakesTheWholeTextOrNothing) {
  EXPECT_EQ(parse_number<std::int64_t>("-12"), -12);
  EXPECT_EQ(parse_number<double>("1e-3"), 1e-3);
  for (const char* text : {"", " 1", "1 ", "1x", "x", "1.5", "99999999999999999999"})
    EXPECT_EQ(parse_number<std::int64_t>(text), std::nullopt) << text;
  EXPECT_EQ(parse_number<double>("1,5"), std::nullopt);
  EXPECT_EQ(parse_number<std::uint64_t>("-1"), std::nullopt);
}

TEST(ParseBytes, TakesUnitsOfBothKinds) {
  EXPECT_EQ(parse_bytes("2GiB"), std::int64_t{2} << 30);
  EXPECT_EQ(parse_bytes("1.5 KiB"), 1536);
  EXPECT_EQ(parse_bytes("800MB"), 800'000'000);
  EXPECT_EQ(parse_bytes("3 kB"), 3000);
  EXPECT_EQ(parse_bytes("4096"), 4096);
  EXPECT_EQ(parse_bytes("7B"), 7);
  for (const char* text : {"", "GiB", "-1", "1e30", "2 Gi", "2GiB ", "nan", "inf", "1x"})
    EXPECT_FALSE(parse_bytes(text)) << text;
}

}  // namespace
}  // namespace gradloom
