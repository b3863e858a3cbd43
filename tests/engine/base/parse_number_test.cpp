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

}  // namespace
}  // namespace gradloom
