// Order and position inside a stack of rows.
#include "viz/layout/rows.h"

#include <gtest/gtest.h>

namespace gradloom {
namespace {

TEST(Rows, ChainIsStraight) {
  const std::vector<RowSlot> slots{{100, 0, 0}, {60, 1, 1}, {140, 2, 2}};
  const std::vector<float> x = place_rows(slots, {{0, 1}, {1, 2}}, 3, 20);
  EXPECT_NEAR(x[0], x[1], 0.5f);
  EXPECT_NEAR(x[1], x[2], 0.5f);
  EXPECT_NEAR(x[2], 70, 0.5f);  // the widest slot starts at 0
}

TEST(Rows, CrossingIsRemoved) {
  // 0 -> 3 and 1 -> 2: with the order keys alone the lines would cross.
  const std::vector<RowSlot> slots{{50, 0, 0}, {50, 0, 1}, {50, 1, 0}, {50, 1, 1}};
  const std::vector<float> x = place_rows(slots, {{0, 3}, {1, 2}}, 2, 20);
  EXPECT_EQ(x[0] < x[1], x[3] < x[2]);
}

TEST(Rows, GapsAreKept) {
  std::vector<RowSlot> slots{{80, 0, 0}};
  std::vector<RowLink> links;
  for (int i = 0; i < 9; ++i) {
    slots.push_back({40, 1, i});
    links.push_back({0, i + 1});
  }
  const std::vector<float> x = place_rows(slots, links, 2, 16);
  for (int i = 1; i < 9; ++i) EXPECT_GE(x[i + 1] - x[i], 56 - 0.01f);
  EXPECT_NEAR(x[0], x[5], 0.5f);  // the parent sits over the middle child
}

TEST(Rows, AttachmentShiftIsHonoured) {
  const std::vector<RowSlot> slots{{200, 0, 0}, {20, 1, 0}};
  const std::vector<float> x = place_rows(slots, {{0, 1, 60, 0}}, 2, 10);
  EXPECT_NEAR(x[1], x[0] + 60, 0.5f);
}

}  // namespace
}  // namespace gradloom
